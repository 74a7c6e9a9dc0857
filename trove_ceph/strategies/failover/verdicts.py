# SPDX-License-Identifier: Apache-2.0
"""The verdict on one database whose agent is silent; pure functions.

A silent agent proves little: the agent, the message bus or the conductor may have failed. Its
server failed only if Nova and Ceph agree. In Ceph, a server that runs has its image open: QEMU
watches the header and renews the watch, which ends 30 s after QEMU died, hangs or was cut off. In
Nova, the server has stopped without a request, or its host does not report. Whatever somebody has
requested for a server or its host is respected.
"""

from collections.abc import Mapping

from trove_ceph.db.replacement_record import FailoverCause
from trove_ceph.strategies.failover.facts import (
    FailoverSettings,
    HostState,
    ServerState,
    Signs,
    Verdict,
)

#: The states of a server that fails by itself; Nova enters all others at somebody's request.
_JUDGED = ('ACTIVE', 'SHUTOFF', 'ERROR')


def judge(
    signs: Signs, hosts: Mapping[str, HostState], settings: FailoverSettings
) -> tuple[Verdict, str]:
    """Return the verdict on a database and its reason.

    :param hosts: by name
    """
    if not signs.is_asked:
        return Verdict.UNCLEAR, 'Nova and Ceph are asked later, since others are asked first'
    held = signs.why_not or why_server_held(signs.server, hosts)
    if held is None and signs.clients is None:
        held = 'its volume is on no tier'
    if held is not None:
        return Verdict.HELD, held
    assert signs.server is not None
    if signs.clients:
        return Verdict.UNCLEAR, f'Ceph shows clients of its volume: {", ".join(signs.clients)}'
    return _of_nova(signs.server, hosts, settings)


def cause_of(server: ServerState, hosts: Mapping[str, HostState]) -> FailoverCause:
    """Return why the database on a suspected server fails over.

    :param hosts: by name
    """
    if server.status != 'ACTIVE':
        return FailoverCause.SERVER_DOWN
    host = hosts.get(server.host or '')
    return FailoverCause.SERVER_HUNG if host and host.is_up else FailoverCause.HOST_DOWN


def why_server_held(server: ServerState | None, hosts: Mapping[str, HostState]) -> str | None:
    """Return why a server must not be replaced, whatever the other signs say; None: it may be.

    :param server: None: Nova has none
    :param hosts: by name
    """
    if server is None:
        return 'its server was deleted in Nova'
    if server.is_locked:
        return 'its server is locked in Nova'
    if server.task_state is not None:
        return f'Nova is working on its server: {server.task_state}'
    if server.status not in _JUDGED:
        return f'its server is {server.status} in Nova'
    host = hosts.get(server.host or '')
    if host is not None and host.disabled_because is not None:
        return f'host {server.host} is disabled in Nova: {host.disabled_because or "no reason"}'
    if server.status == 'SHUTOFF' and server.stopped_by != '':
        return f'its server was stopped by {server.stopped_by or "an unknown user"}'
    return None


def _of_nova(
    server: ServerState, hosts: Mapping[str, HostState], settings: FailoverSettings
) -> tuple[Verdict, str]:
    """Return the verdict on a server without clients in Ceph."""
    in_ceph = 'its agent is silent, and Ceph shows no client of its volume'
    host = hosts.get(server.host or '')
    if server.status != 'ACTIVE':
        return Verdict.SUSPECT, f'its server is {server.status} in Nova, {in_ceph}'
    if host is None:
        return Verdict.UNCLEAR, f'Nova does not know host {server.host}'
    if not host.is_up:
        return Verdict.SUSPECT, f'host {server.host} does not report to Nova, {in_ceph}'
    if settings.replace_hung:
        return Verdict.SUSPECT, f'{in_ceph}, although Nova believes that its server runs'
    return Verdict.UNCLEAR, f'Nova believes that its server runs; {in_ceph}'
