# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a busy database's image, taken without any lock, is a complete backup."""

import contextlib
import functools
import subprocess
import threading
import time

import pymysql
import rbd

from trove_ceph.host import rbd_device
from trove_ceph.tests.functional import base, ceph, mysqld, workspace

POOL = 'volumes-nvme'
IMAGE_MIB = 2048
# The name of the snapshot of an initialised, cleanly stopped database.
NEW = 'new'
WRITERS = 4
WARM_UP_COMMITS = 200
TIMEOUT_SEC = 240


class Writer(threading.Thread):
    """Commit one row after another and record which ones were acknowledged."""

    def __init__(self, server, number):
        super().__init__(daemon=True)
        self._server = server
        self.number = number
        self._ended = threading.Event()
        self._may_write = threading.Event()
        self._may_write.set()
        self.acknowledged = 0
        self.error = None

    def run(self):
        try:
            with self._server.connect() as connection, connection.cursor() as cursor:
                while not self._ended.is_set():
                    self._may_write.wait()
                    cursor.execute(
                        'INSERT INTO shop.orders (writer, number, note) VALUES (%s, %s, %s)',
                        (self.number, self.acknowledged + 1, 'x' * 200),
                    )
                    self.acknowledged += 1
        except pymysql.MySQLError as error:
            self.error = error

    @contextlib.contextmanager
    def paused(self):
        """Write nothing meanwhile but the statement in flight."""
        self._may_write.clear()
        try:
            yield
        finally:
            self._may_write.set()

    def end(self):
        self._ended.set()
        self.join(TIMEOUT_SEC)


@functools.cache
def new_database(cluster):
    """Create an image with an empty database once per run, and return its name; see NEW."""
    name = 'new-database'
    cluster.create_image(POOL, name, IMAGE_MIB)
    directory = workspace.shared() / name
    with mounted(cluster, name, directory, make=True) as volume:
        with mysqld.durable_server(volume, directory / 'run'):
            pass
    with cluster.pool(POOL) as pool, rbd.Image(pool, name) as image:
        image.create_snap(NEW)
    return name


@contextlib.contextmanager
def mounted(cluster, image, directory, make=False):
    """Map an image and mount it; yield the mount point.

    All that was written is on the image afterwards, unless an exception ended the block.
    """
    with (
        rbd_device.RbdDevice(cluster.conf, 'admin', POOL, image, directory / 'export') as disk,
        rbd_device.Filesystem(disk.device, directory / 'volume', make) as filesystem,
    ):
        yield filesystem.path
        # The unmount writes nothing while a process of another test has a copy of the mount in a
        # namespace of its own, as bubblewrap has it for an instant when it starts.
        command = ['sync', '--file-system', str(filesystem.path)]
        subprocess.run(command, timeout=TIMEOUT_SEC, check=False)


