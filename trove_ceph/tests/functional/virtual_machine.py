# SPDX-License-Identifier: Apache-2.0
"""The image of the virtual machine in which backups are inspected, emulated by QEMU."""

import functools
import subprocess
from pathlib import Path

from trove_ceph.host import qemu_machine
from trove_ceph.tests.functional import mysqld, workspace
from trove_ceph.verification import vm_image

#: KVM does not run ordinary guests on each machine that runs tests.
ACCELERATOR = qemu_machine.TCG
_MADE = 'inspection-image'


@functools.cache
def kernel():
    """Return the kernel's file and its modules, downloaded when the cache does not hold them."""
    command = [str(mysqld.BUILD), 'inspection-kernel']
    built = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=mysqld.BUILD_TIMEOUT_SEC,
        check=True,
    )
    path = Path(built.stdout.strip().splitlines()[-1])
    return vm_image.find_kernel(path / 'boot', path / 'lib' / 'modules')


def build(directory, root):
    """Make an image with one root file system."""
    return vm_image.build(directory, vm_image.Sources(*kernel(), (root,)))


@functools.cache
def directory():
    """Return the directory of an image with the root file system of the tests' MySQL."""
    made = workspace.shared() / _MADE
    build(made, mysqld.rootfs())
    return made
