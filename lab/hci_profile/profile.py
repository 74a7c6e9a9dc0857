# SPDX-License-Identifier: Apache-2.0
"""What of a plan applies to this machine: its values divided by the factors of the inventory."""

import configparser
import dataclasses
import json
import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hci_profile import inventory
from hci_profile.errors import ProfileError

MIB = 1024**2
#: Ceph accepts no smaller osd_memory_target.
LEAST_TARGET_MIB = 896
#: Root disks of the lab are files, which the plan's cache modes do not name; nothing on them has to
#: survive a crash of this machine.
ROOT_DISKS = 'file=unsafe'
#: Options of Nova in MiB, which are those of the whole host.
_MIB_OPTIONS = ('reserved_host_memory_mb', 'reserved_host_disk_mb')
_ETC = f'hosts/{inventory.HOST}/etc'


@dataclasses.dataclass(frozen=True)
class Profile:
    """What is applied to this machine.

    :ivar cpu_scale: the CPUs of the plan for each CPU of this machine
    :ivar memory_scale: the MiB of the plan, of memory and disk, for each MiB of this machine
    :ivar osd_cpus: the CPUs of the OSDs, and of the host itself where they are not divided
    :ivar guest_cpus: the CPUs of guests
    :ivar host_cpus: the CPUs of the host itself; empty: the OSDs' CPUs are too few to divide
    :ivar osds: the OSDs of the plan, which get its memory
    :ivar other_osds: those that only get the OSDs' CPUs
    :ivar osd_memory_target_mib: the memory that each OSD of the plan tries to keep to
    :ivar guests: the guests of the flavor ``db.hci`` that Nova admits by memory and CPUs
    :ivar nova: the options for nova-compute by their sections, as pairs
    :ivar sysctl: the kernel's parameters
    :ivar ceph: triples for ``ceph config set``
    """

    cpu_scale: int
    memory_scale: int
    osd_cpus: list[int]
    guest_cpus: list[int]
    host_cpus: list[int]
    osds: list[str]
    other_osds: list[str]
    osd_memory_target_mib: int
    guests: int
    nova: dict[str, list[list[str]]]
    sysctl: dict[str, str]
    ceph: list[list[str]]

    @property
    def cpus(self) -> list[int]:
        """All CPUs of this machine."""
        return sorted({*self.osd_cpus, *self.guest_cpus, *self.host_cpus})


def path(root: Path) -> Path:
    """Return where the profile of a lab is; there is none unless the setting says hci."""
    return root / 'etc' / 'hci' / 'profile.json'


def find(root: Path) -> Profile | None:
    """Return the profile of a lab, or None: its setting is not hci."""
    try:
        return Profile(**json.loads(path(root).read_text()))
    except FileNotFoundError:
        return None


def save(root: Path, profile: Profile) -> None:
    """Write the profile for the playbook and the driver."""
    path(root).write_text(json.dumps(dataclasses.asdict(profile), indent=1) + '\n')


def derive(
    machine: dict[str, Any], settings: dict[str, Any], plan: dict[str, Any], rendered: Path
) -> Profile:
    """Return the profile.

    :param machine: what :func:`hci_profile.inventory.describe` returned
    :param settings: the playbook's variables
    :param plan: the output of ``trove-ceph-manage hci plan -f json``
    :param rendered: the directory of ``trove-ceph-manage hci render``
    :raises ProfileError: a value is too small for this machine
    """
    cpu_scale, memory_scale = settings['lab_hci_cpu_scale'], settings['lab_hci_memory_scale']
    host = next(one for one in plan['hosts'] if one['name'] == inventory.HOST)
    osd_cpus, guest_cpus, host_cpus = _cpus(machine, host, cpu_scale)
    commands = _ceph_commands(rendered / 'ceph/config.sh')
    osds = inventory.planned_osds(settings)
    nova = _nova(rendered / f'{_ETC}/nova/nova.conf.d', guest_cpus, memory_scale)
    guests = _guests(machine, settings, nova, guest_cpus)
    _fit_to_counted_memory(machine, nova)
    return Profile(
        cpu_scale=cpu_scale,
        memory_scale=memory_scale,
        osd_cpus=osd_cpus,
        guest_cpus=guest_cpus,
        host_cpus=host_cpus,
        osds=osds,
        other_osds=[one for one in inventory.all_osds(settings) if one not in osds],
        osd_memory_target_mib=_target_mib(commands, memory_scale),
        guests=guests,
        nova=nova,
        sysctl=_sysctl(rendered / f'{_ETC}/sysctl.d'),
        # That of one host, the memory target, is on the OSDs' command line.
        ceph=[[who, name, value] for who, name, value in commands if '/host:' not in who],
    )


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPUs in the kernel's form, such as ``0-3,8``."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ','.join(str(low) if low == high else f'{low}-{high}' for low, high in ranges)


