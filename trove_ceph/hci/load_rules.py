# SPDX-License-Identifier: Apache-2.0
"""Rules for the load of one host: memory, CPUs, OSDs and guests."""

from collections.abc import Iterator, Sequence

from trove_ceph.enums import DeviceClass
from trove_ceph.hci import osd_memory, osds, reservation, sources
from trove_ceph.hci.figures import CPUS, LOCAL_DISK, MEMORY, NUMA_NODES, Figures, Limit
from trove_ceph.hci.plan import Finding, Level, OsdPlan
from trove_ceph.hci.workload import RootDisk

#: What a host needs more of, and who says so, by the name of a limit.
_LIMITS = {
    MEMORY: ('more memory', sources.TRIPLEO),
    CPUS: ('more CPUs', sources.TRIPLEO),
    NUMA_NODES: ('more CPUs and memory on each NUMA node', sources.NOVA_PAGES),
    LOCAL_DISK: ('a larger local disk', sources.CEPH_DATA_AVAIL),
}
#: The least CPUs (threads) for the OSDs of an NVMe device (Ceph, hardware recommendations).
LEAST_VCPUS_PER_NVME = 4


def of_figures(figures: Figures) -> Iterator[Finding]:
    """Yield what the formulas say of a host."""
    path = f'hosts.{figures.host.name}'
    yield from _reserved_memory(path, figures)
    yield from _cpu_ratio(path, figures)
    yield from _memory_target(path, figures)
    yield from _osds_per_device(path, figures)
    yield from _vcpus(path, figures)
    yield from _local_disk(path, figures)


def does_not_fit(figures: Figures, reason: str) -> Finding:
    """Return that the OSDs of a host fit on none of its NUMA nodes."""
    return Finding(
        Level.ERROR,
        'osds-fit',
        f'hosts.{figures.host.name}.numa',
        reason,
        'CPUs and memory for each OSD on a NUMA node',
        sources.TRIPLEO,
        'plan fewer OSDs or fewer CPUs for each, or hosts with more of both',
    )


def remote_osds(figures: Figures, placed: Sequence[OsdPlan]) -> Iterator[Finding]:
    """Yield that OSDs are on another NUMA node than their device."""
    remote = [osd for osd in placed if osd.local is False]
    if remote:
        yield Finding(
            Level.WARNING,
            'osds-local',
            f'hosts.{figures.host.name}.data_devices',
            f'{len(remote)} of {len(placed)} OSDs on another NUMA node than their device, such as '
            f'that of {remote[0].device}',
            'each OSD on the node of its device',
            sources.CEPH_NUMA,
            'spread the devices over the nodes, or plan fewer CPUs for each OSD',
        )


def guests(figures: Figures, limits: Sequence[Limit]) -> Iterator[Finding]:
    """Yield that a host cannot carry what it is to carry; the number that fails is named."""
    wanted = figures.workload.databases_per_host or 1
    binding = min(limits, key=lambda one: one.guests)
    if wanted > binding.guests:
        allowed = ', '.join(f'{one.name} {one.guests}' for one in limits)
        more, source = _LIMITS[binding.name]
        yield Finding(
            Level.ERROR,
            'guests-fit',
            f'hosts.{figures.host.name}',
            f'{wanted} databases (workload.databases_per_host)',
            f'{binding.guests} or less by {binding.name}; of what each allows: {allowed}',
            source,
            f'plan fewer databases, smaller guests, or hosts with {more}',
        )


def _reserved_memory(path: str, figures: Figures) -> Iterator[Finding]:
    memory = figures.host.memory_mib
    most = reservation.MOST_RESERVED * memory
    if figures.reserved_memory_mb > most:
        yield Finding(
            Level.ERROR,
            'reserved-memory',
            f'{path}.memory',
            f'{figures.reserved_memory_mb} MiB reserved for {figures.osds} OSDs and '
            f'{figures.guests_by_memory} guests',
            f'{int(most)} MiB or less ({reservation.MOST_RESERVED:.0%} of {memory} MiB)',
            sources.TRIPLEO,
            'plan fewer OSDs on each device, or add memory',
        )


