# SPDX-License-Identifier: Apache-2.0
"""Refuse the system calls that a server and the reader of its files do not need.

Each of them has had vulnerabilities, or reaches other processes. A refused call fails with an
error, as on a kernel that was built without it.
"""

import errno
import os
import socket
from typing import Any

from trove_ceph import exceptions

# Namespaces, mounts and privileges.
_CONFINEMENT = (
    *('mount', 'umount2', 'pivot_root', 'chroot', 'open_tree', 'move_mount', 'fsopen', 'fsconfig'),
    *('fsmount', 'fspick', 'mount_setattr', 'setns', 'unshare', 'setdomainname', 'sethostname'),
    *('open_by_handle_at', 'name_to_handle_at', 'fanotify_init', 'quotactl', 'quotactl_fd'),
)
# Other processes.
_PROCESSES = (
    *('ptrace', 'process_vm_readv', 'process_vm_writev', 'process_madvise', 'kcmp'),
    *('pidfd_getfd', 'move_pages', 'migrate_pages', 'perf_event_open'),
)
# Parts of the kernel with a large attack surface.
_KERNEL = (
    *('bpf', 'userfaultfd', 'io_uring_setup', 'io_uring_enter', 'io_uring_register'),
    *('keyctl', 'add_key', 'request_key', 'kexec_load', 'kexec_file_load', 'init_module'),
    *('finit_module', 'delete_module', 'create_module', 'lookup_dcookie', 'nfsservctl'),
    *('modify_ldt', 'uselib', 'personality', 'vmsplice', 'syslog', '_sysctl', 'sysfs', 'ustat'),
    *('landlock_create_ruleset', 'memfd_secret', 'seccomp'),
)
# The machine as a whole.
_MACHINE = (
    *('reboot', 'swapon', 'swapoff', 'acct', 'settimeofday', 'clock_settime', 'clock_adjtime'),
    *('adjtimex', 'stime', 'vhangup', 'iopl', 'ioperm'),
)
REFUSED = (*_CONFINEMENT, *_PROCESSES, *_KERNEL, *_MACHINE)
_CLONE_NEW = (0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x00020000)
# These ioctls put characters into the input of a terminal.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


def make() -> int:
    """Return the descriptor of a file with the filter as a BPF program.

    :raises NotInspectableError: libseccomp or pyseccomp is not installed
    """
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise exceptions.NotInspectableError(
            f'cannot filter system calls: install libseccomp and pyseccomp: {error}'
        ) from error
    filter_ = seccomp.SyscallFilter(defaction=seccomp.ALLOW)
    refuse = seccomp.ERRNO(errno.EPERM)
    for name in REFUSED:
        _add(filter_, refuse, name)
    # The C library falls back to clone, whose flags a filter can check.
    _add(filter_, seccomp.ERRNO(errno.ENOSYS), 'clone3')
    for flag in _CLONE_NEW:
        _add(filter_, refuse, 'clone', seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    # The only socket that is needed is a Unix socket.
    _add(
        filter_,
        seccomp.ERRNO(errno.EAFNOSUPPORT),
        'socket',
        seccomp.Arg(0, seccomp.NE, socket.AF_UNIX),
    )
    for request in (_TIOCSTI, _TIOCLINUX):
        _add(filter_, refuse, 'ioctl', seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))
    descriptor = os.memfd_create('syscall-filter', os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), 'wb') as file:
        filter_.export_bpf(file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _add(filter_: Any, action: Any, name: str, *arguments: Any) -> None:
    """Add a rule; skip a call that this architecture or libseccomp does not know."""
    try:
        filter_.add_rule(action, name, *arguments)
    except (ValueError, RuntimeError, OSError):
        if arguments or name == 'clone3':
            raise
