# SPDX-License-Identifier: Apache-2.0
"""Checks of the hosts and OSDs below the pools of tiers: what a loss leaves, how data spread."""

import collections
import math
import statistics
from collections.abc import Iterator

from trove_ceph import reference_figures
from trove_ceph.doctor import remedies
from trove_ceph.doctor.check import Check, System
from trove_ceph.doctor.cluster import ClusterFacts
from trove_ceph.doctor.finding import Finding, warning
from trove_ceph.tiers import resources, tier_types

#: A power of two is 75 % of the number that a tiers file wants at the least, and 150 % at the most.
_LEAST_ROUNDED = 0.75
LEAST_GROUPS = round(reference_figures.LEAST_GROUPS_PER_OSD * _LEAST_ROUNDED)
MOST_GROUPS = reference_figures.MOST_GROUPS_PER_OSD

Facts = tuple[tier_types.TiersFile, resources.CephState, ClusterFacts]


def check_healing(facts: Facts) -> Iterator[Finding]:
    """Yield the pools whose copies find no other place after the loss of a failure domain."""
    _, ceph, cluster = facts
    for pool, placement in _placed(facts):
        # What has one copy is gone with its OSD, and is not moved.
        if pool.size == 1:
            continue
        kind, thing = placement.failure_domain, f'pool {pool.name}'
        members = ceph.members(placement)
        if len(members) <= pool.size:
            yield warning(
                thing,
                f'{len(members)} x {kind} for {pool.size} copies or chunks',
                f'at least {pool.size + 1}, so that Ceph can heal itself after the loss of one',
                remedies.OSD_TREE,
            )
            continue
        fill = _fill_after_loss(placement, ceph, cluster)
        if fill >= cluster.backfillfull_ratio:
            yield warning(
                thing,
                f'{fill:.0%} full after the loss of the largest {kind}',
                f'below {cluster.backfillfull_ratio:.0%}, at which Ceph stops to heal itself',
                remedies.OSD_FILL,
            )


def _fill_after_loss(
    placement: resources.Placement, ceph: resources.CephState, cluster: ClusterFacts
) -> float:
    """Return how full the other OSDs are when all copies of the largest domain are on them."""
    sizes: collections.Counter[str | None] = collections.Counter()
    used = 0.0
    for osd in ceph.serving(placement):
        if use := cluster.osds.get(osd.number):
            sizes[osd.member_of(placement)] += use.size_bytes
            used += use.fill * use.size_bytes
    left = sizes.total() - max(sizes.values(), default=0)
    return used / left if left else 0.0


def check_domains(facts: Facts) -> Iterator[Finding]:
    """Yield the pools that may have all copies of an object on one of several hosts."""
    _, ceph, _ = facts
    for pool, placement in _placed(facts):
        hosts = {osd.buckets.get('host') for osd in ceph.serving(placement)}
        if pool.size > 1 and placement.failure_domain == 'osd' and len(hosts) > 1:
            yield warning(
                f'pool {pool.name}',
                f'copies are on different OSDs, which may be on one of {len(hosts)} hosts',
                'failure_domain host in the tiers file, or the loss of a host loses data',
                remedies.TIERS_PLAN,
            )


def check_classes(facts: Facts) -> Iterator[Finding]:
    """Yield the pools whose objects are on devices of several classes."""
    _, ceph, _ = facts
    for pool, placement in _placed(facts):
        classes = {str(osd.device_class) for osd in ceph.serving(placement)}
        if len(classes) > 1:
            yield warning(
                f'pool {pool.name}',
                f'its rule chooses OSDs of the classes {", ".join(sorted(classes))}',
                'device_class in the tiers file, or each write waits for the slowest class',
                remedies.TIERS_PLAN,
            )


def check_groups(facts: Facts) -> Iterator[Finding]:
    """Yield the device classes with too many placement groups for each OSD, or too few.

    Too few are no fault where Ceph's autoscaler chooses them: it begins with few. Where the tiers
    file has shares, its own number is none either.
    """
    content, ceph, cluster = facts
    autoscaled: dict[str, bool] = collections.defaultdict(bool)
    wanted: dict[str, float] = collections.defaultdict(float)
    of_tiers = _groups_by_pool(content)
    for pool, placement in _placed(facts):
        for name in {str(osd.device_class) for osd in ceph.serving(placement)}:
            autoscaled[name] |= pool.autoscale == 'on'
            wanted[name] += of_tiers.get(pool.name, 0)
    for name, is_autoscaled in sorted(autoscaled.items()):
        numbers = [
            cluster.osds[osd.number].groups
            for osd in ceph.osds
            if str(osd.device_class) == name and osd.number in cluster.osds
        ]
        if not numbers:
            continue
        mean, least, most = statistics.fmean(numbers), LEAST_GROUPS, MOST_GROUPS
        if wanted[name]:
            least = min(least, math.floor(wanted[name] * _LEAST_ROUNDED))
            most = max(most, math.ceil(wanted[name] * _LEAST_ROUNDED * 2))
        if mean > most:
            expected = f'at most {most}: more take memory, and peering after a failure longer'
        elif mean < least and not is_autoscaled:
            expected = f'at least {least}: with fewer, data spread unevenly over the OSDs'
        else:
            continue
        observed = f'{mean:.0f} placement groups on each OSD'
        yield warning(f'device class {name}', observed, expected, remedies.AUTOSCALE)


def _groups_by_pool(content: tier_types.TiersFile) -> dict[str, float]:
    """Return the placement groups on each OSD that the tiers file wants for pools with a share."""
    found = {}
    for tier in content.tiers.values():
        policy = tier.placement_groups
        if policy.share is not None:
            found[tier.erasure.pool if tier.erasure else tier.pool] = policy.share * policy.per_osd
    return found


def _placed(facts: Facts) -> Iterator[tuple[resources.Pool, resources.Placement]]:
    """Yield the pools of tiers with the placement of their rules, unless a rule has several."""
    content, ceph, _ = facts
    for name in dict.fromkeys(name for tier in content.tiers.values() for name in tier.pools):
        pool = ceph.pools.get(name)
        rule = ceph.rules.get(pool.rule) if pool else None
        if pool and rule and rule.placement:
            yield pool, rule.placement


CHECKS = (
    Check(
        'healing',
        System.CEPH,
        'after the loss of a failure domain, pools of tiers have a place for all their copies',
        lambda sources: (sources.tiers(), sources.ceph(), sources.cluster()),
        check_healing,
    ),
    Check(
        'failure-domains',
        System.CEPH,
        'no pool of a tier may have all copies of an object on one of several hosts',
        lambda sources: (sources.tiers(), sources.ceph(), sources.cluster()),
        check_domains,
    ),
    Check(
        'device-classes',
        System.CEPH,
        'each pool of a tier is on OSDs of one device class',
        lambda sources: (sources.tiers(), sources.ceph(), sources.cluster()),
        check_classes,
    ),
    Check(
        'placement-groups',
        System.CEPH,
        f'OSDs have {LEAST_GROUPS} to {MOST_GROUPS} placement groups, by the mean of their device '
        'class; others if the shares of the tiers file want them, fewer if the autoscaler does',
        lambda sources: (sources.tiers(), sources.ceph(), sources.cluster()),
        check_groups,
    ),
)
