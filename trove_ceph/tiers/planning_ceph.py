# SPDX-License-Identifier: Apache-2.0
"""The plan for Ceph: erasure code profiles, CRUSH rules and pools."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from trove_ceph.tiers import desired, resources, tier_types
from trove_ceph.tiers.changes import Change, Finding, Kind, Risk
from trove_ceph.tiers.resources import CephState, Placement, Pool

#: Settings of a pool that can be changed at any time without moving data; rbd is set last.
_HARMLESS = ('overwrites', 'compression_mode', 'compression_algorithm', 'data_pool', 'rbd')
#: The initial number of placement groups of Ceph's autoscaler.
_AUTOSCALED_PG_NUM = 32


def plan(
    content: tier_types.TiersFile, target: resources.Desired, ceph: CephState
) -> list[Change | Finding]:
    """Return the changes of profiles, rules and pools, and the problems that prevent them."""
    findings: list[Change | Finding] = []
    for tier in content.tiers.values():
        findings += _placement_problems(tier, target, ceph)
    findings += _profiles(target, ceph)
    findings += _rules(target, ceph)
    for pool in target.pools:
        findings += _pool(pool, target, ceph)
    findings += _refused_single_copies(target, ceph)
    if not any(isinstance(found, Finding) for found in findings):
        findings += _too_many_groups(target, ceph)
    return findings


def _placement_problems(
    tier: tier_types.Tier, target: resources.Desired, ceph: CephState
) -> Iterator[Finding]:
    """Yield the reasons why CRUSH cannot place an object of a tier.

    For pools whose placement does not change they are notes, as this plan is not the cause.
    """
    fatal = not all(
        _keeps_placement(pool, target, ceph) for pool in target.pools if pool.name in tier.pools
    )
    needs = [(desired.placement(tier), tier.copies, f'{tier.copies} copies need')]
    if tier.erasure:
        code = tier.erasure
        needs = [
            (desired.placement(tier), code.chunks, f'the code {code.k}+{code.m} needs'),
            (desired.metadata_placement(tier), tier.copies, f'{tier.copies} copies need'),
        ]
    for placement, parts, phrase in dict.fromkeys(needs):
        members = ceph.members(placement)
        device_class = placement.device_class
        if device_class and not any(osd.device_class == device_class for osd in ceph.osds):
            yield Finding(
                f'tier {tier.name}: there is no OSD of device class {device_class}', fatal
            )
        elif len(members) < parts:
            which = f' of device class {device_class}' if device_class else ''
            yield Finding(
                f'tier {tier.name}: {phrase} {parts} of failure domain {placement.failure_domain} '
                f'with OSDs{which} under {placement.root}, there '
                f'{"is" if len(members) == 1 else "are"} {len(members)}',
                fatal,
            )


def _refused_single_copies(target: resources.Desired, ceph: CephState) -> Iterator[Finding]:
    """Yield the pools that are to have one copy, if the monitors refuse that."""
    if ceph.allows_single_copy:
        return
    for pool in target.pools:
        found = ceph.pools.get(pool.name)
        if not pool.profile and pool.size == 1 and (found is None or found.size != 1):
            yield Finding(
                f'pool {pool.name} is to have one copy, and the monitors refuse that: run "ceph '
                'config set mon mon_allow_pool_size_one true" first'
            )


def _keeps_placement(pool: Pool, target: resources.Desired, ceph: CephState) -> bool:
    found = ceph.pools.get(pool.name)
    if found is None or found.size != pool.size:
        return False
    placements = {rule.name: rule.placement for rule in target.rules}
    return ceph.rules[found.rule].placement == placements[pool.rule]


def _profiles(target: resources.Desired, ceph: CephState) -> Iterator[Change | Finding]:
    for profile in target.profiles:
        if _is_coded_alike(profile, target, ceph):
            continue
        if profile.name not in ceph.profiles:
            yield Change(Kind.PROFILE, profile.name, None, None, profile)
        elif ceph.profiles[profile.name] != profile:
            yield Finding(
                f'erasure code profile {profile.name} exists with other values, and the code of a '
                f'pool cannot change: name another erasure pool'
            )


def _is_coded_alike(profile: resources.Profile, target: resources.Desired, ceph: CephState) -> bool:
    """Return whether the pool exists with an equal profile of another name."""
    pools = [pool for pool in target.pools if pool.profile == profile.name]
    found = [ceph.pools[pool.name].profile for pool in pools if _has(ceph, pool)]
    present = [ceph.profiles.get(name or '') for name in found]
    return len(present) == len(pools) and all(
        one is not None and dataclasses.replace(one, name=profile.name) == profile
        for one in present
    )


def _rules(target: resources.Desired, ceph: CephState) -> Iterator[Change | Finding]:
    in_use = {pool.name: ceph.pools[pool.name].rule for pool in target.pools if _has(ceph, pool)}
    for rule in target.rules:
        found = ceph.rules.get(rule.name)
        users = [pool for pool in target.pools if pool.rule == rule.name]
        if found is None:
            # An existing pool may have an equal rule of another name.
            if any(
                pool.name not in in_use or ceph.rules[in_use[pool.name]].placement != rule.placement
                for pool in users
            ):
                yield Change(Kind.RULE, rule.name, None, None, rule)
        elif found.placement != rule.placement:
            yield Finding(
                f'CRUSH rule {rule.name} exists and places on '
                f'{found.placement or "an unsupported choice"}, not on {rule.placement}: rename it'
            )


def _has(ceph: CephState, pool: Pool) -> bool:
    return pool.name in ceph.pools


def _pool(pool: Pool, target: resources.Desired, ceph: CephState) -> Iterator[Change | Finding]:
    found = ceph.pools.get(pool.name)
    if found is None:
        yield Change(Kind.POOL, pool.name, None, None, pool)
        return
    if (found.profile is None) != (pool.profile is None):
        kinds = ('replicated', 'erasure-coded') if pool.profile else ('erasure-coded', 'replicated')
        yield Finding(
            f'pool {pool.name} exists and is {kinds[0]}, not {kinds[1]}: name another pool'
        )
        return
    if pool.profile:
        yield from _code_problems(pool, found, target, ceph)
    yield from _pool_changes(pool, found, target, ceph)


def _code_problems(
    pool: Pool, found: Pool, target: resources.Desired, ceph: CephState
) -> Iterator[Finding]:
    present = ceph.profiles.get(found.profile or '')
    (profile,) = [each for each in target.profiles if each.name == pool.profile]
    if present is None or (present.k, present.m) != (profile.k, profile.m):
        code = f'{present.k}+{present.m}' if present else f'by profile {found.profile}'
        yield Finding(
            f'pool {pool.name} exists and is coded {code}, not {profile.k}+{profile.m}, which '
            f'cannot change: name another pool'
        )


def _pool_changes(
    pool: Pool, found: Pool, target: resources.Desired, ceph: CephState
) -> Iterator[Change | Finding]:
    """Yield the changes of an existing pool; changes of an empty pool carry no risk."""
    usage = ceph.usage.get(pool.name)
    # A pool is enabled for RBD last, so a pool without that is unfinished.
    holds_data = found.rbd or usage is None or usage.objects > 0

    def change(attribute: str, *risks: Risk) -> Change:
        before, after = getattr(found, attribute), getattr(pool, attribute)
        return Change(Kind.POOL, pool.name, attribute, before, after, risks if holds_data else ())

    yield from _rule_change(pool, found, target, ceph, holds_data)
    if pool.size > found.size:
        yield change('size', Risk.MOVES_DATA)
    elif pool.size < found.size:
        yield change('size', Risk.LOWERS_REDUNDANCY)
    if pool.min_size > found.min_size:
        pauses = pool.min_size > ceph.copies.get(pool.name, 0)
        yield change('min_size', *([Risk.PAUSES_IO] if pauses else []))
    elif pool.min_size < found.min_size:
        yield change('min_size', Risk.LOWERS_REDUNDANCY)
    if not pool.keeps_groups:
        yield from _group_changes(pool, found, change)
    for attribute in _HARMLESS:
        # A pool without compression keeps its algorithm, which has no effect.
        ignored = attribute == 'compression_algorithm' and pool.compression_mode == 'none'
        if getattr(pool, attribute) != getattr(found, attribute) and not ignored:
            yield change(attribute)


def _group_changes(
    pool: Pool, found: Pool, change: Callable[..., Change]
) -> Iterator[Change | Finding]:
    if pool.autoscale != found.autoscale:
        yield change('autoscale', *([Risk.MOVES_DATA] if pool.autoscale == 'on' else []))
    if abs(pool.target_size_ratio - found.target_size_ratio) > 1e-6:
        yield change('target_size_ratio', *([Risk.MOVES_DATA] if pool.autoscale == 'on' else []))
    if pool.pg_num is not None and pool.pg_num != found.pg_num:
        yield change('pg_num', Risk.MOVES_DATA)


def _rule_change(
    pool: Pool, found: Pool, target: resources.Desired, ceph: CephState, holds_data: bool
) -> Iterator[Change | Finding]:
    (rule,) = [each for each in target.rules if each.name == pool.rule]
    present = ceph.rules[found.rule].placement
    placement = rule.placement
    assert placement
    if present == placement:
        return
    if present is None:
        yield Finding(
            f'pool {pool.name} exists with the CRUSH rule {found.rule}, which tiers do not '
            f'support: give it another rule, or name another pool'
        )
    elif (present.root, present.device_class) != (placement.root, placement.device_class):
        yield Finding(
            f'pool {pool.name} exists on {present}, not on {placement}: other devices need another '
            f'tier, so name another pool and retype the volumes'
        )
    elif pool.profile:
        yield Finding(
            f'pool {pool.name} exists with failure domain {present.failure_domain}, not '
            f'{placement.failure_domain}, which cannot change in an erasure-coded pool: name '
            f'another pool'
        )
    else:
        yield Change(
            Kind.POOL,
            pool.name,
            'rule',
            found.rule,
            pool.rule,
            _rule_risks(present, placement) if holds_data else (),
        )


def _rule_risks(present: Placement, placement: Placement) -> tuple[Risk, ...]:
    width = tier_types.FAILURE_DOMAINS.index
    narrower = present.failure_domain in tier_types.FAILURE_DOMAINS and width(
        placement.failure_domain
    ) < width(present.failure_domain)
    return (Risk.MOVES_DATA, Risk.LOWERS_REDUNDANCY) if narrower else (Risk.MOVES_DATA,)


def _too_many_groups(target: resources.Desired, ceph: CephState) -> Iterator[Finding]:
    """Yield the device classes whose OSDs would exceed ``mon_max_pg_per_osd``."""
    placements = {rule.name: rule.placement for rule in (*ceph.rules.values(), *target.rules)}
    before = _groups_per_osd(ceph.pools.values(), placements, ceph)
    pools = {**ceph.pools, **{pool.name: pool for pool in target.pools}}
    after = _groups_per_osd(pools.values(), placements, ceph)
    reported = set()
    for osd in ceph.osds:
        load, limit = after[osd.number], max(ceph.max_pgs_per_osd, before[osd.number])
        if load > limit and osd.device_class not in reported:
            reported.add(osd.device_class)
            yield Finding(
                f'device class {osd.device_class}: {round(load)} placement groups on each OSD, '
                f'including copies, exceed mon_max_pg_per_osd = {ceph.max_pgs_per_osd}: lower '
                f'count or share of its tiers'
            )


def _groups_per_osd(
    pools: Iterable[Pool], placements: Mapping[str, Placement | None], ceph: CephState
) -> dict[int, float]:
    """Return the expected number of placement groups on each OSD."""
    load = {osd.number: 0.0 for osd in ceph.osds}
    for pool in pools:
        placement = placements.get(pool.rule)
        osds = ceph.serving(placement) if placement else [osd for osd in ceph.osds if osd.serves]
        groups = _AUTOSCALED_PG_NUM if pool.pg_num is None else pool.pg_num
        for osd in osds:
            load[osd.number] += groups * pool.size / len(osds)
    return load
