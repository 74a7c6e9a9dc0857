# SPDX-License-Identifier: Apache-2.0
"""Which server of Nova this guest runs on, from its firmware.

Nova gives the virtual machine of a server the id of the server as the UUID of its system, in SMBIOS
(``_get_guest_config_sysinfo`` of ``nova/virt/libvirt/driver.py``). The kernel shows it to root. So
two servers of one instance, which share the topic and the key of the instance on the bus, can tell
for which of them a message is; no file that a rebuild or a copy of the disk keeps is needed.
"""

import os

from oslo_utils import uuidutils
from trove.common import exception
from trove.guestagent.common import operating_system

from trove_ceph import exceptions

PATH = '/sys/class/dmi/id/product_uuid'


def check(server_id: str) -> str:
    """Return the id of this server in Nova, in lower case, if it is the one that is meant.

    :param server_id: of the server that is meant
    :raises GuestUnavailableError: this is another server, or it does not know its id
    """
    found = _read()
    if found != server_id.lower():
        raise exceptions.GuestUnavailableError(
            f'this is server {found}, and the request is for server {server_id}'
        )
    return found


def _read() -> str:
    try:
        text = operating_system.read_file(PATH, as_root=os.geteuid() != 0)
    except (exception.TroveError, OSError) as error:
        raise exceptions.GuestUnavailableError(
            f'{PATH}: cannot be read, so that this server does not know its id: {error}'
        ) from error
    found = text.strip().lower()
    if not uuidutils.is_uuid_like(found):
        raise exceptions.GuestUnavailableError(
            f'{PATH}: has {found[:50]!r}, expected the id of this server in Nova'
        )
    return str(found)
