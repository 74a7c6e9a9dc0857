# SPDX-License-Identifier: Apache-2.0
"""Facts of a Ceph cluster that tiers do not know: its health, daemons, fill and versions."""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

from oslo_utils import units

from trove_ceph.tiers import ceph


@dataclasses.dataclass(frozen=True)
class HealthCheck:
    """A complaint of the monitors.

    :param code: such as MON_CLOCK_SKEW
    :param is_error: whether it makes the cluster HEALTH_ERR
    """

    code: str
    is_error: bool
    summary: str


@dataclasses.dataclass(frozen=True)
class OsdUse:
    """The use of an OSD.

    :param fill: used share, 0 to 1
    :param groups: number of placement groups that have a copy or chunk on it
    """

    fill: float
    size_bytes: int
    groups: int


@dataclasses.dataclass(frozen=True)
class ClusterFacts:
    """The state of a cluster at one time.

    :param health: the complaints that are not muted
    :param monitors: names of all monitors
    :param quorum: names of those that are in the quorum
    :param osds: the use of each OSD that is in
    :param backfillfull_ratio: how full an OSD may become when Ceph moves data, 0 to 1
    :param versions: number of daemons by version, as Ceph prints it
    :param blocklist: clients on the blocklist
    :param min_compat_client: the oldest release whose clients may connect
    :param groups: number of placement groups by pool and by state, such as ``active+clean``
    """

    health: tuple[HealthCheck, ...]
    monitors: tuple[str, ...]
    quorum: tuple[str, ...]
    osds: Mapping[int, OsdUse]
    backfillfull_ratio: float
    versions: Mapping[str, int]
    blocklist: tuple[str, ...]
    min_compat_client: str
    groups: Mapping[str, Mapping[str, int]]


def read(adapter: ceph.Ceph) -> ClusterFacts:
    """Return the state of a cluster.

    :raises StorageCommandError: Ceph refuses or does not answer
    """
    health = adapter.query('health', 'detail')
    monitors = adapter.query('quorum_status')
    dump = adapter.query('osd', 'dump')
    return ClusterFacts(
        health=tuple(
            HealthCheck(code, one['severity'] == 'HEALTH_ERR', one['summary']['message'])
            for code, one in health['checks'].items()
            if not one.get('muted')
        ),
        monitors=tuple(one['name'] for one in monitors['monmap']['mons']),
        quorum=tuple(monitors['quorum_names']),
        osds={
            one['id']: OsdUse(one['utilization'] / 100, one['kb'] * units.Ki, one['pgs'])
            for one in adapter.query('osd', 'df')['nodes']
            if one['reweight'] > 0
        },
        backfillfull_ratio=dump['backfillfull_ratio'],
        versions=adapter.query('versions')['overall'],
        blocklist=tuple(dump['blocklist']),
        min_compat_client=dump['require_min_compat_client'],
        groups=_groups(dump, adapter.query('pg', 'dump', 'pgs_brief')),
    )


def read_blocklist_expiries(adapter: ceph.Ceph) -> dict[str, float]:
    """Return for how many seconds each monitor in the quorum blocklists clients by default.

    Any of them may become the leader, which uses its own value.

    :raises StorageCommandError: Ceph refuses or does not answer
    """
    option = 'mon_osd_blocklist_default_expire'
    return {
        name: float(adapter.option_of_monitor(name, option))
        for name in adapter.query('quorum_status')['quorum_names']
    }


def _groups(dump: Mapping[str, Any], groups: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    names = {pool['pool']: pool['pool_name'] for pool in dump['pools']}
    found: dict[str, collections.Counter[str]] = {
        name: collections.Counter() for name in names.values()
    }
    for group in groups['pg_stats']:
        # A pool may have been created meanwhile.
        if name := names.get(int(group['pgid'].partition('.')[0])):
            found[name][group['state']] += 1
    return {name: dict(states) for name, states in found.items()}
