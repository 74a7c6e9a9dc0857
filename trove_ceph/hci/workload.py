# SPDX-License-Identifier: Apache-2.0
"""What the hosts are to carry, and what the operator chooses instead of the defaults."""

import enum
from dataclasses import dataclass


class RootDisk(enum.StrEnum):
    """Where the root disks of the guests are."""

    CEPH = 'ceph'
    LOCAL = 'local'


@dataclass(frozen=True)
class Workload:
    """The databases of one host; each has a guest of its own.

    :ivar guest_memory_mib: the memory of a guest, by its flavor
    :ivar guest_vcpus: the vCPUs of a guest, by its flavor
    :ivar guest_cpu_percent: how busy a vCPU of a guest is on average, above 0 and up to 100
    :ivar volume_bytes: the size of a database's volume
    :ivar root_disk_bytes: the size of a guest's root disk
    :ivar root_disk: where that disk is
    :ivar databases_per_host: how many a host is to carry; None: as many as it can
    :ivar replicas: the replicas of each database, which are on other hosts
    """

    guest_memory_mib: int
    guest_vcpus: int
    guest_cpu_percent: float
    volume_bytes: int
    root_disk_bytes: int
    root_disk: RootDisk
    databases_per_host: int | None = None
    replicas: int = 0


@dataclass(frozen=True)
class OsdChoices:
    """What the operator chooses for OSDs; None: the default for the class of device.

    :ivar per_device: OSDs on each device for data
    :ivar vcpus: CPUs (threads) for each OSD
    """

    per_device: int | None = None
    vcpus: float | None = None
