# SPDX-License-Identifier: Apache-2.0
"""The compute hosts of Nova on which a server may be requested."""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

# How the libvirt driver begins its reason when it disables its own host.
_BY_NOVA = 'AUTO: '


def list_services(client: Any) -> Sequence[Any]:
    """Return the services nova-compute whose state Nova knows.

    :param client: a novaclient, whose errors are raised as they are
    """
    # Nova shows no state of a host in a cell that does not answer.
    return [
        one
        for one in client.services.list(binary='nova-compute')
        if getattr(one, 'state', None) is not None
    ]


def disabled_because(service: Any) -> str | None:
    """Return the reason with which an operator has disabled a service; None: none has."""
    if service.status == 'enabled':
        return None
    reason = service.disabled_reason or ''
    return None if reason.startswith(_BY_NOVA) else reason


def list_disabled(client: Any) -> Collection[str]:
    """Return the hosts that an operator has disabled, if another one of their zone works.

    :param client: as for :func:`list_services`
    """
    services = list_services(client)
    zones = {one.zone for one in services if (one.state, one.status) == ('up', 'enabled')}
    return {one.host for one in services if one.zone in zones and disabled_because(one) is not None}


def is_down(client: Any, host: str) -> bool:
    """Return whether Nova counts a host as down, and another one as up.

    If none is up, it is more likely that the message bus of Nova failed.

    :param client: as for :func:`list_services`
    """
    states = {one.host: one.state for one in list_services(client)}
    return states.get(host) == 'down' and 'up' in states.values()


def find_others(client: Any, host: str | None, zone: str | None, user_id: str) -> Sequence[str]:
    """Return the hosts that work, but one.

    The order is the same for each call, and another one for other users, so that not all servers
    are requested on the same host.

    :param client: as for :func:`list_services`
    :param host: which is left out; None: none is
    :param zone: the availability zone of the hosts; None: any
    :param user_id: of the object for which the server is
    """
    found = [
        service.host
        for service in list_services(client)
        if service.host != host
        and (service.state, service.status) == ('up', 'enabled')
        and zone in (None, service.zone)
    ]
    return sorted(found, key=lambda one: hashlib.sha256(f'{user_id} {one}'.encode()).digest())
