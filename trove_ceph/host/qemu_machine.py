# SPDX-License-Identifier: Apache-2.0
"""Describe a QEMU virtual machine that has disks and one serial line, and nothing else.

It has no network device, no display and no default devices, and boots a kernel directly. QEMU sees
the programs and libraries of this host and the files that it is given.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = 'qemu-system-x86_64'
KVM, TCG = 'kvm', 'tcg'
KVM_DEVICE = Path('/dev/kvm')
#: The name of the serial line; the guest finds it in /sys/class/virtio-ports/*/name.
LINE = 'trove-ceph'
_KEY = 'ceph-key'
_MIB = 1024**2
# QEMU itself with librbd's cache and threads; TCG also stores translated code.
_OVERHEAD_BYTES = {KVM: 384 * _MIB, TCG: 768 * _MIB}
_TRANSLATED_MIB = 256
# Without CMPXCHG16B under TCG, in which QEMU 7.2 can end the guest with a double fault.
_CPU = {KVM: 'host', TCG: 'Nehalem,-cx16'}
_SANDBOX = 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'
_DIRECTORIES = ('bin', 'lib', 'lib32', 'lib64', 'libx32', 'sbin')
# For the dynamic loader, and to resolve the names of Ceph's monitors.
_SYSTEM_FILES = (
    *('/etc/ld.so.cache', '/etc/ld.so.conf', '/etc/ld.so.conf.d', '/etc/alternatives'),
    *('/etc/hosts', '/etc/resolv.conf', '/etc/nsswitch.conf', '/etc/host.conf'),
)


@dataclasses.dataclass(frozen=True)
class Disk:
    """A virtio disk of the virtual machine.

    :param name: the disk's serial number in the guest, and its node and device in QEMU
    :param driver: the options of the block driver, such as ``{'driver': 'rbd', ...}``
    """

    name: str
    driver: Mapping[str, Any]
    read_only: bool = False

    def words(self) -> list[str]:
        node: dict[str, Any] = {'driver': 'raw', 'node-name': self.name}
        node |= {'file': dict(self.driver), 'read-only': self.read_only, 'discard': 'unmap'}
        # QEMU reports an error to the guest and counts it.
        device = f'virtio-blk-pci,id={self.name},drive={self.name},serial={self.name}'
        return [
            *('-blockdev', json.dumps(node)),
            *('-device', f'{device},rerror=report,werror=report'),
        ]


def rbd_driver(pool: str, image: str, conf: str, user: str) -> dict[str, Any]:
    """Return the driver of a disk that is an RBD image.

    :param conf: path of ceph.conf as QEMU sees it; no keyring is read
    :param user: cephx name without ``client.``; QEMU gets the key separately
    """
    place = {'pool': pool, 'image': image, 'conf': conf, 'user': user}
    return {'driver': 'rbd', **place, 'key-secret': _KEY}


def file_driver(path: str) -> dict[str, Any]:
    """Return the driver of a disk that is a file.

    :param path: as QEMU sees it
    """
    return {'driver': 'file', 'filename': path}


def device_groups(accelerator: str) -> tuple[int, ...]:
    """Return the groups that QEMU's user needs for the accelerator."""
    if accelerator != KVM:
        return ()
    with contextlib.suppress(OSError):
        return (KVM_DEVICE.stat().st_gid,)
    return ()


@dataclasses.dataclass(frozen=True)
class Machine:
    """The parts of a virtual machine.

    :param accelerator: KVM or TCG
    :param kernel: path as QEMU sees it
    :param initrd: the same
    :param arguments: the command line of the kernel
    :param files: files of this host that QEMU sees besides programs and libraries, by the path at
        which it sees them
    :param writable: the paths that QEMU can write
    """

    accelerator: str
    memory_bytes: int
    cpus: int
    kernel: str
    initrd: str
    arguments: str
    disks: Sequence[Disk]
    files: Mapping[str, Path]
    writable: Sequence[str] = ()

    @property
    def host_memory_bytes(self) -> int:
        """The memory limit of QEMU on the host, including the memory of the guest."""
        return self.memory_bytes + _OVERHEAD_BYTES[self.accelerator]

    def words(self, line: int, monitor: int, console: int, key: int | None = None) -> list[str]:
        """Return QEMU's command line; each parameter is a descriptor that QEMU inherits."""
        accelerator = self.accelerator
        if accelerator == TCG:
            accelerator += f',tb-size={_TRANSLATED_MIB}'
        words = [PROGRAM, '-nodefaults', '-no-user-config', '-sandbox', _SANDBOX]
        words += ['-display', 'none', '-no-reboot', '-name', 'inspection']
        words += ['-machine', 'q35,vmport=off,usb=off', '-accel', accelerator]
        words += ['-cpu', _CPU[self.accelerator], '-smp', str(self.cpus)]
        words += ['-m', f'{self.memory_bytes // _MIB}M']
        words += ['-kernel', self.kernel, '-initrd', self.initrd, '-append', self.arguments]
        if key is not None:
            path = f'/proc/self/fd/{key}'
            words += ['-object', f'secret,id={_KEY},format=base64,file={path}']
        words += ['-object', 'rng-random,id=rng,filename=/dev/urandom']
        words += ['-device', 'virtio-rng-pci,rng=rng']
        for disk in self.disks:
            words += disk.words()
        for name, descriptor in {'line': line, 'monitor': monitor, 'console': console}.items():
            words += ['-chardev', f'socket,id={name},fd={descriptor}']
        words += ['-device', 'virtio-serial-pci,max_ports=2']
        words += ['-device', f'virtserialport,chardev=line,name={LINE}']
        words += ['-device', 'isa-serial,chardev=console']
        return [*words, '-mon', 'chardev=monitor,mode=control']

    def view(self) -> list[str]:
        """Return the options of bubblewrap for the files that QEMU sees."""
        words = ['--size', str(_MIB), '--tmpfs', '/', '--ro-bind', '/usr', '/usr']
        for name in _DIRECTORIES:
            entry = Path('/', name)
            if entry.is_symlink():
                words += ['--symlink', os.readlink(entry), str(entry)]
            elif entry.is_dir():
                words += ['--ro-bind', str(entry), str(entry)]
        for name in _SYSTEM_FILES:
            words += ['--ro-bind-try', name, name]
        words += ['--proc', '/proc', '--dev', '/dev']
        if self.accelerator == KVM:
            words += ['--dev-bind', str(KVM_DEVICE), str(KVM_DEVICE)]
        for place, path in self.files.items():
            words += ['--bind' if place in self.writable else '--ro-bind', str(path), place]
        return [*words, '--size', str(_MIB), '--tmpfs', '/tmp', '--remount-ro', '/']
