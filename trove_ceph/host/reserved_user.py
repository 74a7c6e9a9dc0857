# SPDX-License-Identifier: Apache-2.0
"""Reserve a user id of this host for as long as something runs under it.

The reservation is a Unix socket in the abstract namespace: two processes cannot bind the same name,
and the kernel releases it when its owner ends. No file remains. Processes in different network
namespaces do not see each other's reservations.
"""

import errno
import socket

from trove_ceph import exceptions

_NAME = '\0trove-ceph-reserved-user-{}'


class ReservedUser:
    """One of a range of user ids, reserved while entered; ``uid`` is also the group id.

    :param first: the first id of the range
    :param count: how many there are
    """

    def __init__(self, first: int, count: int):
        self._ids = range(first, first + count)
        self._socket: socket.socket | None = None
        self.uid = 0

    def __enter__(self) -> 'ReservedUser':
        """Reserve the lowest free id.

        :raises NotInspectableError: all are in use
        """
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for uid in self._ids:
            try:
                held.bind(_NAME.format(uid))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                held.close()
                raise
            self._socket, self.uid = held, uid
            return self
        held.close()
        raise exceptions.NotInspectableError(
            f'all user ids from {self._ids.start} to {self._ids.stop - 1} are in use'
        )

    def __exit__(self, *exception: object) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
