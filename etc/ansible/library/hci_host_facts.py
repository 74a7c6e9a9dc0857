#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An Ansible module that describes a host as the file for hyper-converged hosts has it.

It reads files of the kernel and the host's addresses, changes nothing, and needs no more than
Python on the host.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DOCUMENTATION = r"""
module: hci_host_facts
short_description: Describe a host for trove-ceph-manage hci plan
description:
  - Returns memory, NUMA nodes with their cores, disks and network interfaces of a host, as a value
    below C(hosts) in the file for hyper-converged hosts.
options:
  networks:
    description: For each of public, cluster, guests and management a network in CIDR form, in which
      the host has an address, or the name of an interface.
    type: dict
    required: true
  data_devices:
    description: Paths of the disks for data. Without it, all disks that nothing but Ceph uses.
    type: list
    elements: str
  db_devices:
    description: Paths of the disks for DB and WAL. Without it, the flash devices of a host that has
      turning disks as well.
    type: list
    elements: str
  instances_path:
    description: The directory of Nova's instances.
    type: path
    default: /var/lib/nova/instances
  root:
    description: Where the host's C(/dev), C(/proc), C(/run) and C(/sys) are, such as C(/host) in a
      container.
    type: path
    default: /
"""
EXAMPLES = r"""
- name: Describe the host
  hci_host_facts:
    networks: {public: 192.0.2.0/24, cluster: bond1}
"""
RETURN = r"""
host:
  description: The description of the host.
  returned: success
  type: dict
"""

_SECTOR_BYTES = 512
#: Smaller disks hold operating systems.
_LEAST_BYTES = 10 * 1000**3
#: Disks by their kernel names; others are memory, files, or made of other disks.
_DISKS = ('sd', 'nvme', 'vd', 'xvd', 'pmem')
#: Links to a disk that stay the same, the most telling first.
_LINKS = ('nvme-', 'ata-', 'scsi-', 'virtio-', 'wwn-')
#: The volume groups that ceph-volume makes.
_CEPH_NAMES = ('ceph--', 'ceph-')
#: How udev tells the content of a disk, and that of an OSD without a volume group.
_CONTENT = 'E:ID_FS_TYPE='
_CEPH_CONTENT = 'ceph_bluestore'
#: What is in the path of a disk that another machine serves by iSCSI or Fibre Channel.
_REMOTE = re.compile(r'/(session\d+|rport-[\d:-]+)/')


class NotDescribedError(Exception):
    """The host cannot be described; the message says what is missing."""