def _cpu_ratio(path: str, figures: Figures) -> Iterator[Finding]:
    ratio = figures.cpu_ratio
    if ratio < reservation.LEAST_RATIO:
        yield Finding(
            Level.ERROR,
            'cpu-ratio',
            f'{path}.numa',
            f'cpu_allocation_ratio {ratio:.3f} with {figures.vcpus_per_osd:g} CPUs for each of '
            f'{figures.osds} OSDs on {len(figures.host.cpus)} CPUs',
            f'{reservation.LEAST_RATIO} or more',
            sources.TRIPLEO,
            'plan fewer OSDs or fewer CPUs for each, or hosts with more CPUs',
        )
    elif ratio > reservation.MOST_RATIO:
        yield Finding(
            Level.WARNING,
            'cpu-ratio',
            'workload.guest_cpu_percent',
            f'cpu_allocation_ratio {ratio:.1f}',
            f'{reservation.MOST_RATIO:g} or less',
            sources.TRIPLEO,
            'plan with a higher guest_cpu_percent: guests are busy at the same time',
        )


def _memory_target(path: str, figures: Figures) -> Iterator[Finding]:
    if figures.memory_target_mib < osd_memory.LEAST_TARGET_MIB:
        yield Finding(
            Level.ERROR,
            'memory-target',
            f'{path}.data_devices',
            f'osd_memory_target {figures.memory_target_mib} MiB with {figures.osds} OSDs',
            f'{osd_memory.LEAST_TARGET_MIB} MiB or more',
            sources.CEPH_MEMORY_TARGET,
            'plan more OSDs on the host, or name fewer workload.databases_per_host: the '
            f'{osd_memory.HOST_MIB} MiB of the host are taken from what is reserved for OSDs',
        )


def _osds_per_device(path: str, figures: Figures) -> Iterator[Finding]:
    kind, count = osds.device_class(figures.host), figures.osds_per_device
    most = osds.CLASSIC_PER_NVME if kind is DeviceClass.NVME else 1
    if count > most:
        yield Finding(
            Level.WARNING,
            'osds-per-device',
            'osds.per_device',
            f'{count} OSDs on each {kind}',
            f'{most} or less',
            sources.SUPERMICRO_OSDS if kind is DeviceClass.NVME else sources.RED_HAT_ONE_OSD,
            'leave out osds.per_device, or make it smaller',
        )


def _vcpus(path: str, figures: Figures) -> Iterator[Finding]:
    if osds.device_class(figures.host) is not DeviceClass.NVME:
        return
    count, each = figures.osds_per_device, figures.vcpus_per_osd
    if figures.choices.vcpus is None and count != osds.CLASSIC_PER_NVME:
        yield Finding(
            Level.WARNING,
            'osd-cpus',
            'osds.vcpus',
            f'not given; {each:g} CPUs for each OSD with {count} on each NVMe device',
            f'{osds.CLASSIC_PER_NVME} OSDs on each NVMe device with 3 CPUs each, or a number',
            sources.TRIPLEO,
            'choose osds.vcpus: 4 at least, and 6 for writes',
        )
    elif count * each < LEAST_VCPUS_PER_NVME:
        yield Finding(
            Level.WARNING,
            'osd-cpus',
            'osds.vcpus',
            f'{count * each:g} CPUs for each NVMe device',
            f'{LEAST_VCPUS_PER_NVME} CPUs or more',
            sources.CEPH_HARDWARE,
            'choose a greater osds.vcpus, or expect less than the device can do',
        )


def _local_disk(path: str, figures: Figures) -> Iterator[Finding]:
    if figures.workload.root_disk is RootDisk.LOCAL and figures.host.local_disk_bytes is None:
        yield Finding(
            Level.ERROR,
            'local-disk',
            f'{path}.local_disk',
            'not given',
            'the size of the file system with the root disks of guests',
            sources.CEPH_DATA_AVAIL,
            'add local_disk, or put root disks on ceph (workload.root_disk.on)',
        )
