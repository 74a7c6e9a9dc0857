# SPDX-License-Identifier: Apache-2.0
"""Describe a directory for mkfs.xfs, which fills a new file system with it (option ``-p``).

Nothing is mounted, so that this needs neither root nor XFS in the kernel. The format is that of
mkfs.xfs(8), "PROTOFILE": words are separated by white space, and a colon begins a comment.
"""

import re
import stat
from collections.abc import Iterator
from pathlib import Path

from trove_ceph import exceptions

# The path of a boot program and two numbers, which mkfs.xfs reads and ignores.
_HEADER = ('/', '0 0')
_END = '$'
# No name of MySQL has another character. A name that begins with a colon or is '$' would be read as
# something else.
_NAME = re.compile(r'[\w#][\w#.@-]*')


def describe(directory: Path, owner_id: int) -> str:
    """Return the prototype of a file system with the content of a directory.

    Modes are kept. The content of the files is read later, by mkfs.xfs.

    :param owner_id: the user and the group of everything in the file system
    :raises StorageCommandError: the directory has something other than directories and regular
        files, or a name that the format cannot express
    """
    return '\n'.join([*_HEADER, *_entries(directory, '', owner_id), ''])


def _entries(path: Path, name: str, owner_id: int) -> Iterator[str]:
    found = path.lstat()
    prefix = f'{name} ' if name else ''
    permissions = f'{stat.S_IMODE(found.st_mode) & 0o777:03o} {owner_id} {owner_id}'
    if stat.S_ISDIR(found.st_mode):
        yield f'{prefix}d--{permissions}'
        for child in sorted(path.iterdir()):
            _check(child.name, child)
            yield from _entries(child, child.name, owner_id)
        yield _END
    elif stat.S_ISREG(found.st_mode):
        if re.search(r'\s', str(path)):
            raise exceptions.StorageCommandError(f'{path}: mkfs.xfs cannot read a path with spaces')
        yield f'{prefix}---{permissions} {path}'
    else:
        raise exceptions.StorageCommandError(f'{path}: is neither a directory nor a regular file')


def _check(name: str, path: Path) -> None:
    if not _NAME.fullmatch(name):
        raise exceptions.StorageCommandError(f'{path}: mkfs.xfs cannot create a file of this name')