class Host:
    """A host by the files of its kernel.

    :param root: where ``/dev``, ``/proc``, ``/run`` and ``/sys`` are
    """

    def __init__(self, root: Path):
        self._root = root
        self._sys = root / 'sys'

    def numa_nodes(self) -> list[dict[str, Any]]:
        """Return the NUMA nodes that have CPUs."""
        nodes = []
        for path in sorted((self._sys / 'devices/system/node').glob('node[0-9]*'), key=_number):
            cores = self._cores(_cpus(_read(path / 'cpulist')))
            if cores:
                memory_kib = _total_kib(_read(path / 'meminfo'))
                nodes.append(_node(_number(path), memory_kib, cores))
        if len(nodes) == 1:
            # Some kernels count memory that was added at run time for the machine only.
            nodes[0]['memory'] = _mib(_total_kib(_read(self._root / 'proc/meminfo')))
        if nodes:
            return nodes
        # A kernel without support for NUMA.
        online = _cpus(_read(self._sys / 'devices/system/cpu/online'))
        return [_node(0, _total_kib(_read(self._root / 'proc/meminfo')), self._cores(online))]

    def counted_memory_mib(self) -> int:
        """Return the memory that libvirt, and so Nova, counts: the sum of all NUMA nodes.

        Some kernels count memory that was added at run time for the machine only.
        """
        nodes = (self._sys / 'devices/system/node').glob('node[0-9]*')
        counted = sum(_total_kib(_read(path / 'meminfo')) for path in nodes)
        return (counted or _total_kib(_read(self._root / 'proc/meminfo'))) // 1024

    def _cores(self, cpus: Iterable[int]) -> list[str]:
        """Return the CPUs of each core, in the order of their first ones."""
        topology = self._sys / 'devices/system/cpu'
        found = {
            _read(topology / f'cpu{cpu}/topology/thread_siblings_list') or str(cpu) for cpu in cpus
        }
        return sorted(found, key=lambda text: _cpus(text)[0])

    def disks(self) -> dict[str, dict[str, Any]]:
        """Return the disks by their kernel names.

        The paths of an NVMe device with several are hidden; nothing but its head opens them.
        """
        paths = sorted(path for path in (self._sys / 'block').iterdir())
        names = [path.name for path in paths if _read(path / 'hidden') != '1']
        return {name: self._disk(name) for name in names if name.startswith(_DISKS)}

    def _disk(self, name: str) -> dict[str, Any]:
        path = self._sys / 'block' / name
        size_bytes = int(_read(path / 'size') or 0) * _SECTOR_BYTES
        found: dict[str, Any] = {
            'path': self._stable_path(name),
            'class': 'nvme' if name.startswith('nvme') else self._medium(path),
            'size': f'{size_bytes // 1000**3}GB',
        }
        return found | _numa_of(path)

    def _medium(self, path: Path) -> str:
        return 'hdd' if _read(path / 'queue/rotational') == '1' else 'ssd'

    def _stable_path(self, name: str) -> str:
        """Return a link to a disk that survives a reboot, or else its kernel name."""
        links = self._root / 'dev/disk/by-id'
        named = [link.name for link in _entries(links) if Path(os.readlink(link)).name == name]
        for prefix in _LINKS:
            found = sorted(one for one in named if one.startswith(prefix))
            # The names of the form nvme-eui. and nvme-nvme. tell less than model and serial.
            found.sort(key=lambda one: one.startswith(('nvme-eui.', 'nvme-nvme.')))
            if found:
                return f'/dev/disk/by-id/{found[0]}'
        return f'/dev/{name}'

    def is_free(self, name: str) -> bool:
        """Return whether nothing but Ceph uses a disk, so that OSDs may have it."""
        path = self._sys / 'block' / name
        if _read(path / 'removable') == '1' or _read(path / 'ro') == '1':
            return False
        if int(_read(path / 'size') or 0) * _SECTOR_BYTES < _LEAST_BYTES:
            return False
        has_partitions = any((one / 'partition').exists() for one in _entries(path))
        is_used = has_partitions or self._is_mounted(name) or not _is_local(path)
        return not is_used and self._is_empty_or_of_ceph(path)

    def _is_mounted(self, name: str) -> bool:
        files = [self._root / 'proc/mounts', self._root / 'proc/swaps']
        lines = [line for path in files for line in _read(path).splitlines()]
        return any(line.split()[0] == f'/dev/{name}' for line in lines)

    def _is_empty_or_of_ceph(self, path: Path) -> bool:
        """Return whether a disk has no content, or that of an OSD.

        A file system or volume group that is not in use has no holders: only udev knows it.
        """
        holders = [_read(one / 'dm/name') for one in _entries(path / 'holders')]
        if holders:
            return all(each.startswith(_CEPH_NAMES) for each in holders)
        udev = _read(self._root / 'run/udev/data' / f'b{_read(path / "dev")}')
        content = [line.partition('=')[2] for line in udev.splitlines() if _CONTENT in line]
        return all(one == _CEPH_CONTENT for one in content)

    def interfaces(self, carried: dict[str, set[str]]) -> list[dict[str, Any]]:
        """Return the bonds and physical interfaces that carry networks.

        :param carried: the networks by the name of an interface that has an address in them, which
            may be a bridge or a VLAN
        """
        found: dict[str, set[str]] = {}
        for name, networks in carried.items():
            for lower in self._carriers(name):
                found.setdefault(lower, set()).update(networks)
        return [self._interface(name, found[name]) for name in sorted(found)]

    def _carriers(self, name: str) -> list[str]:
        path = self._sys / 'class/net' / name
        if not path.exists():
            raise NotDescribedError(f'there is no network interface {name}')
        lower = [one.name.removeprefix('lower_') for one in sorted(path.glob('lower_*'))]
        if (path / 'bonding').exists() or (path / 'device').exists() or not lower:
            return [name]
        return [carrier for one in lower for carrier in self._carriers(one)]

    def _interface(self, name: str, networks: set[str]) -> dict[str, Any]:
        path = self._sys / 'class/net' / name
        found: dict[str, Any] = {'name': name, 'networks': sorted(networks)}
        speed = _read(path / 'speed')
        if speed.isdigit() and int(speed) > 0:
            found['speed'] = f'{speed}Mbit'
        members = [name]
        if (path / 'bonding').exists():
            members = [one.name.removeprefix('lower_') for one in path.glob('lower_*')]
        nodes = [_numa_of(self._sys / 'class/net' / one) for one in members]
        return found | (nodes[0] if nodes and all(one == nodes[0] for one in nodes) else {})


