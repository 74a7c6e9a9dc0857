# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that a test starts later, perhaps several times."""

import contextlib
import random
import socket

from trove_ceph.tests.functional import workspace

# Below the kernel's range for outgoing connections, above the ports of servers.
PORTS = range(20000, 32000)

#: The reservations of this process, so that no other worker chooses its ports.
_reservations = []


def free_ports(count):
    """Return unused ports that no other worker of a test run chooses."""
    found = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            return found
        with contextlib.suppress(OSError):
            reservation = reserve(port)
            with socket.socket() as probe:
                probe.bind(('127.0.0.1', port))
            _reservations.append(reservation)
            found.append(port)
    raise AssertionError(f'no {count} of {PORTS} are free')


def free_port():
    """Return one such port."""
    (port,) = free_ports(1)
    return port


def reserve(port):
    """Reserve a port until this process ends, for servers that it starts later.

    :returns: a socket whose abstract name represents the port; it ends with the process.
    :raises OSError: another process has reserved it.
    """
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f'\0{workspace.PREFIX}port-{port}')
    except OSError:
        reservation.close()
        raise
    return reservation
