# SPDX-License-Identifier: Apache-2.0
"""Create what replaces servers from Trove's configuration."""

import functools
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from trove_ceph.db import replacements as replacement_store
from trove_ceph.db import replicas, replication_policies
from trove_ceph.strategies.backup import dependencies as backup_dependencies
from trove_ceph.strategies.backup import queue_worker
from trove_ceph.strategies.replacement.dependencies import ReplacementDependencies
from trove_ceph.taskmanager import (
    guest_factory,
    instance_operations,
    replacement_guests,
    replacement_volumes,
    replacements,
    source_changes_factory,
    successors,
    volume_fence,
)
from trove_ceph.trove_adapter import (
    guest_rpcapi,
    nova,
    replaced_agents,
    replaced_instance,
    replacement_ports,
    replacement_servers,
    start_replication,
)


def make_dependencies(
    conf: cfg.ConfigOpts,
    context: Any,
    deps: backup_dependencies.BackupDependencies,
    get_operations: Callable[[], instance_operations.InstanceOperations],
) -> ReplacementDependencies:
    """Return dependencies that act as the user of ``[service_credentials]``, an administrator.

    :param context: of that user, for calls of guest agents
    :param deps: of backups, whose clients it shares
    :param get_operations: returns the claims of this process on instances
    """
    client = guest_factory.connect_to_nova(conf)
    ports = replacement_ports.ReplacementPorts(guest_factory.connect_to_neutron(conf))
    warm = (
        guest_factory.make_warm_guests(conf, context, deps) if guest_factory.pools(conf) else None
    )
    return ReplacementDependencies(
        store=replacement_store.ReplacementStore(),
        heartbeat=deps.heartbeat,
        instances=replaced_instance.ReplacedInstances(),
        servers=replacement_servers.ReplacementServers(
            client,
            guest_factory.connect_to_nova(conf, replacement_servers.ZONE_API_VERSION),
            guest_factory.connect_to_glance(conf),
        ),
        network=ports,
        volumes=make_volumes(deps),
        guests=replacement_guests.ReplacementGuests(
            guest_factory.make_store(conf), warm, ports.take_guest_port
        ),
        agents=replaced_agents.ReplacedAgents(
            conf,
            lambda instance_id: guest_rpcapi.GuestAPI(context, instance_id),
            functools.partial(nova.find_flavor, client),
            start_replication.ReplicationOfStarts(
                replicas.ReplicaStore(),
                replication_policies.ReplicationPolicyStore(),
                conf.trove_ceph_replication.semi_sync_timeout_ms,
            ).find,
        ),
        successors=successors.Successors(
            functools.cache(
                lambda: source_changes_factory.make_source_changes(
                    conf, context, deps, get_operations()
                )
            )
        ),
        patience_sec=conf.trove_ceph_replacement.patience_sec,
    )


def make_volumes(
    deps: backup_dependencies.BackupDependencies,
) -> replacement_volumes.ReplacementVolumes:
    """Return the data volumes of servers.

    :param deps: of backups, whose clients they share
    """
    return replacement_volumes.ReplacementVolumes(
        deps.cinder,
        deps.find_image,
        deps.storage.describe,
        volume_fence.VolumeFence(deps.cinder, deps.storage, deps.find_image).fence,
    )


def make_replacements(
    conf: cfg.ConfigOpts,
    deps: ReplacementDependencies,
    backup_deps: backup_dependencies.BackupDependencies,
) -> replacements.Replacements:
    """Return the replacements on which this process works.

    :param backup_deps: those of backups, whose worker it shares
    """
    return replacements.Replacements(
        deps,
        backup_deps.worker,
        queue_worker.WorkerThreads(conf.trove_ceph_replacement.at_once),
    )
