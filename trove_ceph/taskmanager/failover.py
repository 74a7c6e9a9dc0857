# SPDX-License-Identifier: Apache-2.0
"""The watch over all databases in this process, by Trove's configuration."""

import datetime
from collections.abc import Callable

from oslo_config import cfg

from trove_ceph.db import failover_policies, failover_watch, replacements, source_marks
from trove_ceph.storage_service import rpcapi
from trove_ceph.strategies.backup import dependencies as backup_dependencies
from trove_ceph.strategies.failover import dependencies, watcher
from trove_ceph.strategies.failover.facts import FailoverSettings
from trove_ceph.taskmanager import background, guest_factory
from trove_ceph.trove_adapter import failover_signs

#: How long a round waits for an answer about one volume.
_ANSWER_SEC = 10


class FailoverThread:
    """The thread that watches the databases, if the configuration enables it.

    :param get_deps: returns the dependencies of backups, whose worker, heartbeat and clients it
        shares
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        get_deps: Callable[[], backup_dependencies.BackupDependencies],
    ):
        self._conf = conf
        self._get_deps = get_deps
        self._watcher: watcher.Watcher | None = None
        interval_sec = conf.trove_ceph_failover.interval_sec
        self._background = background.Background(interval_sec, (self.watch,))

    def start(self) -> None:
        """Start the thread if automatic failover is enabled; harmless when repeated."""
        if self._conf.trove_ceph_failover.enabled:
            self._background.start()

    def watch(self) -> None:
        """Run one round."""
        if self._watcher is None:
            self._watcher = watcher.Watcher(make_dependencies(self._conf, self._get_deps()))
        self._watcher.watch()


def make_dependencies(
    conf: cfg.ConfigOpts, deps: backup_dependencies.BackupDependencies
) -> dependencies.FailoverDependencies:
    """Return the dependencies of the watcher.

    :param deps: those of backups
    """
    # A volume whose pool is lost must not hold up the round for long.
    storage = rpcapi.StorageAPI(rpcapi.connect(conf), _ANSWER_SEC)
    return dependencies.FailoverDependencies(
        watch=failover_watch.FailoverWatchStore(),
        policies=failover_policies.FailoverPolicyStore(),
        replacements=replacements.ReplacementStore(),
        marks=source_marks.SourceMarkStore(),
        databases=failover_signs.Databases(),
        servers=failover_signs.Servers(guest_factory.connect_to_nova(conf)),
        volumes=Volumes(deps, storage),
        worker=deps.worker,
        heartbeat=deps.heartbeat,
        settings=settings(conf),
    )


def settings(conf: cfg.ConfigOpts) -> FailoverSettings:
    """Return the operator's settings."""
    options = conf.trove_ceph_failover
    return FailoverSettings(
        interval_sec=options.interval_sec,
        silent_sec=options.silent_sec,
        rounds=options.rounds,
        most_silent_share=options.most_silent_share,
        most_hosts_down=options.most_hosts_down,
        most_per_hour=options.most_per_hour,
        pause=datetime.timedelta(seconds=options.pause_sec),
        replace_hung=options.replace_hung,
    )


class Volumes:
    """Volumes in Cinder and Ceph; see :class:`.failover.dependencies.Volumes`.

    :param deps: those of backups
    :param storage: the storage service, with a short time limit
    """

    def __init__(self, deps: backup_dependencies.BackupDependencies, storage: rpcapi.StorageAPI):
        self._deps = deps
        self._storage = storage

    def find_clients(self, volume_id: str) -> tuple[str, ...] | None:
        """Return the clients that have the image of a volume open; None: it is on no tier.

        :raises TroveCephError: Cinder, the storage service or Ceph does not answer
        """
        volume = self._deps.cinder.find_volume(volume_id)
        image = None if volume is None else self._deps.find_image(volume)
        return None if image is None else tuple(self._storage.describe(image).clients)
