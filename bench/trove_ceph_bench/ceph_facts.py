# SPDX-License-Identifier: Apache-2.0
"""Facts about a Ceph cluster and one of its images, for the disclosure of a measurement."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.host import commands, rbd_pool
from trove_ceph.tiers import crush
from trove_ceph_bench import model

_CONNECT_TIMEOUT_SEC = 15
#: ``ceph config-key set trove-ceph-bench/NAME TEXT`` notes a fact that Ceph does not know.
NOTES = 'trove-ceph-bench/'


@dataclasses.dataclass(frozen=True)
class PoolUsage:
    """How full a pool and its OSDs are, in percent.

    :param used_percent: Ceph's ``percent_used``: used space, of used and available space
    :param total_bytes: data that the pool holds when nothing is available any more
    :param fullest_osd_percent: of the raw space of the fullest OSD that holds the pool's data
    :param full_percent: OSDs accept no writes from there on
    """

    used_percent: float
    total_bytes: float
    fullest_osd_percent: float
    nearfull_percent: float
    full_percent: float

    @property
    def stored_gib(self) -> float:
        """Return the data of the pool in GiB, each copy of an object counted once."""
        return self.used_percent / 100 * self.total_bytes / units.Gi

    def fullest_osd_percent_at(self, used_percent: float) -> float:
        """Return how full the fullest OSD is when the pool is filled to a percentage.

        Ceph computes the available space from that OSD: it is used up when the OSD reaches the full
        ratio (``PGMap::get_rule_avail`` in src/mon/PGMap.cc).
        """
        share = (used_percent - self.used_percent) / (100 - self.used_percent)
        return self.fullest_osd_percent + share * (self.full_percent - self.fullest_osd_percent)


class CephFacts:
    """Read facts of one cluster with the ``ceph`` and ``rbd`` commands; never change it.

    Every method raises StorageCommandError when Ceph refuses, does not answer or is not installed.

    :param conf: path of the cluster's ceph.conf
    :param user: cephx name without ``client.``
    """

    def __init__(self, conf: str, user: str, run: Callable[..., str] = commands.run):
        self._conf = conf
        self._user = user
        self._run = run

    def find_pool_of(self, image: str) -> str | None:
        """Return the pool that holds an image of this name; None if no pool does."""
        for pool in self._ceph('osd', 'pool', 'ls', 'detail'):
            if 'rbd' in pool.get('application_metadata', {}):
                if self._pool(pool['pool_name']).has_image(image):
                    return pool['pool_name']
        return None

    def describe(self, image: model.Image) -> dict[str, Any]:
        """Return versions, OSDs, and the image with its pools and CRUSH rules."""
        pool = self._pool(image.pool)
        facts = pool.image_facts(image.name)
        pools = [image.pool] + ([facts['data_pool']] if facts.get('data_pool') else [])
        return {
            'versions': self._ceph('versions').get('overall', {}),
            'osds': self._osds(),
            'image': {
                'name': f'{image.pool}/{image.name}',
                'size_bytes': facts['size'],
                'object_bytes': facts['object_size'],
                'features': facts['features'],
                'parent': facts.get('parent'),
                'options': pool.image_options(image.name),
            },
            'pools': [self._describe_pool(name) for name in pools],
            'notes': self._notes(),
        }

    def _notes(self) -> list[str]:
        """Return what the operator noted about the cluster, under keys of this prefix."""
        try:
            found = self._ceph('config-key', 'dump', NOTES)
        except exceptions.StorageCommandError:
            # Only administrators may read keys.
            return []
        return [found[key] for key in sorted(found)]

    def pool_usage(self, name: str) -> PoolUsage:
        """Return how full a pool and its OSDs are."""
        (stats,) = [one['stats'] for one in self._ceph('df')['pools'] if one['name'] == name]
        used = stats['percent_used']
        ratios = self._ceph('osd', 'dump')
        groups = self._ceph('pg', 'ls-by-pool', name)['pg_stats']
        members = {osd for group in groups for osd in group['acting']}
        return PoolUsage(
            used_percent=100 * used,
            total_bytes=stats['max_avail'] / (1 - used),
            fullest_osd_percent=max(
                osd['utilization']
                for osd in self._ceph('osd', 'df')['nodes']
                if osd['id'] in members
            ),
            nearfull_percent=100 * ratios['nearfull_ratio'],
            full_percent=100 * ratios['full_ratio'],
        )

    def _describe_pool(self, name: str) -> dict[str, Any]:
        (pool,) = [
            one for one in self._ceph('osd', 'pool', 'ls', 'detail') if one['pool_name'] == name
        ]
        (rule,) = [
            one
            for one in self._ceph('osd', 'crush', 'rule', 'dump')
            if one['rule_id'] == pool['crush_rule']
        ]
        used = {one['name']: one['stats'] for one in self._ceph('df')['pools']}
        return {
            'name': name,
            'size': pool['size'],
            'min_size': pool['min_size'],
            'pg_num': pool['pg_num'],
            'erasure_code_profile': pool.get('erasure_code_profile') or None,
            'percent_used': round(100 * used[name]['percent_used'], 2),
            'crush_rule': _describe_rule(rule),
        }

    def _osds(self) -> dict[str, int]:
        """Return the number of OSDs that are up, by device class."""
        nodes = self._ceph('osd', 'tree')['nodes']
        return dict(
            Counter(
                node.get('device_class', 'none')
                for node in nodes
                if node['type'] == 'osd' and node['status'] == 'up'
            )
        )

    def _pool(self, name: str) -> rbd_pool.RbdPool:
        return rbd_pool.RbdPool(self._conf, self._user, name, self._run)

    def _ceph(self, *arguments: str) -> Any:
        base = ('ceph', '--conf', self._conf, '--id', self._user)
        timeout = ('--connect-timeout', _CONNECT_TIMEOUT_SEC)
        return json.loads(self._run(*base, *timeout, *arguments, '--format', 'json'))


def _describe_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a CRUSH rule places copies; only its name if it takes several steps."""
    placement = crush.read_placement(rule)
    if placement is None:
        return {'name': rule['rule_name'], 'device_class': None}
    return {'name': rule['rule_name'], **dataclasses.asdict(placement)}
