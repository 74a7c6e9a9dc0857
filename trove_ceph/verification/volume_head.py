# SPDX-License-Identifier: Apache-2.0
"""What a tenant's volume is, before its content is read: its file system, and the data's owner."""

import stat
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph.verification import evidence, report

# How much of a device is read to recognise its file system.
_HEAD_BYTES = 64 * 1024
_XFS_MAGIC = b'XFSB'
_EXT_MAGIC_AT, _EXT_MAGIC = 1080, b'\x53\xef'


def check_file_system(device: Path) -> None:
    """Check that a device begins with an XFS superblock, without a file system prober.

    :raises NotSoundError: the device is blank
    :raises NotInspectableError: the device holds something other than XFS
    """
    with device.open('rb', buffering=0) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(_XFS_MAGIC):
        return
    if not any(head):
        raise report.NotSoundError(report.INCOMPLETE, 'the image holds nothing, expected XFS')
    is_ext = head[_EXT_MAGIC_AT : _EXT_MAGIC_AT + len(_EXT_MAGIC)] == _EXT_MAGIC
    kind = 'ext2, ext3 or ext4' if is_ext else 'an unknown format'
    raise exceptions.NotInspectableError(f'the image holds {kind}; only XFS can be inspected')


def owner(data: Path) -> tuple[int, int]:
    """Return the uid and gid of a data directory, as they are on the disk.

    :raises NotSoundError: the directory is missing, or a server cannot own it
    """
    try:
        found = data.lstat()
    except OSError as error:
        raise evidence.of_file(data.name, error) from error
    if not stat.S_ISDIR(found.st_mode):
        raise report.NotSoundError(report.CORRUPT, f'{data.name} is not a directory')
    if not (found.st_uid and found.st_gid):
        raise report.NotSoundError(report.CORRUPT, f'{data.name} belongs to root')
    return found.st_uid, found.st_gid
