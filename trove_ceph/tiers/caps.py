# SPDX-License-Identifier: Apache-2.0
"""The caps of cephx users, derived from their roles.

They follow "Block Devices and OpenStack" of Ceph's manual: ``profile rbd`` for each pool, and
``profile rbd-read-only`` for pools with parents of clones. That profile also lets a client register
its clones with their parents.
"""

from collections.abc import Iterable, Mapping

from trove_ceph.tiers import tier_types
from trove_ceph.tiers.tier_types import Purpose, Role

#: ``profile rbd`` lets a client add to the blocklist, as every exclusive lock needs; removing an
#: entry requires a grant of the command itself.
_FENCING = 'allow command "osd blocklist"'


def derive(user: tier_types.User, tiers: Mapping[str, tier_types.Tier]) -> dict[str, str]:
    """Return the least caps of a user: those of its role and those that are declared.

    :returns: caps by service; services without a grant are left out
    """
    found = _of_role(user, tiers) if user.role else {}
    pools = [f'profile rbd pool={pool}' for pool in user.pools]
    declared = {'mgr': pools, 'osd': pools}
    for service in tier_types.SERVICES:
        more = [*declared.get(service, ()), *user.caps.get(service, ())]
        found[service] = list(dict.fromkeys([*found.get(service, ()), *more]))
    return {service: ', '.join(given) for service, given in found.items() if given}


def merged(present: Mapping[str, str], needed: Mapping[str, str]) -> dict[str, str]:
    """Return the present caps followed by the needed grants that they lack."""
    granted = grants(present)
    found = dict(present)
    for service, text in needed.items():
        missing = [each for each in _listed(text) if f'{service} {each}' not in granted]
        found[service] = ', '.join(filter(None, [found.get(service, '').strip(' ,;'), *missing]))
    return found


def _of_role(user: tier_types.User, tiers: Mapping[str, tier_types.Tier]) -> dict[str, list[str]]:
    assert user.role
    role = user.role
    own = [tiers[name] for name in user.tiers if _writes_to(role, tiers[name])]
    others = [tiers[name] for name in user.tiers if not _writes_to(role, tiers[name])]
    full = [f'profile rbd pool={pool}' for tier in own for pool in tier.pools]
    reading = [f'profile rbd-read-only pool={pool}' for tier in others for pool in tier.pools]
    mon = ['profile rbd'] + ([_FENCING] if role is Role.STORAGE else [])
    return {'mgr': full, 'mon': mon, 'osd': full + reading}


def grants(caps: Mapping[str, str]) -> frozenset[str]:
    """Return caps as a set of single grants, such as ``osd profile rbd pool=volumes``."""
    return frozenset(
        f'{service} {grant}' for service, text in caps.items() for grant in _listed(text)
    )


def by_service(found: Iterable[str]) -> dict[str, list[str]]:
    """Return the grants of each service, from a set as :func:`grants` returns it."""
    services: dict[str, list[str]] = {}
    for each in sorted(found):
        service, _, grant = each.partition(' ')
        services.setdefault(service, []).append(grant)
    return services


def _writes_to(role: Role, tier: tier_types.Tier) -> bool:
    if role is Role.CINDER:
        return tier.volume_type is not None
    if role is Role.GLANCE:
        return tier.purpose is Purpose.IMAGES
    return tier.purpose is not Purpose.IMAGES


def _listed(text: str) -> list[str]:
    parts = (' '.join(part.split()) for part in text.replace(';', ',').split(','))
    return [part for part in parts if part]
