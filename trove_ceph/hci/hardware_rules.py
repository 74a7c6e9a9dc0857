# SPDX-License-Identifier: Apache-2.0
"""Rules for the hardware of one host, from the reference architectures for databases on Ceph."""

from collections.abc import Iterator

from oslo_utils import units

from trove_ceph.enums import DeviceClass
from trove_ceph.hci import osds, sources
from trove_ceph.hci.inventory import Host, Network
from trove_ceph.hci.plan import Finding, Level
from trove_ceph.reference_figures import CORES_PER_NVME, LEAST_NETWORK_GBIT

LEAST_DATA_DEVICES = 4
LEAST_DB_DEVICES = 1
LEAST_MEMORY_BYTES = 128 * units.G
LEAST_SPEED_MBIT_PER_SEC = 1000 * LEAST_NETWORK_GBIT


def of_host(host: Host) -> Iterator[Finding]:
    """Yield what the hardware of a host breaks."""
    path = f'hosts.{host.name}'
    yield from _memory(path, host)
    yield from _devices(path, host)
    yield from _classes(path, host)
    yield from _cores(path, host)
    yield from _networks(path, host)
    yield from _unknown_nodes(path, host)


def _memory(path: str, host: Host) -> Iterator[Finding]:
    if host.memory_mib * units.Mi < LEAST_MEMORY_BYTES:
        yield Finding(
            Level.WARNING,
            'memory',
            f'{path}.memory',
            f'{host.memory_mib * units.Mi / units.G:.0f} GB',
            f'{LEAST_MEMORY_BYTES // units.G} GB or more',
            sources.INTEL_MINIMUM,
            'add memory, or expect few guests beside the OSDs',
        )


def _devices(path: str, host: Host) -> Iterator[Finding]:
    if len(host.data_devices) < LEAST_DATA_DEVICES:
        yield Finding(
            Level.WARNING,
            'data-devices',
            f'{path}.data_devices',
            f'{len(host.data_devices)} devices',
            f'{LEAST_DATA_DEVICES} devices or more',
            sources.INTEL_MINIMUM,
            'add devices, so that the loss of one is the loss of a smaller share of the host',
        )
    if len(host.db_devices) < LEAST_DB_DEVICES:
        yield Finding(
            Level.WARNING,
            'db-devices',
            f'{path}.db_devices',
            f'{len(host.db_devices)} devices',
            f'{LEAST_DB_DEVICES} device or more',
            sources.INTEL_MINIMUM,
            'add a device of low latency for the DB and the WAL of the OSDs',
        )


def _classes(path: str, host: Host) -> Iterator[Finding]:
    counts = {
        kind: sum(one.device_class is kind for one in host.data_devices) for kind in DeviceClass
    }
    present = [kind for kind in DeviceClass if counts[kind]]
    if len(present) > 1:
        yield Finding(
            Level.ERROR,
            'one-class',
            f'{path}.data_devices',
            ' and '.join(f'{counts[kind]} {kind}' for kind in present),
            'devices of one class on a host',
            sources.SEAGATE_POOLS,
            'plan a host for each class: one number of CPUs for each OSD does not fit two classes',
        )
    if present == [DeviceClass.HDD]:
        has_flash = bool(host.db_devices)
        yield Finding(
            Level.WARNING if has_flash else Level.ERROR,
            'flash',
            f'{path}.data_devices',
            f'{counts[DeviceClass.HDD]} hdd, {len(host.db_devices)} DB devices of flash',
            'flash for data, or at least for DB and WAL',
            sources.RED_HAT_FLASH,
            'put databases on flash; disks suit copies of backups',
        )


