# SPDX-License-Identifier: Apache-2.0
"""Checks of the cluster: its health, monitors, clocks, versions, fill and redundancy."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trove_ceph import reference_figures
from trove_ceph.doctor import remedies
from trove_ceph.doctor.check import Check, System
from trove_ceph.doctor.cluster import ClusterFacts
from trove_ceph.doctor.finding import Finding, Level, error, warning
from trove_ceph.storage import fencing
from trove_ceph.tiers import resources, tier_types

#: From here on a cluster is too full to heal itself after the loss of a host, and slower.
FILL_WARNING = reference_figures.TYPICAL_FILL
FILL_ERROR = reference_figures.MOST_FILL
#: Further entries are of clients that reconnect again and again.
MOST_BLOCKED = 50
LEAST_CEPH = (16, 2)
MIN_COMPAT_CLIENT = 'mimic'
#: The names of the release 0, and of one that is not set.
_NO_RELEASE = ('', 'unknown', 'unspecified')
_MONITORS = (3, 5)
_VERSION = re.compile(r'ceph version (\d+)\.(\d+)\.(\S+)')
_SKEW = 'MON_CLOCK_SKEW'
#: Other checks judge these with what the tiers file says.
_JUDGED = (_SKEW, 'POOL_NO_REDUNDANCY')
#: Parts of the states of placement groups.
_BROKEN = {'down', 'incomplete', 'inconsistent', 'stale', 'unknown', 'snaptrim_error'}
_WEAKENED = {'degraded', 'undersized', 'laggy', 'backfill_toofull', 'recovery_toofull'}


def check_health(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield what the monitors complain of."""
    for one in cluster.health:
        if one.code not in _JUDGED:
            level = Level.ERROR if one.is_error else Level.WARNING
            yield Finding(level, one.code, one.summary, 'HEALTH_OK', remedies.CEPH_HEALTH)


