# SPDX-License-Identifier: Apache-2.0
"""Parsing of the tiers file: schema, defaults, and consistency between keys."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trove_ceph import exceptions, schema_problems, yaml_file
from trove_ceph.mysql import tuning
from trove_ceph.tiers import schema, tier_types
from trove_ceph.tiers.tier_types import Purpose, Role, TierLimits
from trove_ceph.yaml_file import Problem

DEFAULT_PATH = '/etc/trove-ceph/tiers.yaml'
_METADATA_PG_NUM = 16
#: The purposes of tiers to which a role applies.
_SUITS: dict[Role, Callable[[Purpose], bool]] = {
    Role.CINDER: lambda purpose: True,
    Role.GLANCE: lambda purpose: purpose is Purpose.IMAGES,
    Role.STORAGE: lambda purpose: purpose is not Purpose.IMAGES,
}


def load(path: str) -> tier_types.TiersFile:
    """Read and check a file.

    :raises InvalidTiersError: the file cannot be read or is invalid; the message names line and key
    """
    return yaml_file.load(path, parse, exceptions.InvalidTiersError, 'tiers and users')


def suits(role: Role, purpose: Purpose) -> bool:
    """Return whether a role applies to tiers of a purpose."""
    return _SUITS[role](purpose)


def parse(content: Mapping[str, Any]) -> tier_types.TiersFile:
    """Return the tiers and users of a decoded file.

    :raises Problem: a value is invalid; the error carries the path of the key
    """
    for path, what in schema_problems.problems(content, schema.TIERS_FILE):
        raise Problem(path, what)
    tiers = {name: _tier(name, each) for name, each in content['tiers'].items()}
    for problem in _problems_between(tiers):
        raise problem
    users = {name: _user(name, each, tiers) for name, each in (content.get('users') or {}).items()}
    return tier_types.TiersFile(tiers, users)


def _tier(name: str, content: Mapping[str, Any]) -> tier_types.Tier:
    purpose = Purpose(content['purpose'])
    copies = content['copies']
    compression = content.get('compression', {'mode': 'none'})
    iops = content.get('iops')
    tier = tier_types.Tier(
        name=name,
        purpose=purpose,
        device_class=content.get('device_class'),
        failure_domain=content.get('failure_domain', 'host'),
        crush_root=content.get('crush_root', 'default'),
        pool=content['pool'],
        copies=copies,
        # Ceph's own default: half of the copies, rounded up.
        min_size=content.get('min_size', copies - copies // 2),
        erasure=_erasure(content),
        placement_groups=tier_types.PlacementGroups(**content['placement_groups']),
        compression_mode=compression['mode'],
        compression_algorithm=compression.get('algorithm', 'snappy'),
        iops=tuning.Tier(iops['per_gib'], iops['floor'], iops['cap']) if iops else None,
        throughput_mib_per_sec=content.get('throughput_mib_per_sec'),
        qos=TierLimits(content.get('qos', _default_qos(content))),
        volume_type=_volume_type(content, purpose),
        datastore_versions=tuple(content.get('datastore_versions', ())),
        replicas_on=content.get('replicas_on'),
        latency_ms=content.get('latency_ms'),
    )
    for key, what in _problems_within(tier, content.get('allow_single_copy', False)):
        raise Problem(('tiers', name, *key), what)
    return tier


def _default_qos(content: Mapping[str, Any]) -> TierLimits:
    promises = 'iops' in content or 'throughput_mib_per_sec' in content
    return TierLimits.IMAGE if promises and 'volume_type' in content else TierLimits.NONE


def _erasure(content: Mapping[str, Any]) -> tier_types.Erasure | None:
    given = content.get('erasure')
    if given is None:
        return None
    k, m = given['k'], given['m']
    defaults = {
        'plugin': 'jerasure',
        'technique': 'reed_sol_van',
        'pool': f'{content["pool"]}-data',
        # Ceph's own default: one chunk more than reading needs if the code tolerates two losses.
        'min_size': k + min(1, m - 1),
        'metadata_device_class': content.get('device_class'),
        'metadata_pg_num': _METADATA_PG_NUM,
    }
    return tier_types.Erasure(**defaults | given)


def _volume_type(content: Mapping[str, Any], purpose: Purpose) -> tier_types.VolumeType | None:
    given = content.get('volume_type')
    if given is None:
        return None
    defaults = {'description': '', 'public': purpose is Purpose.DATA}
    return tier_types.VolumeType(**defaults | given)


def _problems_within(
    tier: tier_types.Tier, allow_single_copy: bool
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield key and problem of values of one tier that contradict each other."""
    if tier.copies == 1 and tier.purpose is not Purpose.REPLICA and not allow_single_copy:
        yield (
            ('copies',),
            f'one copy is for the purpose replica only, not for {tier.purpose}; on a cloud for '
            f'tests, add allow_single_copy: true',
        )
    yield from _redundancy_problems(tier)
    if tier.purpose is Purpose.DATA and tier.volume_type is None:
        yield ('volume_type',), 'is missing: a tier for data is offered through Cinder'
    yield from _promise_problems(tier)
    if tier.purpose is Purpose.IMAGES and tier.volume_type is not None:
        yield ('volume_type',), 'a tier for images holds no volumes'
    if tier.purpose is not Purpose.DATA and tier.datastore_versions:
        yield (
            ('datastore_versions',),
            f'instances are created on tiers with the purpose data, not {tier.purpose}',
        )
    if tier.purpose is not Purpose.DATA and tier.replicas_on is not None:
        yield (
            ('replicas_on',),
            f'the sources of replicas are on tiers with the purpose data, not {tier.purpose}',
        )


