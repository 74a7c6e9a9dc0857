# SPDX-License-Identifier: Apache-2.0
"""Loop devices over sparse files: the disks of the OSDs."""

import fcntl
import subprocess
import time
from pathlib import Path

from cephcluster.errors import ClusterError

SYSFS = Path('/sys/block')
# `losetup --find` chooses a free device and attaches it in a second call: two at once may choose
# the same one, so all clusters on the machine share this lock.
LOCK = Path('/run/lock/cephcluster-loop')
ATTEMPTS = 5


def find_all(backing_file):
    """List the loop devices over a file, also if the file was unlinked since."""
    names = {str(backing_file), f'{backing_file} (deleted)'}
    devices = []
    for entry in sorted(SYSFS.glob('loop*/loop/backing_file')):
        try:
            if entry.read_text().rstrip('\n') in names:
                devices.append(f'/dev/{entry.parent.parent.name}')
        except OSError:
            # Detached between the listing and the reading.
            continue
    return devices


def ensure_attached(backing_file):
    """Return the one loop device over a file, attaching it with direct I/O if there is none.

    After a power cut the kernel may still have the device of the previous run; a second device over
    the same file would let two caches write to it.

    :raises ClusterError: no device could be attached, or several are attached.
    """
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        devices = find_all(backing_file)
        if len(devices) > 1:
            raise ClusterError(f'{backing_file} is attached more than once: {", ".join(devices)}')
        return devices[0] if devices else _attach(backing_file)


def _attach(backing_file):
    for attempt in range(ATTEMPTS):
        result = subprocess.run(
            ['losetup', '--direct-io=on', '--find', '--show', str(backing_file)],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode == 0:
            return result.stdout.strip()
        detach_all(backing_file)
        time.sleep(0.2 * (attempt + 1))
    raise ClusterError(f'no loop device for {backing_file}: {result.stderr.strip()}')


def detach_all(backing_file):
    """Detach every loop device over a file; the kernel detaches one in use when it is closed.

    :returns: the devices that were detached.
    """
    devices = find_all(backing_file)
    for device in devices:
        subprocess.run(['losetup', '--detach', device], capture_output=True, check=False)
    return devices
