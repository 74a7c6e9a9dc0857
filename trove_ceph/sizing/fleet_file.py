# SPDX-License-Identifier: Apache-2.0
"""Parsing of the fleet file, with options that replace its values."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions, schema_problems, sizes, yaml_file
from trove_ceph.enums import DeviceClass
from trove_ceph.schema_problems import ValuePath
from trove_ceph.sizing import schema
from trove_ceph.sizing.fleet import (
    Databases,
    Design,
    Device,
    FailureDomain,
    Fleet,
    Hardware,
    Optimisation,
    Recovery,
    Redundancy,
    Request,
)
from trove_ceph.yaml_file import Problem

_KEYS = 'databases and cluster'
_LEAST_OPTIONS = (
    'give at least --instances, --size, --iops or --iops-per-gib, --device-class and --device-size'
)
#: Operations of the OSDs of an NVMe device, each copy counted. Reef on 60 NVMe devices in 10 nodes
#: wrote 0.8 million times per second with three copies (Ceph's blog, "Ceph Reef - 1 or 2 OSDs per
#: NVMe?", 2023).
_NVME_IOPS = 40000
#: Volumes of Cinder and devices, in bytes.
_VOLUME_BYTES = (units.Gi, 64 * units.Ti)
_DEVICE_BYTES = (100 * units.G, 200 * units.T)
_IO_BYTES = (512, 64 * units.Mi)
_BYTES_PER_SEC = (10 * units.M, 100 * units.G)


def load(path: str | None, options: Mapping[ValuePath, tuple[str, Any]]) -> Request:
    """Return what a fleet file and options describe.

    :param path: None: the options describe the fleet alone
    :param options: name and value of an option by the path of the value that it replaces
    :raises InvalidFleetError: a value is invalid; the message names line and key, or the option
    """
    if path is None and not options:
        raise exceptions.InvalidFleetError(
            f'there is no fleet: name a file with --fleet, or {_LEAST_OPTIONS}'
        )
    content: dict[str, Any] = {}
    if path is not None:
        content = yaml_file.load(path, _checked, exceptions.InvalidFleetError, _KEYS)
    if not options:
        return parse(content)
    merged = copy.deepcopy(content)
    for where, (name, value) in options.items():
        _replace(merged, where, name, value)
    try:
        return parse(merged)
    except Problem as problem:
        raise exceptions.InvalidFleetError(_message(problem, path, options)) from problem


def _message(
    problem: Problem, path: str | None, options: Mapping[ValuePath, tuple[str, Any]]
) -> str:
    """Return a problem with the option that has the value, or else with the key."""
    for where, (name, _) in options.items():
        if problem.path[: len(where)] == where:
            field = schema_problems.path_text(problem.path[len(where) :])
            return ': '.join(filter(None, [name, field, str(problem)]))
    field = schema_problems.path_text(problem.path)
    found = ': '.join(filter(None, [path or 'the options', field, str(problem)]))
    return found if path else f'{found}; without --fleet, {_LEAST_OPTIONS}'


def _checked(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a valid file."""
    parse(content)
    return content


def _replace(content: dict[str, Any], where: ValuePath, name: str, value: Any) -> None:
    """Set the value of an option; a path that begins with databases is that of the only group."""
    holder: dict[Any, Any] = content
    if where[0] == 'databases':
        groups = content.setdefault('databases', [{}])
        if len(groups) != 1:
            raise exceptions.InvalidFleetError(
                f'{name}: the file has {len(groups)} groups of databases, so change it there'
            )
        holder, last = groups[0], where[-1]
        for other in {'iops', 'iops_per_gib'} - {last} if 'iops' in str(last) else ():
            holder.pop(other, None)
    else:
        last = where[-1]
        for step in where[:-1]:
            holder = holder.setdefault(str(step), {})
        for other in {'copies', 'erasure'} - {last} if last in ('copies', 'erasure') else ():
            holder.pop(other, None)
    holder[last] = value


