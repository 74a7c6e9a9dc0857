# SPDX-License-Identifier: Apache-2.0
"""Hosts and loads for tests; each argument replaces one value of a host that breaks no rule."""

from oslo_utils import units

from trove_ceph.enums import DeviceClass
from trove_ceph.hci.inventory import Device, Host, Inventory, Network, Nic, NumaNode
from trove_ceph.hci.workload import OsdChoices, RootDisk, Workload

CHOICES = OsdChoices(per_device=1, vcpus=6)


def cores(first, count, threads=2, step=None):
    """Return cores whose n-th threads have numbers that are ``step`` apart."""
    step = count if step is None else step
    return tuple(
        tuple(first + core + step * thread for thread in range(threads)) for core in range(count)
    )


def nodes(number=2, cores_each=20, threads=2, memory_mib=192 * 1024):
    """Return equal NUMA nodes; CPUs are numbered as on Intel's servers."""
    total = number * cores_each
    return tuple(
        NumaNode(at, cores(at * cores_each, cores_each, threads, total), memory_mib)
        for at in range(number)
    )


def devices(
    count=4, kind=DeviceClass.NVME, size=3_840 * units.G, on=(0, 0, 1, 1), name='/dev/nvme'
):
    """Return devices, whose NUMA nodes repeat those of ``on``."""
    return tuple(Device(f'{name}{at}n1', kind, size, on[at % len(on)]) for at in range(count))


def db_devices(count=1, size=375 * units.G):
    """Return devices for DB and WAL on node 0."""
    return devices(count, size=size, on=(0,), name='/dev/pmem')


def nics(cluster_node=1):
    """Return an interface for each of Ceph's networks; that of the public one is on node 0."""
    return (
        Nic('bond0', frozenset({Network.PUBLIC, Network.GUESTS}), 25_000, 0),
        Nic('bond1', frozenset({Network.CLUSTER}), 25_000, cluster_node),
    )


def host(name='hci-1', **changes):
    """Return a host with 2 nodes of 20 cores and 192 GiB, 4 NVMe and 1 DB device."""
    values = {
        'numa_nodes': nodes(),
        'data_devices': devices(),
        'db_devices': db_devices(),
        'nics': nics(),
    } | changes
    memory_mib = sum(node.memory_mib for node in values['numa_nodes'])
    return Host(name=name, memory_mib=memory_mib, **values)


def inventory(count=5, copies=3, **changes):
    """Return equal hosts."""
    hosts = tuple(host(f'hci-{at + 1}', **changes) for at in range(count))
    return Inventory(hosts, copies)


def workload(**changes):
    """Return 20 databases on each host, in guests of 8 GiB that are half busy."""
    values = {
        'guest_memory_mib': 8192,
        'guest_vcpus': 4,
        'guest_cpu_percent': 50,
        'volume_bytes': 100 * units.Gi,
        'root_disk_bytes': 20 * units.Gi,
        'root_disk': RootDisk.CEPH,
        'databases_per_host': 20,
        'replicas': 2,
    } | changes
    return Workload(**values)