def describe(
    host: Host,
    carried: dict[str, set[str]],
    data_devices: list[str] | None = None,
    db_devices: list[str] | None = None,
) -> dict[str, Any]:
    """Return the description of a host.

    :raises NotDescribedError: a device or an interface does not exist, or there is no disk for data
    """
    nodes = host.numa_nodes()
    disks = host.disks()
    free = {name: one for name, one in _lasting(disks) if host.is_free(name)}
    if db_devices is None:
        has_both = len({one['class'] == 'hdd' for one in free.values()}) == 2
        db = [one for one in free.values() if has_both and one['class'] != 'hdd']
    else:
        db = _named(disks, db_devices)
    if data_devices is None:
        data = [one for one in free.values() if one not in db]
    else:
        data = _named(disks, data_devices)
        db = [one for one in db if one not in data]
    if not data:
        raise NotDescribedError(
            'there is no disk that nothing uses; name the disks for data in hci_data_devices'
        )
    memory_mib = sum(int(node['memory'].removesuffix('MiB')) for node in nodes)
    found = {'memory': f'{memory_mib}MiB', 'numa': nodes, 'data_devices': data}
    return found | ({'db_devices': db} if db else {}) | {'nics': host.interfaces(carried)}


def carried_networks(
    addresses: list[dict[str, Any]], networks: dict[str, str]
) -> dict[str, set[str]]:
    """Return which networks each interface has an address in, or is named for.

    :param addresses: the interfaces with their addresses, as ``ip -j address`` prints them
    :param networks: a network in CIDR form, or the name of an interface, by what it is for
    :raises NotDescribedError: no interface has an address in a network
    """
    carried: dict[str, set[str]] = {}
    for use, wanted in networks.items():
        names = [wanted]
        if '/' in wanted:
            network = ipaddress.ip_network(wanted)
            names = [
                one['ifname']
                for one in addresses
                for each in one.get('addr_info', [])
                if ipaddress.ip_address(each['local']) in network
            ]
            if not names:
                raise NotDescribedError(f'no interface has an address in {wanted} ({use})')
        for name in names:
            carried.setdefault(name, set()).add(use)
    return carried


def local_disk_bytes(path: str) -> int:
    """Return the size of the file system that has a directory, or will have it."""
    existing = next(one for one in (Path(path), *Path(path).parents) if one.exists())
    found = os.statvfs(existing)
    return found.f_frsize * found.f_blocks