def _cpus(
    machine: dict[str, Any], host: dict[str, Any], scale: int
) -> tuple[list[int], list[int], list[int]]:
    """Return the CPUs of this machine for OSDs, guests and the host."""
    if scale == 1:
        return host['osd_cpus'], host['guest_cpus'], host['host_cpus']
    osds: list[int] = []
    guests: list[int] = []
    planned = {node['number']: node for node in host['nodes']}
    for node in machine['numa']:
        cores = [inventory.threads(core) for core in node['cores']]
        if len(cores) < 2:
            raise ProfileError(
                f'NUMA node {node["node"]} has one core, which cannot be divided between OSDs and '
                'guests; use a machine with two cores at least, or profile = "decoupled"'
            )
        total = sum(map(len, cores)) * scale
        share = len(planned[node['node']]['guest_cpus']) / total
        kept = min(max(round(share * len(cores)), 1), len(cores) - 1)
        osds += [cpu for core in cores[:-kept] for cpu in core]
        guests += [cpu for core in cores[-kept:] for cpu in core]
    return sorted(osds), sorted(guests), []


def _ceph_commands(script: Path) -> list[tuple[str, str, str]]:
    """Return who, name and value of each ``ceph config set`` of a script."""
    words = [shlex.split(line, comments=True) for line in script.read_text().splitlines()]
    return [(one[3], one[4], one[5]) for one in words if one[:3] == ['ceph', 'config', 'set']]


def _target_mib(commands: list[tuple[str, str, str]], scale: int) -> int:
    who = f'osd/host:{inventory.HOST}'
    planned = next(
        int(value) for each, name, value in commands if (each, name) == (who, 'osd_memory_target')
    )
    target_mib = planned // scale // MIB
    if target_mib < LEAST_TARGET_MIB:
        raise ProfileError(
            f'osd_memory_target is {planned // MIB} MiB by the plan and {target_mib} MiB on this '
            f'machine, and Ceph accepts {LEAST_TARGET_MIB} MiB or more; set a smaller '
            f'hci_memory_scale than {scale}, or more osds_nvme'
        )
    return target_mib


def _nova(directory: Path, guest_cpus: list[int], scale: int) -> dict[str, list[list[str]]]:
    """Return the options of nova.conf.d in their sections."""
    found: dict[str, list[list[str]]] = {}
    section = ''
    for line in _lines(directory):
        if line.startswith('['):
            section = line.strip('[]')
            continue
        name, value = (part.strip() for part in line.split('=', 1))
        found.setdefault(section, []).append([name, _of_nova(name, value, guest_cpus, scale)])
    return found


def _of_nova(name: str, value: str, guest_cpus: list[int], scale: int) -> str:
    if name in _MIB_OPTIONS:
        return str(int(value) // scale)
    if name == 'cpu_shared_set':
        return cpu_list(guest_cpus)
    if name == 'reserved_huge_pages':
        place, _, count = value.rpartition(':')
        return f'{place}:{int(count) // scale}'
    if name == 'disk_cachemodes':
        return f'{value},{ROOT_DISKS}'
    return value


def _guests(
    machine: dict[str, Any],
    settings: dict[str, Any],
    nova: dict[str, list[list[str]]],
    guest_cpus: list[int],
) -> int:
    options = dict(nova['DEFAULT'])
    memory_mib = inventory.memory_mib(machine) - int(options['reserved_host_memory_mb'])
    vcpus = len(guest_cpus) * float(options['cpu_allocation_ratio'])
    of_guest = min(settings['lab_flavor_vcpus'], len(guest_cpus))
    return int(min(memory_mib // settings['lab_flavor_ram_mib'], vcpus // of_guest))


def _fit_to_counted_memory(machine: dict[str, Any], nova: dict[str, list[list[str]]]) -> None:
    """Let guests have the memory that the kernel does not count for NUMA nodes, nor Nova then.

    Nova gives guests (total - reserved) * ratio, which stays the same.
    """
    ratio = inventory.memory_mib(machine) / machine['counted_memory_mib']
    if ratio > 1:
        options = dict(nova['DEFAULT'])
        options['ram_allocation_ratio'] = f'{ratio:.4f}'
        reserved_mib = int(options['reserved_host_memory_mb'])
        options['reserved_host_memory_mb'] = str(math.ceil(reserved_mib / ratio))
        nova['DEFAULT'] = [list(pair) for pair in options.items()]


def _sysctl(directory: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser(delimiters=('=',))
    parser.read_string('\n'.join(['[sysctl]', *_lines(directory)]))
    return dict(parser['sysctl'])


def _lines(directory: Path) -> Iterable[str]:
    """Yield the lines of all files of a directory, without comments."""
    for file in sorted(directory.glob('*.conf')):
        for line in file.read_text().splitlines():
            if line.strip() and not line.startswith('#'):
                yield line.strip()
