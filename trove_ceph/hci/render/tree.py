# SPDX-License-Identifier: Apache-2.0
"""All files of a deployment."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from trove_ceph.hci.render import ceph, host, openstack
from trove_ceph.hci.render.files import File
from trove_ceph.hci.render.values import Deployment


def files(deployment: Deployment) -> list[File]:
    """Return the files; the same deployment gives the same files, byte by byte."""
    return list(_files(deployment))


def _files(deployment: Deployment) -> Iterator[File]:
    yield _file('ceph/config.sh', ceph.config_commands(deployment), is_executable=True)
    yield _file('kolla/globals.d/trove-ceph-hci.yml', openstack.kolla_globals(deployment))
    yield _file('kolla/config/nova/nova-scheduler.conf', openstack.scheduler(deployment))
    yield _file('openstack/nova-scheduler.conf', openstack.scheduler(deployment))
    yield _file('openstack/hosts.sh', openstack.commands(deployment), is_executable=True)
    for profile in deployment.plan.hosts:
        name = profile.name
        yield _file(f'ceph/osds/{name}.yaml', ceph.osd_specs(deployment, profile))
        yield _file(f'kolla/config/nova/{name}/nova.conf', openstack.override(deployment, profile))
        yield _file(f'devstack/{name}/local.conf', openstack.local_conf(deployment, profile))
        etc = f'hosts/{name}/etc'
        yield _file(
            f'{etc}/nova/nova.conf.d/90-trove-ceph-hci.conf',
            openstack.nova_conf(deployment, profile),
        )
        yield _file(f'{etc}/sysctl.d/90-trove-ceph-hci.conf', host.sysctl(deployment, profile))
        yield _file(
            f'{etc}/udev/rules.d/90-trove-ceph-hci.rules', host.udev_rules(deployment, profile)
        )
        yield _file(f'{etc}/tuned/trove-ceph-hci/tuned.conf', host.tuned(deployment, profile))
        if deployment.huge_pages:
            yield _file(
                f'{etc}/tmpfiles.d/trove-ceph-hci.conf', host.huge_pages(deployment, profile)
            )
        if profile.irqs:
            yield _file(
                f'hosts/{name}/set-irq-affinity',
                host.irq_affinity(deployment, profile),
                is_executable=True,
            )


def _file(path: str, text: str, is_executable: bool = False) -> File:
    return File(PurePosixPath(path), text, is_executable)
