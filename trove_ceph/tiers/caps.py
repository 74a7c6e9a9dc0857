# SPDX-License-Identifier: Apache-2.0
"""The caps of cephx users, derived from what they are for.

Documented in "Block Devices and OpenStack" of Ceph's manual: ``profile rbd`` for each pool, and
``profile rbd-read-only`` where parents of clones are. That profile also lets a client register its
clones with their parents.
"""

from collections.abc import Iterable, Mapping

from trove_ceph.tiers import tier_types
from trove_ceph.tiers.tier_types import Purpose, Role

#: ``profile rbd`` lets a client add to the blocklist, as every exclusive lock needs; only removing
#: an entry takes the command itself.
_FENCING = 'allow command "osd blocklist"'


def derive(user: tier_types.User, tiers: Mapping[str, tier_types.Tier]) -> dict[str, str]:
    """Return the least that a user needs, by service."""
    own = [tiers[name] for name in user.tiers if _works_on(user.role, tiers[name])]
    others = [tiers[name] for name in user.tiers if not _works_on(user.role, tiers[name])]
    full = [f'profile rbd pool={pool}' for tier in own for pool in tier.pools]
    reading = [f'profile rbd-read-only pool={pool}' for tier in others for pool in tier.pools]
    mon = ['profile rbd'] + ([_FENCING] if user.role is Role.STORAGE else [])
    return {'mgr': ', '.join(full), 'mon': ', '.join(mon), 'osd': ', '.join(full + reading)}


def grants(caps: Mapping[str, str]) -> frozenset[str]:
    """Return caps as a set of single grants, such as ``osd profile rbd pool=volumes``."""
    return frozenset(
        f'{service} {" ".join(grant.split())}'
        for service, text in caps.items()
        for grant in _parts(text)
        if grant.strip()
    )


def _works_on(role: Role, tier: tier_types.Tier) -> bool:
    if role is Role.CINDER:
        return tier.volume_type is not None
    if role is Role.GLANCE:
        return tier.purpose is Purpose.IMAGES
    return tier.purpose is not Purpose.IMAGES


def _parts(text: str) -> Iterable[str]:
    return text.replace(';', ',').split(',')
