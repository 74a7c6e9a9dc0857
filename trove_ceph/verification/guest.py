# SPDX-License-Identifier: Apache-2.0
"""The program inside a virtual machine: mount the tenant's volume and inspect it.

It runs as root of the virtual machine, in the root file system of the MySQL server, and answers the
host over a serial line. The server that it starts runs as the owner of the data.
"""

import ctypes
import os
import resource
import sys
from pathlib import Path

from trove_ceph.mysql import installation
from trove_ceph.verification import channel, confined, disk_proof, evidence, volume_head

#: Created by the first process of the virtual machine (guest_init).
DEVICE = Path('/dev/volume')
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_NOATIME = 2, 4, 8, 1024
# A clone carries the identity of its source. XFS has 64-bit inodes by default.
_OPTIONS = b'nouuid'
# Limit of the threads of the server; it does not apply to root.
_TASKS = 1024


class GuestInspector(confined.Inspector):
    """Answers the calls of one inspection, and the calls for its disk."""

    calls = (*confined.CALLS, 'prove', 'mount')

    def __init__(self, volume: Path = confined.VOLUME, device: Path = DEVICE):
        super().__init__(volume)
        self._device = device
        self._is_mounted = False

    def prove(self) -> None:
        """Prove that the disk works.

        :raises InspectionFaultError: there is no such proof
        """
        disk_proof.read_disk(str(self._device))
        if self._is_mounted:
            disk_proof.write_file(self._volume)

    def mount(self) -> None:
        """Mount the volume.

        :raises NotSoundError: it holds nothing, or XFS says that it is damaged
        :raises NotInspectableError: it holds something else than XFS
        :raises InspectionFaultError: it cannot be mounted for another reason
        """
        volume_head.check_file_system(self._device)
        libc = ctypes.CDLL(None, use_errno=True)
        flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_NOATIME
        source, target = os.fsencode(self._device), os.fsencode(self._volume)
        if libc.mount(source, target, b'xfs', ctypes.c_ulong(flags), _OPTIONS) != 0:
            raise evidence.of_mount(os.strerror(ctypes.get_errno()))
        self._is_mounted = True
        volume_head.owner(self._volume / installation.DATA)


def main() -> None:
    """Answer requests from standard input on standard output."""
    resource.setrlimit(resource.RLIMIT_NPROC, (_TASKS, _TASKS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    line = channel.Channel(sys.stdin.fileno(), sys.stdout.fileno())
    confined.serve(GuestInspector(), line)
