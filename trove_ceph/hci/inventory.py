# SPDX-License-Identifier: Apache-2.0
"""The hosts that are planned, as the file for hyper-converged hosts describes them."""

import enum
from dataclasses import dataclass

from trove_ceph.enums import DeviceClass
from trove_ceph.hci import capacity


class Network(enum.StrEnum):
    """What a network interface carries."""

    PUBLIC = 'public'
    CLUSTER = 'cluster'
    GUESTS = 'guests'
    MANAGEMENT = 'management'


@dataclass(frozen=True)
class NumaNode:
    """A node of memory with its CPUs.

    :ivar number: the kernel's number of the node
    :ivar cores: the threads of each physical core, as the kernel numbers CPUs; ascending by the
        first thread of the core
    :ivar memory_mib: the memory of the node
    """

    number: int
    cores: tuple[tuple[int, ...], ...]
    memory_mib: int

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs (threads) of the node, ascending."""
        return tuple(sorted(cpu for core in self.cores for cpu in core))


@dataclass(frozen=True)
class Device:
    """A disk for the data or for the metadata (DB and WAL) of OSDs.

    :ivar path: such as ``/dev/disk/by-id/nvme-…``
    :ivar numa_node: the node that its controller is attached to; None: unknown
    """

    path: str
    device_class: DeviceClass
    size_bytes: int
    numa_node: int | None


@dataclass(frozen=True)
class Nic:
    """A network interface, or a bond of several.

    :ivar networks: what it carries
    :ivar speed_mbit_per_sec: its speed; None: unknown
    :ivar numa_node: the node that it is attached to; None: unknown
    """

    name: str
    networks: frozenset[Network]
    speed_mbit_per_sec: int | None
    numa_node: int | None


@dataclass(frozen=True)
class Host:
    """A host.

    :ivar memory_mib: the memory of all NUMA nodes
    :ivar local_disk_bytes: the file system with Nova's directory of instances; None: unknown
    :ivar rack: the failure domain above the host; None: unknown
    """

    name: str
    memory_mib: int
    numa_nodes: tuple[NumaNode, ...]
    data_devices: tuple[Device, ...]
    db_devices: tuple[Device, ...]
    nics: tuple[Nic, ...]
    local_disk_bytes: int | None = None
    rack: str | None = None

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs (threads), ascending; Nova and TripleO count them as vCPUs of the host."""
        return tuple(sorted(cpu for node in self.numa_nodes for cpu in node.cpus))

    @property
    def cores(self) -> int:
        """The number of physical cores."""
        return sum(len(node.cores) for node in self.numa_nodes)

    @property
    def raw_bytes(self) -> int:
        """The size of all devices for data."""
        return sum(one.size_bytes for one in self.data_devices)


@dataclass(frozen=True)
class Inventory:
    """All hosts of a cluster, and what they have in common.

    :ivar copies: the copies of each object in the pool of the databases
    :ivar public_network: the network of Ceph's clients in CIDR form; None: not given
    :ivar cluster_network: the network between OSDs in CIDR form; None: not given
    """

    hosts: tuple[Host, ...]
    copies: int
    public_network: str | None = None
    cluster_network: str | None = None

    @property
    def raw_bytes(self) -> int:
        """The size of all devices for data."""
        return sum(host.raw_bytes for host in self.hosts)

    @property
    def usable_bytes(self) -> float:
        """What the pool of the databases would hold if the devices could be filled."""
        return capacity.usable_bytes([host.raw_bytes for host in self.hosts], self.copies)

    @property
    def most_bytes(self) -> float:
        """What that pool is to hold at most, so that it heals the loss of a host."""
        return capacity.most_bytes([host.raw_bytes for host in self.hosts], self.copies)

    @property
    def db_bytes(self) -> int:
        """The size of all devices for DB and WAL."""
        return sum(one.size_bytes for host in self.hosts for one in host.db_devices)
