# SPDX-License-Identifier: Apache-2.0
"""What a plan says beside its values: the rules that given values break, and notes."""

from collections.abc import Iterable, Iterator

from oslo_utils import units

from trove_ceph.reference_figures import LEAST_GROUPS_PER_OSD, MOST_FILL, MOST_GROUPS_PER_OSD
from trove_ceph.sizing.decisions import CEPH, QCT, RED_HAT, Decision
from trove_ceph.sizing.demand import Demand

#: Of shares and sums of floating-point numbers.
_ROUNDING = 1e-9
#: What volumes of public clouds have for each GB (Red Hat 2016, Table 4), from the highest.
_IOPS_CLASSES = (
    (30, 'provisioned IOPS (30)'),
    (4, 'premium (4-5)'),
    (3, 'general purpose (3)'),
)


def below(chosen: Iterable[Decision]) -> Iterator[str]:
    """Yield the rules that ask for more than a given value."""
    for one in chosen:
        for bound in one.others:
            if bound.value > one.value + _ROUNDING:
                yield (
                    f'{one.name}: {one.value:g} is less than {bound.value:.4g} '
                    f'({bound.rule}; {bound.source})'
                )


def above(need: Demand, devices: int, fill: float, most_fill: Decision) -> Iterator[str]:
    """Yield the rules that ask for less than there is."""
    if fill > most_fill.value + _ROUNDING:
        yield (
            f'fill: {fill:.1%} is more than {most_fill.value:.1%} ({most_fill.binding.rule}; '
            f'{most_fill.binding.source})'
        )
    for bound in need.most_devices_per_node():
        if devices > bound.value:
            yield (
                f'devices per node: {devices} is more than {bound.value:g} ({bound.rule}; '
                f'{bound.source})'
            )


def of_design(need: Demand, nodes: int) -> Iterator[str]:
    """Yield the rules that values of the fleet file break by themselves."""
    design = need.request.design
    if design.most_fill and design.most_fill > MOST_FILL:
        yield (
            f'fill_percent: {design.most_fill:.0%} is more than {MOST_FILL:.0%} (each server '
            f'operates at less than {MOST_FILL:.0%}; {QCT}, "Reserving capacity for self-healing")'
        )
    if design.monitors and design.monitors > nodes:
        yield (
            f'monitors: {design.monitors} is more than {nodes} (one on each server; {CEPH}, '
            'cephadm, MON service)'
        )
    groups, least, most = design.pgs_per_osd, LEAST_GROUPS_PER_OSD, MOST_GROUPS_PER_OSD
    if groups and not least <= groups <= most:
        broken = f'less than {least}' if groups < least else f'more than {most}'
        yield (
            f'pgs_per_osd: {groups} is {broken} ({least} to {most} on each OSD; {QCT} and '
            f'{RED_HAT}, "Placement groups")'
        )


def without_recovery(need: Demand, nodes: int) -> Iterator[str]:
    """Yield that a recovery is wanted for which there is no place."""
    design = need.request.design
    if design.recovery.hours and not need.can_recover(nodes):
        yield (
            f'recovery: the copies of a lost {design.failure_domain} find no other of '
            f'{need.domains(nodes)}, so that none is recovered within {design.recovery.hours:g} h'
        )


def notes(need: Demand, nodes: int) -> Iterator[str]:
    """Yield what is worth knowing."""
    fleet, design = need.request.fleet, need.request.design
    if fleet.iops:
        # The GB of public clouds are GiB.
        density = fleet.iops / (fleet.data_bytes / units.Gi)
        reached = next((name for least, name in _IOPS_CLASSES if density >= least), None)
        volumes = f'as {reached} volumes' if reached else 'less than any volume'
        yield (
            f'the databases have {density:.1f} IOPS/GB, {volumes} of public clouds '
            f'({RED_HAT}, Table 4)'
        )
    if design.recovery.hours and not design.device.bytes_per_sec:
        yield 'cluster.device.throughput is not given: recovery counts the network alone'
    if design.is_pilot and 1 / nodes > need.server_share():
        yield (
            f'pilot: one server is {1 / nodes:.1%} of the cluster, more than the recommended '
            f'{need.server_share():.0%} ({QCT}, Table 1)'
        )