def parse(content: Mapping[str, Any]) -> Request:
    """Return the request of a decoded file.

    :raises Problem: a value is invalid; the error carries the path of the key
    """
    for path, what in schema_problems.problems(content, schema.FLEET_FILE):
        raise Problem(path, what)
    design = _design(content['cluster'])
    fleet = Fleet(
        databases=tuple(
            _databases(number, one, design) for number, one in enumerate(content['databases'])
        ),
        growth_per_year=_growth(content.get('growth_percent', 0)),
        years=content.get('years', 3),
        io_size_bytes=_bytes(content, ('io_size',), _IO_BYTES, '16KiB'),
        write_share=content.get('write_share', 1),
    )
    for problem in _problems_between(fleet, design):
        raise problem
    return Request(fleet, design, _hardware(content.get('hardware'), design))


def _growth(percent: float) -> float:
    """Return growth as a share; refuse a share that is given as a percentage."""
    if 0 < percent < 1:
        raise Problem(('growth_percent',), f'{percent} is less than 1%; write 20 for 20%')
    return percent / 100


def _bytes(
    holder: Mapping[str, Any], path: ValuePath, bounds: tuple[int, int], default: str = ''
) -> int:
    """Return a size in bytes; refuse one that cannot be meant."""
    text = holder.get(str(path[-1]), default)
    size = sizes.bytes_of(text)
    least, most = bounds
    if not least <= size <= most:
        raise Problem(
            path,
            f'{text} must be from {_size_text(least)} to {_size_text(most)}; check its unit',
        )
    return size


def _size_text(size: int) -> str:
    for unit, name in (
        *((units.Ti, 'TiB'), (units.T, 'TB'), (units.Gi, 'GiB'), (units.G, 'GB')),
        *((units.Mi, 'MiB'), (units.M, 'MB')),
    ):
        if size >= unit and size % unit == 0:
            return f'{size // unit}{name}'
    return f'{size}B'


def _databases(number: int, content: Mapping[str, Any], design: Design) -> Databases:
    path: ValuePath = ('databases', number)
    size = _bytes(content, (*path, 'size'), _VOLUME_BYTES)
    if 'iops' in content and 'iops_per_gib' in content:
        raise Problem((*path, 'iops'), 'give iops or iops_per_gib, not both')
    if design.optimised_for is Optimisation.IOPS and not content.keys() & {'iops', 'iops_per_gib'}:
        raise Problem(path, 'lacks iops or iops_per_gib, which an IOPS-optimised cluster needs')
    iops = content.get('iops', content.get('iops_per_gib', 0) * size / units.Gi)
    return Databases(content.get('name', f'group {number + 1}'), content['instances'], size, iops)


def _design(content: Mapping[str, Any]) -> Design:
    optimised_for = Optimisation(content.get('optimised_for', Optimisation.IOPS))
    device = _device(content['device'], optimised_for)
    recovery = content.get('recovery', {})
    return Design(
        optimised_for=optimised_for,
        device=device,
        redundancy=_redundancy(content, optimised_for, device),
        failure_domain=FailureDomain(content.get('failure_domain', FailureDomain.HOST)),
        nodes_per_rack=content.get('nodes_per_rack'),
        nodes=content.get('nodes'),
        devices_per_node=content.get('devices_per_node'),
        bays=content.get('bays'),
        cores=content.get('cores'),
        network_gbit=content.get('network_gbit'),
        monitors=content.get('monitors'),
        most_fill=content['fill_percent'] / 100 if 'fill_percent' in content else None,
        pgs_per_osd=content.get('pgs_per_osd'),
        is_pilot=content.get('pilot', False),
        recovery=Recovery(recovery.get('hours'), recovery.get('share', 0.5)),
    )


