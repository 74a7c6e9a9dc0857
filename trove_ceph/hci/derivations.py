# SPDX-License-Identifier: Apache-2.0
"""How each value of a host's profile was found: formula, numbers, source and limit."""

from collections.abc import Iterator, Sequence

from trove_ceph.enums import DeviceClass
from trove_ceph.hci import numa, osd_memory, osds, reservation, sources
from trove_ceph.hci.figures import Figures, Limit
from trove_ceph.hci.plan import Derivation, HostPlan
from trove_ceph.hci.workload import RootDisk


def of_figures(figures: Figures) -> Iterator[Derivation]:
    """Yield how the values of the formulas were found, for a host without a profile too."""
    name = figures.host.name
    yield _osds_per_device(name, figures)
    yield _memory_per_osd(name, figures)
    yield _vcpus_per_osd(name, figures)
    yield _guests_by_memory(name, figures)
    yield _reserved_memory(name, figures)
    yield from _ratios(name, figures)
    yield _disk(name, figures)
    yield _memory_target(name, figures)


def of_plan(figures: Figures, plan: HostPlan, limits: Sequence[Limit]) -> Iterator[Derivation]:
    """Yield how the values were found for which OSDs and guests have places."""
    name = figures.host.name
    yield _guests(name, figures, plan, limits)
    yield from _nodes(name, figures, plan)
    if figures.host.db_devices:
        osd = min(plan.osds, key=lambda one: one.db_bytes / one.data_bytes)
        yield Derivation(
            name,
            'osds.db_bytes',
            f'{osd.db_bytes / 1000**3:.1f} GB',
            'size of the DB device / OSDs on it',
            f'{osd.db_device}, {sum(one.db_device == osd.db_device for one in plan.osds)} OSDs',
            sources.CEPH_DB_SIZE,
            f'{osds.LEAST_DB_SHARE:.0%} of {osd.data_bytes / 1000**3:.0f} GB of data or more; '
            f'it has {osd.db_bytes / osd.data_bytes:.1%}',
        )


def _osds_per_device(name: str, figures: Figures) -> Derivation:
    count, kind = figures.osds_per_device, osds.device_class(figures.host)
    if figures.choices.per_device is not None:
        source, limit = sources.CHOSEN, ''
    else:
        source = sources.RED_HAT_ONE_OSD
        limit = (
            'since Quincy one OSD uses an NVMe device; '
            f'{osds.CLASSIC_PER_NVME} suited the P3700 of 2016 and 2018 ({sources.SUPERMICRO_OSDS};'
            f' {sources.INTEL_OSDS})'
            if kind is DeviceClass.NVME
            else ''
        )
    smallest = min(one.size_bytes for one in figures.host.data_devices)
    return Derivation(
        name,
        'osds_per_device',
        str(count),
        '2 on NVMe devices from 30 TB, else 1',
        f'{len(figures.host.data_devices)} {kind} devices, the smallest of '
        f'{smallest / 1000**4:.2f} TB; {count} on each: {figures.osds} OSDs',
        source,
        limit,
    )


def _memory_per_osd(name: str, figures: Figures) -> Derivation:
    left = figures.memory_left
    field, value = 'memory_per_osd_mib', f'{figures.mib_per_osd} MiB'
    if left is None:
        return Derivation(
            name,
            field,
            value,
            '5 GiB: guests may take the rest',
            'no number of databases that fits is given (workload.databases_per_host)',
            sources.TRIPLEO,
        )
    guest_mib, hosts = figures.workload.guest_memory_mib, len(figures.inventory.hosts)
    return Derivation(
        name,
        field,
        value,
        '(memory of the NUMA node - (guest memory + 0.5 GiB) x guests on it) / OSDs on it, on the '
        'node that is the fullest',
        f'({left.node.node.memory_mib} - ({guest_mib} + {reservation.MIB_PER_GUEST}) x '
        f'{left.guests_on_node}) / {left.node.osds} = {left.left_mib}; the host keeps memory for '
        f'{left.guests} guests, also those of a lost host of {hosts}',
        f'{sources.TRIPLEO}; instead of {sources.CEPH_AUTOTUNE}',
        f'{reservation.MIB_PER_OSD} MiB or more; {left.useful_mib} MiB or less for a target of '
        f'{osd_memory.MOST_TARGET_MIB} MiB; {left.reservable_mib} MiB or less, so that '
        f'{reservation.MOST_RESERVED:.0%} of the host are reserved at most',
    )


