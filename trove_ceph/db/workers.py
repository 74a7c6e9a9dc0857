# SPDX-License-Identifier: Apache-2.0
"""Names of worker processes, by which another process detects that a worker has died.

The name consists of the host, the boot id of its kernel, the PID namespace, the process id and the
start time of the process. A process on the same host and in the same PID namespace detects at once
that a predecessor is dead: the host has booted since, or no process has this id and start time.
Workers on other hosts or in other containers are known by their heartbeats only.
"""

import dataclasses
import os
import pathlib

_SEPARATOR = '/'


@dataclasses.dataclass(frozen=True)
class Worker:
    """One worker process.

    :param host: the configured host name of the service, without a slash
    :param boot: boot id of the kernel, new at each boot
    :param namespace: id of the PID namespace
    :param started: start time, in clock ticks since the boot
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    def __str__(self) -> str:
        parts = (self.host, self.boot, self.namespace, self.pid, self.started)
        return _SEPARATOR.join(map(str, parts))

    @classmethod
    def parse(cls, name: str) -> 'Worker | None':
        """Return the worker of a name; None: the name has another format, as of older releases."""
        host, *rest = name.rsplit(_SEPARATOR, 4)
        if len(rest) != 4 or not (rest[2].isdigit() and rest[3].isdigit()):
            return None
        return cls(host, rest[0], rest[1], int(rest[2]), int(rest[3]))


class Processes:
    """The processes of this host, read from procfs.

    psutil computes the start time of a process from the wall clock, which can be set; the kernel's
    own figure, in clock ticks since the boot, does not change.

    :param proc: mount point of procfs
    """

    def __init__(self, proc: str = '/proc'):
        self._proc = pathlib.Path(proc)

    def describe_self(self, host: str) -> Worker:
        """Return the worker that this process is."""
        pid = os.getpid()
        started = self.find_start(pid)
        assert started is not None
        return Worker(host, self._boot(), self._namespace(), pid, started)

    def is_dead(self, name: str, own: Worker) -> bool:
        """Return whether another worker is certainly dead; False when that is unknown.

        :param name: name of the other worker
        :param own: this process
        """
        other = Worker.parse(name)
        if other is None or other.host != own.host or other == own:
            return False
        if other.boot != own.boot:
            return True
        if other.namespace != own.namespace:
            return False
        return self.find_start(other.pid) != other.started

    def find_start(self, pid: int) -> int | None:
        """Return the start time of a process, in clock ticks since the boot; None: it is dead."""
        try:
            stat = (self._proc / str(pid) / 'stat').read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The program name, in parentheses, may contain spaces and parentheses.
        state, *fields = stat.rpartition(')')[2].split()
        return None if state in 'ZX' else int(fields[18])

    def _boot(self) -> str:
        return (self._proc / 'sys/kernel/random/boot_id').read_text().strip()[:8]

    def _namespace(self) -> str:
        return os.readlink(self._proc / 'self/ns/pid').strip('pid:[]')
