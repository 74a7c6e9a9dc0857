# SPDX-License-Identifier: Apache-2.0
"""Parsing of the file for hyper-converged hosts: schema, units, and consistency between keys."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from oslo_utils import units

from trove_ceph import exceptions, schema_problems, sizes, yaml_file
from trove_ceph.enums import DeviceClass
from trove_ceph.hci import schema
from trove_ceph.hci.inventory import Device, Host, Inventory, Network, Nic, NumaNode
from trove_ceph.hci.workload import OsdChoices, RootDisk, Workload
from trove_ceph.schema_problems import ValuePath
from trove_ceph.yaml_file import Problem

DEFAULT_PATH = '/etc/trove-ceph/hci.yaml'
_KEYS = 'copies, workload and hosts'
#: Bounds beyond which a size is a slip of the pen: memory of one host, one disk, one volume.
_MEMORY_MIB = (units.Ki, 64 * units.Mi)
_DISK_BYTES = (units.G, 1000 * units.T)
_VOLUME_BYTES = (units.Gi, 100 * units.Ti)
_GUEST_MIB = (512, 16 * units.Mi)
_SPEED_MBIT = (10, 10**7)
#: The smallest huge page, of which the memory of a guest is made.
_PAGE_MIB = 2


class HostsFile(NamedTuple):
    """What the file describes."""

    inventory: Inventory
    workload: Workload
    choices: OsdChoices


def load(path: str) -> HostsFile:
    """Read and check a file.

    :raises InvalidHostsError: the file cannot be read or is invalid; the message names line and key
    """
    return yaml_file.load(path, parse, exceptions.InvalidHostsError, _KEYS)


def parse(content: Mapping[str, Any]) -> HostsFile:
    """Return the hosts and the workload of a decoded file.

    :raises Problem: a value is invalid; the error carries the path of the key
    """
    for path, what in schema_problems.problems(content, schema.HOSTS_FILE):
        raise Problem(path, what)
    osds = content.get('osds', {})
    networks = content.get('networks', {})
    for name, network in networks.items():
        _check_network(('networks', name), network)
    _check_names(content['hosts'])
    inventory = Inventory(
        hosts=tuple(_host(name, each) for name, each in content['hosts'].items()),
        copies=content['copies'],
        public_network=networks.get('public'),
        cluster_network=networks.get('cluster'),
    )
    choices = OsdChoices(osds.get('per_device'), osds.get('vcpus'))
    return HostsFile(inventory, _workload(content['workload']), choices)


def _workload(content: Mapping[str, Any]) -> Workload:
    root_disk = content['root_disk']
    memory_path = ('workload', 'guest_memory')
    memory_mib = _memory_mib(memory_path, content['guest_memory'], _GUEST_MIB)
    if memory_mib % _PAGE_MIB:
        raise Problem(memory_path, f'{memory_mib} MiB is not a multiple of {_PAGE_MIB} MiB pages')
    return Workload(
        guest_memory_mib=memory_mib,
        guest_vcpus=content['guest_vcpus'],
        guest_cpu_percent=content['guest_cpu_percent'],
        volume_bytes=_bytes(('workload', 'volume'), content['volume'], _VOLUME_BYTES),
        root_disk_bytes=_bytes(('workload', 'root_disk', 'size'), root_disk['size'], _VOLUME_BYTES),
        root_disk=RootDisk(root_disk['on']),
        databases_per_host=content.get('databases_per_host'),
        replicas=content.get('replicas', 0),
    )


def _host(name: str, content: Mapping[str, Any]) -> Host:
    path = ('hosts', name)
    nodes = _numa_nodes((*path, 'numa'), content['numa'])
    numbers = [node.number for node in nodes]
    disk = content.get('local_disk')
    return Host(
        name=name,
        memory_mib=_host_memory_mib((*path, 'memory'), content['memory'], nodes),
        numa_nodes=nodes,
        data_devices=_devices((*path, 'data_devices'), content['data_devices'], numbers),
        db_devices=_devices(
            (*path, 'db_devices'),
            content.get('db_devices', []),
            numbers,
            [each['path'] for each in content['data_devices']],
        ),
        nics=_nics((*path, 'nics'), content['nics'], numbers),
        local_disk_bytes=_bytes((*path, 'local_disk'), disk, _DISK_BYTES) if disk else None,
        rack=content.get('rack'),
    )


def _numa_nodes(path: ValuePath, content: Sequence[Mapping[str, Any]]) -> tuple[NumaNode, ...]:
    nodes: list[NumaNode] = []
    owners: dict[int, ValuePath] = {}
    for index, each in enumerate(content):
        if each['node'] in [node.number for node in nodes]:
            raise Problem((*path, index, 'node'), f'node {each["node"]} is given twice')
        cores = []
        for number, text in enumerate(each['cores']):
            core_path = (*path, index, 'cores', number)
            cores.append(_core(core_path, text))
            for cpu in cores[-1]:
                if cpu in owners:
                    where = schema_problems.path_text(owners[cpu])
                    raise Problem(core_path, f'CPU {cpu} is in {where} already')
                owners[cpu] = core_path
        memory_mib = _memory_mib((*path, index, 'memory'), each['memory'], _MEMORY_MIB)
        nodes.append(NumaNode(each['node'], tuple(sorted(cores)), memory_mib))
    return tuple(sorted(nodes, key=lambda node: node.number))


def _core(path: ValuePath, text: str | int) -> tuple[int, ...]:
    """Return the CPUs of a list in the kernel's form, such as 0,28 or 0-1."""
    cpus: list[int] = []
    for part in str(text).split(','):
        first, _, last = part.partition('-')
        if '-' in last or int(last or first) < int(first):
            raise Problem(path, f'must be the CPUs of one core, such as "0,28", not {text!r}')
        cpus.extend(range(int(first), int(last or first) + 1))
    if len(cpus) > 8 or len(set(cpus)) < len(cpus):
        raise Problem(path, f'must be the CPUs of one core, 8 at most and each once, not {text!r}')
    return tuple(sorted(cpus))


