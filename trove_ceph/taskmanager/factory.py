# SPDX-License-Identifier: Apache-2.0
"""Create the dependencies of the operations from Trove's configuration."""

import datetime
import functools
from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from trove.common.clients import normalize_url

from trove_ceph import enums
from trove_ceph.cinder import client
from trove_ceph.db import backups, claims, heartbeat, policies, workers
from trove_ceph.db import instance_operations as operation_store
from trove_ceph.storage_service import rpcapi
from trove_ceph.strategies.backup import backup_types, dependencies
from trove_ceph.strategies.policies import dependencies as policy_dependencies
from trove_ceph.taskmanager import (
    instance_operations,
    instance_tiers,
    ownership,
    tier_settings,
    volume_location,
)
from trove_ceph.trove_adapter import backup_api, guest_rpcapi, nova, service_session, trove_db

# Longer than the scheduler of policies keeps requesting a trim.
_TRIM_MAX_AGE_SEC = 900


def make_dependencies(conf: cfg.ConfigOpts, context: Any) -> dependencies.BackupDependencies:
    """Return dependencies that act as the user of ``[service_credentials]``, an administrator.

    :param context: of that user, for calls of guest agents
    """
    session = service_session.get()
    options = conf.trove_ceph_backup
    tiers = volume_location.VolumeLocations(options.tiers_file, options.vault_tier)
    region = conf.service_credentials.region_name
    records = backups.BackupStore()
    return dependencies.BackupDependencies(
        storage=rpcapi.StorageAPI(rpcapi.connect(conf)),
        cinder=client.Cinder.of_session(session, region_name=region, **_cinder_options(conf)),
        records=records,
        trove=trove_db.TroveDatabase(),
        servers=nova.Nova.of_session(session, region_name=region, **nova_options(conf)),
        guest=lambda instance_id: guest_rpcapi.GuestAPI(context, instance_id),
        find_image=tiers.find,
        pools_of=tiers.pools_of,
        worker=claimant_of(conf),
        heartbeat=heartbeat.Heartbeat(
            records.claims, options.heartbeat_interval_sec, options.claim_expiry_sec
        ),
        vault=tiers.vault,
        policy=backup_settings(conf),
    )


def make_policy_dependencies(
    conf: cfg.ConfigOpts, deps: dependencies.BackupDependencies
) -> policy_dependencies.PolicyDependencies:
    """Return the dependencies of policies.

    :param deps: those of backups
    """
    return policy_dependencies.PolicyDependencies(
        policies=policies.PolicyStore(),
        records=deps.records,
        trove=backup_api.BackupApi(),
        tiers=instance_tiers.InstanceTiers(deps.cinder, conf.trove_ceph_backup.tiers_file).find,
        trim=lambda instance_id: deps.guest(instance_id).trim_volume(_TRIM_MAX_AGE_SEC),
        worker=deps.worker,
        heartbeat=deps.heartbeat,
        is_on_tier=ownership.Ownership(lambda: deps).is_on_tier,
        least_interval_min=conf.trove_ceph_backup.policy_least_interval_min,
    )


def make_instance_operations(
    deps: dependencies.BackupDependencies,
) -> instance_operations.InstanceOperations:
    """Return the claims on instances that are being created or deleted."""
    return instance_operations.InstanceOperations(
        operation_store.InstanceOperationStore(),
        trove_db.TroveDatabase(),
        deps.worker,
        deps.heartbeat,
    )


def claimant_of(conf: cfg.ConfigOpts) -> claims.Claimant:
    """Return the name of this process in claims, and when it resumes the work of others."""
    processes = workers.Processes()
    own = processes.describe_self(conf.host)
    return claims.Claimant(
        str(own),
        datetime.timedelta(seconds=conf.trove_ceph_backup.claim_expiry_sec),
        functools.partial(processes.is_dead, own=own),
    )


def make_tier_settings(
    conf: cfg.ConfigOpts, get_deps: Callable[[], dependencies.BackupDependencies]
) -> tier_settings.TierSettings:
    """Return the object that sends guests the I/O rates of their tiers.

    :param get_deps: returns the dependencies of backups
    """
    deps = get_deps()
    return tier_settings.TierSettings(deps.cinder, conf.trove_ceph_backup.tiers_file, deps.guest)


def backup_settings(conf: cfg.ConfigOpts) -> backup_types.BackupSettings:
    """Return the operator's settings of backups.

    :raises ValueError: a datastore has an unknown quiesce level
    """
    options = conf.trove_ceph_backup
    levels = {
        name: enums.QuiesceLevel(level) for name, level in options.quiesce_by_datastore.items()
    }
    return backup_types.BackupSettings(
        enums.QuiesceLevel(options.quiesce),
        levels,
        enums.UnsafeAction(options.unsafe_action),
        options.quiesce_limit_sec,
        options.copy_to_vault,
        enums.VerifyWhen(options.verify),
        options.vault_quota_gib,
    )


def _cinder_options(conf: cfg.ConfigOpts) -> dict[str, Any]:
    options = {
        'service_type': conf.cinder_service_type,
        'endpoint_type': conf.cinder_endpoint_type,
    }
    if conf.cinder_url:
        url = f'{normalize_url(conf.cinder_url)}{conf.service_credentials.project_id}'
        options['endpoint_override'] = url
    return options


def nova_options(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """Return the options of a novaclient, from those of Trove."""
    options = {
        'service_type': conf.nova_compute_service_type,
        'endpoint_type': conf.nova_compute_endpoint_type,
    }
    if conf.nova_compute_url:
        options['endpoint_override'] = conf.nova_compute_url
    return options
