# SPDX-License-Identifier: Apache-2.0
"""Deployments for tests."""

import dataclasses

from trove_ceph.enums import DeviceClass
from trove_ceph.hci import planning
from trove_ceph.hci.render import files, tree, values
from trove_ceph.tests.unit.hci import sample

HEADER = (f'{files.MARK} of a test', 'from nothing')


def make(inventory=None, workload=None, choices=sample.CHOICES, **changes):
    """Return a deployment of the sample hosts; the changes are of the deployment."""
    inventory = inventory or dataclasses.replace(
        sample.inventory(), public_network='192.0.2.0/24', cluster_network='198.51.100.0/24'
    )
    plan = planning.plan(inventory, workload or sample.workload(), choices)
    content = {'client': values.CephClient(), 'header': HEADER} | changes
    return values.Deployment(plan=plan, inventory=inventory, **content)


def rendered(deployment):
    """Return the texts by their paths."""
    return {str(one.path): one.text for one in tree.files(deployment)}


def disks():
    """Return a host with disks that turn, whose DB and WAL are on flash."""
    return sample.inventory(
        data_devices=sample.devices(4, DeviceClass.HDD, name='/dev/disk/by-id/ata-'),
        db_devices=sample.devices(2, DeviceClass.SSD, name='/dev/disk/by-id/ssd-', on=(0, 1)),
    )
