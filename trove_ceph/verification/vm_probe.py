# SPDX-License-Identifier: Apache-2.0
"""Find out whether virtual machines run on this host by starting one.

A ``/dev/kvm`` that exists proves nothing: on some nested hosts each ordinary guest hangs.
"""

import os
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph.host import confinement, control_group, qemu, qemu_machine, workspace
from trove_ceph.verification import guest_init, on_host, vm_image

_MEMORY_BYTES = 256 * 1024**2
_TASKS = 256
_FILE_BYTES = 1024**2
#: Time limit of the start and the end of the virtual machine.
LIMIT_SEC = {qemu_machine.KVM: 15.0, qemu_machine.TCG: 120.0}
_KERNEL, _INITRD = '/kernel', '/initrd'
_ARGUMENTS = f'console=ttyS0 quiet loglevel=3 panic=-1 {guest_init.PROBE}'


def find_obstacle(
    image: vm_image.VmImage, accelerator: str, directory: Path, uid: int
) -> str | None:
    """Start the kernel of an image; return why it does not run, or None if it runs.

    :param directory: the directory of inspections
    :param uid: the user that QEMU runs as
    """
    if accelerator == qemu_machine.KVM and not qemu_machine.KVM_DEVICE.exists():
        return f'there is no {qemu_machine.KVM_DEVICE}'
    try:
        return _start(image, accelerator, directory, uid)
    except (exceptions.TroveCephError, OSError) as error:
        return str(error)


def _start(image: vm_image.VmImage, accelerator: str, directory: Path, uid: int) -> str | None:
    machine = qemu_machine.Machine(
        accelerator,
        _MEMORY_BYTES,
        1,
        _KERNEL,
        _INITRD,
        _ARGUMENTS,
        (),
        {_KERNEL: image.kernel, _INITRD: image.initrd},
    )
    limit_sec = LIMIT_SEC[accelerator]
    limits = confinement.Confinement(
        uid,
        uid,
        2 * machine.host_memory_bytes,
        round(limit_sec) * (os.cpu_count() or 1),
        _FILE_BYTES,
        _TASKS,
        groups=qemu_machine.device_groups(accelerator),
    )
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    with (
        workspace.Workspace(on_host.PREFIX, directory) as space,
        control_group.ControlGroup(space.path.name, machine.host_memory_bytes, _TASKS) as group,
    ):
        environment = workspace.launcher_environment(space.path)
        errors = space.path / 'qemu.log'
        running = qemu.VirtualMachine(machine, limits, group, environment, errors)
        try:
            return _wait(running, accelerator, limit_sec)
        finally:
            running.close()


def _wait(running: qemu.VirtualMachine, accelerator: str, limit_sec: float) -> str | None:
    code = running.wait(limit_sec)
    if guest_init.GREETING in running.read_console():
        return None
    if code is None:
        return f'a virtual machine with {accelerator} did not start within {limit_sec:.0f} s'
    reason = running.find_error() or f'QEMU ended with exit code {code}'
    return f'a virtual machine with {accelerator} did not start: {reason}'
