# SPDX-License-Identifier: Apache-2.0
"""Write directory trees as cpio archives for an initramfs, the same bytes for the same content.

The kernel unpacks archives that follow each other in one file, so the parts of an initramfs can be
made at different times. The format is ``newc`` (Documentation/driver-api/early-userspace/
buffer-format.rst of the kernel). Owners are root and times are 0, whatever the tree has.
"""

import os
import shutil
import stat
from pathlib import Path
from typing import IO

_MAGIC = b'070701'
_END = 'TRAILER!!!'
_ALIGNMENT = 4


def append(archive: IO[bytes], tree: Path) -> None:
    """Append the content of a directory: directories, regular files and symbolic links.

    :param archive: positioned at a multiple of four bytes, as after an archive
    :raises ValueError: the tree holds something else
    """
    number = 0
    for path in sorted(tree.rglob('*')):
        number += 1
        name = str(path.relative_to(tree))
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode):
            _write_header(archive, number, name, found.st_mode, 0)
        elif stat.S_ISLNK(found.st_mode):
            target = os.fsencode(os.readlink(path))
            _write_header(archive, number, name, found.st_mode, len(target))
            archive.write(target)
            _pad(archive)
        elif stat.S_ISREG(found.st_mode):
            _write_header(archive, number, name, found.st_mode, found.st_size)
            with path.open('rb') as content:
                shutil.copyfileobj(content, archive)
            _pad(archive)
        else:
            raise ValueError(f'{path}: is neither a directory nor a file nor a symbolic link')
    _write_header(archive, 0, _END, 0, 0)


def _write_header(archive: IO[bytes], number: int, name: str, mode: int, size: int) -> None:
    encoded = os.fsencode(name) + b'\0'
    links = 2 if stat.S_ISDIR(mode) else 1
    # Inode, mode, uid, gid, links, time, size, four numbers of devices, length of the name, sum.
    fields = (number, mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(encoded), 0)
    archive.write(_MAGIC + b''.join(b'%08X' % field for field in fields) + encoded)
    _pad(archive)


def _pad(archive: IO[bytes]) -> None:
    archive.write(b'\0' * (-archive.tell() % _ALIGNMENT))