def _redundancy_problems(tier: tier_types.Tier) -> Iterator[tuple[tuple[str, ...], str]]:
    if tier.min_size > tier.copies:
        yield ('min_size',), f'{tier.min_size} is more than the {tier.copies} copies'
    counts: list[tuple[tuple[str, ...], int | None]] = [
        (('placement_groups', 'count'), tier.placement_groups.count)
    ]
    if tier.erasure:
        code = tier.erasure
        counts.append((('erasure', 'metadata_pg_num'), code.metadata_pg_num))
        if not code.k <= code.min_size <= code.chunks:
            yield (
                ('erasure', 'min_size'),
                f'{code.min_size} must be from k = {code.k} to k + m = {code.chunks}',
            )
    for key, count in counts:
        if count is not None and count & (count - 1):
            yield key, f'{count} is not a power of two'


def _promise_problems(tier: tier_types.Tier) -> Iterator[tuple[tuple[str, ...], str]]:
    if tier.iops and tier.iops.iops_cap < tier.iops.iops_floor:
        cap, floor = tier.iops.iops_cap, tier.iops.iops_floor
        yield ('iops', 'cap'), f'{cap} is below the floor of {floor}'
    if tier.qos is TierLimits.NONE:
        return
    if tier.qos is TierLimits.KEEP:
        if tier.volume_type is None:
            yield ('qos',), 'keep is for the QoS specs of a volume type, and this tier has none'
        return
    if tier.iops is None and tier.throughput_mib_per_sec is None:
        yield ('qos',), f'{tier.qos} has nothing to limit: set iops or throughput_mib_per_sec'
    if tier.volume_type is None:
        yield ('qos',), 'limits apply to volumes, and this tier has no volume_type'
    if tier.qos is not TierLimits.FRONT_END or tier.iops is None:
        return
    if tier.iops.iops_per_gib < 1 or tier.iops.iops_per_gib % 1:
        yield (
            ('iops', 'per_gib'),
            f'{tier.iops.iops_per_gib} must be a whole number from 1 on, as front-end limits of '
            f'Cinder require; round it and rely on the cap, or choose qos: image',
        )


