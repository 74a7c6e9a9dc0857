# SPDX-License-Identifier: Apache-2.0
"""What a program that opens somebody else's data may be, and take of this host."""

import dataclasses

# Each thread's stack counts as its data; the usual 8 MiB would use up the limit.
_STACK_BYTES = 2 * 1024**2


@dataclasses.dataclass(frozen=True)
class Confinement:
    """A user that owns nothing else, no rights, and so much of the host; the kernel enforces it.

    :param uid: of this host; nothing on it belongs to this user
    :param memory_bytes: of one process's own; files that it maps do not count
    :param cpu_sec: of all its threads; after that it is killed, also when nobody watches it
    :param file_bytes: of one file that it writes
    :param tasks: the most threads that its user may have on this host
    :param nice: from 0, as important as others, to 19
    :param groups: further groups, such as that of a device
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
        """Return the words before the command that takes on the limits and the user."""
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
