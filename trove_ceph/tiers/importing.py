# SPDX-License-Identifier: Apache-2.0
"""The tiers file that describes what is there; pure functions of what was observed.

The file is made so that the plan which follows from it is empty: what has no exact description is
kept as it is (``placement_groups: {keep: true}``, ``qos: keep``, grants of cephx users word for
word), and what is no tier is left out and noted.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.tiers import importing_types, importing_users, resources, tier_types
from trove_ceph.tiers.tier_types import Purpose

_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*')
_MODES = ('none', 'passive', 'aggressive', 'force')


@dataclasses.dataclass(frozen=True)
class Imported:
    """What was found.

    :param content: of the tiers file
    :param notes: what was left out, and why
    """

    content: dict[str, Any]
    notes: tuple[str, ...]


def describe(observed: resources.Observed, fsid: str, purposes: Mapping[str, Purpose]) -> Imported:
    """Return the content of a tiers file.

    :param observed: Ceph, with the data pools of all pools for RBD, and Cinder and Trove where
        they were looked at
    :param fsid: of the Ceph cluster
    :param purposes: what pools are for, by their names, where it is known better than it shows
    :raises InvalidTiersError: there is no pool that can be a tier
    """
    assert observed.ceph
    notes: list[str] = []
    backends = _backends(observed.cinder, fsid, notes)
    chosen = _purposes(observed.ceph, backends, purposes, notes)
    tiers: dict[str, Any] = {}
    for pool, purpose in chosen.items():
        try:
            tier = _tier(observed.ceph, observed.ceph.pools[pool], purpose)
        except _NoTier as reason:
            notes.append(f'pool {pool} is no tier: {reason}')
            continue
        name = pool
        backend = backends.get(pool)
        if backend and purpose is not Purpose.IMAGES:
            found = importing_types.describe(backend, observed.cinder, observed.trove, purpose)
            notes += found.notes
            tier |= found.keys
            name = found.name or pool
        if purpose is Purpose.DATA and 'volume_type' not in tier:
            notes.append(f'pool {pool} is no tier: Cinder offers it by no volume type')
            continue
        tiers[name if name not in tiers and _NAME.fullmatch(name) else pool] = tier
    if not tiers:
        raise exceptions.InvalidTiersError('; '.join(['there is nothing to import', *notes]))
    _keep_excessive_shares(tiers)
    users = importing_users.describe(observed.ceph, tiers, notes)
    return Imported({'tiers': tiers, **({'users': users} if users else {})}, tuple(notes))


class _NoTier(Exception):
    """Why a pool cannot be described as a tier."""


def _backends(
    cinder: resources.CinderState | None, fsid: str, notes: list[str]
) -> dict[str, resources.RbdBackend]:
    """Return Cinder's back ends on this cluster by their pools."""
    found: dict[str, resources.RbdBackend] = {}
    if cinder is None:
        return found
    if cinder.backends is None:
        raise exceptions.ServiceUnavailableError(
            "Cinder's scheduler does not answer, which knows the pools of the back ends"
        )
    for backend in sorted(cinder.rbd_backends, key=lambda each: (each.name, each.pool)):
        if backend.fsid != fsid:
            notes.append(f'back end {backend.name} is on another Ceph cluster, {backend.fsid}')
        elif backend.pool in found and found[backend.pool].name != backend.name:
            first = found[backend.pool].name
            notes.append(f'back end {backend.name} shares the pool {backend.pool} with {first}')
        elif backend.name in [each.name for each in found.values() if each.pool != backend.pool]:
            notes.append(f'back end {backend.name} has several pools; {backend.pool} is left out')
        else:
            found.setdefault(backend.pool, backend)
    return found


def _purposes(
    ceph: resources.CephState,
    backends: Mapping[str, resources.RbdBackend],
    given: Mapping[str, Purpose],
    notes: list[str],
) -> dict[str, Purpose]:
    """Return what each pool that can be a tier is for, in the order of their names."""
    for pool in given.keys() - ceph.pools.keys():
        raise exceptions.InvalidTiersError(f'there is no pool {pool}')
    data_pools = {pool.data_pool for pool in ceph.pools.values()}
    free = [
        name
        for name, pool in ceph.pools.items()
        if pool.rbd and name not in backends and name not in given and name not in data_pools
    ]
    images = importing_users.pool_of_glance(ceph.users.values(), free)
    found = {}
    for name in sorted(ceph.pools):
        if name in given:
            found[name] = given[name]
        elif name in backends:
            found[name] = Purpose.DATA
        elif name == images:
            found[name] = Purpose.IMAGES
        elif name in free:
            notes.append(
                f'pool {name} is no tier: neither a back end of Cinder nor Glance uses it; '
                f'--purpose {name}=vault or another purpose makes it one'
            )
    return found


