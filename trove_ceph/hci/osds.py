# SPDX-License-Identifier: Apache-2.0
"""How many OSDs the devices of a host have, and what each OSD gets."""

from collections.abc import Sequence
from dataclasses import dataclass

from oslo_utils import units

from trove_ceph.enums import DeviceClass
from trove_ceph.hci.inventory import Device, Host
from trove_ceph.hci.workload import OsdChoices
from trove_ceph.reference_figures import CPUS_PER_OSD

#: The OSDs on an NVMe device of the classic kind (P3700), by the reference architectures.
CLASSIC_PER_NVME = 4
#: From this size on, one OSD leaves an NVMe device idle (Red Hat Ceph Storage, operations guide).
LARGE_NVME_BYTES = 30 * units.T
#: The least DB device for block storage, as a share of the data (Ceph, BlueStore configuration).
LEAST_DB_SHARE = 0.01


@dataclass(frozen=True)
class Osd:
    """An OSD before it has a NUMA node.

    :ivar device: the device with its data
    :ivar index: its number on the device, from 0
    :ivar db_device: the device with its DB and WAL; None: they are with the data
    :ivar db_bytes: its part of that device
    """

    device: Device
    index: int
    data_bytes: int
    db_device: Device | None
    db_bytes: int


def device_class(host: Host) -> DeviceClass:
    """Return the slowest class of the devices with data; a host with several breaks a rule."""
    return max((one.device_class for one in host.data_devices), key=list(DeviceClass).index)


def per_device(host: Host, choices: OsdChoices) -> int:
    """Return the OSDs on each device with data: the operator's choice, else one or two."""
    if choices.per_device is not None:
        return choices.per_device
    smallest = min(one.size_bytes for one in host.data_devices)
    is_large = device_class(host) is DeviceClass.NVME and smallest >= LARGE_NVME_BYTES
    return 2 if is_large else 1


def default_vcpus(kind: DeviceClass, osds_per_device: int) -> float:
    """Return TripleO's CPUs (threads) for each OSD on a class of device."""
    if kind is DeviceClass.NVME and osds_per_device == CLASSIC_PER_NVME:
        return 3.0
    return float(CPUS_PER_OSD[kind])


def vcpus(host: Host, osds_per_device: int, choices: OsdChoices) -> float:
    """Return the CPUs (threads) for each OSD: the operator's choice, else TripleO's."""
    if choices.vcpus is not None:
        return choices.vcpus
    return default_vcpus(device_class(host), osds_per_device)


def layout(host: Host, osds_per_device: int) -> tuple[Osd, ...]:
    """Return the OSDs of a host with their parts of devices.

    The OSDs of a device share a device for DB and WAL, on the same NUMA node if there is one, and
    the devices for DB and WAL have the same number of OSDs as far as possible.
    """
    owners = _db_devices(host.data_devices, host.db_devices)
    users = [owners[one.path] for one in host.data_devices]
    found = []
    for device in host.data_devices:
        db_device = owners[device.path]
        db_bytes = 0
        if db_device:
            db_bytes = db_device.size_bytes // (users.count(db_device) * osds_per_device)
        for index in range(osds_per_device):
            data_bytes = device.size_bytes // osds_per_device
            found.append(Osd(device, index, data_bytes, db_device, db_bytes))
    return tuple(found)


def _db_devices(data: Sequence[Device], db: Sequence[Device]) -> dict[str, Device | None]:
    """Return the device for DB and WAL of each device with data."""
    if not db:
        return dict.fromkeys([one.path for one in data])
    most = -(-len(data) // len(db))
    used = dict.fromkeys([one.path for one in db], 0)
    owners: dict[str, Device | None] = {}
    for device in data:
        free = [one for one in db if used[one.path] < most]
        best = min(free, key=lambda one: (one.numa_node != device.numa_node, used[one.path]))
        used[best.path] += 1
        owners[device.path] = best
    return owners
