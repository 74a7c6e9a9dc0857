# SPDX-License-Identifier: Apache-2.0
"""Run a QEMU virtual machine that has disks and one serial line, and nothing else.

It has no network device, no display and no default devices; the kernel is booted directly. QEMU
runs as an unprivileged user in namespaces of its own, in which it sees the distribution's programs
and libraries and the files that it is given. It ends with the thread that starts it.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from trove_ceph import exceptions
from trove_ceph.host import bounded_files, bubblewrap, confinement, control_group, qmp

PROGRAM = 'qemu-system-x86_64'
KVM, TCG = 'kvm', 'tcg'
KVM_DEVICE = Path('/dev/kvm')
#: The name of the serial line, as the guest finds it in /sys/class/virtio-ports/*/name.
LINE = 'trove-ceph'
#: Of the device of a disk, in statistics.
_KILL_TIMEOUT_SEC = 20
_SECRET = 'ceph-key'
_MIB = 1024**2
# QEMU itself, librbd's cache and threads; TCG keeps translated code besides.
_OVERHEAD_BYTES = {KVM: 384 * _MIB, TCG: 768 * _MIB}
_TRANSLATED_MIB = 256
# No CMPXCHG16B under TCG: QEMU 7.2 may end the guest with a double fault in it.
_CPU = {KVM: 'host', TCG: 'Nehalem,-cx16'}
_SANDBOX = 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'
_DIRECTORIES = ('bin', 'lib', 'lib32', 'lib64', 'libx32', 'sbin')
# For the loader of libraries, and for names of Ceph's monitors.
_SYSTEM_FILES = (
    *('/etc/ld.so.cache', '/etc/ld.so.conf', '/etc/ld.so.conf.d', '/etc/alternatives'),
    *('/etc/hosts', '/etc/resolv.conf', '/etc/nsswitch.conf', '/etc/host.conf'),
)
_ERROR_BYTES = 4000
_LAUNCHERS = (f'{PROGRAM}: ', 'qemu: ', 'bwrap: ', 'setpriv: ', 'prlimit: ', 'nice: ', 'env: ')
_CONSOLE_BYTES = 4096
_PIECE_BYTES = 65536


@dataclasses.dataclass(frozen=True)
class Disk:
    """A virtio disk of the machine.

    :param name: the disk's serial number in the guest, and its node and device in QEMU
    :param driver: the options of the block driver, such as ``{'driver': 'rbd', ...}``
    """

    name: str
    driver: Mapping[str, Any]
    read_only: bool = False

    def words(self) -> list[str]:
        node = {'driver': 'raw', 'node-name': self.name, 'file': dict(self.driver)}
        node |= {'read-only': self.read_only, 'discard': 'unmap'}
        # An error goes to the guest, which knows what to make of it, and is counted.
        device = f'virtio-blk-pci,id={self.name},drive={self.name},serial={self.name}'
        return [
            *('-blockdev', json.dumps(node)),
            *('-device', f'{device},rerror=report,werror=report'),
        ]


def rbd_driver(pool: str, image: str, conf: str, user: str) -> dict[str, Any]:
    """Return the driver of a disk that is an RBD image.

    :param conf: path of ceph.conf as QEMU sees it; no keyring is read
    :param user: cephx name without ``client.``; the key is the secret of the machine
    """
    place = {'pool': pool, 'image': image, 'conf': conf, 'user': user}
    return {'driver': 'rbd', **place, 'key-secret': _SECRET}


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
    """What the virtual machine consists of.

    :param accelerator: KVM or TCG
    :param kernel: path as QEMU sees it
    :param initrd: the same
    :param arguments: of the kernel
    :param files: what QEMU sees of this host besides programs, by the path where it sees it
    :param writable: those of ``files`` that QEMU may write
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
        """What QEMU may take of the host's memory, the guest's included."""
        return self.memory_bytes + _OVERHEAD_BYTES[self.accelerator]

    def words(self, line: int, monitor: int, console: int, secret: int | None) -> list[str]:
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
        if secret is not None:
            path = f'/proc/self/fd/{secret}'
            words += ['-object', f'secret,id={_SECRET},format=base64,file={path}']
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
        """Return the words that have bubblewrap show QEMU what it needs of this host."""
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


