# SPDX-License-Identifier: Apache-2.0
"""The signs of automatic failover that Trove's tables and Nova have."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import novaclient.exceptions
import sqlalchemy as sa

from trove_ceph.db.transactions import Transactions
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.failover.facts import HostState, ServerState
from trove_ceph.strategies.replacement.dependencies import InstanceFacts
from trove_ceph.trove_adapter import (
    compute_hosts,
    replaced_instance,
    replacement_servers,
    trove_db,
)

#: The conductor's times of the last message of each agent, by the clocks of their guests.
_LAST_SEEN = sa.table('conductor_lastseen', *map(sa.column, ('instance_id', 'method_name', 'sent')))
_INSTANCES = sa.table('instances', *map(sa.column, ('id', 'deleted')))


class Databases:
    """Trove's tables; see :class:`.failover.dependencies.Databases`.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()
        self._tables = trove_db.TroveDatabase()

    def list_instances(self) -> Sequence[backup_types.Instance]:
        """Return the instances that are not deleted."""
        return self._tables.list_instances()

    def list_reports(self) -> Mapping[str, float]:
        """Return the time of each agent's last report, by instance and by the agent's clock.

        Instances that are deleted are left out.
        """
        row, instance = _LAST_SEEN.c, _INSTANCES.c
        # Trove keeps the rows of deleted instances.
        query = (
            sa.select(row.instance_id, row.sent)
            .join(_INSTANCES, instance.id == row.instance_id)
            .where(row.method_name == 'heartbeat', instance.deleted == sa.false())
        )
        with self._transactions.reading() as session:
            return {instance_id: float(sent) for instance_id, sent in session.execute(query)}

    def find_facts(self, instance_id: str) -> InstanceFacts | None:
        """Return an instance, even a deleted one."""
        return replaced_instance.find_facts(instance_id)


class Servers:
    """Servers and hosts in Nova; see :class:`.failover.dependencies.Servers`.

    :param client: a novaclient of nova.API_VERSION, which acts as an administrator
    """

    def __init__(self, client: Any):
        self._client = client

    def find(self, server_id: str) -> ServerState | None:
        """Return a server; None: Nova has none with this id."""
        with replacement_servers.translated(f'server {server_id}: showing it'):
            try:
                server = self._client.servers.get(server_id)
                stopped_by = self._find_stopper(server_id) if server.status == 'SHUTOFF' else None
            except novaclient.exceptions.NotFound:
                return None
        return ServerState(
            server_id,
            server.status,
            getattr(server, 'OS-EXT-STS:task_state', None),
            getattr(server, 'OS-EXT-SRV-ATTR:host', None),
            bool(getattr(server, 'locked', False)),
            stopped_by,
        )

    def list_hosts(self) -> Mapping[str, HostState]:
        """Return the hosts of servers whose state Nova knows, by name."""
        with replacement_servers.translated('listing the compute hosts'):
            services = compute_hosts.list_services(self._client)
        return {
            one.host: HostState(one.state == 'up', compute_hosts.disabled_because(one))
            for one in services
        }

    def list_on_host(self, host: str) -> Collection[str]:
        """Return the ids of the servers of all projects on a host."""
        with replacement_servers.translated(f'host {host}: listing its servers'):
            found = self._client.servers.list(
                detailed=False, search_opts={'host': host, 'all_tenants': 1}, limit=-1
            )
        return {one.id for one in found}

    def _find_stopper(self, server_id: str) -> str | None:
        """Return who stopped a server, as :attr:`.ServerState.stopped_by`.

        When Nova notices that a server has stopped by itself, it stops it without a user.
        """
        # The latest first.
        for action in self._client.instance_action.list(server_id):
            if action.action == 'stop':
                return action.user_id or ''
        return None
