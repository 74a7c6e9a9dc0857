# SPDX-License-Identifier: Apache-2.0
"""What Nova reserves on a host with OSDs, by the formulas that TripleO published.

They are those of ``tripleo_derive_hci_parameters`` of tripleo-ansible. Its GB are GiB.
"""

import math

#: The least memory for an OSD, and that for a guest outside the memory that it sees.
MIB_PER_OSD = 5 * 1024
MIB_PER_GUEST = 512
#: A host whose reservation is greater than this share of its memory is a storage node.
MOST_RESERVED = 0.8
#: Below, the OSDs take more than the guests get; above, guests wait for CPUs.
LEAST_RATIO = 0.5
MOST_RATIO = 16.0

#: A monitor of Ceph warns if its file system has less than 30 % free (mon_data_avail_warn). On a
#: hyper-converged host it shares the disk with Nova's directory of instances.
FREE_LOCAL_DISK = 0.30


def guests_by_memory(
    memory_mib: int, osds: int, guest_mib: int, mib_per_osd: int = MIB_PER_OSD
) -> int:
    """Return how many guests fit beside the OSDs of a host; 0 if not even the OSDs fit."""
    left_mib = memory_mib - mib_per_osd * osds
    return max(0, left_mib // (guest_mib + MIB_PER_GUEST))


def reserved_host_memory_mb(osds: int, guests: int = 0, mib_per_osd: int = MIB_PER_OSD) -> int:
    """Return the memory for OSDs and for QEMU in MiB.

    :param guests: how many guests the memory of the host allows; 0: the workload is not known
    :param mib_per_osd: the memory for each OSD; TripleO's, or more
    """
    return mib_per_osd * osds + MIB_PER_GUEST * guests


def cpu_allocation_ratio(
    cpus: int, osds: int, vcpus_per_osd: float, guest_cpu_percent: float
) -> float:
    """Return the vCPUs of guests for each CPU of the host; below 0 if the OSDs need more CPUs.

    :param cpus: the CPUs (threads) of the host
    :param guest_cpu_percent: how busy a vCPU of a guest is on average
    """
    return (cpus - vcpus_per_osd * osds) * 100 / guest_cpu_percent / cpus


def shared_set_ratio(guest_cpu_percent: float) -> float:
    """Return the vCPUs of guests for each CPU that belongs to guests alone.

    It is the same formula on a set of CPUs from which those of the OSDs are missing already.
    """
    return 100 / guest_cpu_percent


def guests_by_cpus(cpus: int, ratio: float, guest_vcpus: int) -> int:
    """Return how many guests the CPUs of a host allow."""
    # The ratio is a quotient of decimals: 0.7 x 10 must be 7, not 6.999….
    return max(0, math.floor(cpus * ratio / guest_vcpus + 1e-9))


def reserved_local_disk_mb(local_disk_bytes: int) -> int:
    """Return what instances must leave of the local disk in MiB."""
    return math.ceil(local_disk_bytes * FREE_LOCAL_DISK / 1024**2)


def disk_allocation_ratio(most_bytes: float, all_bytes: int, hosts: int) -> float:
    """Return which part of the disk that Nova reports for a host its root disks in Ceph may have.

    With root disks in Ceph each host reports the raw size of the cluster as its own disk
    (``total_bytes`` of ``ceph df``), as if there were one copy and no other host. BlueStore counts
    the devices for DB and WAL as well, on which no data is. So a host has its share of what the
    pool is to hold. It is a ratio, and not a reservation in MiB, since Ceph does not count OSDs
    that are out: the share must shrink with the cluster, and a reservation greater than the rest
    would have Placement refuse the inventory of each host.

    :param most_bytes: what the pool is to hold at most, before copies
    :param all_bytes: the size of all devices of the cluster, those for DB and WAL too
    :param hosts: the hosts that run guests
    """
    # Nova takes 0 for no value. The digits beyond are lost in the float of its database.
    return max(math.floor(most_bytes / hosts / all_bytes * 1e8), 1) / 1e8
