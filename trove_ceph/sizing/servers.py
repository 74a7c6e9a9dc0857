# SPDX-License-Identifier: Apache-2.0
"""What a server has beside its devices for data, and what the cluster has beside its servers."""

import math

from trove_ceph import reference_figures
from trove_ceph.enums import DeviceClass
from trove_ceph.sizing import decisions
from trove_ceph.sizing.decisions import CEPH, GIVEN, QCT, RED_HAT, Bound, Decision
from trove_ceph.sizing.demand import Demand
from trove_ceph.tiers import placement_groups, tier_types

#: Ethernet that servers have.
LINKS_GBIT = (10, 25, 40, 50, 100, 200, 400)
#: Devices for data to one for DB and WAL.
_DB_RATIO = {DeviceClass.SSD: 4, DeviceClass.NVME: 17.5}
#: power_of_two leaves 75 to 150 % of its target, so that this target leaves 100 to 200.
_PGS_PER_OSD = tier_types.PGS_PER_OSD / 0.75
#: Ceph refuses a pool that would put more on an OSD (mon_max_pg_per_osd).
_MOST_PGS_PER_OSD = 250
_OSD_MEMORY_GIB, _MEMORY_FACTOR, _LEAST_MEMORY_GIB = 4, 2, 32


def db_devices(need: Demand, devices: int) -> Decision:
    """Return the devices for DB and WAL of a server with a number of devices for data."""
    db = need.request.design.device.db
    if db is None:
        reason = (
            'flash needs none'
            if need.request.design.device.device_class.is_flash
            else 'DB and WAL are with the data'
        )
        source = f'{QCT}, Table 2 ("0x SSDs")'
        return decisions.at_least('DB devices per node', [Bound(reason, 0, source)])
    ratio = _DB_RATIO[db]
    bound = Bound(
        f'one {db} for {ratio:g} disks',
        math.ceil(devices / ratio),
        f'{QCT}, "QCT Servers for Ceph"',
    )
    return decisions.at_least('DB devices per node', [bound])


def cores(need: Demand, nodes: int, devices: int) -> Decision:
    """Return the physical cores of a server."""
    bounds = need.cores(nodes, devices)
    if need.request.design.cores:
        return decisions.given('cores per node', need.request.design.cores, bounds)
    return decisions.at_least('cores per node', bounds)


def memory(need: Demand, devices: int) -> Decision:
    """Return the memory of a server."""
    osds = devices * need.request.design.device.osds
    bounds = [
        Bound(
            f'twice osd_memory_target of {_OSD_MEMORY_GIB} GiB for each of {osds} OSDs',
            osds * _OSD_MEMORY_GIB * _MEMORY_FACTOR,
            f'{CEPH}, osd_memory_target',
        ),
        Bound(
            f'{_LEAST_MEMORY_GIB} GB at least', _LEAST_MEMORY_GIB, f'{RED_HAT}, "Lab configuration"'
        ),
    ]
    return decisions.at_least('memory per node', bounds, 'GiB')


def network(need: Demand, nodes: int) -> Decision:
    """Return the network of a server: the slowest Ethernet that suffices."""
    bounds = need.network_gbit(nodes)
    if need.request.design.network_gbit:
        return decisions.given(
            'network per node', need.request.design.network_gbit, bounds, 'Gbit/s'
        )
    least = decisions.at_least('network per node', bounds, 'Gbit/s')
    link = next((link for link in LINKS_GBIT if link >= least.value), LINKS_GBIT[-1])
    others = (least.binding, *least.others)
    return Decision(
        'network per node',
        link,
        'Gbit/s',
        Bound(least.binding.rule, link, least.binding.source),
        tuple(bound for bound in others if bound.value != link),
    )


def monitors(need: Demand, nodes: int) -> Decision:
    """Return the number of monitors."""
    bounds = [Bound('an odd number, three at least', 3, f'{RED_HAT}, "Ceph Architecture Overview"')]
    if nodes >= 5:
        bounds.append(Bound('five from five servers on', 5, f'{CEPH}, cephadm, MON service'))
    if need.request.design.monitors:
        return decisions.given('monitors', need.request.design.monitors, bounds)
    return decisions.at_least('monitors', bounds)


def groups(need: Demand, osds: int) -> Decision:
    """Return the placement groups of the pool."""
    per_osd = need.request.design.pgs_per_osd
    policy = tier_types.PlacementGroups(share=1, per_osd=per_osd or _PGS_PER_OSD)
    chunks = need.request.design.redundancy.chunks
    count = placement_groups.choose_pg_num(policy, osds, chunks)
    assert count is not None
    if is_too_many := count * chunks > _MOST_PGS_PER_OSD * osds:
        count //= 2
    least, most = reference_figures.LEAST_GROUPS_PER_OSD, reference_figures.MOST_GROUPS_PER_OSD
    rule, source = f'{least} to {most} on each OSD', f'{QCT} and {RED_HAT}, "Placement groups"'
    if per_osd:
        rule, source = f'{per_osd} on each OSD', GIVEN
    rule += ', a power of two'
    if is_too_many:
        rule += f'; Ceph accepts no more than {_MOST_PGS_PER_OSD} (mon_max_pg_per_osd)'
    return decisions.at_least('placement groups', [Bound(rule, count, source)])