def _lasting(disks: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return disks in the order of their paths: the kernel's names may change at a reboot."""
    return sorted(disks.items(), key=lambda each: each[1]['path'])


def _named(disks: dict[str, dict[str, Any]], paths: list[str]) -> list[dict[str, Any]]:
    found = []
    for path in paths:
        name = Path(os.path.realpath(path)).name
        if name not in disks:
            raise NotDescribedError(f'{path} is not a disk; the host has {", ".join(disks)}')
        found.append(disks[name] | {'path': path})
    return found


def _node(number: int, memory_kib: int, cores: list[str]) -> dict[str, Any]:
    return {'node': number, 'memory': _mib(memory_kib), 'cores': cores}


def _mib(kib: int) -> str:
    return f'{kib // 1024}MiB'


def _numa_of(path: Path) -> dict[str, int]:
    """Return the NUMA node of a device: that of the nearest device above that names one.

    Above an NVMe device with several paths is its subsystem, which has no hardware of its own but
    links to its controllers: the node is theirs, if they have one in common.
    """
    start = Path(os.path.realpath(path / 'device'))
    controllers = [one for one in _entries(start) if re.fullmatch(r'nvme\d+', one.name)]
    if start.name.startswith('nvme-subsys') and controllers:
        nodes = [_node_above(Path(os.path.realpath(one))) for one in controllers]
        return nodes[0] if all(one == nodes[0] for one in nodes) else {}
    return _node_above(start)


def _is_local(path: Path) -> bool:
    """Return whether a disk is in this machine, and not behind iSCSI, Fibre Channel or a fabric."""
    start = Path(os.path.realpath(path / 'device'))
    transports = {_read(one / 'transport') for one in (start, *_entries(start))}
    return transports <= {'', 'pcie'} and not _REMOTE.search(str(start))


def _node_above(start: Path) -> dict[str, int]:
    for place in (start, *start.parents):
        text = _read(place / 'numa_node')
        if text:
            return {'numa_node': int(text)} if int(text) >= 0 else {}
    return {}


def _cpus(text: str) -> list[int]:
    """Return the CPUs of a list in the kernel's form, such as ``0-3,8``."""
    found: list[int] = []
    for part in filter(None, text.split(',')):
        first, _, last = part.partition('-')
        found.extend(range(int(first), int(last or first) + 1))
    return found


def _total_kib(meminfo: str) -> int:
    lines = [line.split() for line in meminfo.splitlines() if 'MemTotal:' in line]
    if not lines:
        raise NotDescribedError('the kernel tells no size of the memory')
    return int(lines[0][-2])


def _number(path: Path) -> int:
    return int(path.name.removeprefix('node'))


def _read(path: Path) -> str:
    """Return the content of a file of the kernel; empty if there is none, or none can be read."""
    try:
        return path.read_text(encoding='utf-8').strip()
    except OSError:
        return ''


def _entries(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(path.iterdir())


def main() -> None:
    """Describe the host that Ansible runs this on."""
    from ansible.module_utils.basic import AnsibleModule

    module = AnsibleModule(
        argument_spec={
            'networks': {'type': 'dict', 'required': True},
            'data_devices': {'type': 'list', 'elements': 'str'},
            'db_devices': {'type': 'list', 'elements': 'str'},
            'instances_path': {'type': 'path', 'default': '/var/lib/nova/instances'},
            'root': {'type': 'path', 'default': '/'},
        },
        supports_check_mode=True,
    )
    given = module.params
    _, printed, _ = module.run_command(['ip', '-j', 'address'], check_rc=True)
    try:
        carried = carried_networks(json.loads(printed), given['networks'])
        found = describe(
            Host(Path(given['root'])), carried, given['data_devices'], given['db_devices']
        )
    except (NotDescribedError, ValueError) as error:
        module.fail_json(msg=str(error))
    size_bytes = local_disk_bytes(given['instances_path'])
    found['local_disk'] = f'{size_bytes // 1024**2}MiB'
    module.exit_json(changed=False, host=found)


if __name__ == '__main__':
    main()
