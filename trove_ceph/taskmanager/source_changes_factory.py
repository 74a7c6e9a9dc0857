# SPDX-License-Identifier: Apache-2.0
"""Create what promotes, ejects and detaches from Trove's configuration."""

import functools
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from trove_ceph.db import failover_policies, replacements, replicas, source_marks
from trove_ceph.db import instance_operations as operation_store
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import dependencies as backup_dependencies
from trove_ceph.strategies.replication.source_dependencies import Member, SourceDependencies
from trove_ceph.strategies.restore import flatten
from trove_ceph.taskmanager import (
    changed_replicas,
    choices,
    guest_factory,
    instance_operations,
    replication_factory,
    source_changes,
    source_requests,
    source_work,
    unchecked_requests,
    volume_fence,
)
from trove_ceph.tiers import tiers_file
from trove_ceph.trove_adapter import nova, replaced_instance, replication_rows, trove_db


def make_source_requests(
    conf: cfg.ConfigOpts,
    context: Any,
    get_deps: Callable[[], backup_dependencies.BackupDependencies],
    get_operations: Callable[[], instance_operations.InstanceOperations],
    is_ours: Callable[[str], bool],
) -> source_requests.SourceRequests:
    """Return the requests of Trove's API; what carries them out is created at the first one.

    :param context: of the user of ``[service_credentials]``, for calls of guest agents
    :param is_ours: returns whether an instance has our guest agent, and its volume is on a tier
    """
    return source_requests.SourceRequests(
        functools.cache(lambda: make_source_changes(conf, context, get_deps(), get_operations())),
        is_ours,
    )


def make_unchecked_requests(
    get_operations: Callable[[], instance_operations.InstanceOperations],
) -> unchecked_requests.UncheckedRequests:
    """Return the requests of which Trove's API does not check whether they can be carried out.

    :param get_operations: returns the claims of this process on instances
    """
    tasks = changed_replicas.OtherTasks(
        operation_store.InstanceOperationStore(),
        replacements.ReplacementStore(),
        replicas.ReplicaStore(),
    )
    rows = replication_rows.ReplicationRows(find_task=tasks.find)
    marks = source_marks.SourceMarkStore()
    return unchecked_requests.UncheckedRequests(
        rows,
        tasks.find,
        marks.find,
        replaced_instance.find_source_change,
        _has_our_agent,
        # A source that is silent for ever keeps the role of a dead worker; a rebuild repairs it.
        lambda one: get_operations().if_free(Role.REBUILD_SERVER, one, {Role.CHANGE_SOURCE}),
    )


def _has_our_agent(instance_id: str) -> bool:
    found = trove_db.TroveDatabase().find_instance(instance_id)
    return found is not None and found.has_our_guest_agent


def make_source_changes(
    conf: cfg.ConfigOpts,
    context: Any,
    deps: backup_dependencies.BackupDependencies,
    operations: instance_operations.InstanceOperations,
) -> source_changes.SourceChanges:
    """Return the changes of sources by this process.

    :param context: of the user of ``[service_credentials]``, for calls of guest agents
    :param deps: of backups, whose clients it shares
    :param operations: the claims of this process on instances
    """
    servers = nova.Nova(guest_factory.connect_to_nova(conf))
    store, replica_store = operation_store.InstanceOperationStore(), replicas.ReplicaStore()
    tasks = changed_replicas.OtherTasks(store, replacements.ReplacementStore(), replica_store)
    fence = volume_fence.VolumeFence(deps.cinder, deps.storage, deps.find_image).fence
    work = source_work.SourceWork(
        SourceDependencies(
            rows=replication_rows.ReplicationRows(find_task=tasks.find),
            agents=replication_factory.make_agents(conf, context),
            replicas=changed_replicas.ChangedReplicas(replica_store),
            volumes=changed_replicas.ChangedVolumes(
                deps.cinder,
                fence,
                functools.partial(tiers_file.load, conf.trove_ceph_backup.tiers_file),
                functools.partial(flatten.stop_flattening, deps),
            ),
            choices=choices.Choices(store, deps.worker, operations.finish),
            marks=source_marks.SourceMarkStore(),
            find_task=tasks.find,
            is_blocked=tasks.is_blocked,
            is_reprovisioning=tasks.is_reprovisioning,
            disable_failover=disable_failover,
            stop_server=servers.stop,
            is_server_off=servers.is_off,
            has_host_down=servers.has_host_down,
            find_ram_mib=servers.find_ram_mib,
            catch_up_sec=conf.trove_ceph_replication.catch_up_timeout_sec,
            semi_sync_timeout_ms=conf.trove_ceph_replication.semi_sync_timeout_ms,
        ),
        operations,
        store,
        deps.heartbeat,
    )
    return source_changes.SourceChanges(work)


def disable_failover(member: Member) -> None:
    """Have no policy fail an instance over automatically."""
    store = failover_policies.FailoverPolicyStore()
    store.disable(member.instance_id, member.project_id)
