# SPDX-License-Identifier: Apache-2.0
"""What the watch over replicas needs."""

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from typing import Protocol

from trove_ceph.db import claims
from trove_ceph.db.heartbeat import Heartbeat, boottime
from trove_ceph.db.replicas import ReplicaStore
from trove_ceph.db.replication_policies import ReplicationPolicyStore
from trove_ceph.db.replication_watch import ReplicationWatchStore
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.replication.replication_types import ReplicationStatus


@dataclasses.dataclass(frozen=True)
class WatchSettings:
    """The operator's settings; see :mod:`trove_ceph.conf.replication`."""

    looks: int = 3
    reprovisionings_at_once: int = 2
    pause: datetime.timedelta = datetime.timedelta(hours=1)
    reprovision_broken: bool = True
    reprovision_every_hours: int = 0
    max_own_percent: int = 0
    max_lag_sec: int = 3600
    most_clone_depth: int = 8
    semi_sync_timeout_ms: int = 10000


@dataclasses.dataclass(frozen=True)
class VolumeUsage:
    """The image of a volume in Ceph.

    :param own_bytes: space that it does not share with its parent; None: it was not measured
    :param clone_depth: the number of images, one above the other, from which it reads
    """

    size_bytes: int
    clone_depth: int
    own_bytes: int | None = None


class Databases(Protocol):
    """Trove's tables."""

    def has_replicas(self) -> bool:
        """Return whether an instance that is not deleted is a replica."""

    def list_instances(self) -> Sequence[backup_types.Instance]:
        """Return the instances that are not deleted."""


class Agents(Protocol):
    """The guest agents. Each verb raises GuestUnavailableError when one fails or is silent."""

    def status(self, instance_id: str) -> ReplicationStatus:
        """Return the replication of a server."""

    def set_semi_sync(
        self, instance_id: str, as_source: bool, as_replica: bool, timeout_ms: int
    ) -> None:
        """Switch semi-synchronous replication on or off."""


class Volumes(Protocol):
    """Cinder and Ceph."""

    def find_usage(self, volume_id: str, with_own_bytes: bool) -> VolumeUsage | None:
        """Return the usage of a volume; None: it is on no tier.

        :param with_own_bytes: measure these, which takes time in proportion to the size
        :raises NotFoundError: the volume or its image does not exist
        :raises CephUnreachableError: Ceph does not answer
        :raises TroveCephError: Cinder or the storage service does not answer
        """


@dataclasses.dataclass(frozen=True)
class WatchDependencies:
    """The dependencies of the watch.

    :param start: runs a function in a thread of its own; returns False if no thread is free
    :param worker: the name and the rules under which this process claims the watch
    :param heartbeat: renews the claims of this process
    :param resume_replicas: see :meth:`.SourceChanges.resume_replicas`
    :param clock: seconds on a clock that counts suspended time
    """

    watch: ReplicationWatchStore
    store: ReplicaStore
    policies: ReplicationPolicyStore
    databases: Databases
    agents: Agents
    volumes: Volumes
    start: Callable[[Callable[[], object]], bool]
    worker: claims.Claimant
    heartbeat: Heartbeat
    resume_replicas: Callable[[str], None]
    settings: WatchSettings = dataclasses.field(default_factory=WatchSettings)
    clock: Callable[[], float] = boottime