def _host_memory_mib(path: ValuePath, text: str, nodes: Sequence[NumaNode]) -> int:
    """Return the memory of the nodes, which must be what the host has."""
    given = _memory_mib(path, text, _MEMORY_MIB)
    total = sum(node.memory_mib for node in nodes)
    # Each size is rounded down to a MiB.
    if abs(given - total) > len(nodes):
        raise Problem(
            path, f'is {given} MiB, but the NUMA nodes have {total} MiB together; make them equal'
        )
    return total


def _devices(
    path: ValuePath,
    content: Sequence[Mapping[str, Any]],
    nodes: Iterable[int],
    used: Sequence[str] = (),
) -> tuple[Device, ...]:
    taken = list(used)
    devices = []
    for index, each in enumerate(content):
        if each['path'] in taken:
            raise Problem((*path, index, 'path'), f'{each["path"]} is given twice')
        taken.append(each['path'])
        devices.append(
            Device(
                path=each['path'],
                device_class=DeviceClass(each['class']),
                size_bytes=_bytes((*path, index, 'size'), each['size'], _DISK_BYTES),
                numa_node=_node_of((*path, index), each, nodes),
            )
        )
    return tuple(devices)


def _nics(
    path: ValuePath, content: Sequence[Mapping[str, Any]], nodes: Iterable[int]
) -> tuple[Nic, ...]:
    nics: list[Nic] = []
    for index, each in enumerate(content):
        if each['name'] in [nic.name for nic in nics]:
            raise Problem((*path, index, 'name'), f'{each["name"]} is given twice')
        speed = each.get('speed')
        nics.append(
            Nic(
                name=each['name'],
                networks=frozenset(map(Network, each['networks'])),
                speed_mbit_per_sec=_speed_mbit((*path, index, 'speed'), speed) if speed else None,
                numa_node=_node_of((*path, index), each, nodes),
            )
        )
    return tuple(nics)


def _node_of(path: ValuePath, content: Mapping[str, Any], nodes: Iterable[int]) -> int | None:
    node = content.get('numa_node')
    if node is not None and node not in nodes:
        known = ', '.join(map(str, nodes))
        raise Problem((*path, 'numa_node'), f'{node} is not a node of the host, which has {known}')
    return node


def _memory_mib(path: ValuePath, text: str, bounds: tuple[int, int]) -> int:
    given = sizes.bytes_of(text)
    if sizes.is_decimal(text):
        raise Problem(
            path,
            f'{text} is {given / units.Gi:.1f} GiB, and memory comes in powers of 1024; write '
            f'{text.replace("B", "iB")} or the exact size with such a unit',
        )
    mib = given // units.Mi
    least, most = bounds
    if not least <= mib <= most:
        raise Problem(
            path, f'{text} must be from {least} MiB to {most // units.Ki} GiB; check its unit'
        )
    return mib


def _bytes(path: ValuePath, text: str, bounds: tuple[int, int]) -> int:
    given = sizes.bytes_of(text)
    least, most = bounds
    if not least <= given <= most:
        raise Problem(
            path,
            f'{text} must be from {least / units.G:.4g} GB to {most / units.T:.4g} TB; check its '
            'unit',
        )
    return given


def _speed_mbit(path: ValuePath, text: str) -> int:
    given = sizes.mbit_per_sec_of(text)
    least, most = _SPEED_MBIT
    if not least <= given <= most:
        raise Problem(
            path, f'{text} must be from {least} Mbit to {most // 10**6} Tbit; check its unit'
        )
    return given


def _check_names(names: Iterable[str]) -> None:
    """Refuse hosts that have the same name in CRUSH, which is that without the domain."""
    owners: dict[str, str] = {}
    for name in names:
        short = name.split('.')[0]
        if short in owners:
            raise Problem(
                ('hosts', name), f'the host is {short} in CRUSH, as {owners[short]} is; rename one'
            )
        owners[short] = name


def _check_network(path: ValuePath, text: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise Problem(path, f'must be a network such as 192.0.2.0/24: {error}') from error