def _cores(path: str, host: Host) -> Iterator[Finding]:
    nvme = sum(one.device_class is DeviceClass.NVME for one in host.data_devices)
    if nvme and host.cores < CORES_PER_NVME * nvme:
        yield Finding(
            Level.WARNING,
            'cores-per-nvme',
            f'{path}.numa',
            f'{host.cores} cores for {nvme} NVMe devices ({host.cores / nvme:.1f} each)',
            f'{CORES_PER_NVME} cores for each NVMe device',
            sources.SUPERMICRO_CORES,
            'take fewer NVMe devices or CPUs with more cores; more devices than that slowed down '
            'each other',
        )


def _networks(path: str, host: Host) -> Iterator[Finding]:
    carriers = {
        network: [nic for nic in host.nics if network in nic.networks] for network in Network
    }
    public, cluster = carriers[Network.PUBLIC], carriers[Network.CLUSTER]
    if not public:
        yield Finding(
            Level.ERROR,
            'public-network',
            f'{path}.nics',
            'no interface with the network public',
            'one interface or more',
            sources.INTEL_NETWORKS,
            'add public to the networks of an interface: guests reach the OSDs by it',
        )
    if not [nic for nic in cluster if nic not in public]:
        shared = [nic.name for nic in cluster]
        yield Finding(
            Level.WARNING,
            'separate-networks',
            f'{path}.nics',
            f'cluster and public both on {", ".join(shared)}' if shared else 'no cluster network',
            'an interface for the cluster network alone',
            sources.INTEL_NETWORKS,
            'give the copies between OSDs an interface of their own',
        )
    for nic in (*public, *(nic for nic in cluster if nic not in public)):
        speed = nic.speed_mbit_per_sec
        if speed is not None and speed < LEAST_SPEED_MBIT_PER_SEC:
            yield Finding(
                Level.WARNING,
                'network-speed',
                f'{path}.nics.{nic.name}.speed',
                f'{speed / 1000:g} Gbit/s',
                f'{LEAST_SPEED_MBIT_PER_SEC / 1000:g} Gbit/s or more',
                sources.INTEL_MINIMUM,
                'use faster interfaces for Ceph',
            )


def _unknown_nodes(path: str, host: Host) -> Iterator[Finding]:
    unknown = [one.path for one in host.data_devices if one.numa_node is None]
    if unknown and len(host.numa_nodes) > 1:
        yield Finding(
            Level.WARNING,
            'numa-node-unknown',
            f'{path}.data_devices',
            f'{len(unknown)} devices without numa_node, such as {unknown[0]}',
            'the NUMA node of each device',
            sources.CEPH_NUMA,
            'copy it from /sys/class/nvme/nvme0/device/numa_node (or that of the controller)',
        )


def db_share(host: Host, osds_per_device: int) -> Iterator[Finding]:
    """Yield the OSD whose DB device is the smallest, if it is too small, or too large for a DB."""
    with_db = [osd for osd in osds.layout(host, osds_per_device) if osd.db_device]
    if not with_db:
        return
    largest = max(with_db, key=lambda osd: osd.db_bytes / osd.data_bytes)
    if largest.db_bytes > largest.data_bytes:
        yield Finding(
            Level.ERROR,
            'db-size',
            f'hosts.{host.name}.db_devices',
            f'{largest.db_bytes / units.G:g} GB for an OSD of {largest.data_bytes / units.G:g} GB',
            'less than the data',
            sources.CEPH_DB_SIZE,
            'check the units of the sizes, and which devices are for data',
        )
    worst = min(with_db, key=lambda osd: osd.db_bytes / osd.data_bytes)
    share = worst.db_bytes / worst.data_bytes
    if share < osds.LEAST_DB_SHARE:
        yield Finding(
            Level.WARNING,
            'db-size',
            f'hosts.{host.name}.db_devices',
            f'{worst.db_bytes / units.G:.1f} GB ({share:.2%}) for an OSD of '
            f'{worst.data_bytes / units.T:.2f} TB',
            f'{osds.LEAST_DB_SHARE:.0%} of the data or more',
            sources.CEPH_DB_SIZE,
            'use larger DB devices: what does not fit spills to the device with the data',
        )
