# SPDX-License-Identifier: Apache-2.0
"""The smallest cluster that meets the demands of a fleet."""

import math
from collections.abc import Iterator

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.sizing import cluster, decisions, remarks, servers
from trove_ceph.sizing.cluster import Cluster
from trove_ceph.sizing.decisions import Bound, Decision
from trove_ceph.sizing.demand import Demand
from trove_ceph.sizing.fleet import Request

MOST_NODES = 10000


def make(request: Request) -> Cluster:
    """Return the smallest cluster for a fleet, or the given one with the rules that it breaks.

    :raises InvalidFleetError: no cluster of up to MOST_NODES servers meets the demands
    """
    return _Plan(Demand(request)).make()


class _Plan:
    def __init__(self, need: Demand):
        self._need = need
        self._request = need.request
        self._design = need.request.design

    def make(self) -> Cluster:
        """Return the cluster."""
        wanted_nodes = self._nodes()
        nodes = int(wanted_nodes.value)
        wanted_devices = self._devices(nodes)
        devices = int(wanted_devices.value)
        network = servers.network(self._need, nodes)
        db = servers.db_devices(self._need, devices)
        cores = servers.cores(self._need, nodes, devices)
        memory = servers.memory(self._need, devices)
        monitors = servers.monitors(self._need, nodes)
        limit = decisions.at_most('most fill', self._need.fill(nodes))
        groups = servers.groups(self._need, nodes * devices * self._design.device.osds)
        least = (wanted_nodes, wanted_devices, db, cores, memory, network, monitors)
        fill = self._need.used_bytes / (nodes * devices * self._design.device.size_bytes)
        return Cluster(
            demand=self._need,
            nodes=nodes,
            devices_per_node=devices,
            db_devices_per_node=int(db.value),
            cores_per_node=int(cores.value),
            memory_gib_per_node=int(memory.value),
            network_gbit=int(network.value),
            monitors=int(monitors.value),
            pg_num=int(groups.value),
            fill=fill,
            recovery_sec=self._recovery_sec(nodes, devices, int(network.value)),
            iops=self._iops(nodes, devices),
            decisions=(*least, limit, groups),
            violations=(
                *remarks.below(least),
                *remarks.above(self._need, devices, fill, limit),
                *remarks.of_design(self._need, nodes),
                *remarks.without_recovery(self._need, nodes),
            ),
            notes=tuple(remarks.notes(self._need, nodes)),
        )

    def _nodes(self) -> Decision:
        bounds = self._need.least_nodes()
        if self._design.nodes:
            return decisions.given('nodes', self._design.nodes, bounds)
        step = self._design.nodes_per_domain
        least = max(bounds, key=lambda bound: bound.value)
        first = math.ceil(least.value / step) * step
        for nodes in range(first, MOST_NODES + 1, step):
            if self._fits(nodes):
                if nodes == first:
                    return decisions.at_least('nodes', [*bounds, *self._rounded(least, first)])
                return decisions.at_least('nodes', [*bounds, self._by_devices(nodes)])
        limits = decisions.at_most('', self._need.most_devices_per_node())
        raise exceptions.InvalidFleetError(
            f'databases: {self._request.fleet.instances} databases need more than {MOST_NODES} '
            f'servers with at most {limits.value:g} devices each ({limits.binding.rule}); check '
            f'instances, size and iops, choose larger devices, or plan several clusters'
        )

    @staticmethod
    def _rounded(least: Bound, nodes: int) -> Iterator[Bound]:
        if nodes != least.value:
            yield Bound(f'whole racks: {least.rule}', nodes, least.source)

    def _by_devices(self, nodes: int) -> Bound:
        """Return the bound for a number of servers that their devices or network call for."""
        step = self._design.nodes_per_domain
        fewer = nodes - step
        needed = decisions.at_least('', self._need.devices_per_node(fewer))
        most = self._most_devices()
        if needed.value > most.value:
            rule = (
                f'{fewer} servers would need {needed.value:g} devices each '
                f'({needed.binding.rule}), more than {most.value:g} ({most.binding.rule})'
            )
            return Bound(rule, nodes, f'{needed.binding.source}; {most.binding.source}')
        network = decisions.at_least('', self._need.network_gbit(fewer))
        if network.value > self._most_gbit():
            rule = f'{fewer} servers would need {network.value:.4g} Gbit/s: {network.binding.rule}'
            return Bound(rule, nodes, network.binding.source)
        cores = decisions.at_least('', self._need.cores(fewer, int(needed.value)))
        rule = f'{fewer} servers would need {cores.value:g} cores each: {cores.binding.rule}'
        return Bound(rule, nodes, cores.binding.source)

    def _most_devices(self) -> Decision:
        most = decisions.at_most('most devices per node', self._need.most_devices_per_node())
        if most.value < 1:
            raise exceptions.InvalidFleetError(
                f'cluster.device.size: not one device of '
                f'{self._design.device.size_bytes / units.T:.2f} TB fits into a server '
                f'({most.binding.rule}, {most.binding.source}); choose a smaller device, or other '
                f'servers'
            )
        if self._design.devices_per_node:
            count = self._design.devices_per_node
            return decisions.given('most devices per node', count, (most.binding, *most.others))
        return most

    def _most_gbit(self) -> int:
        return self._design.network_gbit or servers.LINKS_GBIT[-1]

    def _fits(self, nodes: int) -> bool:
        needed = max(bound.value for bound in self._need.devices_per_node(nodes))
        if needed > self._most_devices().value:
            return False
        # The first bound, the least Ethernet, is the same for any number of servers.
        if max(bound.value for bound in self._need.network_gbit(nodes)[1:]) > self._most_gbit():
            return False
        cores = max(bound.value for bound in self._need.cores(nodes, int(needed)))
        return self._design.cores is None or cores <= self._design.cores

    def _devices(self, nodes: int) -> Decision:
        bounds = self._need.devices_per_node(nodes)
        if self._design.devices_per_node:
            return decisions.given('devices per node', self._design.devices_per_node, bounds)
        return decisions.at_least('devices per node', bounds)

    def _recovery_sec(self, nodes: int, devices: int, network_gbit: int) -> float | None:
        if not self._need.can_recover(nodes):
            return None
        lost = self._need.lost_bytes(nodes)
        return cluster.recovery_sec(self._need, self._need.left(nodes), devices, network_gbit, lost)

    def _iops(self, nodes: int, devices: int) -> float | None:
        if self._design.device.iops is None:
            return None
        operations = self._need.left(nodes) * devices * self._design.device.iops
        return operations / self._need.operations_per_client_operation
