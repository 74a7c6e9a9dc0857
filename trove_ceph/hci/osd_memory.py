# SPDX-License-Identifier: Apache-2.0
"""The memory of OSDs: what the databases of a host leave, and the target that follows from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trove_ceph.hci import numa, reservation
from trove_ceph.hci.inventory import Host
from trove_ceph.hci.reservation import MIB_PER_OSD
from trove_ceph.hci.workload import Workload

#: What the operating system, Nova and the agents need (Red Hat OpenStack Platform, HCI guide).
HOST_MIB = 4 * 1024
#: An OSD overshoots its target: Ceph's hardware recommendations want 20 % more memory.
OVERSHOOT = 1.2
#: The least osd_memory_target that Ceph accepts (its option's own minimum).
LEAST_TARGET_MIB = 896
#: Beyond, memory is of more use to the guests, whose buffer pools keep the same data.
MOST_TARGET_MIB = 8 * 1024


@dataclass(frozen=True)
class Share:
    """The part of each OSD in the memory of a host, and what bounds it.

    :ivar guests: for how many guests of the host memory is kept
    :ivar node: the NUMA node that has the least memory left for each of its OSDs
    :ivar guests_on_node: those of the guests that are on this node
    :ivar left_mib: what the node has left for each OSD
    :ivar reservable_mib: what may be reserved for each OSD
    :ivar useful_mib: what an OSD with the greatest target needs
    """

    guests: int
    node: numa.Node
    guests_on_node: int
    left_mib: int
    reservable_mib: int
    useful_mib: int

    @property
    def mib_per_osd(self) -> int:
        """The part of each OSD: TripleO's at least."""
        return max(MIB_PER_OSD, min(self.left_mib, self.reservable_mib, self.useful_mib))


def target_mib(osds: int, mib_per_osd: int = MIB_PER_OSD) -> int:
    """Return osd_memory_target in MiB, rounded down; it may be below what Ceph accepts.

    The host takes its own memory from the OSDs' part. An OSD's target is its share of the rest,
    less the overshoot.

    :param mib_per_osd: the part of each OSD
    """
    target = int((mib_per_osd * osds - HOST_MIB) / osds / OVERSHOOT)
    return min(target, MOST_TARGET_MIB)


def guests_with_failover(databases_per_host: int, hosts: int) -> int:
    """Return the guests of a host that has its share of those of a host that is lost."""
    if hosts == 1:
        return databases_per_host
    return databases_per_host + math.ceil(databases_per_host / (hosts - 1))


def share(host: Host, nodes: Sequence[numa.Node], guests: int, workload: Workload) -> Share:
    """Return the part of each OSD.

    Nova reserves what it gives to OSDs, so it is never more than the share of the host that may be
    reserved.

    :param nodes: the nodes with what they carry beside OSDs that have TripleO's part
    :param guests: for how many guests memory is kept, as many as the nodes carry at most
    """
    count = sum(one.osds for one in nodes)
    shares = numa.share_guests(nodes, guests)
    each_mib = workload.guest_memory_mib + reservation.MIB_PER_GUEST
    left_mib = {
        one: (one.node.memory_mib - shares[one.node.number] * each_mib) // one.osds
        for one in nodes
        if one.osds
    }
    fullest = min(left_mib, key=lambda one: left_mib[one])
    reserved_for_guests_mib = reservation.MIB_PER_GUEST * reservation.guests_by_memory(
        host.memory_mib, count, workload.guest_memory_mib
    )
    most_reserved_mib = int(reservation.MOST_RESERVED * host.memory_mib)
    return Share(
        guests=guests,
        node=fullest,
        guests_on_node=shares[fullest.node.number],
        left_mib=left_mib[fullest],
        reservable_mib=(most_reserved_mib - reserved_for_guests_mib) // count,
        useful_mib=math.ceil(MOST_TARGET_MIB * OVERSHOOT + HOST_MIB / count),
    )
