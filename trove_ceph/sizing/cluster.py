# SPDX-License-Identifier: Apache-2.0
"""A cluster that is planned."""

import math
from dataclasses import dataclass

from trove_ceph.sizing import demand
from trove_ceph.sizing.decisions import Decision
from trove_ceph.sizing.demand import Demand
from trove_ceph.sizing.fleet import Request


@dataclass(frozen=True)
class Cluster:
    """A cluster for a fleet.

    :param nodes: servers with OSDs
    :param db_devices_per_node: devices for DB and WAL; 0: they are with the data
    :param network_gbit: of each server
    :param pg_num: placement groups of the pool
    :param fill: share of the raw space that the fleet uses at the end
    :param recovery_sec: until all copies of a lost failure domain exist again; None: they find no
        other one
    :param iops: operations per second of databases while a failure domain is lost; None: unknown
    :param decisions: every value with the rule that bound it
    :param violations: rules that values of the fleet file break
    :param notes: what is worth knowing
    """

    demand: Demand
    nodes: int
    devices_per_node: int
    db_devices_per_node: int
    cores_per_node: int
    memory_gib_per_node: int
    network_gbit: int
    monitors: int
    pg_num: int
    fill: float
    recovery_sec: float | None
    iops: float | None
    decisions: tuple[Decision, ...] = ()
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def request(self) -> Request:
        """What the cluster is for."""
        return self.demand.request

    @property
    def devices(self) -> int:
        """All devices for data."""
        return self.nodes * self.devices_per_node

    @property
    def osds(self) -> int:
        """All OSDs."""
        return self.devices * self.request.design.device.osds

    @property
    def raw_bytes(self) -> int:
        """The space of all devices for data."""
        return self.devices * self.request.design.device.size_bytes

    @property
    def usable_bytes(self) -> float:
        """The space for data with redundancy, if it could be filled."""
        return self.raw_bytes / self.request.design.redundancy.factor

    @property
    def pgs_per_osd(self) -> float:
        """Placement groups on an OSD in the mean, each copy or chunk counted."""
        return self.pg_num * self.request.design.redundancy.chunks / self.osds

    @property
    def racks(self) -> int | None:
        """The number of racks; None: they do not matter."""
        per_rack = self.request.design.nodes_per_rack
        return math.ceil(self.nodes / per_rack) if per_rack else None


def recovery_sec(need: Demand, nodes: int, devices: int, network_gbit: float, lost: float) -> float:
    """Return the time until the data of lost servers exists again.

    Every surviving server reads, sends, receives and writes an equal part of it: for one byte, k
    are read and sent, and one is written.

    :param nodes: the surviving servers
    :param lost: raw bytes that were on the lost servers
    """
    design = need.request.design
    share, k = design.recovery.share, design.redundancy.k
    network = lost * k / nodes / (demand.bytes_per_sec(network_gbit) * share)
    if not design.device.bytes_per_sec:
        return network
    speed = nodes * devices * design.device.bytes_per_sec * share
    return max(network, lost * (k + 1) / speed)
