# SPDX-License-Identifier: Apache-2.0
"""What a worker process is called, so that another one can tell that it has ended.

The name has the host, the boot of its kernel, the PID namespace, the process id and the time at
which the process started. A process on the same host that sees the same PID namespace can therefore
tell at once that a predecessor is gone: the host was booted since, or no process has this id and
this start. Of workers on other hosts, and in other containers, nothing is known but their
heartbeats.
"""

import dataclasses
import os
import pathlib

_SEPARATOR = '/'


@dataclasses.dataclass(frozen=True)
class Worker:
    """One process.

    :param host: as the service is configured, without a slash
    :param boot: of the kernel; another one after each boot
    :param namespace: of process ids
    :param started: in ticks of the kernel since the boot
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
        """Return the worker of a name; None where it is none, such as that of an older release."""
        host, *rest = name.rsplit(_SEPARATOR, 4)
        if len(rest) != 4 or not (rest[2].isdigit() and rest[3].isdigit()):
            return None
        return cls(host, rest[0], rest[1], int(rest[2]), int(rest[3]))


class Processes:
    """The processes of this machine, as the kernel shows them.

    psutil computes the start of a process from the wall clock, which can be set; the kernel's own
    figure, in ticks since the boot, stays.

    :param proc: where the kernel shows them
    """

    def __init__(self, proc: str = '/proc'):
        self._proc = pathlib.Path(proc)

    def describe_self(self, host: str) -> Worker:
        """Return this process as a worker."""
        pid = os.getpid()
        started = self.find_start(pid)
        assert started is not None
        return Worker(host, self._boot(), self._namespace(), pid, started)

    def is_dead(self, name: str, own: Worker) -> bool:
        """Tell whether another worker has certainly ended; False where that cannot be told.

        :param name: of the other worker
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
        """Return when a process started, in ticks since the boot; None where there is none."""
        try:
            stat = (self._proc / str(pid) / 'stat').read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The name of the program, in parentheses, may have spaces and parentheses in it.
        state, *fields = stat.rpartition(')')[2].split()
        return None if state in 'ZX' else int(fields[18])

    def _boot(self) -> str:
        return (self._proc / 'sys/kernel/random/boot_id').read_text().strip()[:8]

    def _namespace(self) -> str:
        return os.readlink(self._proc / 'self/ns/pid').strip('pid:[]')
