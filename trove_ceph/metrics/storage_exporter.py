# SPDX-License-Identifier: Apache-2.0
"""The metrics of a copy of the storage service: its jobs, the cluster, latencies and limits."""

from collections.abc import Sequence

from oslo_config import cfg

from trove_ceph.metrics import cluster, exporter, sampling, tiers
from trove_ceph.operation_events import Operation
from trove_ceph.storage import backend
from trove_ceph.storage_service import job_manager, server
from trove_ceph.tiers import tier_types, tiers_file
from trove_ceph.tiers.qos import service as qos_service

#: Ceph stops measuring the images of a pool a minute after the last request.
_LATENCY_INTERVAL_SEC = 30
OPERATIONS = tuple(one for one in Operation if one.is_of_storage)


def make(
    conf: cfg.ConfigOpts,
    service: server.Service,
    storage: backend.Backend,
    limits: qos_service.QosService | None,
) -> exporter.Exporter:
    """Return the exporter of a copy of the service, not yet started.

    :param storage: the cluster, by a client of its own: a read that waits for Ceph delays no job
    :param limits: what keeps the limits of volumes; None: this copy does not
    :raises InvalidTiersError: the tiers file is invalid
    """
    options = conf.trove_ceph_storage
    samplers = [
        sampling.Sampler(
            'cluster',
            cluster.Cluster(
                storage, measured_pools(options), service.survey_jobs, job_manager.utc_now
            ).read,
            conf.trove_ceph_metrics.interval_sec,
        )
    ]
    if not options.pools:
        samplers.append(_latencies(options, storage))
    made = exporter.Exporter(conf.trove_ceph_metrics, OPERATIONS, samplers)
    if limits is not None:
        made.registry.register(tiers.Limits(limits))
    return made


def _latencies(options: cfg.ConfigOpts.GroupAttr, storage: backend.Backend) -> sampling.Sampler:
    def load() -> dict[str, tier_types.Tier]:
        content = tiers_file.load(options.tiers_file)
        return {name: content.tiers[name] for name in content.users[options.ceph_user].tiers}

    read = tiers.Latencies(storage, load).read
    return sampling.Sampler('latency', read, _LATENCY_INTERVAL_SEC)


def measured_pools(options: cfg.ConfigOpts.GroupAttr) -> Sequence[cluster.MeasuredPool]:
    """Return the pools of the service, with their tiers.

    :raises InvalidTiersError: the tiers file is invalid
    """
    own = server.find_pools(options)
    if options.pools:
        return [
            cluster.MeasuredPool(pool, '', '', pool in own.images)
            for pool in (*own.images, *own.data)
        ]
    purposes = tiers_file.load(options.tiers_file).tiers
    return [
        cluster.MeasuredPool(pool, tier, str(purposes[tier].purpose), pool in own.images)
        for tier, pools in own.tiers.items()
        for pool in pools
    ]
