# SPDX-License-Identifier: Apache-2.0
"""What the operations ask, made from Trove's configuration."""

import datetime
import functools
from typing import Any

from oslo_config import cfg
from trove.common import clients_admin
from trove.common.clients import normalize_url

from trove_ceph.cinder import client
from trove_ceph.db import claims, heartbeat, policies, records, workers
from trove_ceph.guestagent import api as guest_api
from trove_ceph.storage import api as storage_api
from trove_ceph.strategies.backup import model, tools
from trove_ceph.strategies.policies import tools as policy_tools
from trove_ceph.taskmanager import nova, places, tier_finder, trove_backups, trove_tables


def make_tools(conf: cfg.ConfigOpts, context: Any) -> tools.Tools:
    """Return what works as the user of ``[service_credentials]``, who is an administrator.

    :param context: of that user, for calls of guest agents
    """
    session = clients_admin.get_keystone_session()
    options = conf.trove_ceph_backup
    tiers = places.Places(options.tiers_file, options.vault_tier)
    region = conf.service_credentials.region_name
    kept = records.Records()
    return tools.Tools(
        storage=storage_api.StorageAPI(storage_api.connect(conf)),
        cinder=client.Cinder.of_session(session, region_name=region, **_cinder_options(conf)),
        records=kept,
        trove=trove_tables.TroveTables(),
        servers=nova.Nova.of_session(session, region_name=region, **_nova_options(conf)),
        guest=lambda instance_id: guest_api.API(context, instance_id),
        place=tiers.find,
        worker=claimant_of(conf),
        heartbeat=heartbeat.Heartbeat(
            kept.claims, options.heartbeat_interval_sec, options.claim_expiry_sec
        ),
        vault=tiers.vault,
        policy=policy_of(conf),
    )


def make_policy_tools(conf: cfg.ConfigOpts, asked: tools.Tools) -> policy_tools.Tools:
    """Return what policies ask.

    :param asked: what backups ask
    """
    return policy_tools.Tools(
        policies=policies.Policies(),
        records=asked.records,
        trove=trove_backups.TroveBackups(),
        tiers=tier_finder.TierFinder(asked.cinder, conf.trove_ceph_backup.tiers_file).find,
        worker=asked.worker,
        heartbeat=asked.heartbeat,
        least_interval_min=conf.trove_ceph_backup.policy_least_interval_min,
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


def policy_of(conf: cfg.ConfigOpts) -> model.Policy:
    """Return how backups are taken.

    :raises ValueError: a datastore has a level that there is not
    """
    options = conf.trove_ceph_backup
    levels = {name: model.Level(level) for name, level in options.quiesce_by_datastore.items()}
    return model.Policy(
        model.Level(options.quiesce),
        levels,
        model.UnsafeAction(options.unsafe_action),
        options.quiesce_limit_sec,
        options.copy_to_vault,
        model.Verify(options.verify),
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