def _vcpus_per_osd(name: str, figures: Figures) -> Derivation:
    kind, count = osds.device_class(figures.host), figures.osds_per_device
    is_chosen = figures.choices.vcpus is not None
    default = osds.default_vcpus(kind, count)
    return Derivation(
        name,
        'vcpus_per_osd',
        f'{figures.vcpus_per_osd:g}',
        'HDD 1; SSD 4; NVMe 3 with 4 OSDs on a device, else 4',
        f'{kind} with {count} on a device: {default:g}'
        + (f'; chosen: {figures.vcpus_per_osd:g}' if is_chosen else ''),
        sources.CHOSEN if is_chosen else sources.TRIPLEO,
    )


def _guests_by_memory(name: str, figures: Figures) -> Derivation:
    memory, guest = figures.host.memory_mib, figures.workload.guest_memory_mib
    return Derivation(
        name,
        'guests_by_memory',
        str(figures.guests_by_memory),
        'int((memory - memory of each OSD x OSDs) / (guest memory + 0.5 GiB))',
        f'int(({memory} - {figures.mib_per_osd} x {figures.osds}) / '
        f'({guest} + {reservation.MIB_PER_GUEST})) in MiB',
        sources.TRIPLEO,
    )


def _reserved_memory(name: str, figures: Figures) -> Derivation:
    memory = figures.host.memory_mib
    return Derivation(
        name,
        'reserved_host_memory_mb',
        f'{figures.reserved_memory_mb} MiB',
        'memory of each OSD x OSDs + 0.5 GiB x guests that the memory allows',
        f'{figures.mib_per_osd} x {figures.osds} + '
        f'{reservation.MIB_PER_GUEST} x {figures.guests_by_memory}',
        sources.TRIPLEO,
        f'{reservation.MOST_RESERVED:.0%} of {memory} MiB = '
        f'{int(reservation.MOST_RESERVED * memory)} MiB or less',
    )


def _ratios(name: str, figures: Figures) -> Iterator[Derivation]:
    cpus, percent = len(figures.host.cpus), figures.workload.guest_cpu_percent
    yield Derivation(
        name,
        'cpu_allocation_ratio',
        f'{figures.cpu_ratio:.3f}',
        '(CPUs - CPUs for each OSD x OSDs) / CPU utilisation of guests / CPUs',
        f'({cpus} - {figures.vcpus_per_osd:g} x {figures.osds}) / {percent / 100:g} / {cpus}',
        sources.TRIPLEO,
        f'from {reservation.LEAST_RATIO} to {reservation.MOST_RATIO:g}; for a nova.conf without '
        'cpu_shared_set',
    )
    yield Derivation(
        name,
        'cpu_shared_set_allocation_ratio',
        f'{figures.shared_set_ratio:.3f}',
        '1 / CPU utilisation of guests',
        f'1 / {percent / 100:g}',
        f'{sources.TRIPLEO}; {sources.NOVA_SHARED_SET}',
        'for a nova.conf with cpu_shared_set = the guests\' CPUs',
    )


