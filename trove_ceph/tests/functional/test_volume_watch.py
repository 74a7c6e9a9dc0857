# SPDX-License-Identifier: Apache-2.0
"""A real MySQL ends when it is cut off from its volume, and not because the volume is frozen."""

import os
import signal
import subprocess
import time
from pathlib import Path

from trove_ceph.host import filesystem, processes, rbd_device
from trove_ceph.storage import fencing, image_types
from trove_ceph.tests.functional import storage, test_mysql_on_rbd, test_quiesce

TIMEOUT_SEC = 300
#: No write of a test takes so long.
LONG_SEC = 3600
SHORT_SEC = 5
PWRITE64 = '18'


class Watching:
    """A test with processes that watch volumes."""

    def start_watch(self, mount_point, limit_sec):
        process, channel = filesystem.HostStorage().start_volume_watch(str(mount_point), limit_sec)
        self.addCleanup(process.wait, TIMEOUT_SEC)
        self.addCleanup(channel.close)
        channel.settimeout(TIMEOUT_SEC)
        reports = channel.makefile('r')
        self.addCleanup(reports.close)
        self.assertEqual('watching\n', reports.readline())
        return process, channel, reports

    def end_watch(self, watch):
        """End a watch, and return what it has reported."""
        process, channel, reports = watch
        # Its input ends; what it has sent can still be read.
        channel.shutdown(1)
        rest = reports.read()
        self.assertEqual(0, process.wait(TIMEOUT_SEC))
        return rest

    def wait_for(self, condition):
        deadline = time.monotonic() + TIMEOUT_SEC
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)


class HealthyVolumeTest(Watching, test_quiesce.VolumeTestCase):
    """What happens to the volume of a healthy server."""

    def writer_of(self, watch):
        """Return the process that writes, below the one that watches."""
        pid = watch[0].pid
        (writer,) = Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
        return writer

    def write_again(self, path):
        before = os.stat(path).st_mtime_ns
        self.wait_for(lambda: os.stat(path).st_mtime_ns != before)

    def check_freeze(self, mount_point):
        watch = self.start_watch(mount_point, LONG_SEC)
        syscall = Path(f'/proc/{self.writer_of(watch)}/syscall')
        try:
            test_quiesce.run('fsfreeze', '--freeze', mount_point)
            # The time counts in fdatasync only.
            self.wait_for(lambda: syscall.read_text().split()[0] == PWRITE64)
        finally:
            self.storage.thaw(mount_point)
        self.write_again(os.path.join(mount_point, '.volume-watch'))
        self.assertEqual('', self.end_watch(watch))

    def test_a_freeze_blocks_the_write_that_does_not_count(self):
        self.check_freeze(self.mount_point)

    def test_a_freeze_of_ext4(self):
        """Instances of stock Trove have it."""
        image, mount_point = self.directory / 'ext4.img', str(self.directory / 'ext4')
        with image.open('wb') as file:
            file.truncate(test_quiesce.VOLUME_MIB << 20)
        test_quiesce.run('mkfs.ext4', '-q', str(image))
        self._attach(image, mount_point)
        self.check_freeze(mount_point)

    def test_the_volume_is_trimmed_resized_and_unmounted(self):
        watch = self.start_watch(self.mount_point, LONG_SEC)
        self.volume.trim(0, test_quiesce.VOLUME_MIB << 20, 4096)
        with self.image.open('r+b') as file:
            file.truncate(2 * test_quiesce.VOLUME_MIB << 20)
        test_quiesce.run('losetup', '--set-capacity', self.volume.device)
        self.volume.grow(TIMEOUT_SEC)
        self.write_again(os.path.join(self.mount_point, '.volume-watch'))
        self.assertEqual('', self.end_watch(watch))
        # The agent's mark stays with the volume.
        self.volume.mark_clone()
        self.volume.ensure_unmounted()
        self.volume.ensure_mounted(at_boot=False)
        self.assertTrue(self.volume.is_clone())
        self.volume.unmark_clone()
        self.assertFalse(self.volume.is_clone())
        # It has closed its file.
        self.volume.ensure_unmounted()

    def test_the_agent_is_restarted(self):
        server = self._serve()
        for _ in range(2):
            self.assertEqual('', self.end_watch(self.start_watch(self.mount_point, LONG_SEC)))
        server.query('CREATE TABLE shop.orders (number INT PRIMARY KEY)')


class LostVolumeTest(Watching, storage.DeadClients, test_mysql_on_rbd.WritersTestCase):
    """A volume in Ceph, of which this machine loses the control."""

    pool, second_pool = test_mysql_on_rbd.POOL, 'volumes-hdd'

    def setUp(self):
        super().setUp()
        self.storage = storage.connect(self, self.cluster)
        export = self.directory / self.image / 'export'
        # No other code would remove it.
        self.addCleanup(subprocess.run, ['umount', '--lazy', str(export / 'disk')], check=False)
        self.server = self._serve(self.image)
        self.hypervisor = int((export / rbd_device.PID_FILE).read_text())
        self.server.prepare_run()
        self.server.start()
        self.addCleanup(self.server.kill)
        self.server.query('CREATE DATABASE shop')
        self.server.query('CREATE TABLE shop.orders (number INT PRIMARY KEY)')
        self.server.query('INSERT INTO shop.orders VALUES (1)')
        self.volume = self.server.volume

    def test_a_fenced_server_ends(self):
        """It would still answer from its buffer pool."""
        watch = self.start_watch(self.volume, LONG_SEC)
        image = image_types.ImageRef(self.pool, self.image)
        self.assertEqual(((1,),), self.server.query('SELECT * FROM shop.orders'))
        pid = self.server.pid
        fencing.fence(self.storage, image)
        self.addCleanup(fencing.unfence, self.storage, image)
        # A server that writes in the meantime gets the error, too, and aborts by itself.
        self.assertRegex(
            watch[2].readline(),
            rf'^lost 3 writes failed: .*; killed mysqld, process ({pid}|none)\n$',
        )
        self.assertTrue(self.server.has_ended(TIMEOUT_SEC))

    def test_a_server_whose_hypervisor_lost_ceph_ends_and_can_start_again(self):
        watch = self.start_watch(self.volume, SHORT_SEC)
        pid = self.server.pid
        self.addCleanup(os.kill, self.hypervisor, signal.SIGCONT)
        os.kill(self.hypervisor, signal.SIGSTOP)
        self.assertEqual(
            f'lost a write has not ended after 5 s; killed mysqld, process {pid}\n',
            watch[2].readline(),
        )
        os.kill(self.hypervisor, signal.SIGCONT)
        self.assertTrue(processes.wait_until_gone(pid, TIMEOUT_SEC))
        self.assertEqual('back\n', watch[2].readline())
        self.server.start()
        self.assertEqual(((1,),), self.server.query('SELECT * FROM shop.orders'))
