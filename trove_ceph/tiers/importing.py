# SPDX-License-Identifier: Apache-2.0
"""The tiers file that describes an existing cloud; pure functions of the observed state.

The file yields an empty plan: what it cannot describe exactly is marked to stay as it is
(``placement_groups: {keep: true}``, ``qos: keep``, literal grants of cephx users), and what cannot
be a tier is left out and noted.
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
    """The result of an import.

    :param content: the decoded content of the tiers file
    :param notes: what is left out, and why
    """

    content: dict[str, Any]
    notes: tuple[str, ...]


def describe(observed: resources.Observed, fsid: str, purposes: Mapping[str, Purpose]) -> Imported:
    """Return the content of a tiers file.

    :param observed: the state of Ceph, with the data pools of all RBD pools, and of Cinder and
        Trove if they were observed
    :param fsid: id of the Ceph cluster
    :param purposes: given purposes of pools by pool name, which override detected ones
    :raises InvalidTiersError: no pool can be a tier
    """
    assert observed.ceph
    notes: list[str] = []
    backends = _backends(observed.cinder, fsid, notes)
    chosen = _purposes(observed.ceph, backends, purposes, notes)
    tiers: dict[str, Any] = {}
    for pool, purpose in chosen.items():
        try:
            tier = _tier(observed.ceph, observed.ceph.pools[pool], purpose)
        except _NotATier as reason:
            notes.append(f'pool {pool} is not a tier: {reason}')
            continue
        name = pool
        backend = backends.get(pool)
        if backend and purpose is not Purpose.IMAGES:
            found = importing_types.describe(backend, observed.cinder, observed.trove, purpose)
            notes += found.notes
            tier |= found.keys
            name = found.name or pool
        if purpose is Purpose.DATA and 'volume_type' not in tier:
            notes.append(f'pool {pool} is not a tier: no volume type of Cinder offers it')
            continue
        tiers[name if name not in tiers and _NAME.fullmatch(name) else pool] = tier
    if not tiers:
        raise exceptions.InvalidTiersError('; '.join(['there is nothing to import', *notes]))
    _keep_excessive_shares(tiers)
    users = importing_users.describe(observed.ceph, tiers, notes)
    return Imported({'tiers': tiers, **({'users': users} if users else {})}, tuple(notes))


class _NotATier(Exception):
    """The reason why a pool cannot be described as a tier."""


def _backends(
    cinder: resources.CinderState | None, fsid: str, notes: list[str]
) -> dict[str, resources.RbdBackend]:
    """Return Cinder's back ends on this cluster by pool."""
    found: dict[str, resources.RbdBackend] = {}
    if cinder is None:
        return found
    if cinder.backends is None:
        raise exceptions.ServiceUnavailableError(
            "Cinder's scheduler, which knows the pools of the back ends, does not answer"
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
    """Return the purpose of each pool that can be a tier, ordered by pool name."""
    for pool in given.keys() - ceph.pools.keys():
        raise exceptions.InvalidTiersError(f'pool {pool} does not exist')
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
                f'pool {name} is not a tier: neither a back end of Cinder nor Glance uses it; '
                f'--purpose {name}=vault or another purpose makes it one'
            )
    return found


def _tier(ceph: resources.CephState, pool: resources.Pool, purpose: Purpose) -> dict[str, Any]:
    """Return the keys of a tier that describe Ceph."""
    if pool.profile:
        raise _NotATier('it is erasure-coded, and RBD needs a replicated pool beside it')
    if not _NAME.fullmatch(pool.name):
        raise _NotATier('its name has characters that the name of a tier must not have')
    data = ceph.pools[pool.data_pool] if pool.data_pool else pool
    placement, own = _placement(ceph, data), _placement(ceph, pool)
    keys: dict[str, Any] = {'purpose': str(purpose)}
    if placement.device_class:
        keys['device_class'] = placement.device_class
    keys['failure_domain'] = placement.failure_domain
    if placement.root != 'default':
        keys['crush_root'] = placement.root
    keys |= {'pool': pool.name, 'copies': pool.size, 'min_size': pool.min_size}
    if pool.size == 1 and purpose is not Purpose.REPLICA:
        keys['allow_single_copy'] = True
    if data is not pool:
        if (own.root, own.failure_domain) != (placement.root, placement.failure_domain):
            raise _NotATier(f'it is placed on {own}, but its data pool {data.name} on {placement}')
        keys['erasure'] = _erasure(ceph, data, own.device_class)
    keys['placement_groups'] = _placement_groups(data, coded=data is not pool)
    if data.compression_mode != 'none':
        keys['compression'] = _compression(data)
    return keys


def _placement(ceph: resources.CephState, pool: resources.Pool) -> resources.Placement:
    placement = ceph.rules[pool.rule].placement
    if placement is None:
        raise _NotATier(f'tiers do not support its CRUSH rule {pool.rule}')
    if placement.failure_domain not in tier_types.FAILURE_DOMAINS:
        raise _NotATier(f'tiers do not support its failure domain {placement.failure_domain}')
    return placement


def _erasure(
    ceph: resources.CephState, data: resources.Pool, metadata_class: str | None
) -> dict[str, Any]:
    profile = ceph.profiles.get(data.profile or '')
    if profile is None or profile.plugin not in ('jerasure', 'isa'):
        raise _NotATier(
            f'tiers do not support the erasure code profile {data.profile} of its data pool '
            f'{data.name}'
        )
    if profile.placement != ceph.rules[data.rule].placement:
        raise _NotATier(f'the rule of its data pool {data.name} differs from its profile')
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
        raise _NotATier(f'tiers do not support its compression mode {pool.compression_mode}')
    if pool.compression_algorithm is None:
        raise _NotATier('it uses the compression algorithm of the OSDs; set one for the pool')
    return {'mode': pool.compression_mode, 'algorithm': pool.compression_algorithm}


def _keep_excessive_shares(tiers: Mapping[str, dict[str, Any]]) -> None:
    """Do not describe shares that exceed 1 in total: to Ceph they are weights."""
    shares: dict[tuple[str, str | None], float] = {}
    for tier in tiers.values():
        devices = _devices(tier)
        shares[devices] = shares.get(devices, 0.0) + tier['placement_groups'].get('autoscale', 0.0)
    for tier in tiers.values():
        if shares[_devices(tier)] > 1 and 'autoscale' in tier['placement_groups']:
            tier['placement_groups'] = {'keep': True}


def _devices(tier: Mapping[str, Any]) -> tuple[str, str | None]:
    return tier.get('crush_root', 'default'), tier.get('device_class')


def purposes_of(texts: Iterable[str]) -> Iterator[tuple[str, Purpose]]:
    """Yield pool and purpose of each ``POOL=PURPOSE``.

    :raises InvalidTiersError: a text does not have this form
    """
    for text in texts:
        pool, _, purpose = text.rpartition('=')
        if not pool or purpose not in list(Purpose):
            raise exceptions.InvalidTiersError(
                f'--purpose {text}: must be POOL=PURPOSE; choose {", ".join(Purpose)}'
            )
        yield pool, Purpose(purpose)
