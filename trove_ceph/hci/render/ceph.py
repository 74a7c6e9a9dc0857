# SPDX-License-Identifier: Apache-2.0
"""Ceph's configuration, and the specification by which cephadm creates OSDs."""

from collections.abc import Iterator
from typing import Any

import yaml

from trove_ceph import yaml_file
from trove_ceph.hci.host_settings import Area
from trove_ceph.hci.inventory import Device
from trove_ceph.hci.plan import HostPlan, OsdPlan
from trove_ceph.hci.render import values
from trove_ceph.hci.render.values import Deployment


def config_commands(deployment: Deployment) -> str:
    """Return a script of ``ceph config set``; it may be run again."""
    return values.render('config.sh.j2', deployment, settings=values.of_cluster(deployment))


def osd_specs(deployment: Deployment) -> str:
    """Return cephadm's specifications for ``ceph orch apply -i``.

    There is one for the devices of a host that are of one class and share devices for DB and WAL,
    since cephadm deals the devices of one specification to its OSDs as it likes.
    """
    documents = [
        spec for profile in deployment.plan.hosts for spec in _host_specs(deployment, profile)
    ]
    text = yaml.dump_all(
        documents, Dumper=yaml_file.Dumper, sort_keys=False, explicit_start=True, width=1000
    )
    return values.render('osds.yaml.j2', deployment, specs=text)


def _host_specs(deployment: Deployment, profile: HostPlan) -> Iterator[dict[str, Any]]:
    devices = {one.path: one for one in deployment.host(profile.name).data_devices}
    groups: dict[tuple[str, str], list[OsdPlan]] = {}
    for osd in profile.osds:
        key = (str(devices[osd.device].device_class), osd.db_device or '')
        groups.setdefault(key, []).append(osd)
    options = {one.name: one.value for one in values.of_host(Area.OSD_SPEC, deployment, profile)}
    for number, osds in enumerate(groups.values()):
        suffix = f'-{number}' if len(groups) > 1 else ''
        yield {
            'service_type': 'osd',
            'service_id': f'hci-{profile.name}{suffix}',
            'placement': {'hosts': [profile.name]},
            'extra_container_args': [f'--cpuset-cpus={options["--cpuset-cpus"]}'],
            'spec': _drive_group(osds, devices, int(options['osds_per_device'])),
        }


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
