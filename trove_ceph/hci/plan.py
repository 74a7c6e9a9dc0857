# SPDX-License-Identifier: Apache-2.0
"""The plan: a profile of each host, how its values were found, and what breaks a rule."""

import enum
from dataclasses import dataclass

from trove_ceph.hci.workload import RootDisk


class Level(enum.StrEnum):
    """How bad a finding is."""

    ERROR = 'error'
    WARNING = 'warning'


@dataclass(frozen=True)
class Finding:
    """A rule that the inventory, the workload or the plan breaks.

    :ivar rule: the name of the rule, for programs
    :ivar field: the path in the file, such as ``hosts.hci-1.data_devices``
    :ivar observed: the value that was found, with its unit
    :ivar expected: the value that the rule demands, with its unit
    :ivar source: who made the rule
    :ivar advice: what to do about it
    """

    level: Level
    rule: str
    field: str
    observed: str
    expected: str
    source: str
    advice: str


@dataclass(frozen=True)
class Derivation:
    """How a value of the profile of a host was found.

    :ivar host: the name of the host
    :ivar field: the path in the profile, such as ``reserved_host_memory_mb``
    :ivar value: the value with its unit
    :ivar formula: the formula in words and names
    :ivar numbers: the formula with the numbers of this host
    :ivar source: who published the formula
    :ivar limit: what bounds the value and which bound holds; empty: nothing bounds it
    """

    host: str
    field: str
    value: str
    formula: str
    numbers: str
    source: str
    limit: str = ''


@dataclass(frozen=True)
class Reservation:
    """What Nova leaves to the host and to Ceph.

    :ivar reserved_host_memory_mb: Nova's option; the unit is MiB
    :ivar reserved_host_disk_mb: Nova's option; the unit is MiB
    :ivar disk_allocation_ratio: Nova's option for the rest of the disk
    :ivar cpu_allocation_ratio: Nova's option if guests may use all CPUs of the host
    :ivar cpu_shared_set_allocation_ratio: Nova's option beside ``cpu_shared_set``. Nova applies the
        ratio to the CPUs of that set only, from which the OSDs' are missing already, so the two
        ratios must not be exchanged
    """

    reserved_host_memory_mb: int
    reserved_host_disk_mb: int
    disk_allocation_ratio: float
    cpu_allocation_ratio: float
    cpu_shared_set_allocation_ratio: float


@dataclass(frozen=True)
class OsdPlan:
    """One OSD.

    :ivar device: the path of the device with its data
    :ivar index: the number of the OSD on its device, from 0
    :ivar data_bytes: its part of the device
    :ivar db_device: the path of the device with its DB and WAL; None: they are with the data
    :ivar db_bytes: its part of that device; 0: they are with the data
    :ivar numa_node: the node whose CPUs and memory it uses
    :ivar local: whether that is the node of its device, or of the network if that of the device is
        unknown; None: neither is known
    """

    device: str
    index: int
    data_bytes: int
    db_device: str | None
    db_bytes: int
    numa_node: int
    local: bool | None


@dataclass(frozen=True)
class NodePlan:
    """The CPUs and the memory of one NUMA node.

    The three sets of CPUs are disjoint, contain whole cores, and are all CPUs of the node together.
    The memory for OSDs, overhead, guests and the rest add up to that of the node.

    :ivar host_cpus: for the operating system, Nova and the agents; ascending
    :ivar osd_cpus: for the OSDs on this node together; ascending
    :ivar guest_cpus: for guests; ascending
    :ivar guests: the guests that are planned for the node
    :ivar room: the guests for which memory is kept: those, and its share of the guests of a lost
        host
    :ivar huge_page_kib: the size of the pages of guests
    :ivar huge_pages: the number of such pages, for all guests for which memory is kept
    :ivar osd_memory_mib: for the OSDs, and the host's own programs on this node
    :ivar overhead_memory_mib: for QEMU outside the guests' memory
    :ivar guest_memory_mib: for the huge pages
    :ivar spare_memory_mib: the rest
    """

    number: int
    host_cpus: tuple[int, ...]
    osd_cpus: tuple[int, ...]
    guest_cpus: tuple[int, ...]
    guests: int
    room: int
    huge_page_kib: int
    huge_pages: int
    osd_memory_mib: int
    overhead_memory_mib: int
    guest_memory_mib: int
    spare_memory_mib: int


@dataclass(frozen=True)
class IrqAffinity:
    """The CPUs that serve the interrupts of a network interface.

    The kernel places the interrupts of NVMe devices by itself and refuses to move them.
    """

    nic: str
    numa_node: int | None
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class HostPlan:
    """The profile of one host.

    :ivar guests: the guests that the host carries: as many as the workload names, else as many as
        memory, CPUs and NUMA nodes allow
    :ivar osd_memory_target_bytes: Ceph's option for the OSDs of this host
    :ivar memory_per_osd_mib: what is reserved for each OSD, of which the host takes its own
    :ivar vcpus_per_osd: CPUs (threads) for each OSD
    :ivar osds_per_device: OSDs on each device for data
    """

    name: str
    guests: int
    reservation: Reservation
    osd_memory_target_bytes: int
    memory_per_osd_mib: int
    osds_per_device: int
    vcpus_per_osd: float
    osds: tuple[OsdPlan, ...]
    nodes: tuple[NodePlan, ...]
    irqs: tuple[IrqAffinity, ...]

    @property
    def host_cpus(self) -> tuple[int, ...]:
        """The CPUs of the operating system on all nodes, ascending."""
        return tuple(sorted(cpu for node in self.nodes for cpu in node.host_cpus))

    @property
    def osd_cpus(self) -> tuple[int, ...]:
        """The CPUs of the OSDs on all nodes, ascending."""
        return tuple(sorted(cpu for node in self.nodes for cpu in node.osd_cpus))

    @property
    def guest_cpus(self) -> tuple[int, ...]:
        """The CPUs of guests on all nodes, ascending; Nova's ``cpu_shared_set``."""
        return tuple(sorted(cpu for node in self.nodes for cpu in node.guest_cpus))


@dataclass(frozen=True)
class AffinityRule:
    """What is to be on different hosts, and what can keep it apart.

    :ivar subject: what is kept apart from what
    :ivar mechanism: what expresses it in Nova, Trove or Ceph; None: nothing can
    :ivar setting: the command or the setting; None: nothing can
    :ivar limit: what the mechanism does not give, or why there is none
    """

    subject: str
    mechanism: str | None
    setting: str | None
    limit: str


@dataclass(frozen=True)
class Aggregate:
    """A host aggregate of Nova.

    :ivar properties: the metadata, which flavors ask for
    """

    name: str
    hosts: tuple[str, ...]
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Plan:
    """The plan for all hosts.

    :ivar hosts: the hosts whose values could all be found; a host that has not even the CPUs or
        the memory for its OSDs is missing, and findings say why
    :ivar root_disk: where the root disks of guests are
    """

    hosts: tuple[HostPlan, ...]
    aggregates: tuple[Aggregate, ...]
    affinity: tuple[AffinityRule, ...]
    derivations: tuple[Derivation, ...]
    findings: tuple[Finding, ...]
    root_disk: RootDisk
    public_network: str | None = None
    cluster_network: str | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings for which the plan must not be deployed."""
        return tuple(one for one in self.findings if one.level is Level.ERROR)
