# SPDX-License-Identifier: Apache-2.0
"""What the watcher of automatic failover needs."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from trove_ceph.db import claims
from trove_ceph.db.failover_policies import FailoverPolicyStore
from trove_ceph.db.failover_watch import FailoverWatchStore
from trove_ceph.db.heartbeat import Heartbeat, boottime
from trove_ceph.db.replacements import ReplacementStore
from trove_ceph.db.source_marks import SourceMarkStore
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.failover.facts import FailoverSettings, HostState, ServerState
from trove_ceph.strategies.replacement.dependencies import InstanceFacts


class Databases(Protocol):
    """Trove's tables."""

    def list_instances(self) -> Sequence[backup_types.Instance]:
        """Return the instances that are not deleted."""

    def list_reports(self) -> Mapping[str, float]:
        """Return the time of each agent's last report, by instance and by the agent's clock."""

    def find_facts(self, instance_id: str) -> InstanceFacts | None:
        """Return an instance, even a deleted one."""


class Servers(Protocol):
    """Nova. Each verb raises ServiceUnavailableError when it refuses or does not answer."""

    def find(self, server_id: str) -> ServerState | None:
        """Return a server; None: Nova has none with this id."""

    def list_hosts(self) -> Mapping[str, HostState]:
        """Return the hosts of servers by name."""

    def list_on_host(self, host: str) -> Collection[str]:
        """Return the ids of the servers of all projects on a host."""


class Volumes(Protocol):
    """Cinder and Ceph."""

    def find_clients(self, volume_id: str) -> tuple[str, ...] | None:
        """Return the clients that have the image of a volume open; None: it is on no tier.

        :raises TroveCephError: Cinder, the storage service or Ceph does not answer
        """


@dataclasses.dataclass(frozen=True)
class FailoverDependencies:
    """The dependencies of the watcher.

    :param worker: the name and the rules under which this process claims the watch
    :param heartbeat: renews the claims of this process
    :param clock: seconds on a clock that counts suspended time
    """

    watch: FailoverWatchStore
    policies: FailoverPolicyStore
    replacements: ReplacementStore
    marks: SourceMarkStore
    databases: Databases
    servers: Servers
    volumes: Volumes
    worker: claims.Claimant
    heartbeat: Heartbeat
    settings: FailoverSettings = dataclasses.field(default_factory=FailoverSettings)
    clock: Callable[[], float] = boottime