class WritersTestCase(base.FunctionalTestCase):
    """A test with a database on an image of its own, and writers."""

    def setUp(self):
        super().setUp()
        self.cluster = ceph.shared_cluster()
        self.image = self.directory.name
        new = new_database(self.cluster)
        with self.cluster.pool(POOL) as pool:
            rbd.RBD().clone(pool, new, NEW, pool, self.image)
        self.addCleanup(self._remove_image, self.image)

    def _remove_image(self, name):
        with self.cluster.pool(POOL) as pool:
            rbd.RBD().remove(pool, name)

    def _serve(self, image, server_id=1):
        """Map and mount an image, and return a server on it."""
        directory = self.directory / image
        volume = self.enterContext(mounted(self.cluster, image, directory))
        return mysqld.durable_server(volume, directory / 'run', server_id)

    def _snapshot(self, name, of=None):
        with self.cluster.pool(POOL) as pool, rbd.Image(pool, of or self.image) as image:
            image.create_snap(name)

    def _start_writers(self, server):
        server.query('CREATE DATABASE shop')
        server.query(
            'CREATE TABLE shop.orders (writer INT, number INT, note VARCHAR(200), '
            'PRIMARY KEY (writer, number))'
        )
        writers = [Writer(server, number) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
            self.addCleanup(writer.end)
        self._await(lambda: sum(writer.acknowledged for writer in writers) >= WARM_UP_COMMITS)
        return writers

    def _await(self, condition):
        deadline = time.monotonic() + TIMEOUT_SEC
        while not condition():
            self.assertLess(time.monotonic(), deadline, 'the writers are too slow')
            time.sleep(0.02)


class MysqlOnRbdTest(WritersTestCase):
    def _restore(self, snapshot):
        """Clone a snapshot and run a server with a new identity on the clone."""
        name = f'{self.image}-clone'
        with self.cluster.pool(POOL) as pool:
            rbd.RBD().clone(pool, self.image, snapshot, pool, name)
        self.addCleanup(self._remove_clone, name, snapshot)
        server = self._serve(name, server_id=2)
        mysqld.remove_server_uuid(server)
        return self.enterContext(server)

    def _remove_clone(self, name, snapshot):
        self._remove_image(name)
        with self.cluster.pool(POOL) as pool, rbd.Image(pool, self.image) as image:
            image.remove_snap(snapshot)

    def test_snapshot_under_load_holds_every_acknowledged_commit(self):
        source = self.enterContext(self._serve(self.image))
        writers = self._start_writers(source)
        ((before,),) = source.query('SELECT @@gtid_executed')

        acknowledged = [writer.acknowledged for writer in writers]
        self._snapshot('backup')
        after = [writer.acknowledged for writer in writers]

        # The source continues: later commits must not be in the backup.
        self._await(
            lambda: (
                all(writer.acknowledged > after[writer.number] for writer in writers)
                or any(writer.error for writer in writers)
            )
        )
        for writer in writers:
            writer.end()
            self.assertIsNone(writer.error)

        restored = self._restore('backup')
        found = dict(restored.query('SELECT writer, COUNT(*) FROM shop.orders GROUP BY writer'))
        highest = dict(
            restored.query('SELECT writer, MAX(number) FROM shop.orders GROUP BY writer')
        )
        for number in range(WRITERS):
            self.assertGreaterEqual(found[number], acknowledged[number])
            # One more may have been committed before its acknowledgement arrived.
            self.assertLessEqual(found[number], after[number] + 1)
            self.assertEqual(highest[number], found[number], 'a commit in the middle is missing')
        self._assert_sound(restored)
        self._assert_gtid_counts_rows(source, restored, before)

    def _assert_sound(self, server):
        """Assert that every table passes MySQL's own check."""
        for schema, table in (('shop', 'orders'), ('mysql', 'user'), ('mysql', 'gtid_executed')):
            rows = server.query(f'CHECK TABLE {schema}.{table}')
            self.assertEqual([(f'{schema}.{table}', 'check', 'status', 'OK')], list(rows))

    def _assert_gtid_counts_rows(self, source, restored, before):
        """Assert that the clone's position matches its rows, and is a prefix of the source's."""
        ((position,),) = restored.query('SELECT @@gtid_executed')
        ((now,),) = source.query('SELECT @@gtid_executed')
        (contained,) = restored.query(
            'SELECT GTID_SUBSET(%s, %s), GTID_SUBSET(%s, %s)', before, position, position, now
        )
        self.assertEqual((1, 1), contained)
        # Besides the rows, only the two statements that created the table were logged.
        ((rows,),) = restored.query('SELECT COUNT(*) FROM shop.orders')
        first, last = map(int, position.rpartition(':')[2].split('-'))
        self.assertEqual((1, rows + 2), (first, last))

    def test_database_survives_a_power_cut_of_everything(self):
        source = self.enterContext(self._serve(self.image))
        writers = self._start_writers(source)
        source.kill()
        for writer in writers:
            # Each ends by itself, at its next statement.
            writer.join(TIMEOUT_SEC)
            self.assertIsNotNone(writer.error)
        acknowledged = [writer.acknowledged for writer in writers]
        # The file system is not unmounted either: its cached data never reaches the image.
        self._snapshot('cut')
        restored = self._restore('cut')
        found = dict(restored.query('SELECT writer, COUNT(*) FROM shop.orders GROUP BY writer'))
        for number in range(WRITERS):
            self.assertIn(found[number] - acknowledged[number], (0, 1))
        self._assert_sound(restored)
