# SPDX-License-Identifier: Apache-2.0
"""Kill the server of an instance."""

import json
import os
import pathlib
import signal
import subprocess

from driver import environment, instruments, processes
from driver.errors import LabError

SHOW_TIMEOUT_SEC = 120


def add_arguments(parser) -> None:
    """Add this command's options."""
    parser.add_argument('instance', help='id of an instance of any project')


def run(settings, args) -> int:
    """Kill the hypervisor process of an instance, as a crash does; Nova is not told."""
    instruments.require_up(settings)
    server_id = _server_of(settings, args.instance)
    pid = _find_guest(settings, server_id)
    if pid is None:
        raise LabError(
            f'instance {args.instance}: its server {server_id} does not run; '
            'lab/bin/lab status lists the guests that do'
        )
    os.kill(pid, signal.SIGKILL)
    return 0


def _server_of(settings, instance: str) -> str:
    """Return the id of an instance's server, which only an administrator is told."""
    program = settings.root / 'venv' / 'bin' / 'openstack'
    done = subprocess.run(
        [str(program), 'database', 'instance', 'show', instance, '-f', 'json'],
        env=os.environ | environment.credentials(settings, 'admin'),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SHOW_TIMEOUT_SEC,
    )
    if done.returncode:
        raise LabError(f'instance {instance} cannot be shown: {done.stderr.strip()[-500:]}')
    server_id = json.loads(done.stdout).get('server_id')
    if not server_id:
        raise LabError(f'instance {instance} has no server')
    return server_id


def _find_guest(settings, server_id: str) -> int | None:
    """Return the process of the guest of a server; None: it does not run."""
    for pid in processes.guests(settings):
        try:
            words = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().split(b'\0')
        except OSError:
            continue
        if server_id.encode() in words:
            return pid
    return None
