# SPDX-License-Identifier: Apache-2.0
"""Read untrusted files safely.

A name in a tenant's directory may be a link to a file of this host, a pipe without a writer, a
device, or a sparse file larger than memory. So each read opens only a regular file, follows no
link, never blocks, and returns at most the number of bytes that the caller sets.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UnexpectedFileError(OSError):
    """A file is not a regular file, or a directory has too many entries."""


def read_head(path: Path, count: int) -> bytes:
    """Return up to ``count`` bytes from the beginning of a regular file.

    :raises OSError: the file does not exist, is not a regular file, or cannot be read
    """
    with _open(path) as file:
        return file.read(count)


def read_tail(path: Path, count: int) -> tuple[bytes, bool]:
    """Return up to ``count`` bytes from the end of a regular file, and whether that is all of it.

    :raises OSError: the file does not exist, is not a regular file, or cannot be read
    """
    with _open(path) as file:
        start = max(0, os.fstat(file.fileno()).st_size - count)
        file.seek(start)
        return file.read(count), start == 0


def size(path: Path) -> int:
    """Return the size of a regular file in bytes, without opening it.

    :raises OSError: the file does not exist, or is not a regular file
    """
    found = path.lstat()
    _check_regular(found.st_mode, path)
    return found.st_size


def names(directory: Path, limit: int) -> Iterator[str]:
    """Yield the names in a directory one by one, without a list of them in memory.

    :raises OSError: there are more than ``limit`` names, or the directory cannot be read
    """
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries):
            if number >= limit:
                raise UnexpectedFileError(
                    errno.EFBIG, f'has more than {limit} entries', str(directory)
                )
            yield entry.name


def _open(path: Path) -> IO[bytes]:
    # Opening a device can have side effects, so check before.
    _check_regular(path.lstat().st_mode, path)
    handle = os.open(path, _FLAGS)
    try:
        _check_regular(os.fstat(handle).st_mode, path)
        return os.fdopen(handle, 'rb', buffering=0)
    except BaseException:
        os.close(handle)
        raise


def _check_regular(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        raise UnexpectedFileError(errno.EINVAL, 'is not a regular file', str(path))
