# SPDX-License-Identifier: Apache-2.0
"""The user and the resource limits of a program that opens a tenant's data."""

import dataclasses

# The stack of each thread counts as data; the usual 8 MiB would exhaust the limit.
_STACK_BYTES = 2 * 1024**2


@dataclasses.dataclass(frozen=True)
class Confinement:
    """A dedicated unprivileged user, and resource limits that the kernel enforces.

    :param uid: of this host; owns nothing else on it
    :param gid: of this host; owns nothing else on it
    :param memory_bytes: private memory of one process; mapped files do not count
    :param cpu_sec: CPU time of all threads of a process; the kernel kills it after that
    :param file_bytes: size of each file that it writes
    :param tasks: threads of the user on this host
    :param nice: from 0, the normal priority, to 19
    :param groups: supplementary groups, such as the group of a device
    """

    uid: int
    gid: int
    memory_bytes: int
    cpu_sec: int
    file_bytes: int
    tasks: int = 1024
    nice: int = 19
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.uid == 0 or self.gid == 0:
            raise ValueError('a confined server cannot be root')

    def prefix(self) -> list[str]:
        """Return the command prefix that sets the limits and the user."""
        limits = {
            'data': self.memory_bytes,
            'cpu': self.cpu_sec,
            'nproc': self.tasks,
            'fsize': self.file_bytes,
            'stack': _STACK_BYTES,
            'core': 0,
        }
        return [
            *('nice', '-n', str(self.nice)),
            *('prlimit', *(f'--{name}={limit}' for name, limit in limits.items())),
            *('setpriv', '--no-new-privs', f'--reuid={self.uid}', f'--regid={self.gid}'),
            f'--groups={",".join(map(str, self.groups))}' if self.groups else '--clear-groups',
            *('--inh-caps=-all', '--bounding-set=-all'),
        ]
