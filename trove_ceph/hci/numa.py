# SPDX-License-Identifier: Apache-2.0
"""Placement of OSDs and guests on the NUMA nodes of a host: disjoint sets of whole cores."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trove_ceph.hci.inventory import Host, Network, NumaNode
from trove_ceph.hci.osds import Osd
from trove_ceph.hci.plan import IrqAffinity, NodePlan, OsdPlan
from trove_ceph.hci.reservation import MIB_PER_GUEST, MIB_PER_OSD, guests_by_memory
from trove_ceph.hci.workload import Workload

#: Cores of each node for the operating system, as TripleO's HostCpusList has them.
HOST_CORES = 1
_KIB_PER_MIB = 1024
_GIB_PAGE_MIB = 1024
_SMALL_PAGE_MIB = 2


class DoesNotFitError(Exception):
    """An OSD fits on no node; the message says what is missing."""


@dataclass(frozen=True)
class Node:
    """A node with its OSDs and what it can carry.

    :ivar capacity: the guests that fit by memory and by CPUs
    """

    node: NumaNode
    host_cpus: tuple[int, ...]
    osd_cpus: tuple[int, ...]
    guest_cpus: tuple[int, ...]
    osds: int
    capacity: int


def network_node(host: Host) -> int | None:
    """Return the node of the interface with Ceph's network; None: unknown.

    Ceph prefers it as well (``osd_numa_prefer_iface``): the cluster's, else the public network.
    """
    for network in (Network.CLUSTER, Network.PUBLIC):
        for nic in host.nics:
            if network in nic.networks and nic.numa_node is not None:
                return nic.numa_node
    return None


def place_osds(host: Host, osds: Sequence[Osd], vcpus: float) -> tuple[OsdPlan, ...]:
    """Return each OSD with its node: that of its device, else of the network, else the emptiest.

    :raises DoesNotFitError: the nodes have too few CPUs or too little memory for the OSDs
    """
    room = {node.number: _room_for_osds(node, vcpus) for node in host.numa_nodes}
    fallback = network_node(host)
    placed: dict[int, tuple[int, bool | None]] = {}

    def wanted(osd: Osd) -> int | None:
        return fallback if osd.device.numa_node is None else osd.device.numa_node

    # OSDs with a node of their own go first, so that no other takes their place.
    order = sorted(range(len(osds)), key=lambda at: wanted(osds[at]) is None)
    for at in order:
        node = wanted(osds[at])
        if node is not None and room[node]:
            placed[at] = (node, True)
        else:
            best = max(room, key=lambda number: (room[number], -number))
            placed[at] = (best, None if node is None else False)
        if not room[placed[at][0]]:
            raise DoesNotFitError(_what_is_missing(host, len(osds), vcpus))
        room[placed[at][0]] -= 1
    return tuple(
        OsdPlan(
            device=osd.device.path,
            index=osd.index,
            data_bytes=osd.data_bytes,
            db_device=osd.db_device.path if osd.db_device else None,
            db_bytes=osd.db_bytes,
            numa_node=placed[at][0],
            local=placed[at][1],
        )
        for at, osd in enumerate(osds)
    )


def nodes(
    host: Host,
    osds: Sequence[OsdPlan],
    vcpus: float,
    workload: Workload,
    mib_per_osd: int = MIB_PER_OSD,
) -> tuple[Node, ...]:
    """Return the nodes with their sets of CPUs, and what each can carry."""
    found = []
    for node in host.numa_nodes:
        count = sum(osd.numa_node == node.number for osd in osds)
        taken, free = _take_cores(node.cores[HOST_CORES:], vcpus * count)
        guest_cpus = _cpus(free)
        found.append(
            Node(
                node=node,
                host_cpus=_cpus(node.cores[:HOST_CORES]),
                osd_cpus=_cpus(taken),
                guest_cpus=guest_cpus,
                osds=count,
                capacity=min(
                    guests_by_memory(
                        node.memory_mib, count, workload.guest_memory_mib, mib_per_osd
                    ),
                    _guests_by_cpus(len(guest_cpus), workload),
                ),
            )
        )
    return tuple(found)


def share_guests(nodes_of_host: Sequence[Node], guests: int) -> dict[int, int]:
    """Return the guests of each node; the node with the most room gets the next one.

    :param guests: how many there are; as many as the nodes can carry at most
    """
    room = {one.node.number: one.capacity for one in nodes_of_host}
    shares = dict.fromkeys(room, 0)
    for _ in range(min(guests, sum(room.values()))):
        best = max(room, key=lambda number: (room[number], -number))
        room[best] -= 1
        shares[best] += 1
    return shares


def node_plan(one: Node, guests: int, room: int, workload: Workload, mib_per_osd: int) -> NodePlan:
    """Return the plan of a node with its guests.

    Pages are for all guests for which memory is kept: the kernel finds none any more when a host is
    lost, since the memory is in use or in pieces then.

    :param room: the guests for which memory is kept
    """
    page_mib = _SMALL_PAGE_MIB if workload.guest_memory_mib % _GIB_PAGE_MIB else _GIB_PAGE_MIB
    guest_mib = room * workload.guest_memory_mib
    osd_mib = mib_per_osd * one.osds
    overhead_mib = MIB_PER_GUEST * room
    return NodePlan(
        number=one.node.number,
        host_cpus=one.host_cpus,
        osd_cpus=one.osd_cpus,
        guest_cpus=one.guest_cpus,
        guests=guests,
        room=room,
        huge_page_kib=page_mib * _KIB_PER_MIB,
        huge_pages=guest_mib // page_mib,
        osd_memory_mib=osd_mib,
        overhead_memory_mib=overhead_mib,
        guest_memory_mib=guest_mib,
        spare_memory_mib=one.node.memory_mib - osd_mib - overhead_mib - guest_mib,
    )


def irq_affinity(host: Host, nodes_of_host: Sequence[Node]) -> tuple[IrqAffinity, ...]:
    """Return the CPUs for interrupts of each interface: the host's and the OSDs', not guests'.

    They are those of the interface's own node; of all nodes if it is unknown.
    """
    found = []
    for nic in host.nics:
        own = [one for one in nodes_of_host if nic.numa_node in (None, one.node.number)]
        cpus = sorted(cpu for one in own for cpu in (*one.host_cpus, *one.osd_cpus))
        found.append(IrqAffinity(nic.name, nic.numa_node, tuple(cpus)))
    return tuple(found)


def _room_for_osds(node: NumaNode, vcpus: float) -> int:
    """Return how many OSDs fit on an empty node."""
    threads = len(_cpus(node.cores[HOST_CORES:]))
    return min(int(threads / vcpus), node.memory_mib // MIB_PER_OSD)


def _what_is_missing(host: Host, osds: int, vcpus: float) -> str:
    cpus = sum(len(_cpus(node.cores[HOST_CORES:])) for node in host.numa_nodes)
    rooms = [_room_for_osds(node, vcpus) for node in host.numa_nodes]
    return (
        f'{osds} OSDs need {osds * vcpus:g} CPUs and {osds * MIB_PER_OSD} MiB; beside the '
        f"host's cores there are {cpus} CPUs and {host.memory_mib} MiB, and the nodes have room "
        f'for {" + ".join(map(str, rooms))} OSDs'
    )


def _take_cores(
    cores: Sequence[tuple[int, ...]], vcpus: float
) -> tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]:
    """Return the first cores that have so many threads, and the rest."""
    needed, count = math.ceil(vcpus - 1e-9), 0
    while needed > 0:
        needed -= len(cores[count])
        count += 1
    return cores[:count], cores[count:]


def _guests_by_cpus(cpus: int, workload: Workload) -> int:
    """Return how many guests the CPUs of a node allow; a guest is on one node."""
    if cpus < workload.guest_vcpus:
        return 0
    return math.floor(cpus * 100 / workload.guest_cpu_percent / workload.guest_vcpus + 1e-9)


def _cpus(cores: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted(cpu for core in cores for cpu in core))
