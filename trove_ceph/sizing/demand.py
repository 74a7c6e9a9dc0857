# SPDX-License-Identifier: Apache-2.0
"""What a fleet demands of a cluster with a certain number of servers: bounds by published rules.

Every bound on devices, network and cores falls or stays when servers are added, and rises or stays
when databases are added, so that a larger fleet never gets a smaller cluster.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from oslo_utils import units

from trove_ceph.enums import DeviceClass
from trove_ceph.reference_figures import (
    CORES_PER_NVME,
    CPUS_PER_OSD,
    DEVIATION,
    LEAST_NETWORK_GBIT,
    LEAST_SERVERS,
    MOST_FILL,
    NEARFULL,
    TYPICAL_FILL,
)
from trove_ceph.sizing.decisions import CEPH, GIVEN, QCT, RED_HAT, TRIPLEO, Bound
from trove_ceph.sizing.fleet import SECONDS_PER_HOUR, Optimisation, Request

#: The share of a cluster that one server may be.
_SERVER_SHARE = {Optimisation.CAPACITY: 0.15}
_DEFAULT_SERVER_SHARE = 0.1
_RECOMMENDED_NODES = {Optimisation.CAPACITY: 7}
_DEFAULT_RECOMMENDED_NODES = 10
#: Raw bytes on a server: below 10 TB for MySQL, up to 300 TB otherwise.
_IOPS_SERVER_BYTES = 10 * units.T
_SERVER_BYTES = 300 * units.T
#: Devices for data in a server, and where that is from.
_BAYS = {
    DeviceClass.NVME: (4, f'{RED_HAT}, "Lab configuration"'),
    DeviceClass.SSD: (12, f'{QCT}, Table 2'),
    DeviceClass.HDD: (12, f'{QCT}, Table 2'),
}
#: Operations per second of a core that OSDs use.
_READS_PER_CORE, _WRITES_PER_CORE = 7500, 3500
_BITS = 8


@dataclass(frozen=True)
class Demand:
    """The demands of one fleet and one design."""

    request: Request

    @cached_property
    def used_bytes(self) -> float:
        """The raw space of the data at the end, with redundancy."""
        return self.request.fleet.data_bytes * self.request.design.redundancy.factor

    @cached_property
    def operations_per_client_operation(self) -> float:
        """The operations of OSDs for one of a database, in the mean of reads and writes.

        A write costs one on each copy (QCT 2015, Appendix C: the cluster writes "three times the
        rate"), a read one on each chunk with data.
        """
        redundancy, writes = self.request.design.redundancy, self.request.fleet.write_share
        return writes * redundancy.chunks + (1 - writes) * redundancy.k

    @cached_property
    def wire_bytes_per_sec(self) -> float:
        """What all servers receive and send for the databases: IOPS x size x copies for writes.

        The client sends a write once, and the primary OSD sends every other copy or chunk.
        """
        fleet, redundancy = self.request.fleet, self.request.design.redundancy
        copies = 1 + (redundancy.chunks - 1) / redundancy.k
        factor = fleet.write_share * copies + 1 - fleet.write_share
        return fleet.iops * fleet.io_size_bytes * factor

    def domains(self, nodes: int) -> int:
        """Return the number of failure domains."""
        return nodes // self.request.design.nodes_per_domain

    def can_recover(self, nodes: int) -> bool:
        """Return whether the copies of a lost failure domain find another one."""
        return self.domains(nodes) > self.request.design.redundancy.chunks

    def left(self, nodes: int) -> int:
        """Return the servers that are left when a failure domain is lost."""
        return nodes - self.request.design.nodes_per_domain

    def server_share(self) -> float:
        """Return the largest share of the cluster that one server may be."""
        return _SERVER_SHARE.get(self.request.design.optimised_for, _DEFAULT_SERVER_SHARE)

    def least_nodes(self) -> list[Bound]:
        """Return lower bounds of the number of servers that follow from no size."""
        design = self.request.design
        kind, redundancy = design.optimised_for, design.redundancy
        healing = 0 if design.is_pilot else 1
        domains = redundancy.chunks + healing
        bounds = []
        if not design.is_pilot:
            share = self.server_share()
            recommended = _RECOMMENDED_NODES.get(kind, _DEFAULT_RECOMMENDED_NODES)
            bounds = [
                Bound(
                    f'one server is at most {share:.0%} of the cluster',
                    math.ceil(round(1 / share, 6)),
                    f'{QCT}, Table 1',
                ),
                Bound(
                    f'{recommended} OSD servers are recommended',
                    recommended,
                    f'{QCT}, "Determining Fault Domain Risk Tolerance"',
                ),
            ]
        place = ' and one more to recover to' if healing else ''
        return [
            *bounds,
            Bound(
                f'{redundancy} need {redundancy.chunks} {design.failure_domain}s{place}',
                domains * design.nodes_per_domain,
                f'{QCT}, "Reserving capacity for self-healing"',
            ),
            Bound(
                f'{LEAST_SERVERS} OSD servers are the least that is supported',
                LEAST_SERVERS,
                f'{QCT}, "Determining Fault Domain Risk Tolerance"',
            ),
        ]

    def fill(self, nodes: int) -> list[Bound]:
        """Return upper bounds of the share of the raw space that is used."""
        design, domains = self.request.design, self.domains(nodes)
        bounds = [
            Bound(
                f'a cluster typically operates at {TYPICAL_FILL:.0%}',
                TYPICAL_FILL,
                f'{RED_HAT}, "Matching performance with Red Hat Ceph Storage"',
            )
            if design.most_fill is None
            else Bound(f'fill_percent is {design.most_fill:.0%}', design.most_fill, GIVEN),
            Bound(
                f'each server operates at less than {MOST_FILL:.0%}',
                MOST_FILL,
                f'{QCT}, "Reserving capacity for self-healing"',
            ),
            Bound(
                f'1/{domains} for self-healing and {DEVIATION:.0%} for deviation stay free',
                round(1 - 1 / domains - DEVIATION, 9),
                f'{QCT}, "Reserving capacity for self-healing"',
            ),
            Bound(
                f'{NEARFULL:.0%} (nearfull) when a {design.failure_domain} is lost',
                round(NEARFULL * (1 - 1 / domains), 9),
                f'{CEPH}, mon_osd_nearfull_ratio',
            ),
        ]
        return bounds

    def devices_per_node(self, nodes: int) -> list[Bound]:
        """Return lower bounds of the devices for data in a server."""
        design, fleet = self.request.design, self.request.fleet
        fill = min(bound.value for bound in self.fill(nodes))
        needed = self.used_bytes / fill / design.device.size_bytes / nodes
        bounds = [
            Bound(
                f'{self.used_bytes / units.T:.1f} TB with redundancy at {fill:.1%} fill',
                math.ceil(round(needed, 9)),
                f'{QCT}, "Identifying Storage Capacity"',
            )
        ]
        if fleet.iops and design.device.iops:
            operations = fleet.iops * self.operations_per_client_operation
            bounds.append(
                Bound(
                    f'{operations:,.0f} operations per second of OSDs while a '
                    f'{design.failure_domain} is lost, {design.device.iops:,.0f} on a device',
                    math.ceil(round(operations / design.device.iops / self.left(nodes), 9)),
                    f'{QCT}, Appendix C (write amplification)',
                )
            )
        return [*bounds, *self._devices_for_recovery(nodes)]

    def _devices_for_recovery(self, nodes: int) -> list[Bound]:
        design = self.request.design
        hours, speed = design.recovery.hours, design.device.bytes_per_sec
        if not (hours and speed and self.can_recover(nodes)):
            return []
        moved = self.lost_bytes(nodes) * (design.redundancy.k + 1)
        needed = moved / (hours * SECONDS_PER_HOUR * speed * design.recovery.share)
        return [
            Bound(
                f'recovery within {hours:g} h at {design.recovery.share:.0%} of the devices',
                math.ceil(round(needed / self.left(nodes), 9)),
                f'{QCT}, "Accommodating impact on performance"',
            )
        ]

    def lost_bytes(self, nodes: int) -> float:
        """Return the raw data on one failure domain."""
        return self.used_bytes / self.domains(nodes)

    def most_devices_per_node(self) -> list[Bound]:
        """Return upper bounds of the devices for data in a server."""
        design = self.request.design
        size = design.device.size_bytes
        bays, source = _BAYS[design.device.device_class]
        if design.bays:
            bays, source = design.bays, GIVEN
        bounds = [Bound(f'{bays} bays', bays, source)]
        if design.optimised_for is Optimisation.IOPS:
            # "Less than": a server of exactly 10 TB has one device too many.
            most = math.ceil(_IOPS_SERVER_BYTES / size) - 1
            bounds.append(Bound('less than 10 TB on a server', most, f'{RED_HAT}, Table 3'))
        else:
            most = _SERVER_BYTES // size
            bounds.append(Bound('at most 300 TB on a server', most, f'{RED_HAT}, Table 3'))
        if design.cores and design.device.device_class is DeviceClass.NVME:
            bounds.append(
                Bound(
                    f'one NVMe for {CORES_PER_NVME} of the {design.cores} cores',
                    design.cores // CORES_PER_NVME,
                    f'{RED_HAT}, Figure 8',
                )
            )
        return bounds

    def cores(self, nodes: int, devices: int) -> list[Bound]:
        """Return lower bounds of the physical cores of a server."""
        device, fleet = self.request.design.device, self.request.fleet
        if device.device_class is DeviceClass.NVME:
            media = Bound(
                f'{CORES_PER_NVME} cores for each of {devices} NVMe',
                CORES_PER_NVME * devices,
                f'{RED_HAT}, Figure 8',
            )
        else:
            each, osds = CPUS_PER_OSD[device.device_class], devices * device.osds
            media = Bound(f'{each} for each of {osds} OSDs', each * osds, TRIPLEO)
        load = fleet.iops * (
            fleet.write_share / _WRITES_PER_CORE + (1 - fleet.write_share) / _READS_PER_CORE
        )
        return [
            media,
            Bound(
                f'{_WRITES_PER_CORE} writes or {_READS_PER_CORE} reads per second of a core, while '
                f'a {self.request.design.failure_domain} is lost',
                math.ceil(round(load / self.left(nodes), 9)),
                'measurements of Ceph Pacific per core used',
            ),
        ]

    def network_gbit(self, nodes: int) -> list[Bound]:
        """Return lower bounds of the network of a server, in Gbit per second."""
        design = self.request.design
        share = design.recovery.share
        traffic = self.wire_bytes_per_sec / self.left(nodes) / (1 - share)
        bounds = [
            Bound(f'{LEAST_NETWORK_GBIT} GbE at least', LEAST_NETWORK_GBIT, f'{RED_HAT}, Table 3'),
            Bound(
                f'{self.wire_bytes_per_sec / units.G:.2f} GB/s of all servers (IOPS x size x '
                f'copies) beside the {share:.0%} for recovery',
                gbit(traffic),
                f'{QCT}, "40 Gigabit Ethernet networking"',
            ),
        ]
        if design.recovery.hours and self.can_recover(nodes):
            moved = self.lost_bytes(nodes) * design.redundancy.k / self.left(nodes)
            speed = moved / (design.recovery.hours * SECONDS_PER_HOUR * share)
            bounds.append(
                Bound(
                    f'recovery within {design.recovery.hours:g} h at {share:.0%} of the network',
                    gbit(speed),
                    f'{QCT}, "Accommodating impact on performance"',
                )
            )
        return bounds


def gbit(speed: float) -> float:
    """Return a speed in bytes per second in Gbit per second."""
    return speed * _BITS / units.G


def bytes_per_sec(speed_gbit: float) -> float:
    """Return a speed in Gbit per second in bytes per second."""
    return speed_gbit * units.G / _BITS
