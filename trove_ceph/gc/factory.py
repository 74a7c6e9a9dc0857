# SPDX-License-Identifier: Apache-2.0
"""Create a collector from the configuration of trove-taskmanager."""

import datetime
from collections.abc import Sequence

from oslo_config import cfg
from trove.common import cfg as trove_cfg
from trove.db import get_db_api

from trove_ceph import exceptions
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.gc import collector
from trove_ceph.taskmanager import factory
from trove_ceph.tiers import tier_types, tiers_file


def make_collector(config_files: Sequence[str], min_age: datetime.timedelta) -> collector.Collector:
    """Return a collector for the pools of all tiers that hold volumes or copies.

    :raises InvalidRequestError: a configuration file cannot be used
    :raises InvalidTiersError: the tiers file cannot be used
    """
    conf = trove_cfg.CONF
    taskmanager_conf.register(conf)
    try:
        trove_cfg.parse_args(['trove-ceph-manage'], list(config_files))
    except cfg.Error as error:
        raise exceptions.InvalidRequestError(f'{", ".join(config_files)}: {error}') from error
    get_db_api().configure_db()
    tiers = tiers_file.load(conf.trove_ceph_backup.tiers_file).tiers.values()
    pools = [one.pool for one in tiers if one.purpose is not tier_types.Purpose.IMAGES]
    # No context, since the collector calls no guest agent.
    deps = factory.make_dependencies(conf, context=None)
    return collector.Collector(deps, pools, min_age, datetime.datetime.now(datetime.UTC))
