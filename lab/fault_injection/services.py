# SPDX-License-Identifier: Apache-2.0
"""The services that are killed; supervisor restarts them, like a production service manager.

``python -m fault_injection.services ROOT SERVICE`` kills one.
"""

import os
import pathlib
import signal
import subprocess
import sys


class Supervisor:
    """The lab's supervisord.

    :param root: the root directory of the lab
    """

    def __init__(self, root: pathlib.Path):
        self._command = [
            str(root / 'ansible' / 'bin' / 'supervisorctl'),
            '-c',
            str(root / 'etc' / 'supervisord.conf'),
        ]

    def running(self) -> dict[str, int]:
        """Return {program: process id} of the running programs."""
        done = subprocess.run([*self._command, 'status'], capture_output=True, text=True)
        rows = [line.split() for line in done.stdout.splitlines()]
        return {
            row[0]: int(row[3].rstrip(','))
            for row in rows
            if len(row) > 3 and row[1] == 'RUNNING' and row[2] == 'pid'
        }

    def kill(self, service: str) -> list[str]:
        """Send SIGKILL to all processes of all copies of a service at once; return the programs."""
        copies = {
            program: pid for program, pid in self.running().items() if program.startswith(service)
        }
        for pid in copies.values():
            # Supervisor makes each program the leader of a process group.
            os.killpg(pid, signal.SIGKILL)
        return sorted(copies)


def main() -> int | str:
    root, service = sys.argv[1:]
    killed = Supervisor(pathlib.Path(root)).kill(service)
    return 0 if killed else f'no program of service {service} is running'


if __name__ == '__main__':
    sys.exit(main())
