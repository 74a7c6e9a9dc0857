# SPDX-License-Identifier: Apache-2.0
"""Create a collector from the configuration of trove-taskmanager."""

import datetime
from collections.abc import Sequence

from trove_ceph.db import orphan_sweeps, replicas
from trove_ceph.gc import collector, guests
from trove_ceph.taskmanager import factory, guest_factory
from trove_ceph.tiers import tier_types, tiers_file
from trove_ceph.trove_adapter import configuration


def make_collector(config_files: Sequence[str], min_age: datetime.timedelta) -> collector.Collector:
    """Return a collector for the pools of all tiers that hold volumes or copies.

    :raises InvalidConfigurationError: a configuration file cannot be used
    :raises InvalidTiersError: the tiers file cannot be used
    """
    conf = configuration.load('trove-ceph-manage', config_files)
    tiers = tiers_file.load(conf.trove_ceph_backup.tiers_file).tiers.values()
    pools = [one.pool for one in tiers if one.purpose is not tier_types.Purpose.IMAGES]
    # No context, since the collector calls no guest agent.
    deps = factory.make_dependencies(conf, context=None)
    warm = guests.Guests(guest_factory.make_servers(conf), guest_factory.make_store(conf))
    now = datetime.datetime.now(datetime.UTC)
    return collector.Collector(
        deps,
        warm,
        replicas.ReplicaStore(),
        orphan_sweeps.OrphanSweepStore(),
        pools,
        min_age,
        now,
    )
