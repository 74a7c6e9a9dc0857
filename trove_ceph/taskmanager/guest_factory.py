# SPDX-License-Identifier: Apache-2.0
"""Create what keeps and claims warm guests from Trove's configuration."""

import datetime
import functools
from typing import Any

import glanceclient
import neutronclient.v2_0.client
import novaclient.client
from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.db import guests, replacements
from trove_ceph.strategies.backup import dependencies as backup_dependencies
from trove_ceph.strategies.backup import queue_worker
from trove_ceph.strategies.guests import bind, dependencies, hot_spec, keeper, pool_spec
from trove_ceph.strategies.guests import hot_volume as hot_volumes
from trove_ceph.taskmanager import factory, volume_fence, volume_location, warm_guests
from trove_ceph.trove_adapter import (
    agent_queues,
    guest_servers,
    neutron,
    nova,
    service_session,
    trove_db,
    waiting_guest_rpcapi,
)

#: A guest can be claimed if it answered within this many intervals.
_FRESH_INTERVALS = 3


def pools(conf: cfg.ConfigOpts) -> tuple[pool_spec.PoolSpec, ...]:
    """Return the pools of the configuration.

    :raises InvalidConfigurationError: the option does not name pools
    """
    return pool_spec.parse(conf.trove_ceph_guests.pools)


def hot_volume(conf: cfg.ConfigOpts) -> hot_spec.HotVolume | None:
    """Return the volume of hot guests; None: there are none.

    :raises InvalidConfigurationError: the options do not name one
    """
    options = conf.trove_ceph_guests
    found = hot_spec.parse(options.hot_volume)
    if options.hot and found is None:
        raise exceptions.InvalidConfigurationError(
            '[trove_ceph_guests] hot_volume: is empty; expected VOLUME_TYPE:SIZE_GIB, since hot is '
            f'{options.hot}'
        )
    return found if options.hot else None


def make_hot_volumes(
    conf: cfg.ConfigOpts, deps: backup_dependencies.BackupDependencies
) -> hot_volumes.HotVolumes:
    """Return the volumes of hot guests."""
    return hot_volumes.HotVolumes(deps, nova.Nova(connect_to_nova(conf)))


def make_store(conf: cfg.ConfigOpts) -> guests.GuestStore:
    """Return the records of guests."""
    return guests.GuestStore(fresh_sec=_FRESH_INTERVALS * conf.trove_ceph_guests.ping_interval_sec)


def make_servers(conf: cfg.ConfigOpts) -> guest_servers.GuestServers:
    """Return the servers and ports of guests, with the rights of ``[service_credentials]``."""
    return guest_servers.GuestServers(
        pools(conf), connect_to_nova(conf), connect_to_neutron(conf), connect_to_glance(conf)
    )


def make_keeper(
    conf: cfg.ConfigOpts, context: Any, deps: backup_dependencies.BackupDependencies
) -> keeper.Keeper:
    """Return the keeper of the pools of this process.

    :param context: of the administrator, for calls of guest agents
    :param deps: of backups, whose worker and heartbeat it shares
    """
    return keeper.Keeper(
        dependencies.KeeperDependencies(
            store=make_store(conf),
            servers=make_servers(conf),
            agents=waiting_guest_rpcapi.WaitingGuestAPI(context),
            trove=trove_db.TroveDatabase(),
            hot=make_hot_volumes(conf, deps),
            forget_agent=functools.partial(agent_queues.delete, conf),
            is_replacing=functools.partial(_is_replacing, replacements.ReplacementStore()),
            worker=deps.worker,
            heartbeat=deps.heartbeat,
            pools=pools(conf),
            settings=settings(conf),
        ),
        functools.partial(queue_worker.WorkerThreads, 1),
    )


def make_warm_guests(
    conf: cfg.ConfigOpts, context: Any, deps: backup_dependencies.BackupDependencies
) -> warm_guests.WarmGuests:
    """Return what the creation of an instance claims and binds.

    :param context: of the administrator, for calls of guest agents
    :param deps: of backups, whose client of Cinder it shares
    """
    store = make_store(conf)
    return warm_guests.WarmGuests(
        store,
        make_servers(conf).request_key,
        bind.BindDependencies(
            agents=waiting_guest_rpcapi.WaitingGuestAPI(
                context, conf.trove_ceph_guests.bind_timeout_sec
            ),
            servers=nova.Nova(connect_to_nova(conf)),
            ports=neutron.Neutron(connect_to_neutron(conf)),
            store=store,
            volumes=deps.cinder,
            fence=volume_fence.VolumeFence(deps.cinder, deps.storage, deps.find_image).fence,
        ),
        volume_location.VolumeLocations(conf.trove_ceph_backup.tiers_file).has_type,
        functools.partial(agent_queues.delete, conf),
    )


def settings(conf: cfg.ConfigOpts) -> dependencies.PoolSettings:
    """Return the operator's settings of pools."""
    options = conf.trove_ceph_guests
    return dependencies.PoolSettings(
        least=options.least,
        most=options.most,
        demand_share=options.demand_share,
        demand_window=_seconds(options.demand_window_sec),
        refill_delay=_seconds(options.refill_delay_sec),
        boot_timeout=_seconds(options.boot_timeout_sec),
        ping_interval_sec=options.ping_interval_sec,
        unseen_limit=_seconds(options.unseen_limit_sec),
        max_age=_seconds(options.max_age_sec),
        bind_timeout=_seconds(options.bind_timeout_sec),
        hot=options.hot,
        hot_volume=hot_volume(conf),
        load_timeout=_seconds(options.load_timeout_sec),
    )


def _is_replacing(store: replacements.ReplacementStore, instance_id: str) -> bool:
    return store.find_open(instance_id) is not None


def connect_to_nova(conf: cfg.ConfigOpts, version: str = nova.API_VERSION) -> Any:
    """Return a novaclient with the rights of ``[service_credentials]``."""
    return novaclient.client.Client(
        version,
        session=service_session.get(),
        region_name=conf.service_credentials.region_name,
        **factory.nova_options(conf),
    )


def connect_to_neutron(conf: cfg.ConfigOpts) -> Any:
    """Return a neutronclient with the rights of ``[service_credentials]``."""
    return neutronclient.v2_0.client.Client(
        session=service_session.get(),
        region_name=conf.service_credentials.region_name,
        service_type=conf.neutron_service_type,
        endpoint_type=conf.neutron_endpoint_type,
        endpoint_override=conf.neutron_url,
    )


def connect_to_glance(conf: cfg.ConfigOpts) -> Any:
    """Return a glanceclient with the rights of ``[service_credentials]``."""
    return glanceclient.Client(
        conf.glance_client_version,
        session=service_session.get(),
        region_name=conf.service_credentials.region_name,
        service_type=conf.glance_service_type,
        interface=conf.glance_endpoint_type,
    )


def _seconds(count: int) -> datetime.timedelta:
    return datetime.timedelta(seconds=count)
