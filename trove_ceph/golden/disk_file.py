# SPDX-License-Identifier: Apache-2.0
"""Make a file with the file system of a volume, and write it to an image."""

import collections
import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph.host import data_volume, filesystem, xfs_prototype
from trove_ceph.storage import backend, golden, image_types, throttle, transfer

_FORMAT_TIMEOUT_SEC = 300
# Enough to keep OSDs busy; each request has at most 4 MiB.
_REQUESTS = 8


def make(
    volume: Path,
    size_bytes: int,
    path: Path,
    storage: filesystem.HostStorage | None = None,
) -> None:
    """Make a sparse file with the file system that a guest makes, and the content of a directory.

    :param volume: the directory
    :param path: of the file, which does not exist; a file beside it is the prototype
    :raises StorageCommandError: mkfs.xfs failed, or the directory has what it cannot create
    """
    prototype = path.with_suffix('.prototype')
    try:
        prototype.write_text(xfs_prototype.describe(volume, golden.OWNER_ID))
        with path.open('xb') as file:
            file.truncate(size_bytes)
    except OSError as error:
        raise exceptions.StorageCommandError(f'{path}: cannot be made: {error}') from error
    (storage or filesystem.HostStorage()).make_xfs(
        str(path), data_volume.LABEL, _FORMAT_TIMEOUT_SEC, str(prototype)
    )


def write(path: Path, writer: backend.ImageWriter, note: Callable[[int, int], None]) -> int:
    """Write what is not zero in a file to a new image, and return the number of bytes.

    :param note: called before each request with the position and the size; may raise
    :raises StorageCommandError: the file cannot be read
    """
    written_bytes = 0
    waiting: collections.deque[Future[None]] = collections.deque()
    try:
        size_bytes = path.stat().st_size
        for offset, data in _parts(path):
            note(offset, size_bytes)
            while len(waiting) >= _REQUESTS:
                waiting.popleft().result()
            waiting.append(writer.write(offset, data))
            written_bytes += len(data)
        while waiting:
            waiting.popleft().result()
    except OSError as error:
        raise exceptions.StorageCommandError(f'{path}: cannot be read: {error}') from error
    finally:
        # The image must not be closed under a request.
        for one in waiting:
            one.exception()
    writer.flush()
    return written_bytes


def _parts(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of a file that are not zero, none larger than a request may be."""
    with path.open('rb') as file:
        for chunk in throttle.chunks(_stored(file.fileno())):
            data = os.pread(file.fileno(), chunk.length, chunk.offset)
            for start, end, is_zero in transfer.runs(data):
                if not is_zero:
                    yield chunk.offset + start, data[start:end]


def _stored(descriptor: int) -> Iterator[image_types.Extent]:
    """Yield the ranges of a sparse file that are stored."""
    end = 0
    while True:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                # There is only a hole until the end.
                return
            raise
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield image_types.Extent(start, end - start)
