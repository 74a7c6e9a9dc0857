# SPDX-License-Identifier: Apache-2.0
"""Runs freeze_process on a file system that is a file: it exists while frozen. No root needed.

Arguments: the state file, then the program's own. The log beside the state file tells who did what.
"""

import errno
import fcntl
import os
import sys
import time

from trove_ceph.host import freeze_process

STATE = sys.argv[1]
LOG = f'{STATE}.log'
#: While it exists, freezing goes on.
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
            os.unlink(STATE)
        except FileNotFoundError:
            raise OSError(errno.EINVAL, 'not frozen') from None
        note('thaw')


def note(what):
    with open(LOG, 'a', encoding='ascii') as log:
        log.write(f'{what} {os.getpid()}\n')


fcntl.ioctl = ioctl
freeze_process.open_volume = lambda mount_point: os.open(mount_point, os.O_RDONLY)
sys.exit(freeze_process.main(sys.argv[2:]))
