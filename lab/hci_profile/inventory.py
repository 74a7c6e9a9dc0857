# SPDX-License-Identifier: Apache-2.0
"""Describe this machine for ``trove-ceph-manage hci``, enlarged so that the plan fits.

The formulas of the plan are for servers: 5 GiB and 4 CPUs for each OSD, a core for the host. A
small machine has room for neither, so it stands for a host with more CPUs, and with more memory and
disk, by two factors of the settings. :mod:`hci_profile.profile` divides what the plan says by them.
"""

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

FACTS = Path(__file__).resolve().parents[2] / 'etc/ansible/library/hci_host_facts.py'
#: The host of the plan that this machine is.
HOST = 'lab'
#: The hosts of the plan. Copies are on different hosts, and one more must be left to heal on. The
#: others do not exist: the lab keeps its copies on several OSDs of this machine.
HOSTS = (HOST, 'lab-2', 'lab-3')
#: As in roles/ceph/templates/tiers.yaml.j2.
COPIES = 2
#: TripleO's, and the least by Ceph's recommendations for NVMe.
VCPUS_PER_OSD = 4
#: A database of a lab is idle most of the time.
GUEST_CPU_PERCENT = 20
ROOT_DISK_GIB = 5


class _Loader(importlib.machinery.SourceFileLoader):
    """Write no compiled module, which would get into the wheel with the other files of etc/."""

    def set_data(self, *_arguments, **_options):
        """Do nothing."""


def facts() -> ModuleType:
    """Return the module by which the shipped playbook describes hosts."""
    loader = _Loader('hci_host_facts', str(FACTS))
    spec = importlib.util.spec_from_file_location(loader.name, FACTS, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def describe(state: str, root: Path = Path('/')) -> dict[str, Any]:
    """Return NUMA nodes, counted memory, network interfaces and local disk of this machine.

    :param state: a directory on the file system of Nova's instances
    :param root: where the machine's ``/proc`` and ``/sys`` are
    """
    module = facts()
    host = module.Host(root)
    return {
        'numa': host.numa_nodes(),
        'counted_memory_mib': host.counted_memory_mib(),
        # The lab's Ceph listens there.
        'nics': host.interfaces({'lo': {'public'}}),
        'local_disk_bytes': module.local_disk_bytes(state),
    }


def document(machine: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the file for ``trove-ceph-manage hci``.

    :param machine: what :func:`describe` returned
    :param settings: the playbook's variables
    """
    cpu_scale, memory_scale = settings['lab_hci_cpu_scale'], settings['lab_hci_memory_scale']
    nodes = [_enlarged(node, cpu_scale, memory_scale) for node in machine['numa']]
    host = {
        'memory': f'{sum(_mib(node) for node in nodes)}MiB',
        'local_disk': f'{machine["local_disk_bytes"] * memory_scale // 1000**3}GB',
        'numa': nodes,
        'data_devices': [
            {
                # The devices get their names when the OSDs start.
                'path': f'/dev/{name}',
                'class': 'nvme',
                'size': f'{settings["lab_osd_gib"] * memory_scale}GiB',
            }
            for name in planned_osds(settings)
        ],
        'nics': machine['nics'],
    }
    return {
        'copies': COPIES,
        'workload': {
            'guest_memory': f'{settings["lab_flavor_ram_mib"]}MiB',
            'guest_vcpus': settings['lab_flavor_vcpus'],
            'guest_cpu_percent': GUEST_CPU_PERCENT,
            'volume': f'{settings["lab_volume_gib"]}GiB',
            'root_disk': {'size': f'{ROOT_DISK_GIB}GiB', 'on': 'local'},
        },
        'osds': {'per_device': 1, 'vcpus': VCPUS_PER_OSD},
        'hosts': dict.fromkeys(HOSTS, host),
    }


def planned_osds(settings: dict[str, Any]) -> list[str]:
    """Return the OSDs of the plan, those of the databases.

    A plan is for devices of one class. The OSDs of the class hdd hold copies of backups and images,
    and would be on hosts of their own.
    """
    return [f'osd.{number}' for number in range(settings['lab_osds_nvme'])]


def all_osds(settings: dict[str, Any]) -> list[str]:
    """Return all OSDs of the lab."""
    return [f'osd.{at}' for at in range(settings['lab_osds_nvme'] + settings['lab_osds_hdd'])]


def memory_mib(machine: dict[str, Any]) -> int:
    """Return the memory of the machine that :func:`describe` returned."""
    return sum(_mib(node) for node in machine['numa'])


def threads(core: str) -> list[int]:
    """Return the CPUs of a core in the kernel's form, such as ``0,28`` or ``0-1``."""
    found: list[int] = []
    for part in core.split(','):
        first, _, last = part.partition('-')
        found.extend(range(int(first), int(last or first) + 1))
    return found


def _enlarged(node: dict[str, Any], cpu_scale: int, memory_scale: int) -> dict[str, Any]:
    """Return a node in which each core and each MiB is several."""
    cores = [
        ','.join(str(cpu * cpu_scale + copy) for cpu in threads(core))
        for core in node['cores']
        for copy in range(cpu_scale)
    ]
    return {'node': node['node'], 'memory': f'{_mib(node) * memory_scale}MiB', 'cores': cores}


def _mib(node: dict[str, Any]) -> int:
    return int(node['memory'].removesuffix('MiB'))
