# SPDX-License-Identifier: Apache-2.0
"""Open a clone in a throwaway virtual machine, which also runs the server.

The kernel of the machine reads the tenant's XFS, and QEMU reads the clone by librbd: no kernel and
no process of this host looks at the content. The Ceph key is in the memory of QEMU alone.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trove_ceph import exceptions
from trove_ceph.host import (
    confinement,
    control_group,
    initramfs,
    qemu,
    qemu_machine,
    reserved_user,
    workspace,
)
from trove_ceph.storage import image_types
from trove_ceph.verification import (
    channel,
    disk_proof,
    guest_init,
    guest_server,
    on_host,
    program,
    report,
    vm_image,
)

#: The mode of isolation in the record of an inspection, with the accelerator.
ISOLATION = 'vm ({})'
#: What limits the memory, in the record of an inspection.
MEMORY_LIMIT = 'vm'
_GUEST = 'trove_ceph.verification.guest'
_USER_TYPE = 'client.'
_MIB = 1024**2
# In addition to the memory of the server: the kernel, the program, and files in memory.
_EXTRA_BYTES = 384 * _MIB
_CPUS = 2
_TASKS = 1024
# Limit of the error messages of QEMU, the only file that it writes.
_ERROR_BYTES = 4 * _MIB
#: QEMU has ids from first_uid + FIRST_ID on; servers in namespaces have those below.
FIRST_ID, IDS = 32768, 32768
#: Time limit of the start of the virtual machine; with TCG on a busy host it takes a minute.
BOOT_SEC = 300.0
# An emulated machine hangs at one start in some hundreds.
_STARTS = 2
_QUIT_SEC = 10.0
_READ_SEC = 30.0
_FAILURES = ('failed_rd_operations', 'failed_wr_operations', 'failed_flush_operations')
_DISK_EVENTS = frozenset({'BLOCK_IO_ERROR'})
_ARGUMENTS = 'console=ttyS0 quiet loglevel=3 panic=-1 oops=panic'
# An emulated processor has no speculative execution, and lacks CMPXCHG16B (qemu_machine).
_TCG_ARGUMENTS = ' mitigations=off clearcpuid=cx16 tsc=unstable'
_KERNEL, _INITRD, _ROOT, _CONF = '/kernel', '/initrd', '/root.squashfs', '/ceph.conf'


@dataclasses.dataclass(frozen=True)
class Attachment:
    """How QEMU opens a clone.

    :param driver: the options of the block driver
    :param files: files that QEMU needs, by the path at which QEMU sees them
    :param writable: the paths that QEMU can write
    :param key: the cephx key, as base64 text
    :param file_bytes: size limit of each file that QEMU writes
    """

    driver: Mapping[str, Any]
    files: Mapping[str, Path]
    writable: tuple[str, ...] = ()
    key: str | None = dataclasses.field(default=None, repr=False)
    file_bytes: int = _ERROR_BYTES


class VmSandbox:
    """One clone and one virtual machine. Needs root, to run QEMU as another user.

    :param ceph_conf: path of the cluster's ceph.conf, which names the keyring
    :param ceph_user: cephx name with its type
    :param image: the image that the virtual machine boots
    :param accelerator: ``kvm`` or ``tcg``
    :param find_key: returns the key of a user, from ceph.conf and the user with its type
    """

    def __init__(
        self,
        ceph_conf: str,
        ceph_user: str,
        settings: report.InspectionSettings,
        image: vm_image.VmImage,
        accelerator: str,
        find_key: Callable[[str, str], str],
    ):
        self.isolation = ISOLATION.format(accelerator)
        self.memory_limit: str | None = None
        self._ceph_conf = ceph_conf
        self._ceph_user = ceph_user
        self._settings = settings
        self._image = image
        self._accelerator = accelerator
        self._find_key = find_key
        self._stack = contextlib.ExitStack()
        self._machine_stack = contextlib.ExitStack()
        self._space: workspace.Workspace | None = None
        self._clone: image_types.ImageRef | None = None
        self._machine: qemu.VirtualMachine | None = None
        self._server: guest_server.GuestServer | None = None
        self._has_booted = False

    def clear_killed(self) -> None:
        """Release the resources of inspections on this host whose process was killed.

        :raises NotInspectableError: this process does not run as root
        """
        on_host.clear_killed(self._settings.directory)

    def open(self, clone: image_types.ImageRef) -> None:
        """Prepare the initramfs for a clone; ``close`` releases everything, even after an error.

        :raises StorageCommandError: a file cannot be written
        """
        space = workspace.Workspace(on_host.PREFIX, self._settings.directory)
        self._space = self._stack.enter_context(space)
        tree = space.path / 'tree'
        self._clone = clone
        program.pack(tree / program.DIRECTORY.lstrip('/'), _GUEST)
        program.compile_modules(tree / program.DIRECTORY.lstrip('/'))
        words, environment = program.command(_GUEST), program.environment()
        start = guest_init.start(words, environment)
        (tree / guest_init.START).write_text(start)
        initrd = space.path / 'initrd'
        with initrd.open('wb') as archive:
            with self._image.initrd.open('rb') as base:
                shutil.copyfileobj(base, archive)
            initramfs.append(archive, tree)
        shutil.rmtree(tree)

    def serve(self, version: str) -> guest_server.GuestServer:
        """Start the virtual machine and prepare a server in it for the clone.

        :param version: of the datastore
        :raises NotSoundError: there is no data that a server can open
        :raises NotInspectableError: no configured server can open the data, or QEMU is not
            installed
        :raises InspectionFaultError: the virtual machine does not start, or the disk does not work
        """
        if self._space is None or self._clone is None:
            raise RuntimeError('no clone is open')
        root = self._image.root_for(self._settings.root_for(version))
        served = self._boot(root)
        self._has_booted = True
        self._prove_from_host()
        served.mount()
        served.read(self._settings.memory_bytes)
        return served

    def prove_healthy(self) -> None:
        """Prove that the disk works, and that no operation failed since the start.

        :raises InspectionFaultError: there is no such proof
        """
        if self._server is None:
            raise exceptions.InspectionFaultError('the virtual machine was not started')
        self._server.prove()
        self._prove_from_host()

    def attach(self, clone: image_types.ImageRef, directory: Path, uid: int) -> Attachment:
        """Return how QEMU opens a clone.

        :param directory: for files that QEMU needs
        :param uid: the user that QEMU runs as
        """
        # The keyring is not copied: the user of QEMU must not read it.
        conf = directory / 'ceph.conf'
        shutil.copyfile(self._ceph_conf, conf)
        conf.chmod(0o400)
        os.chown(conf, uid, uid)
        user = self._ceph_user.removeprefix(_USER_TYPE)
        return Attachment(
            qemu_machine.rbd_driver(clone.pool, clone.name, _CONF, user),
            {_CONF: conf},
            key=self._find_key(self._ceph_conf, f'{_USER_TYPE}{user}'),
        )

    def abort(self) -> None:
        """Kill QEMU, even if it waits for Ceph; call ``close`` afterwards."""
        if self._machine is not None:
            self._machine.kill()

    def kill(self) -> None:
        """End the virtual machine, with the server in it."""
        if self._machine is not None:
            self._machine.quit(_QUIT_SEC)

    def why_ended(self) -> str:
        """Return how the virtual machine ended."""
        if self._machine is None:
            return 'the virtual machine was not started'
        code = self._machine.wait(_QUIT_SEC)
        if code is None:
            return 'the virtual machine closed its serial line, but has not ended'
        reasons = [f'QEMU ended with exit code {code}', self._machine.find_error()]
        if not self._has_booted:
            # Until then, the console cannot contain data of the tenant.
            reasons.append(_printable(self._machine.read_console()))
        return ': '.join(filter(None, reasons))

    def close(self) -> None:
        """End the virtual machine and release its resources; does nothing if none was opened.

        :raises StorageCommandError: a resource could not be released
        """
        self._stack.close()
        self._space = self._clone = self._machine = self._server = None

    def _boot(self, root: Path) -> guest_server.GuestServer:
        for _ in range(_STARTS):
            self._stop_machine()
            machine = self._start(root)
            line = machine.line.fileno()
            served = guest_server.GuestServer(self, channel.Channel(line, line, self._watch))
            self._server = served
            # Nothing that is read from the disk counts before this proof.
            if served.is_up(BOOT_SEC):
                return served
        console = _printable(machine.read_console())
        raise exceptions.InspectionFaultError(
            f'the virtual machine did not start within {BOOT_SEC:.0f} s, {_STARTS} times: {console}'
        )

    def _stop_machine(self) -> None:
        self._machine_stack.close()
        self._machine_stack = self._stack.enter_context(contextlib.ExitStack())

    def _start(self, root: Path) -> qemu.VirtualMachine:
        assert self._space is not None and self._clone is not None
        directory = self._space.path
        first = self._settings.first_uid + FIRST_ID
        uid = self._machine_stack.enter_context(reserved_user.ReservedUser(first, IDS)).uid
        attachment = self.attach(self._clone, directory, uid)
        files = {_KERNEL: self._image.kernel, _INITRD: directory / 'initrd', _ROOT: root}
        is_emulated = self._accelerator == qemu_machine.TCG
        machine = qemu_machine.Machine(
            self._accelerator,
            self._settings.memory_bytes + _EXTRA_BYTES,
            _CPUS,
            _KERNEL,
            _INITRD,
            _ARGUMENTS + (_TCG_ARGUMENTS if is_emulated else ''),
            (
                qemu_machine.Disk(guest_init.VOLUME, attachment.driver),
                qemu_machine.Disk(guest_init.ROOT, qemu_machine.file_driver(_ROOT), read_only=True),
            ),
            {**files, **attachment.files},
            attachment.writable,
        )
        group = self._machine_stack.enter_context(
            control_group.ControlGroup(directory.name, machine.host_memory_bytes, _TASKS)
        )
        running = qemu.VirtualMachine(
            machine,
            self._limits(machine, uid, attachment.file_bytes),
            group,
            workspace.launcher_environment(directory),
            directory / 'qemu.log',
            attachment.key,
        )
        self._machine, self.memory_limit = running, MEMORY_LIMIT
        self._machine_stack.callback(running.close)
        self._machine_stack.callback(running.quit, _QUIT_SEC)
        return running

    def _limits(
        self, machine: qemu_machine.Machine, uid: int, file_bytes: int
    ) -> confinement.Confinement:
        return confinement.Confinement(
            uid,
            uid,
            machine.host_memory_bytes + _EXTRA_BYTES,
            # If the service, which watches the time limit, does not run any more.
            self._settings.time_limit_sec * (os.cpu_count() or 1),
            file_bytes,
            _TASKS,
            groups=qemu_machine.device_groups(self._accelerator),
        )

    def _prove_from_host(self) -> None:
        """Have QEMU itself read the clone, and check its counters of failed operations.

        :raises InspectionFaultError: an operation failed since the start, or QEMU does not answer
        """
        machine = self._machine
        if machine is None or not machine.is_alive:
            raise exceptions.InspectionFaultError('the virtual machine has ended')
        for block in disk_proof.choose_blocks(machine.disk_size(guest_init.VOLUME)):
            start = block * disk_proof.BLOCK_BYTES
            machine.read_disk(guest_init.VOLUME, start, disk_proof.BLOCK_BYTES, _READ_SEC)
        self._check_counters(machine)

    def _check_counters(self, machine: qemu.VirtualMachine) -> dict[str, int]:
        counters = machine.disk_statistics(guest_init.VOLUME)
        failed = sum(counters.get(name, 0) for name in _FAILURES)
        if failed or _DISK_EVENTS & set(machine.monitor.events):
            raise exceptions.InspectionFaultError(
                f'QEMU could not read or write the clone ({failed} operations failed)'
            )
        return counters

    def _watch(self) -> None:
        """Check the virtual machine while the service waits for an answer.

        :raises InspectionFaultError: the disk fails, or QEMU does not answer
        :raises NotInspectableError: the server wrote more than max_written_mib
        """
        machine = self._machine
        assert machine is not None
        machine.read_console()
        try:
            written = self._check_counters(machine)['wr_bytes']
        except exceptions.InspectionFaultError:
            if machine.wait(1.0) is not None:
                # The serial line reports the end.
                return
            raise
        limit = self._settings.max_written_bytes
        if limit and written > limit:
            raise exceptions.NotInspectableError(
                f'the server wrote {written // _MIB} MiB to the clone; up to '
                f'{limit // _MIB} MiB are allowed (option max_written_mib)'
            )


def _printable(text: str) -> str:
    lines = (''.join(one for one in line if one.isprintable()) for line in text.splitlines())
    return report.shorten(' | '.join(line for line in lines if line)[-800:])
