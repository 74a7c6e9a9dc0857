# SPDX-License-Identifier: Apache-2.0
"""What the operations ask, made from Trove's configuration."""

import datetime
import functools
from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from trove.common import clients_admin
from trove.common.clients import normalize_url

from trove_ceph import enums
from trove_ceph.cinder import client
from trove_ceph.db import backups, claims, heartbeat, policies, workers
from trove_ceph.db import instance_creations as creation_store
from trove_ceph.storage_service import rpcapi
from trove_ceph.strategies.backup import backup_types, dependencies
from trove_ceph.strategies.policies import dependencies as policy_dependencies
from trove_ceph.taskmanager import (
    instance_creations,
    instance_tiers,
    tier_settings,
    volume_location,
)
from trove_ceph.trove_adapter import backup_api, guest_rpcapi, nova, trove_db

# Longer than the scheduler of policies goes on asking.
_TRIM_MAX_AGE_SEC = 900


def make_dependencies(conf: cfg.ConfigOpts, context: Any) -> dependencies.BackupDependencies:
    """Return what works as the user of ``[service_credentials]``, who is an administrator.

    :param context: of that user, for calls of guest agents
    """
    session = clients_admin.get_keystone_session()
    options = conf.trove_ceph_backup
    tiers = volume_location.VolumeLocations(options.tiers_file, options.vault_tier)
    region = conf.service_credentials.region_name
    kept = backups.BackupStore()
    return dependencies.BackupDependencies(
        storage=rpcapi.StorageAPI(rpcapi.connect(conf)),
        cinder=client.Cinder.of_session(session, region_name=region, **_cinder_options(conf)),
        records=kept,
        trove=trove_db.TroveDatabase(),
        servers=nova.Nova.of_session(session, region_name=region, **_nova_options(conf)),
        guest=lambda instance_id: guest_rpcapi.GuestAPI(context, instance_id),
        find_image=tiers.find,
        worker=claimant_of(conf),
        heartbeat=heartbeat.Heartbeat(
            kept.claims, options.heartbeat_interval_sec, options.claim_expiry_sec
        ),
        vault=tiers.vault,
        policy=backup_settings(conf),
    )


def make_policy_dependencies(
    conf: cfg.ConfigOpts, asked: dependencies.BackupDependencies
) -> policy_dependencies.PolicyDependencies:
    """Return what policies ask.

    :param asked: what backups ask
    """
    return policy_dependencies.PolicyDependencies(
        policies=policies.PolicyStore(),
        records=asked.records,
        trove=backup_api.BackupApi(),
        tiers=instance_tiers.InstanceTiers(asked.cinder, conf.trove_ceph_backup.tiers_file).find,
        trim=lambda instance_id: asked.guest(instance_id).trim_volume(_TRIM_MAX_AGE_SEC),
        worker=asked.worker,
        heartbeat=asked.heartbeat,
        least_interval_min=conf.trove_ceph_backup.policy_least_interval_min,
    )


def make_instance_creations(
    asked: dependencies.BackupDependencies,
) -> instance_creations.InstanceCreations:
    """Return the claims on instances that are being created."""
    return instance_creations.InstanceCreations(
        creation_store.InstanceCreationStore(),
        trove_db.TroveDatabase(),
        asked.worker,
        asked.heartbeat,
    )


def claimant_of(conf: cfg.ConfigOpts) -> claims.Claimant:
    """Return what this process is called in claims, and when it takes over those of others."""
    processes = workers.Processes()
    own = processes.describe_self(conf.host)
    return claims.Claimant(
        str(own),
        datetime.timedelta(seconds=conf.trove_ceph_backup.claim_expiry_sec),
        functools.partial(processes.is_dead, own=own),
    )


def make_tier_settings(
    conf: cfg.ConfigOpts, asked: Callable[[], dependencies.BackupDependencies]
) -> tier_settings.TierSettings:
    """Return what tells guests the rates of their tiers.

    :param asked: returns what backups ask
    """
    found = asked()
    return tier_settings.TierSettings(found.cinder, conf.trove_ceph_backup.tiers_file, found.guest)


def backup_settings(conf: cfg.ConfigOpts) -> backup_types.BackupSettings:
    """Return how backups are taken.

    :raises ValueError: a datastore has a level that there is not
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


def _nova_options(conf: cfg.ConfigOpts) -> dict[str, Any]:
    options = {
        'service_type': conf.nova_compute_service_type,
        'endpoint_type': conf.nova_compute_endpoint_type,
    }
    if conf.nova_compute_url:
        options['endpoint_override'] = conf.nova_compute_url
    return options
