# SPDX-License-Identifier: Apache-2.0
"""Ceph's configuration, and the specification by which cephadm creates OSDs."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import yaml

from trove_ceph import yaml_file
from trove_ceph.hci.inventory import Device
from trove_ceph.hci.plan import HostPlan, OsdPlan
from trove_ceph.hci.render import values
from trove_ceph.hci.render.values import Deployment

#: What the name of a service of cephadm may not have.
_NOT_IN_NAMES = re.compile(r'[^A-Za-z0-9_.-]')


def config_commands(deployment: Deployment) -> str:
    """Return a script of ``ceph config set``; it may be run again."""
    return values.render('config.sh.j2', deployment, settings=values.of_cluster(deployment))


def osd_specs(deployment: Deployment, profile: HostPlan) -> str:
    """Return cephadm's specifications of a host for ``ceph orch apply -i``.

    Each host has a file of its own: cephadm restarts all OSDs whose arguments change, one after
    another, and waits for nothing between them.

    There is one specification for the devices that are of one class and share a device for DB and
    WAL, since cephadm deals the devices of one to its OSDs as it likes. Devices without a device
    for DB and WAL are divided by NUMA nodes, so that the containers of OSDs keep to the CPUs of
    their node. A device for DB and WAL cannot be in two specifications: ceph-volume counts what the
    other one has there as taken.
    """
    text = yaml.dump_all(
        _host_specs(deployment, profile),
        Dumper=yaml_file.Dumper,
        sort_keys=False,
        explicit_start=True,
        width=1000,
    )
    return values.render('osds.yaml.j2', deployment, host=profile, specs=text)


def _host_specs(deployment: Deployment, profile: HostPlan) -> Iterator[dict[str, Any]]:
    devices = {one.path: one for one in deployment.host(profile.name).data_devices}
    groups: dict[tuple[str, str, frozenset[int]], list[OsdPlan]] = {}
    for osd in profile.osds:
        of_device = {one.numa_node for one in profile.osds if one.device == osd.device}
        nodes = frozenset() if osd.db_device else frozenset(of_device)
        key = (str(devices[osd.device].device_class), osd.db_device or '', nodes)
        groups.setdefault(key, []).append(osd)
    for osds in groups.values():
        written = values.of_osds(deployment, profile, osds)
        options = {one.name: one.value for one in written}
        yield {
            'service_type': 'osd',
            'service_id': f'hci-{profile.name}-{_content(osds)}',
            'placement': {'hosts': [profile.name]},
            'extra_container_args': [
                f'{name}={value}' for name, value in options.items() if name.startswith('--')
            ],
            'spec': _drive_group(osds, devices, int(options['osds_per_device'])),
        }


def _content(osds: list[OsdPlan]) -> str:
    """Return the part of a specification's name that tells it from others of its host.

    It follows from what the specification is for, and not from the order of devices: cephadm gives
    the OSDs that a specification created its arguments, so two of them must not change names.
    """
    if osds[0].db_device:
        path = PurePosixPath(osds[0].db_device).relative_to('/dev')
        name = str(path).removeprefix('disk/by-id/')
        return f'db-{_NOT_IN_NAMES.sub("-", name)}'
    return f'numa{"-".join(str(number) for number in sorted({one.numa_node for one in osds}))}'


def _drive_group(
    osds: list[OsdPlan], devices: dict[str, Device], osds_per_device: int
) -> dict[str, Any]:
    paths = list(dict.fromkeys(one.device for one in osds))
    found: dict[str, Any] = {
        'data_devices': {'paths': paths},
        'osds_per_device': osds_per_device,
        'crush_device_class': str(devices[paths[0]].device_class),
    }
    if osds[0].db_device:
        found['db_devices'] = {'paths': [osds[0].db_device]}
        # Not block_db_size: LVM keeps some space for itself, so the planned parts would not fit.
        found['db_slots'] = len(osds)
    return found
