# SPDX-License-Identifier: Apache-2.0
"""Limit the operations per second of an OSD on its device, so that it is as slow as a disk.

The kernel's block I/O controller delays the process that submits operations, on a loop device as on
any other. Device-mapper's delay target would do as well, but many kernels of virtual machines have
no device-mapper.
"""

import contextlib
import os
from pathlib import Path

from cephcluster.errors import UsageError

ROOT = Path('/sys/fs/cgroup')


def limit(settings, name, device, iops, root=ROOT):
    """Put this process, and what it becomes by exec, into a group with limits on a device.

    :param device: the path of a block device.
    :param iops: the most reads per second, and the most writes per second.
    :raises UsageError: this machine cannot limit block I/O.
    """
    number = os.stat(device).st_rdev
    limits = _limits(f'{os.major(number)}:{os.minor(number)}', iops, root)
    group = _group(settings, name, root)
    try:
        if _is_v2(root):
            (root / 'cgroup.subtree_control').write_text('+io')
        group.mkdir(exist_ok=True)
        for file, text in limits.items():
            (group / file).write_text(text)
        (group / 'cgroup.procs').write_text(str(os.getpid()))
    except OSError as error:
        ensure_no_limit(settings, name, root)
        raise UsageError(
            f'cannot limit the device of {name} to {iops} operations per second by {group}: '
            f'{error.strerror}; run it without --device-iops'
        ) from error


def ensure_no_limit(settings, name, root=ROOT):
    """Remove the group of a daemon that has ended."""
    with contextlib.suppress(OSError):
        _group(settings, name, root).rmdir()


def _limits(device, iops, root):
    """Return the limit files and their content, of cgroup version 1 or 2."""
    if _is_v2(root):
        return {'io.max': f'{device} riops={iops} wiops={iops}'}
    return {
        f'blkio.throttle.{direction}_iops_device': f'{device} {iops}'
        for direction in ('read', 'write')
    }


def _is_v2(root):
    return (root / 'cgroup.controllers').exists()


def _group(settings, name, root):
    parent = root if _is_v2(root) else root / 'blkio'
    return parent / f'ceph-cluster-{settings.fsid}-{name}'
