# SPDX-License-Identifier: Apache-2.0
"""The description of existing cephx users in a tiers file, with all their caps."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from trove_ceph.tiers import caps, resources, tier_types, tiers_file
from trove_ceph.tiers.tier_types import Purpose, Role

_POOL = re.compile(r'\bpool[= ]"?([A-Za-z0-9][A-Za-z0-9._-]*)')
_NAME = re.compile(r'client\.(?!admin$)[A-Za-z0-9][A-Za-z0-9._-]*')
_READ_ONLY = re.compile(r'osd (profile rbd-read-only|allow r(x)?) ')
#: The order in which roles are tried: the role with most grants first.
_ROLES = (Role.CINDER, Role.STORAGE, Role.GLANCE)


def pool_of_glance(users: Iterable[resources.User], pools: Collection[str]) -> str | None:
    """Return the pool of Glance's images: ``images``, or the only one that Glance writes to.

    :param pools: the candidates
    """
    if 'images' in pools:
        return 'images'
    found = {
        pool
        for user in users
        if 'glance' in user.name
        for each in caps.grants(user.caps)
        for pool in _written_pools(each)
        if pool in pools
    }
    return found.pop() if len(found) == 1 else None


def describe(
    ceph: resources.CephState, tiers: Mapping[str, Mapping[str, Any]], notes: list[str]
) -> dict[str, Any]:
    """Return the users with access to pools of the tiers.

    A user whose grants include all grants of a role is described by the role and its further
    grants. Any other user is described by its grants alone.
    """
    described = tiers_file.parse({'tiers': tiers})
    pools = {pool for tier in described.tiers.values() for pool in tier.pools}
    found: dict[str, Any] = {}
    for user in sorted(ceph.users.values(), key=lambda each: each.name):
        grants = caps.grants(user.caps)
        reached = {pool for each in grants for pool in _POOL.findall(each)} & pools
        if not reached or user.name == 'client.admin':
            continue
        services = {each.partition(' ')[0] for each in grants}
        if not _NAME.fullmatch(user.name) or services - set(tier_types.SERVICES):
            notes.append(f'cephx user {user.name} is left out and keeps its caps')
            continue
        found[user.name] = _user(user.name, grants, reached, described.tiers)
    return found


def _user(
    name: str, grants: frozenset[str], reached: set[str], tiers: Mapping[str, tier_types.Tier]
) -> dict[str, Any]:
    own = [tier.name for tier in tiers.values() if reached & set(tier.pools)]
    keys: dict[str, Any] = {}
    rest = grants
    for role in _ROLES:
        suitable = [each for each in tiers if tiers_file.suits(role, tiers[each].purpose)]
        chosen = tuple(each for each in own if each in suitable)
        needed = caps.grants(caps.derive(tier_types.User(name, role, chosen), tiers))
        if chosen and needed <= grants and _can_write(role, chosen, tiers):
            keys['role'] = str(role)
            if list(chosen) != suitable:
                keys['tiers'] = list(chosen)
            rest = grants - needed
            break
    pools = sorted(_writable_pools(rest) - {pool for tier in tiers.values() for pool in tier.pools})
    if 'role' in keys and pools:
        keys['pools'] = pools
        rest -= {
            f'{service} profile rbd pool={pool}' for pool in pools for service in ('mgr', 'osd')
        }
    if rest:
        keys['caps'] = caps.by_service(rest)
    return keys


def _can_write(role: Role, chosen: Iterable[str], tiers: Mapping[str, tier_types.Tier]) -> bool:
    """Return whether a role lets the user write to any of the tiers."""
    if role is Role.CINDER:
        return any(tiers[name].volume_type for name in chosen)
    return any(tiers[name].purpose is Purpose.IMAGES for name in chosen) or role is Role.STORAGE


def _writable_pools(grants: frozenset[str]) -> set[str]:
    """Return the pools with ``profile rbd`` for both the manager and the OSDs."""
    prefix = 'osd profile rbd pool='
    found = {each.removeprefix(prefix) for each in grants if each.startswith(prefix)}
    return {pool for pool in found if f'mgr profile rbd pool={pool}' in grants and ' ' not in pool}


def _written_pools(grant: str) -> list[str]:
    if not grant.startswith('osd ') or _READ_ONLY.match(grant):
        return []
    return _POOL.findall(grant)
