# SPDX-License-Identifier: Apache-2.0
"""What a server that opens somebody else's data may be, and take of this host."""

import dataclasses

# Each thread's stack counts as its data; the usual 8 MiB would use up the limit.
_STACK_BYTES = 2 * 1024**2
_TMP_BYTES = 64 * 1024**2


@dataclasses.dataclass(frozen=True)
class Confinement:
    """Nobody's rights, no network, and so much of the host; the kernel holds the server to it.

    :param uid: whom the data belongs to; the server is nobody else at any time
    :param memory_bytes: of its own; files that it maps do not count
    :param cpu_sec: of all its threads; after that it is killed, also when nobody watches it
    :param tasks: the most threads that its user may have on this host
    :param nice: from 0, as important as others, to 19
    """

    uid: int
    gid: int
    memory_bytes: int
    cpu_sec: int
    tasks: int = 1024
    nice: int = 19

    def __post_init__(self) -> None:
        if self.uid == 0 or self.gid == 0:
            raise ValueError('a confined server cannot be root')

    def prefix(self) -> list[str]:
        """Return the words before the command that makes the server's name spaces."""
        limits = {
            'data': self.memory_bytes,
            'cpu': self.cpu_sec,
            'nproc': self.tasks,
            'stack': _STACK_BYTES,
            'core': 0,
        }
        return [
            *('nice', '-n', str(self.nice)),
            *('prlimit', *(f'--{name}={limit}' for name, limit in limits.items())),
            *('setpriv', '--no-new-privs'),
        ]

    def name_spaces(self) -> list[str]:
        """Return the options of unshare(1) besides that of mounts."""
        return ['--net', '--ipc', '--uts']

    def environment(self) -> dict[str, str]:
        """Return what is set for the server."""
        return {
            'IDENTITY': f'--userspec={self.uid}:{self.gid} --groups=',
            'TMP_SIZE': str(_TMP_BYTES),
            # Each further one reserves 64 MiB.
            'MALLOC_ARENA_MAX': '2',
        }
