# SPDX-License-Identifier: Apache-2.0
"""From an inventory and a workload to the plan."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from oslo_utils import units

from trove_ceph.hci import (
    affinity,
    cluster_rules,
    derivations,
    hardware_rules,
    load_rules,
    numa,
    osd_memory,
    osds,
)
from trove_ceph.hci.figures import Figures
from trove_ceph.hci.inventory import Inventory
from trove_ceph.hci.plan import (
    Derivation,
    Finding,
    HostPlan,
    Level,
    OsdPlan,
    Plan,
    Reservation,
)
from trove_ceph.hci.workload import OsdChoices, Workload


@dataclass(frozen=True)
class _Result:
    """What planning one host gave.

    :ivar plan: its profile; None: its OSDs do not fit
    :ivar capacity: the guests that it can carry beside its OSDs with all of their memory
    """

    plan: HostPlan | None
    capacity: int
    derivations: tuple[Derivation, ...]
    findings: tuple[Finding, ...]


def plan(inventory: Inventory, workload: Workload, choices: OsdChoices) -> Plan:
    """Return the plan for all hosts.

    A plan whose findings have errors must not be deployed; it is complete all the same as far as
    its values could be found, so that the numbers can be read.
    """
    results = [_plan_host(Figures(host, inventory, workload, choices)) for host in inventory.hosts]
    hosts = tuple(each.plan for each in results if each.plan)
    wanted = workload.databases_per_host
    findings = [
        *cluster_rules.of_cluster(inventory, workload),
        *(finding for each in results for finding in each.findings),
        *cluster_rules.of_plans(inventory, workload, hosts),
    ]
    if wanted is not None:
        rooms = [sum(node.room for node in each.plan.nodes) if each.plan else 0 for each in results]
        findings += cluster_rules.failover([each.capacity for each in results], rooms, wanted)
    return Plan(
        hosts=hosts,
        aggregates=affinity.aggregates(inventory),
        affinity=affinity.rules(inventory, workload),
        derivations=tuple(value for each in results for value in each.derivations),
        findings=tuple(sorted(findings, key=lambda one: one.level is not Level.ERROR)),
        root_disk=workload.root_disk,
        public_network=inventory.public_network,
        cluster_network=inventory.cluster_network,
    )


def _plan_host(figures: Figures) -> _Result:
    host = figures.host
    layout = osds.layout(host, figures.osds_per_device)
    try:
        placed = numa.place_osds(host, layout, figures.vcpus_per_osd)
    except numa.DoesNotFitError as error:
        findings = [*_findings(figures), load_rules.does_not_fit(figures, str(error))]
        return _Result(None, 0, tuple(derivations.of_figures(figures)), tuple(findings))
    figures = _with_memory_left(figures, placed)
    nodes = _nodes(figures, placed)
    limits = figures.limits(sum(node.capacity for node in nodes))
    capacity = min(one.guests for one in limits)
    wanted = figures.workload.databases_per_host
    guests = capacity if wanted is None else min(wanted, capacity)
    shares = numa.share_guests(nodes, guests)
    rooms = numa.share_guests(nodes, min(capacity, _kept(figures) or capacity))
    profile = HostPlan(
        name=host.name,
        guests=guests,
        reservation=_reservation(figures),
        osd_memory_target_bytes=figures.memory_target_mib * units.Mi,
        memory_per_osd_mib=figures.mib_per_osd,
        osds_per_device=figures.osds_per_device,
        vcpus_per_osd=figures.vcpus_per_osd,
        osds=placed,
        nodes=tuple(
            numa.node_plan(
                node,
                shares[node.node.number],
                rooms[node.node.number],
                figures.workload,
                figures.mib_per_osd,
            )
            for node in nodes
        ),
        irqs=numa.irq_affinity(host, nodes),
    )
    findings = [
        *_findings(figures),
        *load_rules.remote_osds(figures, placed),
        *load_rules.guests(figures, limits),
    ]
    derived = [*derivations.of_figures(figures), *derivations.of_plan(figures, profile, limits)]
    return _Result(profile, capacity, tuple(derived), tuple(findings))


def _findings(figures: Figures) -> list[Finding]:
    return [
        *hardware_rules.of_host(figures.host),
        *hardware_rules.db_share(figures.host, figures.osds_per_device),
        *load_rules.of_figures(figures),
    ]


def _nodes(figures: Figures, placed: Sequence[OsdPlan]) -> tuple[numa.Node, ...]:
    return numa.nodes(
        figures.host, placed, figures.vcpus_per_osd, figures.workload, figures.mib_per_osd
    )


def _kept(figures: Figures) -> int | None:
    """Return for how many guests a host should keep memory; None: for as many as it can carry."""
    wanted = figures.workload.databases_per_host
    if wanted is None:
        return None
    return osd_memory.guests_with_failover(wanted, len(figures.inventory.hosts))


def _with_memory_left(figures: Figures, placed: Sequence[OsdPlan]) -> Figures:
    """Return the figures with what the databases leave to OSDs.

    Without a number of databases they may take all memory, and a host that cannot carry its number
    has none left.
    """
    nodes = _nodes(figures, placed)
    capacity = min(one.guests for one in figures.limits(sum(node.capacity for node in nodes)))
    wanted, kept = figures.workload.databases_per_host, _kept(figures)
    if wanted is None or kept is None or wanted > capacity:
        return figures
    left = osd_memory.share(figures.host, nodes, min(kept, capacity), figures.workload)
    return dataclasses.replace(figures, memory_left=left)


def _reservation(figures: Figures) -> Reservation:
    return Reservation(
        reserved_host_memory_mb=figures.reserved_memory_mb,
        reserved_host_disk_mb=figures.reserved_disk_mb,
        disk_allocation_ratio=figures.disk_ratio,
        cpu_allocation_ratio=figures.cpu_ratio,
        cpu_shared_set_allocation_ratio=figures.shared_set_ratio,
    )
