# SPDX-License-Identifier: Apache-2.0
"""The watch over replicas in this process, by Trove's configuration."""

import datetime
from collections.abc import Callable

from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.db import replicas, replication_policies, replication_watch
from trove_ceph.strategies.backup import dependencies as backup_dependencies
from trove_ceph.strategies.backup import queue_worker
from trove_ceph.strategies.replication import watcher
from trove_ceph.strategies.replication.watch_dependencies import (
    Agents,
    VolumeUsage,
    WatchDependencies,
    WatchSettings,
)
from trove_ceph.taskmanager import background
from trove_ceph.trove_adapter import trove_db

#: An agent that does not answer holds up its thread for some seconds in each round.
_LOOKS_AT_ONCE = 10


class ReplicationWatchThread:
    """The thread that watches the replicas.

    :param get_deps: returns the dependencies of backups, whose worker, heartbeat and clients it
        shares
    :param get_agents: returns the guest agents
    :param resume_replicas: see :meth:`.SourceChanges.resume_replicas`
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        get_deps: Callable[[], backup_dependencies.BackupDependencies],
        get_agents: Callable[[], Agents],
        resume_replicas: Callable[[str], None],
    ):
        self._conf = conf
        self._get_deps = get_deps
        self._get_agents = get_agents
        self._resume_replicas = resume_replicas
        self._watcher: watcher.Watcher | None = None
        interval_sec = conf.trove_ceph_replication.watch_interval_sec
        self._background = background.Background(interval_sec, (self.watch,))

    def start(self) -> None:
        """Start the thread; harmless when repeated."""
        self._background.start()

    def watch(self) -> None:
        """Run one round."""
        if self._watcher is None:
            self._watcher = watcher.Watcher(
                make_dependencies(
                    self._conf, self._get_deps(), self._get_agents(), self._resume_replicas
                )
            )
        self._watcher.watch()


def make_dependencies(
    conf: cfg.ConfigOpts,
    deps: backup_dependencies.BackupDependencies,
    agents: Agents,
    resume_replicas: Callable[[str], None],
) -> WatchDependencies:
    """Return the dependencies of the watch.

    :param deps: those of backups
    """
    return WatchDependencies(
        watch=replication_watch.ReplicationWatchStore(),
        store=replicas.ReplicaStore(),
        policies=replication_policies.ReplicationPolicyStore(),
        databases=trove_db.TroveDatabase(),
        agents=agents,
        volumes=Volumes(deps),
        start=queue_worker.WorkerThreads(_LOOKS_AT_ONCE).start,
        worker=deps.worker,
        heartbeat=deps.heartbeat,
        resume_replicas=resume_replicas,
        settings=settings(conf),
    )


def settings(conf: cfg.ConfigOpts) -> WatchSettings:
    """Return the operator's settings."""
    options = conf.trove_ceph_replication
    return WatchSettings(
        looks=options.looks,
        reprovisionings_at_once=options.reprovisionings_at_once,
        pause=datetime.timedelta(seconds=options.pause_sec),
        reprovision_broken=options.reprovision_broken,
        reprovision_every_hours=options.reprovision_every_hours,
        max_own_percent=options.max_own_percent,
        max_lag_sec=options.max_lag_sec,
        most_clone_depth=options.most_clone_depth,
        semi_sync_timeout_ms=options.semi_sync_timeout_ms,
    )


class Volumes:
    """Volumes in Cinder and Ceph; see :class:`.watch_dependencies.Volumes`.

    :param deps: those of backups
    """

    def __init__(self, deps: backup_dependencies.BackupDependencies):
        self._deps = deps

    def find_usage(self, volume_id: str, with_own_bytes: bool) -> VolumeUsage | None:
        """Return the usage of a volume; None: it is on no tier.

        :param with_own_bytes: measure these, which takes time in proportion to the size
        :raises NotFoundError: the volume or its image does not exist
        :raises CephUnreachableError: Ceph does not answer
        :raises TroveCephError: Cinder or the storage service does not answer
        """
        volume = self._deps.cinder.find_volume(volume_id)
        if volume is None:
            raise exceptions.NotFoundError(f'volume {volume_id}: does not exist in Cinder')
        image = self._deps.find_image(volume)
        if image is None:
            return None
        facts = self._deps.storage.describe(image, with_usage=with_own_bytes)
        return VolumeUsage(facts.size_bytes, facts.clone_depth, facts.used_bytes)