def _device(content: Mapping[str, Any], optimised_for: Optimisation) -> Device:
    path = ('cluster', 'device')
    device_class = DeviceClass(content['class'])
    # DB and WAL of disks are on flash, except in archives (QCT 2015, Table 2: "0x SSDs").
    is_archive = optimised_for is Optimisation.CAPACITY
    db = content.get('db', 'none' if device_class.is_flash or is_archive else 'ssd')
    if db != 'none' and device_class is DeviceClass.NVME:
        raise Problem((*path, 'db'), f'{db} is not faster than the nvme devices; leave it out')
    return Device(
        device_class=device_class,
        size_bytes=_bytes(content, (*path, 'size'), _DEVICE_BYTES),
        iops=content.get('iops', _NVME_IOPS if device_class is DeviceClass.NVME else None),
        bytes_per_sec=_bytes(content, (*path, 'throughput'), _BYTES_PER_SEC)
        if 'throughput' in content
        else None,
        osds=content.get('osds', 1),
        db=None if db == 'none' else DeviceClass(db),
    )


def _redundancy(
    content: Mapping[str, Any], optimised_for: Optimisation, device: Device
) -> Redundancy:
    """Return the redundancy; by default that of QCT 2015, Table 1."""
    if 'copies' in content and 'erasure' in content:
        raise Problem(('cluster', 'erasure'), 'give copies or erasure, not both')
    if 'copies' in content:
        return Redundancy(1, content['copies'] - 1)
    if 'erasure' in content:
        return Redundancy(content['erasure']['k'], content['erasure']['m'])
    if optimised_for is Optimisation.CAPACITY:
        return Redundancy(4, 2)
    return Redundancy(1, 1 if device.device_class.is_flash else 2)


def _hardware(content: Mapping[str, Any] | None, design: Design) -> Hardware | None:
    if content is None:
        return None
    if design.device.db and 'db_device' not in content:
        raise Problem(
            ('hardware',), f'lacks db_device, the price of the {design.device.db} for DB and WAL'
        )
    return Hardware(**{'db_device': 0, **content})


def _problems_between(fleet: Fleet, design: Design) -> Iterator[Problem]:
    """Yield conflicts between values."""
    device, redundancy = design.device, design.redundancy
    if design.optimised_for is Optimisation.IOPS:
        if not device.device_class.is_flash:
            yield Problem(
                ('cluster', 'device', 'class'),
                'hdd cannot carry an IOPS-optimised cluster: choose ssd or nvme, or set '
                'cluster.optimised_for to throughput',
            )
        if redundancy.k > 1:
            yield Problem(
                ('cluster', 'erasure'),
                'an erasure code is not for volumes of databases: set cluster.copies, or '
                'cluster.optimised_for to capacity',
            )
    if fleet.iops and device.iops is None:
        yield Problem(
            ('cluster', 'device'),
            f'lacks iops, the operations per second of one {device.device_class}, which IOPS of '
            f'databases are held against; measure it with fio',
        )
    yield from _placement_problems(design)
    if design.monitors is not None and not design.monitors % 2:
        yield Problem(
            ('cluster', 'monitors'), f'{design.monitors} must be odd, 3 or 5 in most clusters'
        )


def _placement_problems(design: Design) -> Iterator[Problem]:
    if design.failure_domain is FailureDomain.RACK and not design.nodes_per_rack:
        yield Problem(('cluster',), 'lacks nodes_per_rack, which failure_domain: rack needs')
        return
    if not design.nodes:
        return
    per_domain = design.nodes_per_domain
    if design.nodes % per_domain:
        yield Problem(
            ('cluster', 'nodes'),
            f'{design.nodes} must be a multiple of the {per_domain} servers in a rack, so that '
            f'all racks are alike',
        )
    elif design.nodes // per_domain < design.redundancy.chunks:
        what = f'{design.failure_domain}s' if per_domain > 1 else 'hosts'
        yield Problem(
            ('cluster', 'nodes'),
            f'{design.nodes} servers are {design.nodes // per_domain} {what}, fewer than the '
            f'{design.redundancy.chunks} that {design.redundancy} need',
        )