def _disk(name: str, figures: Figures) -> Derivation:
    """Return how the part of the disk for root disks was found; the other option has no effect."""
    if figures.workload.root_disk is RootDisk.CEPH:
        inventory = figures.inventory
        most, hosts = inventory.most_bytes / 1000**4, len(inventory.hosts)
        all_devices = (inventory.raw_bytes + inventory.db_bytes) / 1000**4
        return Derivation(
            name,
            'disk_allocation_ratio',
            f'{figures.disk_ratio:.8f}',
            'what the pool is to hold / hosts / size of all devices, those for DB and WAL too',
            f'{most:.2f} TB of {inventory.usable_bytes / 1000**4:.2f} TB with {inventory.copies} '
            f'copies / {hosts} / {all_devices:.2f} TB',
            f'{sources.QCT_HEALING}; {sources.CEPH_NEARFULL}; {sources.NOVA_POOL}',
            'root disks get the share of the host, less while OSDs are out; with devices beside '
            'these in the cluster, divide by the size of all',
        )
    disk = (figures.host.local_disk_bytes or 0) / 1000**3
    return Derivation(
        name,
        'reserved_host_disk_mb',
        f'{figures.reserved_disk_mb} MiB',
        'size of the local disk x 30 %',
        f'{disk:.0f} GB x {reservation.FREE_LOCAL_DISK:g}',
        sources.CEPH_DATA_AVAIL,
        'a monitor warns if less is free',
    )


def _memory_target(name: str, figures: Figures) -> Derivation:
    return Derivation(
        name,
        'osd_memory_target',
        f'{figures.memory_target_mib} MiB',
        '(memory of each OSD x OSDs - 4 GiB of the host) / OSDs / 1.2: the target is no limit, and '
        'an OSD may overshoot it by 20 %',
        f'({figures.mib_per_osd} x {figures.osds} - {osd_memory.HOST_MIB}) / {figures.osds} / '
        f'{osd_memory.OVERSHOOT}',
        f'{sources.RED_HAT_HOST_MEMORY}; {sources.CEPH_HARDWARE}',
        f'{osd_memory.LEAST_TARGET_MIB} MiB or more ({sources.CEPH_MEMORY_TARGET}), '
        f'{osd_memory.MOST_TARGET_MIB} MiB or less, since guests keep the same data in their '
        'buffer pools',
    )


def _guests(name: str, figures: Figures, plan: HostPlan, limits: Sequence[Limit]) -> Derivation:
    least = min(limits, key=lambda one: one.guests)
    wanted = figures.workload.databases_per_host
    return Derivation(
        name,
        'guests',
        str(plan.guests),
        'the least of what memory, CPUs, NUMA nodes and the local disk allow'
        + (', and what the workload names' if wanted else ''),
        ', '.join(f'{one.name} {one.guests}' for one in limits)
        + (f', workload {wanted}' if wanted else ''),
        f'{sources.TRIPLEO}; {sources.NOVA_PAGES}',
        'bound by the workload'
        if wanted is not None and wanted <= least.guests
        else f'bound by {least.name}',
    )


def _nodes(name: str, figures: Figures, plan: HostPlan) -> Iterator[Derivation]:
    for node in plan.nodes:
        count = sum(osd.numa_node == node.number for osd in plan.osds)
        where = f'nodes.{node.number}'
        each = figures.vcpus_per_osd
        yield Derivation(
            name,
            f'{where}.cpus',
            f'host {len(node.host_cpus)}, OSDs {len(node.osd_cpus)}, guests '
            f'{len(node.guest_cpus)} CPUs',
            'one core for the host; whole cores for CPUs for each OSD x OSDs; the rest for guests',
            f'{numa.HOST_CORES} core; {each:g} x {count} = {each * count:g} CPUs for OSDs',
            f'{sources.TRIPLEO_HOST_CPUS}; {sources.CEPH_NUMA}',
            'threads of a core stay together',
        )
        page_mib = node.huge_page_kib // 1024
        yield Derivation(
            name,
            f'{where}.huge_pages',
            f'{node.huge_pages} of {page_mib} MiB',
            'guests on the node, also those of a lost host, x guest memory / size of a page',
            f'{node.room} x {figures.workload.guest_memory_mib} / {page_mib}',
            sources.NOVA_PAGES,
            f'{node.osd_memory_mib} MiB for OSDs and the host, {node.overhead_memory_mib} MiB for '
            f'QEMU, {node.spare_memory_mib} MiB spare',
        )
