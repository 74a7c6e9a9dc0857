# SPDX-License-Identifier: Apache-2.0
"""Run freeze_process on a fake file system: a state file exists while it is frozen. Needs no root.

Arguments: the state file, then those of freeze_process. A log beside the state file lists each
action with its pid. A thaw has a file of its own with the pid instead: the file system is thawed
and the thaw is noted in one step, since the process may be killed as soon as it is thawed.
"""

import errno
import fcntl
import os
import sys
import time

from trove_ceph.host import freeze_process

STATE = sys.argv[1]
LOG = f'{STATE}.log'
#: A thaw moves the state file here; the pid follows.
THAWED = f'{STATE}.thawed-'
#: While it exists, a freeze does not finish.
SLOW = f'{STATE}.slow'
#: While it exists, thawing fails.
BROKEN = f'{STATE}.broken'


def ioctl(_volume, request, _argument):
    if request == freeze_process.FIFREEZE:
        note('begin')
        while os.path.exists(SLOW):
            time.sleep(0.01)
        try:
            os.close(os.open(STATE, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise OSError(errno.EBUSY, 'busy') from None
        note('freeze')
    else:
        if os.path.exists(BROKEN):
            note('broken')
            raise OSError(errno.EIO, 'broken')
        try:
            os.rename(STATE, f'{THAWED}{os.getpid()}')
        except FileNotFoundError:
            raise OSError(errno.EINVAL, 'not frozen') from None


def note(action):
    with open(LOG, 'a', encoding='ascii') as log:
        log.write(f'{action} {os.getpid()}\n')


fcntl.ioctl = ioctl
freeze_process.open_volume = lambda mount_point: os.open(mount_point, os.O_RDONLY)
sys.exit(freeze_process.main(sys.argv[2:]))
