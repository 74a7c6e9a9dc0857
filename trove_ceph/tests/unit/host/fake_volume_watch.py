# SPDX-License-Identifier: Apache-2.0
"""Run volume_watch_process on a directory, where files have writes hang or fail. Needs no root.

Arguments: those of volume_watch_process.
"""

import errno
import os
import sys
import time

from trove_ceph.host import volume_watch_process

MOUNT_POINT = sys.argv[1]
#: While it exists, a write does not end.
HANGING = os.path.join(MOUNT_POINT, 'hanging')
#: While it exists, writes fail.
BROKEN = os.path.join(MOUNT_POINT, 'broken')
#: Exists once servers were killed.
KILLED = os.path.join(MOUNT_POINT, 'killed')


def fdatasync(_descriptor):
    while os.path.exists(HANGING):
        time.sleep(0.01)
    if os.path.exists(BROKEN):
        raise OSError(errno.EIO, 'broken')


def kill_servers(device):
    with open(KILLED, 'x', encoding='ascii') as file:
        file.write(str(device))
    return [7, 8]


os.fdatasync = os.fsync = fdatasync
os.path.ismount = lambda _path: True
volume_watch_process.kill_servers = kill_servers
volume_watch_process.INTERVAL_SEC = volume_watch_process.RETRY_SEC = 0.01
volume_watch_process.TICK_SEC = 0.01
sys.exit(volume_watch_process.main(sys.argv[1:]))
