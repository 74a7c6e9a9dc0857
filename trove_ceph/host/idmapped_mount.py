# SPDX-License-Identifier: Apache-2.0
"""Mount a file system a second time with one owner mapped to another.

The tenant chooses the uids of the files: a server that runs under such a uid on this host could
read the files and kill the processes of an unrelated user. In an idmapped mount (mount_setattr(2),
Linux 5.12 with ext4, 5.14 with XFS) the files of one user belong to a reserved user, and files that
the reserved user writes belong to the original one on the disk. All other owners show as the
overflow user, ``nobody``.
"""

import ctypes
import errno
import os
import struct
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph.host import commands, user_namespace

# The same on all architectures: since Linux 5.1 new system calls have common numbers.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_NOSUID, _NODEV, _NOEXEC, _IDMAP = 0x2, 0x4, 0x8, 0x100000


class IdmappedMount:
    """Mounts a file system at another mount point while entered. Needs root.

    The mount is noexec, nodev and nosuid.

    :param source: mount point of the file system
    :param mount_point: is created
    :param disk_ids: uid and gid on the disk
    :param ids: uid and gid that these are mapped to
    """

    def __init__(
        self,
        source: Path,
        mount_point: Path,
        disk_ids: tuple[int, int],
        ids: tuple[int, int],
    ):
        self._source = source
        self._mount_point = mount_point
        self._disk_ids = disk_ids
        self._ids = ids

    def __enter__(self) -> Path:
        """Mount.

        :raises NotInspectableError: the kernel does not support it for this file system
        :raises StorageCommandError: the mount failed for another reason
        """
        self._mount_point.mkdir(parents=True, exist_ok=True)
        try:
            with user_namespace.mapping(self._disk_ids, self._ids) as namespace:
                self._mount(namespace)
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
                raise exceptions.NotInspectableError(
                    f'the kernel of this host cannot map the owners of {self._source}; XFS needs '
                    f'Linux 5.14 or later: {error.strerror}'
                ) from error
            raise exceptions.StorageCommandError(
                f'{self._source} cannot be mounted with mapped owners: {error}'
            ) from error
        return self._mount_point

    def __exit__(self, *exception: object) -> None:
        commands.run('umount', self._mount_point)

    def _mount(self, namespace: int) -> None:
        flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
        tree = _call(_OPEN_TREE, _AT_FDCWD, os.fsencode(self._source), flags)
        try:
            # struct mount_attr: to set, to clear, propagation, user namespace.
            attributes = struct.pack('QQQQ', _NOSUID | _NODEV | _NOEXEC | _IDMAP, 0, 0, namespace)
            size = len(attributes)
            _call(_MOUNT_SETATTR, tree, b'', _AT_EMPTY_PATH, attributes, size)
            target = os.fsencode(self._mount_point)
            _call(_MOVE_MOUNT, tree, b'', _AT_FDCWD, target, _MOVE_MOUNT_F_EMPTY_PATH)
        finally:
            os.close(tree)


def _call(number: int, *arguments: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)
