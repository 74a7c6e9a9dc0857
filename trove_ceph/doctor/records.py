# SPDX-License-Identifier: Apache-2.0
"""Read the rows of Trove's database that the checks judge."""

from collections.abc import Mapping
from typing import Any

from trove_ceph.db import (
    backups,
    migration,
    orphan_sweeps,
    policies,
    policy_record,
    replicas,
    transactions,
)
from trove_ceph.db.policy_record import BackupPolicy
from trove_ceph.doctor.record_facts import Limits, Records, SchemaFacts
from trove_ceph.taskmanager import factory, instance_tiers
from trove_ceph.trove_adapter import instance_health, trove_db


def read(conf: Any) -> Records:
    """Return the rows.

    :param conf: the configuration of trove-taskmanager
    :raises ServiceUnavailableError: the database does not answer, or lacks our tables
    """
    store = backups.BackupStore()
    of_policies = policies.PolicyStore()
    found = tuple(of_policies.all())
    return Records(
        now=transactions.utcnow(),
        limits=Limits(
            conf.agent_heartbeat_expiry,
            conf.trove_ceph_replication.most_clone_depth,
            conf.trove_ceph_backup.quiesce,
            conf.trove_ceph_backup.unsafe_action,
            conf.enable_secure_rpc_messaging,
        ),
        instances=instance_health.list_instances(),
        versions=instance_health.list_versions(),
        settings=instance_health.list_settings(),
        tiers=_tiers(conf) if any(_is_for_tier(one) for one in found) else {},
        backups=tuple(store.all()),
        policies=found,
        runs=of_policies.runs(),
        replicas=tuple(replicas.ReplicaStore().list()),
        trashed=tuple(store.trashed_images()),
        orphan_sweep=orphan_sweeps.OrphanSweepStore().find(),
    )


def read_schema() -> SchemaFacts:
    """Return the version of our tables in the database of Trove's configuration."""
    engine = transactions.FACADE.writer.get_engine()
    return SchemaFacts(migration.find_version(engine), migration.required_version())


def _is_for_tier(policy: BackupPolicy) -> bool:
    # A disabled one counts, too: it excludes its instances.
    return policy.scope is policy_record.Scope.TIER


def _tiers(conf: Any) -> Mapping[str, str]:
    cinder = factory.make_dependencies(conf, context=None).cinder
    tiers = instance_tiers.InstanceTiers(cinder, conf.trove_ceph_backup.tiers_file)
    return tiers.find(trove_db.TroveDatabase().list_instances())
