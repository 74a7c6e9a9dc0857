# SPDX-License-Identifier: Apache-2.0
"""The guest agent's trimmer discards deleted data of XFS on an image of a real Ceph.

The first copy of a backup then moves the used space of a MySQL that commits all the time, not all
that it ever wrote. A replica that was flattened returns its space.
"""

import contextlib
import itertools
import threading
import time
from pathlib import Path

from oslo_utils import units
from testtools.content import json_content

from trove_ceph.guestagent import volume_trim
from trove_ceph.host import data_volume, filesystem, rbd_device
from trove_ceph.storage import copying, difference, image_types
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import base, mysqld, storage

SIZE_MIB = 1536
#: The data that is written and deleted again.
DROPPED_MIB = 160
#: A copy of a trimmed volume moves at most this multiple of the file system's used bytes, which
#: exclude the log of XFS; mkfs fills the log with zeros, which are not moved.
MOST_RATIO = 1.2
WRITES_TIMEOUT_SEC = 120
#: Of the image of a replica; XFS needs 300.
REPLICA_MIB = 512
KEPT_MIB = 16
#: The part of a deleted file whose space returns at least; objects that it shares with other data
#: stay.
LEAST_RETURNED = 0.75


class Committer(threading.Thread):
    """Commit all the time, and record the longest duration of a commit."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self._server = server
        self._ended = threading.Event()
        self.count = 0
        self.longest_sec = 0.0

    def run(self):
        with self._server.connect() as connection, connection.cursor() as cursor:
            while not self._ended.is_set():
                began = time.monotonic()
                cursor.execute('INSERT INTO shop.orders (note) VALUES (%s)', ('x' * 100,))
                self.longest_sec = max(self.longest_sec, time.monotonic() - began)
                self.count += 1

    def end(self):
        self._ended.set()
        self.join(WRITES_TIMEOUT_SEC)


class VolumeTrimTest(contract.StorageContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.image = self.make('volume', SIZE_MIB)
        disk = self.enterContext(
            rbd_device.RbdDevice(
                self.cluster.conf, 'admin', self.pool, self.image.name, self.directory / 'export'
            )
        )
        mounted = self.enterContext(
            rbd_device.Filesystem(disk.device, self.directory / 'volume', make=True)
        )
        self.mount_point = mounted.path
        self.host = filesystem.HostStorage()
        self.volume = data_volume.DataVolume(disk.device, str(self.mount_point), self.host)
        self.server = self.enterContext(
            mysqld.durable_server(self.mount_point, self.directory / 'run')
        )
        self.server.query('CREATE DATABASE shop')
        self.server.query('CREATE TABLE shop.orders (id INT AUTO_INCREMENT KEY, note TEXT)')

    @base.long
    def test_first_copy_moves_only_used_space(self):
        self._write_and_drop()
        untrimmed = self._extents('untrimmed')
        committer = Committer(self.server)
        committer.start()
        self.addCleanup(committer.end)
        figures = {'untrimmed_mib': untrimmed // units.Mi}
        for name in ('first', 'again'):
            self._let_it_commit(committer)
            committer.longest_sec = 0.0
            figures |= {f'{name}_{key}': value for key, value in self._trim().items()}
            figures[f'{name}_longest_commit_sec'] = round(committer.longest_sec, 3)
        committer.end()
        self._sync()
        used = self.host.used_bytes(str(self.mount_point))
        report = self._copy('trimmed')
        figures |= {'used_mib': used // units.Mi, 'copied_mib': report.copied_bytes // units.Mi}
        self.addDetail('figures', json_content(figures))
        most = MOST_RATIO * used
        self.assertLessEqual(report.copied_bytes, most, figures)
        # Without the trim it would have been more; otherwise this test proves nothing.
        self.assertGreater(untrimmed, most, figures)
        ((*_, verdict),) = self.server.query('CHECK TABLE shop.orders')
        self.assertEqual('OK', verdict)

    def _write_and_drop(self):
        self.server.query('CREATE TABLE shop.large (id INT AUTO_INCREMENT KEY, data LONGBLOB)')
        for _ in range(DROPPED_MIB // 4):
            self.server.query('INSERT INTO shop.large (data) VALUES (%s)', (self.data(4 << 20),))
        self.server.query('DROP TABLE shop.large')
        self.server.query('FLUSH BINARY LOGS')
        ((last, *_),) = self.server.query('SHOW BINARY LOG STATUS')
        self.server.query(f"PURGE BINARY LOGS TO '{last}'")
        self._sync()

    def _sync(self):
        # XFS frees the blocks of deleted files in the background.
        self.host._run('sync', '--file-system', str(self.mount_point))

    def _let_it_commit(self, committer):
        seen = committer.count
        deadline = time.monotonic() + WRITES_TIMEOUT_SEC
        while committer.count < seen + 20:
            self.assertLess(time.monotonic(), deadline, 'nothing is committed')
            time.sleep(0.02)

    def _trim(self):
        report = volume_trim.VolumeTrimmer(lambda: self.volume, 3600).trim()
        return {
            'longest_range_sec': round(report.longest_sec, 3),
            'sec': round(report.seconds, 3),
        }

    def _extents(self, name):
        snapshot = self.image.snapshot(name)
        self.storage.create_snapshot(snapshot)
        self.addCleanup(self.storage.remove_snapshot, snapshot)
        with self.storage.open_reader(snapshot) as reader:
            return sum(one.length for one in difference.extents(reader, None) if one.exists)

    def _copy(self, name):
        snapshot = self.image.snapshot(name)
        self.storage.create_snapshot(snapshot)
        vault = self.ref('vault', self.second_pool)
        return copying.copy(
            self.storage, snapshot, self.storage, vault, options=image_types.ImageOptions()
        )


class FlattenedReplicaTest(contract.StorageContract, storage.CephStorageTestCase):
    """A replica is promoted: its volume is flattened while it serves, and trimmed from then on."""

    def setUp(self):
        super().setUp()
        self.source = self.make('source', REPLICA_MIB)
        self.replica = self.ref('replica', self.second_pool)
        self.host = filesystem.HostStorage()
        self.numbers = itertools.count()
        self.kept = self.data(KEPT_MIB * units.Mi)
        with self._mounted(self.source, make=True) as volume:
            Path(volume.mount_point, 'kept').write_bytes(self.kept)
            Path(volume.mount_point, 'dropped').write_bytes(self.data(DROPPED_MIB * units.Mi))
        snapshot = self.source.snapshot('replica')
        self.storage.create_snapshot(snapshot)
        self.storage.clone(snapshot, self.replica, image_types.ImageOptions())
        self.storage.remove_snapshot(snapshot)

    @contextlib.contextmanager
    def _mounted(self, image, make=False):
        """Yield the data volume on an image; all of it is on the image afterwards."""
        directory = self.directory / f'{next(self.numbers)}'
        with (
            rbd_device.RbdDevice(
                *(self.cluster.conf, 'admin', image.pool, image.name, directory / 'export')
            ) as disk,
            rbd_device.Filesystem(disk.device, directory / 'volume', make) as mounted,
        ):
            yield data_volume.DataVolume(disk.device, str(mounted.path), self.host)

    def _check_kept(self, volume):
        # Not by assertEqual, which would print both.
        is_same = Path(volume.mount_point, 'kept').read_bytes() == self.kept
        self.assertTrue(is_same, f'{volume.mount_point} has other data')

    def test_releases_its_parent_and_returns_its_space(self):
        # Ceph keeps the removed snapshot for the clone.
        self.assertEqual(
            [True], [one.removed for one in self.storage.describe(self.source).snapshots]
        )
        with self._mounted(self.replica) as volume:
            self.storage.flatten(self.replica)
            self._check_kept(volume)
        facts = self.storage.describe(self.replica)
        self.assertIsNone(facts.parent)
        self.assertGreaterEqual(facts.used_bytes, (KEPT_MIB + DROPPED_MIB) * units.Mi)
        self.assertEqual([], [*self.storage.describe(self.source).snapshots])
        self.storage.remove(self.source)

        with self._mounted(self.replica) as volume:
            Path(volume.mount_point, 'dropped').unlink()
            # XFS frees the blocks of deleted files in the background.
            self.host._run('sync', '--file-system', volume.mount_point)
            volume_trim.VolumeTrimmer(lambda: volume, 3600).trim()
            self._check_kept(volume)

        returned = facts.used_bytes - self.storage.describe(self.replica).used_bytes
        self.assertGreaterEqual(returned, LEAST_RETURNED * DROPPED_MIB * units.Mi)
        with self._mounted(self.replica) as volume:
            self._check_kept(volume)
            self.assertEqual(['kept'], [one.name for one in Path(volume.mount_point).iterdir()])
