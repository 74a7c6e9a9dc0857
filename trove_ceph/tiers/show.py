# SPDX-License-Identifier: Apache-2.0
"""The present tiers: devices, usage, placement groups, and limits promised to volumes."""

import dataclasses
from collections.abc import Sequence

from trove_ceph.tiers import desired, resources, tier_types

_MIB_PER_GIB = 1024


@dataclasses.dataclass(frozen=True)
class Row:
    """The facts of a tier; None: not observed, or there are none.

    :param osds: OSDs that serve its placement
    :param osds_up: those of them that are up
    :param redundancy: copies, or the erasure code
    :param fill: used share of its data pool's capacity, 0 to 1
    :param pgs_per_osd: placement groups of its data pool on each OSD, including copies
    :param volumes: number of volumes of its type, in all projects
    :param promised_iops: sum over those volumes
    :param replicas_on: the tier of the replicas of its instances; None: this one
    """

    tier: str
    purpose: str
    device_class: str | None
    osds: int | None
    osds_up: int | None
    pool: str
    redundancy: str
    exists: bool | None
    fill: float | None
    pg_num: int | None
    pgs_per_osd: float | None
    volume_type: str | None
    iops_per_gib: float | None
    volumes: int | None
    provisioned_gib: int | None
    promised_iops: int | None
    replicas_on: str | None


def rows(content: tier_types.TiersFile, observed: resources.Observed) -> list[Row]:
    """Return one row for each tier."""
    return [_row(tier, observed) for tier in content.tiers.values()]


def _row(tier: tier_types.Tier, observed: resources.Observed) -> Row:
    name = tier.pools[-1]
    osds = observed.ceph.serving(desired.placement(tier)) if observed.ceph else None
    pool = observed.ceph.pools.get(name) if observed.ceph else None
    usage = observed.ceph.usage.get(name) if observed.ceph else None
    sizes = _volumes(tier, observed)
    code = tier.erasure
    return Row(
        tier=tier.name,
        purpose=tier.purpose,
        device_class=tier.device_class,
        osds=None if osds is None else len(osds),
        osds_up=None if osds is None else sum(osd.up for osd in osds),
        pool=name,
        redundancy=f'{code.k}+{code.m}' if code else f'{tier.copies}x',
        exists=None if osds is None else pool is not None,
        fill=usage.fill if usage else None,
        pg_num=pool.pg_num if pool else None,
        pgs_per_osd=_pgs_per_osd(pool, osds),
        volume_type=tier.volume_type.name if tier.volume_type else None,
        iops_per_gib=tier.iops.iops_per_gib if tier.iops else None,
        volumes=None if sizes is None else len(sizes),
        provisioned_gib=None if sizes is None else sum(sizes),
        promised_iops=_promised(tier, sizes),
        replicas_on=tier.replicas_on,
    )


def _volumes(tier: tier_types.Tier, observed: resources.Observed) -> Sequence[int] | None:
    if observed.cinder is None or tier.volume_type is None:
        return None
    return observed.cinder.volumes.get(tier.volume_type.name, ())


def _promised(tier: tier_types.Tier, sizes: Sequence[int] | None) -> int | None:
    if sizes is None or tier.iops is None:
        return None
    return sum(tier.iops.volume_iops(size * _MIB_PER_GIB) for size in sizes)


def _pgs_per_osd(pool: resources.Pool | None, osds: Sequence[resources.Osd] | None) -> float | None:
    if pool is None or pool.pg_num is None or not osds:
        return None
    return round(pool.pg_num * pool.size / len(osds), 1)
