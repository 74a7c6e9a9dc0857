# SPDX-License-Identifier: Apache-2.0
"""The profiles of a guest image: what it is for decides its kernel arguments, units and disk."""

import dataclasses
from dataclasses import dataclass

from trove_ceph.imagebuild import disk
from trove_ceph.imagebuild.disk import Layout

_NAMES = "net.ifnames=0"
# A guest whose kernel panics restarts, and its database recovers.
_RESTART = "panic=10"


@dataclass(frozen=True)
class Profile:
    """What distinguishes the guest images of one purpose.

    :param base_kind: name of the cached base disks.
    :param kind: name of the cached images.
    :param packages: Debian packages beside those of every guest.
    :param units: units to enable beside those of every guest.
    :param kernel_arguments: the kernel's command line.
    :param layout: where the partitions of the disk are, and how it boots.
    :param trimmed: leave out kernel modules, udev rules and units, each of which costs an emulated
        processor a part of a second to seconds.
    :param security_updates: install updates of the suite and its security archive, too.
    :param has_trove_ceph: install trove_ceph, whose files replace some of docker and cloud-init;
        False: the guest has Trove's own agent, started as Trove's own images do.
    """

    name: str
    base_kind: str
    kind: str
    packages: tuple[str, ...]
    units: tuple[str, ...]
    kernel_arguments: str
    layout: Layout
    trimmed: bool
    security_updates: bool
    has_trove_ceph: bool = True


EMULATED = Profile(
    name="emulated",
    base_kind="guest-base",
    kind="guest",
    packages=(),
    units=(),
    kernel_arguments=(
        f"root=/dev/vda1 rw console=ttyS0 {_NAMES} loglevel=4 systemd.show_status=0 "
        "apparmor=0 selinux=0 audit=0 mitigations=off nokaslr no5lvl no_timer_check tsc=reliable "
        "random.trust_cpu=on cryptomgr.notests nowatchdog 8250.nr_uarts=1 raid=noautodetect "
        f"rcupdate.rcu_expedited=1 clearcpuid=cx16 {_RESTART}"
    ),
    layout=disk.BIOS,
    trimmed=True,
    security_updates=False,
)

KVM = Profile(
    name="kvm",
    base_kind="guest-base-kvm",
    kind="guest-kvm",
    packages=(
        *("apparmor", "initramfs-tools", "systemd-resolved", "systemd-timesyncd"),
        "cloud-guest-utils",
    ),
    units=("apparmor.service", "systemd-resolved.service", "systemd-timesyncd.service"),
    kernel_arguments=(
        f"root=PARTUUID={disk.ROOT_PARTUUID} ro console=tty0 console=ttyS0,115200 "
        f"{_NAMES} {_RESTART}"
    ),
    layout=disk.BIOS_AND_UEFI,
    trimmed=False,
    security_updates=True,
)

#: What an image of stock Trove has, as the rival in benchmarks.
STOCK = dataclasses.replace(KVM, name="stock", kind="guest-stock", has_trove_ceph=False)

PROFILES = {profile.name: profile for profile in (EMULATED, KVM, STOCK)}