def check_monitors(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield the monitors that are missing, and a number that survives less than it could."""
    for name in sorted(set(cluster.monitors) - set(cluster.quorum)):
        yield error(f'monitor {name}', 'out of the quorum', 'in the quorum', remedies.CEPH_STATUS)
    if (count := len(cluster.monitors)) not in _MONITORS:
        expected = '3 or 5: an even number survives no more failures than the odd one below it'
        yield warning('monitors', f'{count}', expected, remedies.MONITORS)


def check_clocks(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield the skew that the monitors measure among each other."""
    for one in cluster.health:
        if one.code == _SKEW:
            yield error('clocks of the monitors', one.summary, 'no skew', remedies.TIME_SYNC)


def check_versions(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield daemons that are too old, and versions that differ."""
    for text, count in cluster.versions.items():
        found = _VERSION.match(text)
        if found is None or tuple(map(int, found.group(1, 2))) < LEAST_CEPH:
            least = '.'.join(map(str, LEAST_CEPH))
            what = f'{count} daemons of Ceph'
            yield error(what, text, f'{least} or later', remedies.CEPH_VERSIONS)
    if len(cluster.versions) > 1:
        observed = ', '.join(sorted(cluster.versions))
        yield warning('daemons of Ceph', observed, 'one version', remedies.CEPH_VERSIONS)


def check_settings(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield a setting with which deleting a snapshot copies its clones."""
    found = cluster.min_compat_client
    # The names of releases are in the order of the alphabet.
    if found in _NO_RELEASE or found < MIN_COMPAT_CLIENT:
        yield warning(
            'require_min_compat_client',
            'not set' if found in _NO_RELEASE else found,
            f'{MIN_COMPAT_CLIENT} or later, for clones whose parents can be deleted',
            remedies.MIN_COMPAT_CLIENT,
        )


def check_blocklist(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield a blocklist that grows."""
    if (count := len(cluster.blocklist)) > MOST_BLOCKED:
        expected = f'at most {MOST_BLOCKED}: more are of clients that lose their locks repeatedly'
        yield warning('blocklist', f'{count} clients', expected, remedies.BLOCKLIST)


def check_blocklist_expiry(expiries: Mapping[str, float]) -> Iterator[Finding]:
    """Yield the monitors whose entries for librbd end before those of a fence.

    librbd may have blocklisted a holder before the fence, which then does not find it.
    """
    for name, seconds in sorted(expiries.items()):
        if seconds < fencing.EXPIRE_SEC:
            yield error(
                f'monitor {name}',
                f'mon_osd_blocklist_default_expire is {seconds:.0f} s',
                f'at least {fencing.EXPIRE_SEC}: after this time a host that was without network '
                'can write to a volume again, beside the server that has it by then',
                remedies.BLOCKLIST_EXPIRY,
            )


def check_fill(
    facts: tuple[tier_types.TiersFile, resources.CephState, ClusterFacts],
) -> Iterator[Finding]:
    """Yield the pools of tiers that fill up, and the fullest OSD if it does."""
    content, ceph, cluster = facts
    for name in _pools(content):
        if name in ceph.usage:
            yield from _fill(f'pool {name}', ceph.usage[name].fill, remedies.TIERS_SHOW)
    if cluster.osds:
        fullest = max(cluster.osds, key=lambda osd: cluster.osds[osd].fill)
        yield from _fill(f'osd.{fullest}', cluster.osds[fullest].fill, remedies.OSD_FILL)


def _fill(thing: str, fill: float, command: str) -> Iterator[Finding]:
    if fill >= FILL_WARNING:
        level = Level.ERROR if fill >= FILL_ERROR else Level.WARNING
        expected = f'below {FILL_WARNING:.0%}, so that Ceph can heal itself'
        yield Finding(level, thing, f'{fill:.1%} full', expected, command)


def check_redundancy(
    facts: tuple[tier_types.TiersFile, resources.CephState, ClusterFacts],
) -> Iterator[Finding]:
    """Yield pools of tiers with too few copies, and their placement groups that lack some."""
    content, ceph, cluster = facts
    for tier in content.tiers.values():
        for name in tier.pools:
            if pool := ceph.pools.get(name):
                yield from _copies(tier, pool, ceph)
                yield from _groups(name, cluster.groups.get(name, {}))


def _copies(
    tier: tier_types.Tier, pool: resources.Pool, ceph: resources.CephState
) -> Iterator[Finding]:
    thing = f'pool {pool.name}'
    if pool.profile:
        profile = ceph.profiles.get(pool.profile)
        # With one coding chunk there is no choice: k + 1 chunks would stop I/O at each failure.
        if profile and profile.m > 1 and pool.min_size <= profile.k:
            observed = f'min_size {pool.min_size}'
            expected = f'at least {profile.k + 1}: with {profile.k} chunks the next failure loses'
            yield warning(thing, observed, f'{expected} new data', remedies.TIERS_PLAN)
    elif pool.size == 1 and tier.purpose is not tier_types.Purpose.REPLICA:
        expected = 'at least 2 copies; one is for replicas, which can be cloned again'
        yield error(thing, f'one copy, in a tier for {tier.purpose}', expected, remedies.TIERS_PLAN)
    elif pool.size > 1 and pool.min_size == 1:
        expected = '3 copies and min_size 2: a write that one OSD has acknowledged is lost with it'
        observed = f'min_size 1 of {pool.size} copies'
        yield warning(thing, observed, expected, remedies.TIERS_PLAN)


def _groups(pool: str, states: dict[str, int] | Any) -> Iterator[Finding]:
    for state, count in sorted(states.items()):
        parts = set(state.split('+'))
        is_broken = bool(parts & _BROKEN) or not parts & {'active'}
        if is_broken or parts & _WEAKENED:
            level = Level.ERROR if is_broken else Level.WARNING
            command = remedies.GROUPS.format(pool=pool)
            yield Finding(
                level, f'pool {pool}', f'{count} placement groups {state}', 'active+clean', command
            )


def _pools(content: tier_types.TiersFile) -> Iterable[str]:
    return dict.fromkeys(name for tier in content.tiers.values() for name in tier.pools)


CHECKS = (
    Check(
        'health',
        System.CEPH,
        'the monitors complain of nothing',
        lambda sources: sources.cluster(),
        check_health,
    ),
    Check(
        'monitors',
        System.CEPH,
        'three or five monitors, all in the quorum',
        lambda sources: sources.cluster(),
        check_monitors,
    ),
    Check(
        'monitor-clocks',
        System.CEPH,
        'the clocks of the monitors agree',
        lambda sources: sources.cluster(),
        check_clocks,
    ),
    Check(
        'ceph-version',
        System.CEPH,
        'all daemons have one version, Ceph 16.2 or later',
        lambda sources: sources.cluster(),
        check_versions,
    ),
    Check(
        'clone-format',
        System.CEPH,
        'new clones have format 2, whose parents can be deleted',
        lambda sources: sources.cluster(),
        check_settings,
    ),
    Check(
        'redundancy',
        System.CEPH,
        'pools of tiers have their copies; only replicas are in pools of one copy',
        lambda sources: (sources.tiers(), sources.ceph(), sources.cluster()),
        check_redundancy,
    ),
    Check(
        'fill',
        System.CEPH,
        f'pools of tiers and the fullest OSD are below {FILL_WARNING * 100:.0f} % (warning) and '
        f'{FILL_ERROR * 100:.0f} % (error)',
        lambda sources: (sources.tiers(), sources.ceph(), sources.cluster()),
        check_fill,
    ),
    Check(
        'blocklist',
        System.CEPH,
        f'at most {MOST_BLOCKED} clients are on the blocklist',
        lambda sources: sources.cluster(),
        check_blocklist,
    ),
    Check(
        'blocklist-expiry',
        System.CEPH,
        'clients that librbd blocklists stay so for a week, as those that a fence cuts off',
        lambda sources: sources.blocklist_expiries(),
        check_blocklist_expiry,
    ),
)
