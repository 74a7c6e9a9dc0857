# SPDX-License-Identifier: Apache-2.0
"""The server groups of Nova, in which Trove puts an instance with a ``--locality``.

Trove names the group after the instance for which it created it, and puts the replicas of that
instance into it. Nova adds a server to a group only when it boots it.
"""

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

import novaclient.exceptions
from trove.instance import models as instance_models

from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.trove_adapter import trove_db

_PREFIX = 'locality_'
#: Nova returns no more at once, unless an operator has changed its osapi_max_limit.
_PAGE = 500


@dataclasses.dataclass(frozen=True)
class Group:
    """A server group.

    :param policy: such as ``anti-affinity``
    :param hosts: those of its members, without the server that is replaced
    """

    group_id: str
    policy: str
    hosts: frozenset[str]

    @property
    def keeps_apart(self) -> bool:
        """Whether its members are to be on different hosts."""
        return self.policy in ('anti-affinity', 'soft-anti-affinity')


class ServerGroups:
    """The server groups of instances.

    :param client: a novaclient of nova.API_VERSION, whose errors are raised as they are
    """

    def __init__(self, client: Any):
        self._client = client

    def find(self, record: ReplacementRecord) -> Group | None:
        """Return the group of an instance, also if its old server is gone; None: it has none."""
        names, server_ids = _relatives(record)
        found = [
            group
            for group in self._list()
            if group.name in names or not server_ids.isdisjoint(group.members)
        ]
        if not found:
            return None
        # After a detachment there may be several; the one with more members says more.
        group = max(found, key=lambda one: len(one.members))
        others = [one for one in group.members if one != record.old_server_id]
        return Group(group.id, group.policy, frozenset(self._find_hosts(others)))

    def _list(self) -> Iterator[Any]:
        offset = 0
        while page := self._client.server_groups.list(limit=_PAGE, offset=offset):
            yield from page
            offset += len(page)

    def _find_hosts(self, server_ids: Collection[str]) -> Iterator[str]:
        for server_id in server_ids:
            try:
                server = self._client.servers.get(server_id)
            except novaclient.exceptions.NotFound:
                continue
            if host := getattr(server, 'OS-EXT-SRV-ATTR:host', None):
                yield host


def _relatives(record: ReplacementRecord) -> tuple[set[str], set[str | None]]:
    """Return the names that the group may have, and servers of which one is in it.

    The server of an instance whose replica was promoted is in the group of its former source.
    """
    row = trove_db.find_row(instance_models.DBInstance, record.instance_id)
    source_id = (row and row.slave_of_id) or record.instance_id
    replicas = instance_models.DBInstance.find_all(slave_of_id=source_id, deleted=False)
    source = trove_db.find_row(instance_models.DBInstance, source_id)
    rows = [one for one in (source, *replicas) if one is not None]
    server_ids = {one.compute_instance_id for one in rows} | {record.old_server_id}
    return {f'{_PREFIX}{one}' for one in (source_id, record.instance_id)}, server_ids - {None}
