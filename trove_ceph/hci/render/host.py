# SPDX-License-Identifier: Apache-2.0
"""Files of the host itself: kernel, block devices, TuneD, huge pages and interrupts."""

from pathlib import PurePosixPath

from trove_ceph.hci.host_settings import Area
from trove_ceph.hci.inventory import Device
from trove_ceph.hci.plan import HostPlan
from trove_ceph.hci.render import values
from trove_ceph.hci.render.values import Deployment

_DEVICES = PurePosixPath('/dev')


def sysctl(deployment: Deployment, profile: HostPlan) -> str:
    """Return a file for ``/etc/sysctl.d``."""
    written = values.of_host(Area.SYSCTL, deployment, profile)
    return values.render('sysctl.conf.j2', deployment, settings=written)


def udev_rules(deployment: Deployment, profile: HostPlan) -> str:
    """Return udev's rules for the queues of the OSDs' devices, and of no other device."""
    host = deployment.host(profile.name)
    devices = [
        (_match(device), values.of_device(deployment, profile, device))
        for device in (*host.data_devices, *host.db_devices)
    ]
    return values.render('queue.rules.j2', deployment, devices=devices)


def tuned(deployment: Deployment, profile: HostPlan) -> str:
    """Return a profile of TuneD."""
    written = values.of_host(Area.TUNED, deployment, profile)
    return values.render('tuned.conf.j2', deployment, sections=sections(written))


def huge_pages(deployment: Deployment, profile: HostPlan) -> str:
    """Return a file for ``/etc/tmpfiles.d`` that allocates the guests' pages on each NUMA node."""
    return values.render('hugepages.conf.j2', deployment, host=profile)


def irq_affinity(deployment: Deployment, profile: HostPlan) -> str:
    """Return a script that gives the interrupts of network interfaces to CPUs."""
    return values.render('set-irq-affinity.j2', deployment, host=profile)


def sections(written: list[values.Written]) -> dict[str, list[values.Written]]:
    """Return settings by the sections of their file, in the order of the table."""
    found: dict[str, list[values.Written]] = {}
    for one in written:
        found.setdefault(one.setting.section, []).append(one)
    return found


def _match(device: Device) -> str:
    """Return the key of udev that matches a device by its link, or else by the kernel's name.

    Links are in directories, such as /dev/disk and /dev/mapper.
    """
    path = PurePosixPath(device.path)
    if path.parent != _DEVICES:
        return f'SYMLINK=="{path.relative_to(_DEVICES)}"'
    return f'KERNEL=="{path.name}"'
