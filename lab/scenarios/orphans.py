# SPDX-License-Identifier: Apache-2.0
"""Orphans that a run leaves."""

import pathlib
import subprocess
import time

MANAGER = 'trove_ceph.taskmanager'
#: The last deletion may still be in progress.
TIMEOUT_SEC = 120
POLL_SEC = 10


def find(root: pathlib.Path, sleep=time.sleep) -> str:
    """Return the orphans that trove-ceph-manage lists; empty if there are none.

    With the stock taskmanager there is nothing to list.
    """
    configs = [root / 'etc' / 'trove' / 'trove.conf', root / 'etc' / 'trove-taskmanager.conf']
    if not configs[-1].exists() or MANAGER not in configs[-1].read_text():
        return ''
    command = [root / 'venv' / 'bin' / 'trove-ceph-manage', 'gc', 'list', '--min-age-hours=0']
    command += [f'--config-file={config}' for config in configs]
    waited = 0
    while True:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return ''
        if waited >= TIMEOUT_SEC:
            return (done.stdout + done.stderr).strip()
        sleep(POLL_SEC)
        waited += POLL_SEC