class VirtualMachine:
    """A virtual machine that runs.

    :param machine: what it consists of
    :param limits: the user that QEMU runs as, and what it may take
    :param group: QEMU is put into it
    :param environment: of bubblewrap and of QEMU
    :param errors: a file for what QEMU complains about
    :param secret: the base64 text that the disks' drivers read as their key
    :raises NotInspectableError: QEMU or bubblewrap is not installed
    """

    def __init__(
        self,
        machine: Machine,
        limits: confinement.Confinement,
        group: control_group.ControlGroup,
        environment: Mapping[str, str],
        errors: Path,
        secret: str | None = None,
    ):
        for program in (PROGRAM, bubblewrap.PROGRAM):
            if shutil.which(program) is None:
                raise exceptions.NotInspectableError(f'{program} is not installed')
        self._errors = errors
        self._console = bytearray()
        with contextlib.ExitStack() as stack:
            pairs = [socket.socketpair() for _ in range(3)]
            ours, theirs = zip(*pairs, strict=True)
            for end in theirs:
                stack.callback(end.close)
            #: The host's end of the serial line.
            self.line, monitor, self._console_end = ours
            self._ours = ours
            self._console_end.setblocking(False)
            self.monitor = qmp.QmpClient(monitor)
            descriptors = [end.fileno() for end in theirs]
            secret_file = None
            if secret is not None:
                secret_file = _secret_file(secret)
                stack.callback(os.close, secret_file)
            words = [*group.prefix(), *limits.prefix(), *_isolation(), *machine.view(), '--']
            words += machine.words(*descriptors, secret_file)
            passed = [*descriptors, *([] if secret_file is None else [secret_file])]
            try:
                with errors.open('wb') as stderr:
                    self._process = _spawn(words, environment, passed, stderr)
            except BaseException:
                self._close_ends()
                raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_sec: float) -> int | None:
        """Wait for its end and return QEMU's exit code; None where it runs on."""
        try:
            return self._process.wait(timeout_sec)
        except subprocess.TimeoutExpired:
            return None

    def quit(self, timeout_sec: float) -> None:
        """Have QEMU close its disks and end; kill it where it does not within the time."""
        if self.is_alive:
            with contextlib.suppress(exceptions.InspectionFaultError):
                self.monitor.execute('quit', timeout_sec)
            if self.wait(timeout_sec) is None:
                self.kill()

    def kill(self) -> None:
        """End QEMU at once; the users of its disks are still known to Ceph for a while.

        :raises TimeoutExpired: the kernel does not end it
        """
        if self.is_alive:
            self._process.kill()
            self._process.wait(_KILL_TIMEOUT_SEC)

    def close(self) -> None:
        """End it and give back what belongs to it."""
        self.kill()
        self._close_ends()

    def disk_statistics(self, name: str) -> dict[str, int]:
        """Return the statistics of a disk since the start; see QMP's ``query-blockstats``.

        :raises InspectionFaultError: QEMU does not answer
        """
        for found in self.monitor.execute('query-blockstats'):
            if found.get('node-name') == name:
                return found['stats']
        raise exceptions.InspectionFaultError(f'QEMU does not know the disk {name}')

    def disk_size(self, name: str) -> int:
        """Return the size of a disk in bytes.

        :raises InspectionFaultError: QEMU does not answer
        """
        for found in self.monitor.execute('query-named-block-nodes', flat=True):
            if found.get('node-name') == name:
                return found['image']['virtual-size']
        raise exceptions.InspectionFaultError(f'QEMU does not know the disk {name}')

    def read_disk(self, name: str, start: int, count: int, timeout_sec: float) -> None:
        """Have QEMU read a part of a disk through its driver, as it does for the guest.

        :raises InspectionFaultError: it cannot
        """
        command = f'qemu-io {name} "read -q {start} {count}"'
        told = self.monitor.execute(
            'human-monitor-command', timeout_sec, **{'command-line': command}
        )
        if told.strip():
            raise exceptions.InspectionFaultError(
                f'QEMU cannot read disk {name} at {start}: {told.strip()[:200]}'
            )

    def read_console(self) -> str:
        """Return the last lines that the guest has written to its console so far."""
        with contextlib.suppress(OSError):
            while piece := self._console_end.recv(_PIECE_BYTES):
                self._console += piece
                del self._console[:-_CONSOLE_BYTES]
        return self._console.decode(errors='replace')

    def find_error(self) -> str:
        """Return the last line in which QEMU, or what starts it, complains; empty if none."""
        with contextlib.suppress(OSError):
            tail, _ = bounded_files.read_tail(self._errors, _ERROR_BYTES)
            for line in reversed(tail.decode(errors='replace').splitlines()):
                if line.startswith(_LAUNCHERS) and line.isprintable():
                    return line
        return ''

    def _close_ends(self) -> None:
        for end in self._ours:
            end.close()


def _isolation() -> list[str]:
    # It shares the network with the host: Ceph is there.
    return [
        *(bubblewrap.PROGRAM, '--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts'),
        *('--unshare-cgroup', '--cap-drop', 'ALL', '--die-with-parent', '--new-session'),
        *('--chdir', '/'),
    ]


def _spawn(
    words: Sequence[str], environment: Mapping[str, str], passed: Sequence[int], stderr: IO[bytes]
) -> subprocess.Popen:
    try:
        return subprocess.Popen(
            words,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=passed,
            start_new_session=True,
        )
    except OSError as error:
        raise exceptions.ServerFailedError(f'{words[0]} cannot be run: {error}') from error


def _secret_file(secret: str) -> int:
    """Return the descriptor of a file in memory, which only those who inherit it can open."""
    descriptor = os.memfd_create('secret', os.MFD_CLOEXEC)
    os.write(descriptor, secret.encode())
    return descriptor
