# SPDX-License-Identifier: Apache-2.0
"""What has to change in Ceph: erasure code profiles, CRUSH rules and pools."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from trove_ceph.tiers import desired, resources, tier_types
from trove_ceph.tiers.changes import Change, Finding, Kind, Risk
from trove_ceph.tiers.resources import CephState, Placement, Pool

#: Settings of a pool that can be changed at any time and move nothing; the last ends its making.
_HARMLESS = ('overwrites', 'compression_mode', 'compression_algorithm', 'data_pool', 'rbd')
#: What Ceph's autoscaler begins with.
_AUTOSCALED_PG_NUM = 32


def plan(
    content: tier_types.TiersFile, wanted: resources.Desired, ceph: CephState
) -> list[Change | Finding]:
    """Return the changes of profiles, rules and pools, and what is in their way."""
    findings: list[Change | Finding] = []
    for tier in content.tiers.values():
        findings += _placement_problems(tier, wanted, ceph)
    findings += _profiles(wanted, ceph)
    findings += _rules(wanted, ceph)
    for pool in wanted.pools:
        findings += _pool(pool, wanted, ceph)
    if not any(isinstance(found, Finding) for found in findings):
        findings += _too_many_groups(wanted, ceph)
    return findings


def _placement_problems(
    tier: tier_types.Tier, wanted: resources.Desired, ceph: CephState
) -> Iterator[Finding]:
    """Yield why CRUSH could not place an object of a tier.

    Of pools that are there and stay as they are it is a note: nothing that is done here caused it.
    """
    fatal = not all(
        _stays_as_placed(pool, wanted, ceph) for pool in wanted.pools if pool.name in tier.pools
    )
    needs = [(desired.placement(tier), tier.copies, f'{tier.copies} copies need')]
    if tier.erasure:
        code = tier.erasure
        needs = [
            (desired.placement(tier), code.chunks, f'the code {code.k}+{code.m} needs'),
            (desired.metadata_placement(tier), tier.copies, f'{tier.copies} copies need'),
        ]
    for place, parts, phrase in dict.fromkeys(needs):
        members = ceph.members(place)
        if place.device_class and not any(
            osd.device_class == place.device_class for osd in ceph.osds
        ):
            yield Finding(
                f'tier {tier.name}: there is no OSD of device class {place.device_class}', fatal
            )
        elif len(members) < parts:
            which = f' of device class {place.device_class}' if place.device_class else ''
            yield Finding(
                f'tier {tier.name}: {phrase} {parts} of failure domain {place.failure_domain} with '
                f'OSDs{which} under {place.root}, there '
                f'{"is" if len(members) == 1 else "are"} {len(members)}',
                fatal,
            )


def _stays_as_placed(pool: Pool, wanted: resources.Desired, ceph: CephState) -> bool:
    found = ceph.pools.get(pool.name)
    if found is None or found.size != pool.size:
        return False
    places = {rule.name: rule.placement for rule in wanted.rules}
    return ceph.rules[found.rule].placement == places[pool.rule]


def _profiles(wanted: resources.Desired, ceph: CephState) -> Iterator[Change | Finding]:
    for profile in wanted.profiles:
        if _is_coded_alike(profile, wanted, ceph):
            continue
        if profile.name not in ceph.profiles:
            yield Change(Kind.PROFILE, profile.name, None, None, profile)
        elif ceph.profiles[profile.name] != profile:
            yield Finding(
                f'erasure code profile {profile.name} exists with other values, and the code of a '
                f'pool cannot change: name another erasure pool'
            )


def _is_coded_alike(profile: resources.Profile, wanted: resources.Desired, ceph: CephState) -> bool:
    """Tell whether the pool is there, by a profile of another name that does the same."""
    pools = [pool for pool in wanted.pools if pool.profile == profile.name]
    found = [ceph.pools[pool.name].profile for pool in pools if _has(ceph, pool)]
    present = [ceph.profiles.get(name or '') for name in found]
    return len(present) == len(pools) and all(
        one is not None and dataclasses.replace(one, name=profile.name) == profile
        for one in present
    )


def _rules(wanted: resources.Desired, ceph: CephState) -> Iterator[Change | Finding]:
    in_use = {pool.name: ceph.pools[pool.name].rule for pool in wanted.pools if _has(ceph, pool)}
    for rule in wanted.rules:
        found = ceph.rules.get(rule.name)
        users = [pool for pool in wanted.pools if pool.rule == rule.name]
        if found is None:
            # A pool that was taken over has a rule that does the same under another name.
            if any(
                pool.name not in in_use or ceph.rules[in_use[pool.name]].placement != rule.placement
                for pool in users
            ):
                yield Change(Kind.RULE, rule.name, None, None, rule)
        elif found.placement != rule.placement:
            yield Finding(
                f'CRUSH rule {rule.name} exists and places on '
                f'{found.placement or "terms of its own"}, not on {rule.placement}: rename it'
            )


def _has(ceph: CephState, pool: Pool) -> bool:
    return pool.name in ceph.pools


def _pool(pool: Pool, wanted: resources.Desired, ceph: CephState) -> Iterator[Change | Finding]:
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
        yield from _code_problems(pool, found, wanted, ceph)
    yield from _pool_changes(pool, found, wanted, ceph)


def _code_problems(
    pool: Pool, found: Pool, wanted: resources.Desired, ceph: CephState
) -> Iterator[Finding]:
    present = ceph.profiles.get(found.profile or '')
    (profile,) = [each for each in wanted.profiles if each.name == pool.profile]
    if present is None or (present.k, present.m) != (profile.k, profile.m):
        code = f'{present.k}+{present.m}' if present else f'by profile {found.profile}'
        yield Finding(
            f'pool {pool.name} exists and is coded {code}, not {profile.k}+{profile.m}, which '
            f'cannot change: name another pool'
        )


def _pool_changes(
    pool: Pool, found: Pool, wanted: resources.Desired, ceph: CephState
) -> Iterator[Change | Finding]:
    """Yield the changes of a pool that exists; a pool that holds nothing has nothing to lose."""
    usage = ceph.usage.get(pool.name)
    # Enabling it for RBD is the last step of making a pool: without that it is unfinished.
    holds_data = found.rbd or usage is None or usage.objects > 0

    def change(attribute: str, *risks: Risk) -> Change:
        before, after = getattr(found, attribute), getattr(pool, attribute)
        return Change(Kind.POOL, pool.name, attribute, before, after, risks if holds_data else ())

    yield from _rule_change(pool, found, wanted, ceph, holds_data)
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
        # What is not compressed has no need of an algorithm, and keeps the one it has.
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
    pool: Pool, found: Pool, wanted: resources.Desired, ceph: CephState, holds_data: bool
) -> Iterator[Change | Finding]:
    (rule,) = [each for each in wanted.rules if each.name == pool.rule]
    present = ceph.rules[found.rule].placement
    place = rule.placement
    assert place
    if present == place:
        return
    if present is None:
        yield Finding(
            f'pool {pool.name} exists with the CRUSH rule {found.rule}, which is not of a kind '
            f'that tiers have: give it another rule, or name another pool'
        )
    elif (present.root, present.device_class) != (place.root, place.device_class):
        yield Finding(
            f'pool {pool.name} exists on {present}, not on {place}: another medium is another '
            f'tier, so name another pool and retype the volumes'
        )
    elif pool.profile:
        yield Finding(
            f'pool {pool.name} exists by failure domain {present.failure_domain}, not '
            f'{place.failure_domain}; that of a coded pool is not changed: name another pool'
        )
    else:
        yield Change(
            Kind.POOL,
            pool.name,
            'rule',
            found.rule,
            pool.rule,
            _moving(present, place) if holds_data else (),
        )


def _moving(present: Placement, place: Placement) -> tuple[Risk, ...]:
    width = tier_types.FAILURE_DOMAINS.index
    narrower = present.failure_domain in tier_types.FAILURE_DOMAINS and width(
        place.failure_domain
    ) < width(present.failure_domain)
    return (Risk.MOVES_DATA, Risk.LOWERS_REDUNDANCY) if narrower else (Risk.MOVES_DATA,)


def _too_many_groups(wanted: resources.Desired, ceph: CephState) -> Iterator[Finding]:
    """Yield the device classes whose OSDs would exceed ``mon_max_pg_per_osd``."""
    places = {rule.name: rule.placement for rule in (*ceph.rules.values(), *wanted.rules)}
    before = _groups_per_osd(ceph.pools.values(), places, ceph)
    pools = {**ceph.pools, **{pool.name: pool for pool in wanted.pools}}
    after = _groups_per_osd(pools.values(), places, ceph)
    told = set()
    for osd in ceph.osds:
        load = after[osd.number]
        if load > max(ceph.max_pgs_per_osd, before[osd.number]) and osd.device_class not in told:
            told.add(osd.device_class)
            yield Finding(
                f'device class {osd.device_class}: {round(load)} placement groups on each OSD, '
                f'copies counted, are more than mon_max_pg_per_osd = {ceph.max_pgs_per_osd}: lower '
                f'count or share of its tiers'
            )


def _groups_per_osd(
    pools: Iterable[Pool], places: Mapping[str, Placement | None], ceph: CephState
) -> dict[int, float]:
    """Return the expected number of placement groups on each OSD."""
    load = {osd.number: 0.0 for osd in ceph.osds}
    for pool in pools:
        place = places.get(pool.rule)
        osds = ceph.serving(place) if place else [osd for osd in ceph.osds if osd.serves]
        groups = _AUTOSCALED_PG_NUM if pool.pg_num is None else pool.pg_num
        for osd in osds:
            load[osd.number] += groups * pool.size / len(osds)
    return load
