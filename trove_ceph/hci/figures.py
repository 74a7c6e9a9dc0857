# SPDX-License-Identifier: Apache-2.0
"""The figures of a host that follow from the formulas alone, before anything has a place."""

from dataclasses import dataclass
from functools import cached_property

from trove_ceph.hci import osd_memory, osds, reservation
from trove_ceph.hci.inventory import Host, Inventory
from trove_ceph.hci.workload import OsdChoices, RootDisk, Workload

#: The resources that limit the guests of a host.
MEMORY = 'memory'
CPUS = 'CPUs'
NUMA_NODES = 'NUMA nodes'
LOCAL_DISK = 'local disk'


@dataclass(frozen=True)
class Limit:
    """What one resource of a host allows.

    :ivar name: the resource
    :ivar guests: how many guests it allows
    """

    name: str
    guests: int


@dataclass(frozen=True)
class Figures:
    """A host, its load, and the values of the formulas for them.

    :ivar memory_left: what the databases leave to OSDs; None: they may take all memory
    """

    host: Host
    inventory: Inventory
    workload: Workload
    choices: OsdChoices
    memory_left: osd_memory.Share | None = None

    @cached_property
    def osds_per_device(self) -> int:
        """OSDs on each device with data."""
        return osds.per_device(self.host, self.choices)

    @cached_property
    def osds(self) -> int:
        """OSDs of the host."""
        return self.osds_per_device * len(self.host.data_devices)

    @cached_property
    def vcpus_per_osd(self) -> float:
        """CPUs (threads) for each OSD."""
        return osds.vcpus(self.host, self.osds_per_device, self.choices)

    @property
    def mib_per_osd(self) -> int:
        """The memory for each OSD, of which the host takes its own; TripleO's, or more."""
        return self.memory_left.mib_per_osd if self.memory_left else reservation.MIB_PER_OSD

    @cached_property
    def guests_by_memory(self) -> int:
        """Guests that the memory of the host allows."""
        return reservation.guests_by_memory(
            self.host.memory_mib, self.osds, self.workload.guest_memory_mib, self.mib_per_osd
        )

    @cached_property
    def reserved_memory_mb(self) -> int:
        """What Nova reserves, in MiB."""
        return reservation.reserved_host_memory_mb(
            self.osds, self.guests_by_memory, self.mib_per_osd
        )

    @cached_property
    def cpu_ratio(self) -> float:
        """The vCPUs of guests for each CPU of the host."""
        return reservation.cpu_allocation_ratio(
            len(self.host.cpus), self.osds, self.vcpus_per_osd, self.workload.guest_cpu_percent
        )

    @cached_property
    def guests_by_cpus(self) -> int:
        """Guests that the CPUs of the host allow."""
        cpus = len(self.host.cpus)
        return reservation.guests_by_cpus(cpus, self.cpu_ratio, self.workload.guest_vcpus)

    @cached_property
    def shared_set_ratio(self) -> float:
        """The vCPUs of guests for each CPU of theirs."""
        return reservation.shared_set_ratio(self.workload.guest_cpu_percent)

    @cached_property
    def reserved_disk_mb(self) -> int:
        """What root disks must leave, in MiB; 0 if they are in Ceph or the disk is not known."""
        if self.workload.root_disk is RootDisk.CEPH:
            return 0
        return reservation.reserved_local_disk_mb(self.host.local_disk_bytes or 0)

    @cached_property
    def disk_ratio(self) -> float:
        """The part of the disk that Nova reports which root disks may have."""
        if self.workload.root_disk is RootDisk.LOCAL:
            return 1.0
        inventory = self.inventory
        return reservation.disk_allocation_ratio(
            inventory.most_bytes,
            inventory.raw_bytes + inventory.db_bytes,
            len(inventory.hosts),
        )

    @cached_property
    def memory_target_mib(self) -> int:
        """The memory target of each OSD."""
        return osd_memory.target_mib(self.osds, self.mib_per_osd)

    def limits(self, guests_by_nodes: int) -> tuple[Limit, ...]:
        """Return what each resource allows.

        :param guests_by_nodes: what the NUMA nodes allow together
        """
        found = [
            Limit(MEMORY, self.guests_by_memory),
            Limit(CPUS, self.guests_by_cpus),
            Limit(NUMA_NODES, guests_by_nodes),
        ]
        if self.workload.root_disk is RootDisk.LOCAL and self.host.local_disk_bytes:
            left = self.host.local_disk_bytes - self.reserved_disk_mb * 1024**2
            found.append(Limit(LOCAL_DISK, max(0, left // self.workload.root_disk_bytes)))
        return tuple(found)
