# SPDX-License-Identifier: Apache-2.0
"""A server in a virtual machine, queried from the host."""

from trove_ceph import exceptions
from trove_ceph.verification import confined_server

#: Time limit of a proof in the virtual machine.
PROOF_SEC = 60.0
#: Time limit of a mount, including the replay of the log.
MOUNT_SEC = 600.0


class GuestServer(confined_server.ConfinedServer):
    """The calls of :class:`.confined_server.ConfinedServer`, and the calls for the disk."""

    def prove(self, limit_sec: float = PROOF_SEC) -> None:
        """Have the virtual machine read its disk, and write to it once it is mounted.

        :raises InspectionFaultError: it could not within the time limit
        """
        try:
            self._exchange('prove', {}, limit_sec)
        except exceptions.ServerFailedError as error:
            raise exceptions.InspectionFaultError(f'the disk could not be proved: {error}') from (
                error
            )

    def is_up(self, limit_sec: float) -> bool:
        """Prove the disk of a virtual machine that was just started.

        :return: whether it answered in time; it was killed if not
        :raises InspectionFaultError: it ended, or has no proof
        """
        try:
            self.prove(limit_sec)
        except exceptions.InspectionFaultError as error:
            if isinstance(error.__cause__, confined_server.SilentProgramError):
                return False
            raise
        return True

    def mount(self) -> None:
        """Mount the volume; see :meth:`.guest.GuestInspector.mount`."""
        self._exchange('mount', {}, MOUNT_SEC)