def _tier(ceph: resources.CephState, pool: resources.Pool, purpose: Purpose) -> dict[str, Any]:
    """Return the keys of a tier that are Ceph's."""
    if pool.profile:
        raise _NoTier('it is erasure-coded, and RBD needs a replicated pool beside it')
    if not _NAME.fullmatch(pool.name):
        raise _NoTier('its name has characters that names of tiers cannot have')
    data = ceph.pools[pool.data_pool] if pool.data_pool else pool
    place, own = _placement(ceph, data), _placement(ceph, pool)
    keys: dict[str, Any] = {'purpose': str(purpose)}
    if place.device_class:
        keys['device_class'] = place.device_class
    keys['failure_domain'] = place.failure_domain
    if place.root != 'default':
        keys['crush_root'] = place.root
    keys |= {'pool': pool.name, 'copies': pool.size, 'min_size': pool.min_size}
    if pool.size == 1 and purpose is not Purpose.REPLICA:
        keys['allow_single_copy'] = True
    if data is not pool:
        if (own.root, own.failure_domain) != (place.root, place.failure_domain):
            raise _NoTier(f'it lies on {own}, and its data pool {data.name} on {place}')
        keys['erasure'] = _erasure(ceph, data, own.device_class)
    keys['placement_groups'] = _placement_groups(data, coded=data is not pool)
    if data.compression_mode != 'none':
        keys['compression'] = _compression(data)
    return keys


def _placement(ceph: resources.CephState, pool: resources.Pool) -> resources.Placement:
    place = ceph.rules[pool.rule].placement
    if place is None:
        raise _NoTier(f'its CRUSH rule {pool.rule} is not of a kind that tiers have')
    if place.failure_domain not in tier_types.FAILURE_DOMAINS:
        raise _NoTier(f'its failure domain is {place.failure_domain}')
    return place


def _erasure(
    ceph: resources.CephState, data: resources.Pool, metadata_class: str | None
) -> dict[str, Any]:
    profile = ceph.profiles.get(data.profile or '')
    if profile is None or profile.plugin not in ('jerasure', 'isa'):
        raise _NoTier(
            f'its data pool {data.name} is coded by profile {data.profile}, of no kind '
            f'that tiers have'
        )
    if profile.placement != ceph.rules[data.rule].placement:
        raise _NoTier(f'the rule of its data pool {data.name} differs from its profile')
    return {
        'k': profile.k,
        'm': profile.m,
        'plugin': profile.plugin,
        'technique': profile.technique,
        'pool': data.name,
        'min_size': data.min_size,
        'metadata_device_class': metadata_class,
    }


def _placement_groups(pool: resources.Pool, coded: bool) -> dict[str, Any]:
    if not coded and pool.autoscale == 'off' and pool.pg_num and _is_power_of_two(pool.pg_num):
        if not pool.target_size_ratio:
            return {'count': pool.pg_num}
    if not coded and pool.autoscale == 'on' and 0 < pool.target_size_ratio <= 1:
        return {'autoscale': pool.target_size_ratio}
    return {'keep': True}


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0


def _compression(pool: resources.Pool) -> dict[str, Any]:
    if pool.compression_mode not in _MODES:
        raise _NoTier(f'its compression mode is {pool.compression_mode}')
    if pool.compression_algorithm is None:
        raise _NoTier('it is compressed by the algorithm of the OSDs; set one for the pool')
    return {'mode': pool.compression_mode, 'algorithm': pool.compression_algorithm}


def _keep_excessive_shares(tiers: Mapping[str, dict[str, Any]]) -> None:
    """Leave shares as they are which add up to more than all: to Ceph they are weights."""
    shares: dict[tuple[str, str | None], float] = {}
    for tier in tiers.values():
        place = _place(tier)
        shares[place] = shares.get(place, 0.0) + tier['placement_groups'].get('autoscale', 0.0)
    for tier in tiers.values():
        if shares[_place(tier)] > 1 and 'autoscale' in tier['placement_groups']:
            tier['placement_groups'] = {'keep': True}


def _place(tier: Mapping[str, Any]) -> tuple[str, str | None]:
    return tier.get('crush_root', 'default'), tier.get('device_class')


def purposes_of(texts: Iterable[str]) -> Iterator[tuple[str, Purpose]]:
    """Yield pool and purpose of each ``POOL=PURPOSE``.

    :raises InvalidTiersError: one is not of this form
    """
    for text in texts:
        pool, _, purpose = text.rpartition('=')
        if not pool or purpose not in list(Purpose):
            raise exceptions.InvalidTiersError(
                f'--purpose {text}: must be POOL=PURPOSE; choose {", ".join(Purpose)}'
            )
        yield pool, Purpose(purpose)
