# SPDX-License-Identifier: Apache-2.0
"""What the fleet file says: the databases, the design of the cluster, and its prices."""

import enum
from dataclasses import dataclass

from trove_ceph.enums import DeviceClass

SECONDS_PER_HOUR = 3600


class Optimisation(enum.StrEnum):
    """What a cluster is optimised for (QCT 2015, Table 1)."""

    IOPS = 'iops'
    THROUGHPUT = 'throughput'
    CAPACITY = 'capacity'


class FailureDomain(enum.StrEnum):
    """What holds at most one copy or chunk of an object."""

    HOST = 'host'
    RACK = 'rack'


@dataclass(frozen=True)
class Databases:
    """Databases that are alike.

    :param size_bytes: of the volume of each
    :param iops: that each needs; 0: none are promised
    """

    name: str
    instances: int
    size_bytes: int
    iops: float


@dataclass(frozen=True)
class Fleet:
    """The databases, and how they grow.

    :param growth_per_year: share by which data and IOPS grow each year; 0.3: by 30 %
    :param years: the time until the fleet is as large as the cluster is planned for
    :param io_size_bytes: of one operation
    :param write_share: share of writes among the operations
    """

    databases: tuple[Databases, ...]
    growth_per_year: float
    years: float
    io_size_bytes: int
    write_share: float

    @property
    def growth(self) -> float:
        """The factor by which the fleet has grown at the end."""
        return float((1 + self.growth_per_year) ** self.years)

    @property
    def instances(self) -> int:
        """The number of databases today."""
        return sum(one.instances for one in self.databases)

    @property
    def data_bytes(self) -> float:
        """The size of all volumes at the end, before redundancy."""
        return self.growth * sum(one.instances * one.size_bytes for one in self.databases)

    @property
    def iops(self) -> float:
        """The operations per second of all databases at the end."""
        return self.growth * sum(one.instances * one.iops for one in self.databases)


@dataclass(frozen=True)
class Redundancy:
    """Copies, as k = 1, or an erasure code.

    :param k: chunks with data
    :param m: chunks that may be lost
    """

    k: int
    m: int

    @property
    def chunks(self) -> int:
        """The number of OSDs that store a part of each object."""
        return self.k + self.m

    @property
    def factor(self) -> float:
        """The raw space of a byte."""
        return self.chunks / self.k

    @property
    def min_size(self) -> int:
        """The chunks that must be up for a write, by Ceph's own default."""
        return self.chunks - self.chunks // 2 if self.k == 1 else self.k + min(1, self.m - 1)

    def __str__(self) -> str:
        return f'{self.chunks} copies' if self.k == 1 else f'EC {self.k}+{self.m}'


@dataclass(frozen=True)
class Device:
    """A device for data.

    :param iops: operations per second of its OSDs, each copy counted; None: unknown
    :param bytes_per_sec: what its OSDs read or write in large pieces; None: unknown
    :param osds: OSDs on each device
    :param db: class of the devices for DB and WAL; None: they are with the data
    """

    device_class: DeviceClass
    size_bytes: int
    iops: float | None
    bytes_per_sec: int | None
    osds: int
    db: DeviceClass | None


@dataclass(frozen=True)
class Recovery:
    """The recovery from the loss of a failure domain.

    :param hours: in which all copies are to exist again; None: no matter
    :param share: of network and devices that recovery may take from the databases
    """

    hours: float | None
    share: float


@dataclass(frozen=True)
class Design:
    """What the cluster is built of. None stands for what is to be computed.

    :param nodes_per_rack: None: racks do not matter
    :param bays: devices for data that fit into a server; None: as many as in published servers
    :param cores: physical cores of a server
    :param most_fill: share of the raw space that is used at most; None: what is typical
    :param pgs_per_osd: placement groups on each OSD; None: from 100 to 200
    :param is_pilot: whether a server may be more of the cluster than is recommended
    """

    optimised_for: Optimisation
    device: Device
    redundancy: Redundancy
    failure_domain: FailureDomain
    nodes_per_rack: int | None
    nodes: int | None
    devices_per_node: int | None
    bays: int | None
    cores: int | None
    network_gbit: int | None
    monitors: int | None
    most_fill: float | None
    pgs_per_osd: int | None
    is_pilot: bool
    recovery: Recovery

    @property
    def nodes_per_domain(self) -> int:
        """The servers of a failure domain."""
        if self.failure_domain is FailureDomain.HOST:
            return 1
        assert self.nodes_per_rack
        return self.nodes_per_rack


@dataclass(frozen=True)
class Hardware:
    """What own hardware costs, in one currency.

    :param node: a server without its devices for data, DB and WAL
    :param device: a device for data
    :param db_device: a device for DB and WAL
    :param years: lifetime
    :param watts: power of a server with its devices
    :param price_per_kwh: of electricity
    """

    currency: str
    node: float
    device: float
    db_device: float
    years: float
    watts: float
    price_per_kwh: float


@dataclass(frozen=True)
class Request:
    """The content of a fleet file."""

    fleet: Fleet
    design: Design
    hardware: Hardware | None
