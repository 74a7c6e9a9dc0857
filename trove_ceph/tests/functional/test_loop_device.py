# SPDX-License-Identifier: Apache-2.0
"""Loop devices whose file system another process has mounted, too."""

import subprocess
import time
from pathlib import Path

from trove_ceph.tests.functional import base, local_disk

HELD_SEC = 1
POLL_SEC = 0.01


class DetachTest(base.FunctionalTestCase):
    def _start_holder(self):
        """Start a process that has the mounts of this one for a second, as a new sandbox has."""
        holder = subprocess.Popen(['unshare', '--mount', 'sleep', str(HELD_SEC)])
        self.addCleanup(holder.wait)
        own = Path('/proc/self/ns/mnt').readlink()
        while Path(f'/proc/{holder.pid}/ns/mnt').readlink() == own:
            time.sleep(POLL_SEC)
        return holder

    def test_the_file_has_what_was_written(self):
        file = self.directory / 'volume.img'
        with file.open('xb') as volume:
            volume.truncate(local_disk.VOLUME_BYTES)
        with local_disk.mounted(file, self.directory / 'first', make=True) as volume:
            (volume / 'kept').touch()
            holder = self._start_holder()
        self.assertIsNotNone(holder.poll(), 'the device was released while it was in use')
        with local_disk.mounted(file, self.directory / 'second') as volume:
            self.assertTrue((volume / 'kept').exists())
