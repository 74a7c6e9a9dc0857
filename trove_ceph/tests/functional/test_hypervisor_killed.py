# SPDX-License-Identifier: Apache-2.0
"""QEMU dies while a backup is taken: the snapshot is a complete backup, or there is none."""

import random
import subprocess
import threading
import uuid

from testtools.content import text_content

from trove_ceph.host import processes, rbd_device
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.tests.functional import base, inspecting, storage, test_mysql_on_rbd
from trove_ceph.verification import report as verification


class HypervisorKilledTest(storage.DeadClients, test_mysql_on_rbd.WritersTestCase):
    pool, second_pool = test_mysql_on_rbd.POOL, 'volumes-hdd'

    def setUp(self):
        super().setUp()
        self.storage = storage.connect(self, self.cluster)
        self.inspections = self.directory / 'i'
        self.inspector = inspecting.inspector(self.cluster.conf, self.inspections)
        self.backup_id = str(uuid.uuid4())
        volume = image_types.ImageRef(self.pool, self.image)
        self.snapshot = volume.snapshot(names.snapshot_name('backup', self.backup_id))
        export = self.directory / self.image / 'export'
        # No other code would remove it.
        self.addCleanup(subprocess.run, ['umount', '--lazy', str(export / 'disk')], check=True)
        self.source = self._serve(self.image)
        self.hypervisor = int((export / rbd_device.PID_FILE).read_text())
        self.source.prepare_run()
        self.source.start()
        self.addCleanup(self.source.kill)
        self.writers = self._start_writers(self.source)

    def kill(self):
        self.assertTrue(processes.kill(self.hypervisor, rbd_device.TIMEOUT_SEC))

    def assert_sound(self, gtid_before, acknowledged):
        """Assert that the backup has all rows acknowledged before, and those of its GTIDs."""
        work = tasks.InspectTask(
            self.snapshot, self.backup_id, inspecting.VERSION, expected_gtid=gtid_before
        )
        inspection, rows = inspecting.inspect(
            self.inspector, work, image_types.ImageOptions(), self.inspections, _rows
        )
        self.assertEqual((verification.SOUND, ()), (inspection.verdict, inspection.reasons))
        self.assertEqual(inspection.tables, inspection.tables_checked)
        for number, count in enumerate(acknowledged):
            self.assertGreaterEqual(rows[number], count)
        # Two statements created the schema and the table.
        position = int(inspection.gtid_executed.rpartition('-')[2])
        self.assertEqual(sum(rows.values()) + 2, position)
        self.assertEqual([], list(self.inspections.iterdir()))
        self.storage.remove_snapshot(self.snapshot)

    @base.long
    def test_killed_before_the_snapshot(self):
        """Its lock is broken as soon as its watch has expired."""
        ((gtid_before,),) = self.source.query('SELECT @@GLOBAL.gtid_executed')
        self.kill()
        for writer in self.writers:
            writer.join(test_mysql_on_rbd.TIMEOUT_SEC)
            self.assertIsNotNone(writer.error)
        self.storage.create_snapshot(self.snapshot)
        self.assert_sound(gtid_before, [writer.acknowledged for writer in self.writers])

    def test_killed_during_the_snapshot(self):
        pause_sec = random.uniform(0, 0.2)
        self.addDetail('pause', text_content(str(pause_sec)))
        killer = threading.Timer(pause_sec, self.kill)
        self.addCleanup(killer.join)
        ((gtid_before,),) = self.source.query('SELECT @@GLOBAL.gtid_executed')
        acknowledged = [writer.acknowledged for writer in self.writers]
        killer.start()
        self.storage.create_snapshot(self.snapshot)
        self.assert_sound(gtid_before, acknowledged)


def _rows(query):
    return dict(query('SELECT writer, COUNT(*) FROM shop.orders GROUP BY writer'))
