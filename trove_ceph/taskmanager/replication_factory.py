# SPDX-License-Identifier: Apache-2.0
"""Create what replicas need from Trove's configuration."""

import functools
from typing import Any

from oslo_config import cfg

from trove_ceph.db import replicas, replication_policies
from trove_ceph.strategies.backup import claimed, queue_worker
from trove_ceph.strategies.backup import dependencies as backup_dependencies
from trove_ceph.strategies.replication.dependencies import Limits, ReplicationDependencies
from trove_ceph.strategies.replication.reprovision_dependencies import ReprovisionDependencies
from trove_ceph.taskmanager import (
    guest_factory,
    replacement_factory,
    replica_volumes,
    reprovisionings,
)
from trove_ceph.tiers import tiers_file
from trove_ceph.trove_adapter import (
    guest_rpcapi,
    nova,
    replaced_instance,
    replication_agents,
    trove_db,
)

#: So many attempts run at a time in one process, however few the watch may request.
_LEAST_REPROVISIONINGS = 4


def make_agents(conf: cfg.ConfigOpts, context: Any) -> replication_agents.ReplicationAgents:
    """Return the guest agents of sources and replicas.

    :param context: of the user of ``[service_credentials]``
    """
    client = guest_factory.connect_to_nova(conf)
    return replication_agents.ReplicationAgents(
        lambda instance_id: guest_rpcapi.GuestAPI(context, instance_id),
        functools.partial(nova.find_flavor, client),
    )


def make_reprovisionings(
    conf: cfg.ConfigOpts, context: Any, deps: ReplicationDependencies
) -> reprovisionings.Reprovisionings:
    """Return the re-provisionings on which this process works.

    :param context: of the user of ``[service_credentials]``, for calls of guest agents
    :param deps: of replicas, whose clients they share
    """
    return reprovisionings.Reprovisionings(
        make_reprovision_dependencies(conf, context, deps),
        deps.backup.worker,
        # Requests of tenants and operators are not limited as those of the watch are.
        queue_worker.WorkerThreads(
            max(_LEAST_REPROVISIONINGS, conf.trove_ceph_replication.reprovisionings_at_once)
        ),
    )


def make_reprovision_dependencies(
    conf: cfg.ConfigOpts, context: Any, deps: ReplicationDependencies
) -> ReprovisionDependencies:
    """Return the dependencies of re-provisioning.

    :param context: of the user of ``[service_credentials]``, for calls of guest agents
    :param deps: of replicas, whose clients it shares
    """
    return ReprovisionDependencies(
        store=deps.store,
        heartbeat=deps.backup.heartbeat,
        instances=replaced_instance.ReplacedInstances(),
        servers=nova.Nova(guest_factory.connect_to_nova(conf)),
        volumes=replica_volumes.ReplicaVolumes(
            deps.backup, replacement_factory.make_volumes(deps.backup).detach
        ),
        clones=lambda claim: replica_volumes.ReplicaClones(
            claimed.guarded(deps.backup, claim), deps.tiers, deps.policies, deps.limits
        ),
        agents=make_agents(conf, context),
        patience_sec=conf.trove_ceph_replacement.patience_sec,
        exchange_timeout_sec=conf.trove_ceph_replication.exchange_timeout_sec,
        semi_sync_timeout_ms=conf.trove_ceph_replication.semi_sync_timeout_ms,
    )


def make_dependencies(
    conf: cfg.ConfigOpts, context: Any, deps: backup_dependencies.BackupDependencies
) -> ReplicationDependencies:
    """Return dependencies that act as the user of ``[service_credentials]``, an administrator.

    :param context: of that user, for calls of guest agents
    :param deps: of backups, whose clients it shares
    """
    options = conf.trove_ceph_replication
    return ReplicationDependencies(
        backup=deps,
        trove=trove_db.TroveDatabase(),
        agents=make_agents(conf, context),
        store=replicas.ReplicaStore(),
        policies=replication_policies.ReplicationPolicyStore(),
        tiers=functools.partial(tiers_file.load, conf.trove_ceph_backup.tiers_file),
        limits=Limits(options.most_replicas, options.most_clone_depth),
    )
