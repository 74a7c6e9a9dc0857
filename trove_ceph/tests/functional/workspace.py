# SPDX-License-Identifier: Apache-2.0
"""The workspace of a test run: created at its first use, removed when the process ends.

It contains everything that a run creates. To clear the workspaces of killed runs::

    python -m trove_ceph.tests.functional.workspace
"""

import atexit
import os
import signal
import sys

from trove_ceph.host import workspace

PREFIX = 'trove-ceph-test-'
KILL_TIMEOUT_SEC = workspace.KILL_TIMEOUT_SEC

_shared = None


def shared():
    """Return the directory of this process's workspace, creating it at its first use."""
    global _shared
    if _shared is None:
        _shared = workspace.Workspace(PREFIX).__enter__()
        # All processes of tests belong to the workspace.
        os.environ.update(_shared.environment)
        atexit.register(_shared.__exit__)
        # A terminated run ends like any other: through atexit.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    return _shared.path


if __name__ == '__main__':
    for cleared in workspace.clear_stale(PREFIX):
        print(f'cleared {cleared}')
