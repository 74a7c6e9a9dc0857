# SPDX-License-Identifier: Apache-2.0
"""Nova's configuration of a host, by itself, for Kolla-Ansible and for DevStack; and commands."""

from trove_ceph.hci import affinity
from trove_ceph.hci.host_settings import Area
from trove_ceph.hci.plan import HostPlan
from trove_ceph.hci.render import values
from trove_ceph.hci.render.host import sections
from trove_ceph.hci.render.values import Deployment, Written

#: Options that Kolla-Ansible and DevStack's plugin set from what they know of Ceph.
_BY_TOOL = (
    'images_type',
    'images_rbd_pool',
    'images_rbd_ceph_conf',
    'rbd_user',
    'rbd_secret_uuid',
)
#: What DevStack enables beside Nova's own list, since Tempest has tests for it.
_DEVSTACK_FILTERS = ('SameHostFilter', 'DifferentHostFilter')


def nova_conf(deployment: Deployment, profile: HostPlan) -> str:
    """Return a file for ``nova.conf.d`` of nova-compute."""
    written = values.of_host(Area.NOVA, deployment, profile)
    return _nova_conf(deployment, written, is_of_directory=True)


def override(deployment: Deployment, profile: HostPlan) -> str:
    """Return the ``nova.conf`` of a host that Kolla-Ansible merges into its own."""
    return _nova_conf(deployment, _without_tool(deployment, profile))


def kolla_globals(deployment: Deployment) -> str:
    """Return a file for ``/etc/kolla/globals.d``."""
    return values.render('globals.yml.j2', deployment, client=deployment.client)


def local_conf(deployment: Deployment, profile: HostPlan) -> str:
    """Return the sections for ``local.conf`` of a DevStack on a host."""
    written = _without_tool(deployment, profile)
    filters = (*affinity.FILTERS, *_DEVSTACK_FILTERS)
    return values.render('local.conf.j2', deployment, sections=sections(written), filters=filters)


def scheduler(deployment: Deployment) -> str:
    """Return a file for ``nova.conf.d`` of nova-scheduler, also as Kolla-Ansible merges it."""
    return values.render('nova-scheduler.conf.j2', deployment, filters=affinity.FILTERS)


def commands(deployment: Deployment) -> str:
    """Return a script with the host aggregates, and the properties of images and flavors."""
    return values.render(
        'hosts.sh.j2',
        deployment,
        image_properties=values.of_image(),
        huge_pages=deployment.huge_pages,
    )


def _nova_conf(
    deployment: Deployment, written: list[Written], is_of_directory: bool = False
) -> str:
    return values.render(
        'nova.conf.j2', deployment, sections=sections(written), is_of_directory=is_of_directory
    )


def _without_tool(deployment: Deployment, profile: HostPlan) -> list[Written]:
    written = values.of_host(Area.NOVA, deployment, profile)
    return [one for one in written if one.name not in _BY_TOOL]
