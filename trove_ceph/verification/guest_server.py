# SPDX-License-Identifier: Apache-2.0
"""A server in a virtual machine, asked from the host."""

from trove_ceph import exceptions
from trove_ceph.verification import confined_server

#: How long a proof may take within the machine.
PROOF_SEC = 60.0
#: How long mounting may take, the replay of the log included.
MOUNT_SEC = 600.0


class GuestServer(confined_server.ConfinedServer):
    """The questions of :class:`.confined_server.ConfinedServer`, and those about the disk."""

    def prove(self, limit_sec: float = PROOF_SEC) -> None:
        """Have the machine read its disk, and write to it once it is mounted.

        :raises InspectionFaultError: that could not be proved within the time
        """
        try:
            self._exchange('prove', {}, limit_sec)
        except exceptions.ServerFailedError as error:
            raise exceptions.InspectionFaultError(f'the disk could not be proved: {error}') from (
                error
            )

    def mount(self) -> None:
        """Have the volume mounted; see :meth:`.guest.GuestInspector.mount`."""
        self._exchange('mount', {}, MOUNT_SEC)
