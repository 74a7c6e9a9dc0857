# SPDX-License-Identifier: Apache-2.0
"""Metrics from the figures of the tables. All are gauges: the tables forget old rows.

No label has the id of an instance or a project, unless :data:`INSTANCE_AGE` is requested.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from prometheus_client import core

from trove_ceph.db import backup_figures, figures
from trove_ceph.metrics.descriptions import Description

_HOUR_SEC = 3600
_BACKUPS = ('good', 'verified')
_POLICIES = {True: 'yes', False: 'no'}

GUESTS = Description('trove_ceph_guests', 'Warm guests.', ('pool', 'state'))
GUEST_REQUESTS = Description(
    'trove_ceph_guest_requests',
    'Requests for warm guests within the last two windows of demand; "missed" got none.',
    ('pool', 'outcome'),
)
GUEST_BIND = Description(
    'trove_ceph_guest_bind_seconds',
    'Time from the claim of a guest to its binding, of those requests.',
    ('pool', 'statistic'),
)
REPLACEMENTS = Description(
    'trove_ceph_replacements',
    'Replacements of the servers of instances.',
    ('kind', 'requested_by', 'state'),
)
REPLACEMENT_SECONDS = Description(
    'trove_ceph_replacement_seconds',
    'Time from request to end, of the replacements completed within the last day.',
    ('kind', 'statistic'),
)
REPLACEMENT_STEP_SECONDS = Description(
    'trove_ceph_replacement_step_seconds',
    'Time of the parts of these: "fence" from the request until the old server is fenced and '
    'deleted, "choose" until a guest is chosen or a server booted, "bind" until it is the server '
    'of the instance, "start" until MySQL serves.',
    ('kind', 'step', 'statistic'),
)
FAILOVERS = Description(
    'trove_ceph_failovers',
    'Failovers by cause: "request" of a tenant or an operator for one instance, "maintenance" of a '
    'host, "host-down", "server-down" in Nova, "server-hung".',
    ('cause', 'state'),
)
REPLACEMENT_OLDEST = Description(
    'trove_ceph_replacement_oldest_open_seconds',
    'Age of the oldest replacement that has not ended; 0 if there is none.',
    ('kind',),
)
REPLICAS = Description('trove_ceph_replicas', 'Replicas.', ('state',))
NOT_REPLICATING = Description(
    'trove_ceph_replicas_not_replicating',
    'Replicas that do not replicate by their last look, without those being re-provisioned.',
)
SEMI_SYNC_INACTIVE = Description(
    'trove_ceph_semi_sync_inactive',
    'Sources whose policy has semi-synchronous replication, and whose commits wait for no replica '
    'by the last look.',
)
REPLICA_LAG = Description(
    'trove_ceph_replica_lag_seconds',
    'Time by which replicas are behind their sources, of those that replicate.',
    ('statistic',),
)
REPLICA_LAG_TRANSACTIONS = Description(
    'trove_ceph_replica_lag_transactions',
    'Transactions of their sources that replicas have not applied, also of those that do not '
    'replicate; of those whose agents and sources answer.',
    ('statistic',),
)
REPLICA_CLONE_AGE = Description(
    'trove_ceph_replica_clone_age_seconds', 'Age of the clones of replicas.', ('statistic',)
)
REPLICA_OWN_BYTES = Description(
    'trove_ceph_replica_own_bytes',
    'Space of all replicas that they do not share with their sources, before replication.',
)
REPROVISIONINGS = Description(
    'trove_ceph_replica_reprovisionings',
    'Replicas whose last re-provisioning was completed within the last day.',
    ('cause',),
)
REPROVISIONINGS_FAILED = Description(
    'trove_ceph_replica_reprovisionings_failed',
    'Replicas whose last re-provisioning has failed.',
)
REPROVISIONING_OLDEST = Description(
    'trove_ceph_replica_reprovisioning_oldest_open_seconds',
    'Age of the oldest re-provisioning that has not ended; 0 if there is none.',
)
BACKUPS = Description('trove_ceph_backups', 'Backups.', ('state',))
BACKUP_QUEUE = Description(
    'trove_ceph_backup_queue',
    'Copies and verifications that are requested, those under way included.',
    ('job',),
)
BACKUP_QUEUE_FAILING = Description(
    'trove_ceph_backup_queue_failing', 'Those that have failed and are retried.', ('job',)
)
BACKUP_QUEUE_OLDEST = Description(
    'trove_ceph_backup_queue_oldest_seconds',
    'Age of the oldest requested copy or verification; 0 if there is none.',
    ('job',),
)
BACKUP_AGE = Description(
    'trove_ceph_backup_age_seconds',
    'Age of the data of the last good, and of the last verified backup of each instance that has '
    'one. The policy is "yes" if a backup policy has run for the instance.',
    ('backup', 'policy', 'statistic'),
)
BACKUP_AGE_INSTANCES = Description(
    'trove_ceph_backup_age_instances',
    'Instances that have no good, or no verified backup younger than so many hours; "+Inf": that '
    'have none at all. Those for which no policy has run are counted if they have any backup.',
    ('backup', 'policy', 'hours'),
)
INSTANCE_AGE = Description(
    'trove_ceph_instance_backup_age_seconds',
    'Age of the data of the last good, and of the last verified backup of an instance; +Inf: there '
    'is none. Exported only with [trove_ceph_metrics] instance_labels.',
    ('instance_id', 'backup', 'policy'),
)
POLICY_RUNS = Description(
    'trove_ceph_policy_runs', 'Instances by the state of the last run of their policy.', ('state',)
)
POLICY_RUNS_FAILING = Description(
    'trove_ceph_policy_runs_failing', 'Instances for which the last run of their policy failed.'
)
POLICY_RUNS_OVERDUE = Description(
    'trove_ceph_policy_runs_overdue',
    'Instances for which the next run of their policy is late by a whole interval.',
)
KEPT_VOLUMES = Description(
    'trove_ceph_kept_volumes', 'Volumes of deleted instances that backups or clones need.'
)
TRASHED_IMAGES = Description(
    'trove_ceph_trashed_images', 'Images that the tables list as being in the trash for clones.'
)
TRASHED_OLDEST = Description(
    'trove_ceph_trashed_image_oldest_seconds',
    'Time since the oldest of them was moved to the trash; 0 if there is none.',
)
WATCH_AGE = Description(
    'trove_ceph_failover_watch_age_seconds',
    'Time since the watch for automatic failover last reported; missing if it never has.',
)
WATCH_MAINTENANCE = Description(
    'trove_ceph_failover_maintenance', 'Whether an operator has suspended automatic failover.'
)
WATCH_HELD = Description(
    'trove_ceph_failover_held',
    'Whether something holds all automatic failovers by the last report of the watch, such as a '
    'service that does not answer, or maintenance.',
)
ORPHANS = Description(
    'trove_ceph_orphans', 'Orphans that the last sweep for them has found and left.', ('kind',)
)
ORPHAN_SWEEP_AGE = Description(
    'trove_ceph_orphan_sweep_age_seconds',
    'Time since "trove-ceph-manage gc" last looked for orphans; +Inf: it never has.',
)
DESCRIPTIONS = tuple(one for one in globals().values() if isinstance(one, Description))


@dataclasses.dataclass(frozen=True)
class BackupAges:
    """How the ages of backups are exported.

    :param hours: the ages for which instances are counted
    :param by_instance: whether the ages of single instances are exported, with their ids
    """

    hours: Sequence[int] = (24, 48, 168)
    by_instance: bool = False


def metrics_of(
    found: figures.Figures, ages: BackupAges | None = None
) -> Iterator[core.GaugeMetricFamily]:
    """Yield the metrics of the figures.

    :param ages: None: as by default
    """
    yield GUESTS.gauge(found.guests)
    yield GUEST_REQUESTS.gauge(found.requests)
    yield GUEST_BIND.condensed({(pool,): each for pool, each in found.bind_sec.items()})
    yield REPLACEMENTS.gauge(found.replacements)
    yield REPLACEMENT_SECONDS.condensed(
        {(kind,): each for kind, each in found.replacement_sec.items()}
    )
    yield REPLACEMENT_STEP_SECONDS.condensed(found.part_sec)
    yield FAILOVERS.gauge(found.failovers)
    yield REPLACEMENT_OLDEST.gauge({(kind,): age for kind, age in found.oldest_open_sec.items()})
    yield from _of_replicas(found.replicas)
    yield from _of_backups(found.backups)
    yield from _of_ages(found.backups.instances, ages or BackupAges())
    age = found.watch.report_age_sec
    yield WATCH_AGE.gauge({} if age is None else {(): age})
    yield WATCH_MAINTENANCE.gauge({(): int(found.watch.is_in_maintenance)})
    yield WATCH_HELD.gauge({(): int(found.watch.is_held)})
    yield ORPHANS.gauge({(kind,): count for kind, count in found.orphans.left.items()})
    age = found.orphans.sweep_age_sec
    yield ORPHAN_SWEEP_AGE.gauge({(): math.inf if age is None else age})


def _of_replicas(found: figures.ReplicaFigures) -> Iterator[core.GaugeMetricFamily]:
    yield REPLICAS.gauge({(state,): count for state, count in found.counts.items()})
    yield NOT_REPLICATING.gauge({(): found.not_replicating})
    yield SEMI_SYNC_INACTIVE.gauge({(): found.not_waiting})
    yield REPLICA_LAG.condensed({(): found.lag_sec})
    yield REPLICA_LAG_TRANSACTIONS.condensed({(): found.lag_transactions})
    yield REPLICA_CLONE_AGE.condensed({(): found.clone_age_sec})
    yield REPLICA_OWN_BYTES.gauge({(): found.own_bytes})
    yield REPROVISIONINGS.gauge({(cause,): count for cause, count in found.reprovisioned.items()})
    yield REPROVISIONINGS_FAILED.gauge({(): found.failed})
    yield REPROVISIONING_OLDEST.gauge({(): found.oldest_open_sec})


def _of_backups(found: backup_figures.BackupFigures) -> Iterator[core.GaugeMetricFamily]:
    yield BACKUPS.gauge({(state,): count for state, count in found.counts.items()})
    queues = {(role,): queue for role, queue in found.queues.items()}
    yield BACKUP_QUEUE.gauge({key: queue.waiting for key, queue in queues.items()})
    yield BACKUP_QUEUE_FAILING.gauge({key: queue.failing for key, queue in queues.items()})
    yield BACKUP_QUEUE_OLDEST.gauge({key: queue.oldest_sec for key, queue in queues.items()})
    yield POLICY_RUNS.gauge({(state,): count for state, count in found.policy_runs.items()})
    yield POLICY_RUNS_FAILING.gauge({(): found.failing_runs})
    yield POLICY_RUNS_OVERDUE.gauge({(): found.overdue_runs})
    yield KEPT_VOLUMES.gauge({(): found.kept_volumes})
    yield TRASHED_IMAGES.gauge({(): found.trashed_images})
    yield TRASHED_OLDEST.gauge({(): found.oldest_trashed_sec})


def _of_ages(
    instances: Sequence[backup_figures.InstanceAges], ages: BackupAges
) -> Iterator[core.GaugeMetricFamily]:
    known: dict[tuple[str, str], dict[str, float]] = {
        key: {} for key in itertools.product(_BACKUPS, _POLICIES.values())
    }
    for one in instances:
        for kind, age in zip(_BACKUPS, (one.good_age_sec, one.verified_age_sec), strict=True):
            key = kind, _POLICIES[one.has_policy]
            known[key][one.instance_id] = math.inf if age is None else age
    yield BACKUP_AGE.condensed(
        {key: [age for age in each.values() if math.isfinite(age)] for key, each in known.items()}
    )
    yield BACKUP_AGE_INSTANCES.gauge(
        {
            (*key, name): sum(age >= hours * _HOUR_SEC for age in each.values())
            for key, each in known.items()
            for name, hours in [*((str(one), float(one)) for one in ages.hours), ('+Inf', math.inf)]
        }
    )
    yield INSTANCE_AGE.gauge(
        {
            (instance_id, *key): age
            for key, each in known.items()
            for instance_id, age in each.items()
            if ages.by_instance
        }
    )
