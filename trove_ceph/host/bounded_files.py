# SPDX-License-Identifier: Apache-2.0
"""Reads files that somebody else wrote, or could have replaced, without trusting what they are.

A name in a tenant's directory may be a link to a file of this host, a pipe that nobody writes to, a
device, or a sparse file larger than memory. So each read opens a regular file only, follows no
link, waits for nobody, and takes a number of bytes that the caller chose.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UnexpectedFileError(OSError):
    """What has the name is no regular file, or more than was expected."""


def read_head(path: Path, count: int) -> bytes:
    """Return up to ``count`` bytes from the beginning of a regular file.

    :raises OSError: it is not there, is no regular file, or cannot be read
    """
    with _open(path) as file:
        return file.read(count)


def read_tail(path: Path, count: int) -> tuple[bytes, bool]:
    """Return up to ``count`` bytes from the end of a regular file, and whether that is all of it.

    :raises OSError: it is not there, is no regular file, or cannot be read
    """
    with _open(path) as file:
        start = max(0, os.fstat(file.fileno()).st_size - count)
        file.seek(start)
        return file.read(count), start == 0


def size(path: Path) -> int:
    """Return the size of a regular file in bytes, without opening it.

    :raises OSError: it is not there, or is no regular file
    """
    found = path.lstat()
    _check_regular(found.st_mode, path)
    return found.st_size


def names(directory: Path, limit: int) -> Iterator[str]:
    """Give the names in a directory one by one, so that no list of them is held in memory.

    :raises OSError: there are more than ``limit``, or the directory cannot be read
    """
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries):
            if number >= limit:
                raise UnexpectedFileError(
                    errno.EFBIG, f'has more than {limit} entries', str(directory)
                )
            yield entry.name


def _open(path: Path) -> IO[bytes]:
    # To open a device may do something by itself, so look before.
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
        raise UnexpectedFileError(errno.EINVAL, 'is no regular file', str(path))