def _problems_between(tiers: Mapping[str, tier_types.Tier]) -> Iterator[Problem]:
    """Yield conflicts between tiers."""
    taken: dict[tuple[str, str], str] = {}
    for tier in tiers.values():
        for kind, value, key in _exclusive(tier):
            owner = taken.setdefault((kind, value), tier.name)
            if owner != tier.name:
                yield Problem(('tiers', tier.name, *key), f'{kind} {value} belongs to tier {owner}')
        if problem := _replicas_problem(tier, tiers):
            yield Problem(('tiers', tier.name, 'replicas_on'), problem)
    shares: dict[tuple[str, str | None], float] = {}
    for tier in tiers.values():
        groups = tier.placement_groups
        share = groups.share or groups.autoscale or 0
        devices = (tier.crush_root, tier.device_class)
        shares[devices] = shares.get(devices, 0) + share
        if shares[devices] > 1.0001:
            yield Problem(
                ('tiers', tier.name, 'placement_groups'),
                f'the shares of device class {tier.device_class or "all"} add up to '
                f'{shares[devices]:g}, which is more than 1',
            )


def _replicas_problem(tier: tier_types.Tier, tiers: Mapping[str, tier_types.Tier]) -> str | None:
    """Return why replicas cannot be on the tier that a tier names."""
    if tier.replicas_on is None:
        return None
    named = tiers.get(tier.replicas_on)
    if named is None:
        choices = [one.name for one in tiers.values() if one.purpose is Purpose.REPLICA]
        return (
            f'{tier.replicas_on!r} is not a tier; choose a tier with the purpose replica: '
            f'{", ".join(choices) or "there is none"}'
        )
    if named.purpose is not Purpose.REPLICA:
        return f'tier {named.name} has the purpose {named.purpose}, and must have replica'
    if named.volume_type is None:
        return f'tier {named.name} has no volume_type, with which Cinder could offer it'
    return None


def _exclusive(tier: tier_types.Tier) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    yield 'pool', tier.pool, ('pool',)
    if tier.erasure:
        if tier.erasure.pool == tier.pool:
            raise Problem(
                ('tiers', tier.name, 'erasure', 'pool'), 'must not be the pool for the metadata'
            )
        yield 'pool', tier.erasure.pool, ('erasure', 'pool')
    if tier.volume_type:
        yield 'volume type', tier.volume_type.name, ('volume_type', 'name')
        yield 'back end', tier.volume_type.backend, ('volume_type', 'backend')


def _user(
    name: str, content: Mapping[str, Any], tiers: Mapping[str, tier_types.Tier]
) -> tier_types.User:
    if not content.keys() & {'role', 'pools', 'caps'}:
        raise Problem(('users', name), 'lacks role, pools or caps')
    role = Role(content['role']) if 'role' in content else None
    own = _user_tiers(name, role, content, tiers) if role else ()
    if role is None and 'tiers' in content:
        raise Problem(('users', name, 'tiers'), 'requires a role, and this user has none')
    return tier_types.User(
        name,
        role,
        own,
        pools=tuple(content.get('pools', ())),
        caps={service: tuple(grants) for service, grants in content.get('caps', {}).items()},
        exclusive=content.get('exclusive', False),
    )


def _user_tiers(
    name: str, role: Role, content: Mapping[str, Any], tiers: Mapping[str, tier_types.Tier]
) -> tuple[str, ...]:
    suitable = [tier.name for tier in tiers.values() if suits(role, tier.purpose)]
    for number, tier in enumerate(content.get('tiers', ())):
        path = ('users', name, 'tiers', number)
        if tier not in tiers:
            raise Problem(path, f'{tier!r} is not a tier; choose from {", ".join(tiers)}')
        if tier not in suitable:
            purpose = tiers[tier].purpose
            raise Problem(
                path, f'tier {tier} is for {purpose}, to which the role {role} does not apply'
            )
    if not suitable:
        raise Problem(('users', name, 'role'), f'there is no tier for the role {role}')
    return tuple(content.get('tiers', suitable))
