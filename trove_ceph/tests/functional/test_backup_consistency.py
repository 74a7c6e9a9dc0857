# SPDX-License-Identifier: Apache-2.0
"""Backups at random moments, each compared with the source's binary log by statement."""

import contextlib
import dataclasses
import itertools
import os
import random
import threading
import time
import uuid

import fixtures
import pymysql
from testtools.content import json_content, text_content

from trove_ceph import exceptions
from trove_ceph.enums import QuiesceLevel
from trove_ceph.guestagent import (
    backup_lock,
    backup_settings,
    quiesce,
    settings_history,
    volume_freeze,
)
from trove_ceph.host import filesystem
from trove_ceph.storage import copying, image_types, names, tasks
from trove_ceph.strategies.backup import quiesce as backup_quiesce
from trove_ceph.tests.functional import history, inspecting, storage, test_mysql_on_rbd
from trove_ceph.verification import report as verification
from trove_ceph_bench import commit_probe
from trove_ceph_bench import model as bench_model

IS_LONG = bool(os.environ.get('TROVE_CEPH_LONG_TESTS'))
BACKUPS = 50 if IS_LONG else 5
LONG_TIMEOUT_SEC = 7200
LEVELS = (
    QuiesceLevel.NONE,
    QuiesceLevel.NONE,
    QuiesceLevel.DDL,
    QuiesceLevel.NONE,
    QuiesceLevel.FREEZE,
)
LIMIT_SEC = 60
#: The time for which a lock waits for running statements.
WAIT_SEC = 30
#: The writers commit as fast as they can, but not during inspections.
COMMIT_INTERVAL_SEC = 0.01
VAULT = 'vault'
VAULT_OPTIONS = image_types.ImageOptions(data_pool='vault-data')


class Definer(threading.Thread):
    """Create a table and drop the previous one, repeatedly."""

    PAUSE_SEC = 0.3

    def __init__(self, server):
        super().__init__(daemon=True)
        self._server = server
        self._ended = threading.Event()
        self.created = 0
        self.error = None

    def run(self):
        try:
            with self._server.connect() as connection, connection.cursor() as cursor:
                while not self._ended.wait(self.PAUSE_SEC):
                    cursor.execute(f'CREATE TABLE shop.shape_{self.created} (id INT PRIMARY KEY)')
                    self.created += 1
                    if self.created > 1:
                        cursor.execute(f'DROP TABLE shop.shape_{self.created - 2}')
        except pymysql.MySQLError as error:
            self.error = error

    def end(self):
        self._ended.set()
        self.join(test_mysql_on_rbd.TIMEOUT_SEC)


class Guest:
    """The guest agent's part in a backup, without the bus."""

    def __init__(self, server):
        self._server = server
        self._storage = filesystem.HostStorage()
        self._quiescer = quiesce.Quiescer(
            lambda hold_sec: backup_lock.BackupLock(self._connect, WAIT_SEC, hold_sec),
            self._open_freeze,
            LIMIT_SEC,
        )
        self._history = settings_history.SettingsHistory()
        self.quiesce_for_backup = self._quiescer.quiesce
        self.release_after_backup = self._quiescer.release

    def check_backup_settings(self):
        return backup_settings.check(
            self._connect, self._storage, str(self._server.volume), history=self._history
        )

    def _connect(self, timeout_sec):
        return self._server.connect(read_timeout=timeout_sec)

    def _open_freeze(self, limit_sec):
        holder = self._storage.start_freeze_process(str(self._server.volume), limit_sec)
        return volume_freeze.VolumeFreeze(*holder, limit_sec)


@dataclasses.dataclass(frozen=True)
class Backup:
    """A backup and its inspection.

    :param acknowledged: the content that clients had acknowledgements for when it began
    :param gtid_before: the GTIDs that the source had executed by then
    :param inspection: the inspection of the backup, or of its copy in the vault
    :param content: the content that the inspection read
    """

    level: QuiesceLevel
    acknowledged: history.Content
    gtid_before: str
    inspection: verification.Inspection
    content: history.Content | None


class BackupConsistencyTest(test_mysql_on_rbd.WritersTestCase):
    def setUp(self):
        super().setUp()
        if IS_LONG:
            self.useFixture(fixtures.Timeout(LONG_TIMEOUT_SEC, gentle=True))
        seed = random.randrange(2**32)
        self.addDetail('seed', text_content(str(seed)))
        self.random = random.Random(seed)
        self.storage = storage.connect(self, self.cluster)
        self.volume = image_types.ImageRef(test_mysql_on_rbd.POOL, self.image)
        self.vault = image_types.ImageRef(VAULT, names.image_name('vault', str(uuid.uuid4())))
        self.copied = None
        self.addCleanup(self._remove_backups)
        self.inspections = self.directory / 'i'
        self.inspector = inspecting.inspector(self.cluster.conf, self.inspections)

    def _remove_backups(self):
        for image in (self.vault, self.volume):
            try:
                facts = self.storage.describe(image)
            except exceptions.NotFoundError:
                continue
            for snapshot in facts.snapshots:
                if not snapshot.removed:
                    self.storage.remove_snapshot(image.snapshot(snapshot.name))
            if image is self.vault:
                self.storage.remove(image)

    def start_clients(self):
        """Start clients that write rows, commit numbers, and change definitions."""
        server = self._serve(self.image)
        server.options.update(history.OPTIONS)
        self.source = self.enterContext(server)
        self.writers = self._start_writers(self.source)
        address = bench_model.Address('root', '', 'shop', unix_socket=str(self.source.socket))
        self.committer = self.enterContext(
            commit_probe.Committer(address, interval_sec=COMMIT_INTERVAL_SEC)
        )
        self.definer = Definer(self.source)
        self.definer.start()
        self.addCleanup(self.definer.end)

    def end_clients(self):
        for client in (*self.writers, self.definer):
            client.end()
            self.assertIsNone(client.error)
        result = self.committer.stop()
        figures = {key: value for key, value in result.items() if key != 'seconds'}
        self.addDetail('committer', json_content(figures))
        self.assertEqual(0, result['errors'])

    def acknowledged(self):
        log = self.committer.read()
        newest = f'shape_{self.definer.created - 1}'
        return history.Content(
            {writer.number: writer.acknowledged for writer in self.writers},
            len(log.commits),
            frozenset([newest] if self.definer.created else []),
        )

    def take(self, guest, level, is_copied):
        """Take a backup, and read its content, or that of its copy in the vault."""
        backup_id = str(uuid.uuid4())
        snapshot = self.volume.snapshot(names.snapshot_name('backup', backup_id))
        ((gtid_before,),) = self.source.query('SELECT @@GLOBAL.gtid_executed')
        acknowledged = self.acknowledged()
        with backup_quiesce.quiesced(guest, backup_id, level, LIMIT_SEC, time.monotonic):
            self.storage.create_snapshot(snapshot)
        if is_copied:
            target, options = self.copy(snapshot), VAULT_OPTIONS
        else:
            target, options = snapshot, image_types.ImageOptions()
        work = tasks.InspectTask(target, backup_id, inspecting.VERSION, expected_gtid=gtid_before)
        with contextlib.ExitStack() as stack:
            # They would only take time from the inspection, and lengthen the history.
            for writer in self.writers:
                stack.enter_context(writer.paused())
            inspection, content = inspecting.inspect(
                self.inspector, work, options, self.inspections, history.content_of
            )
        if not is_copied:
            self.storage.remove_snapshot(snapshot)
        self.assertEqual([], list(self.inspections.iterdir()))
        return Backup(level, acknowledged, gtid_before, inspection, content)

    def copy(self, snapshot):
        """Copy the changes since the last copy to the vault, and remove the last backup."""
        since = self.copied.name if self.copied else None
        copying.copy(
            self.storage, snapshot, self.storage, self.vault, since=since, options=VAULT_OPTIONS
        )
        if self.copied:
            self.storage.remove_snapshot(self.copied)
            self.storage.remove_snapshot(self.vault.snapshot(since))
        self.copied = snapshot
        return self.vault.snapshot(snapshot.name)

    def test_each_backup_has_exactly_the_transactions_of_its_position(self):
        self.start_clients()
        guest = Guest(self.source)
        self.assertEqual([], guest.check_backup_settings()['reasons'])

        backups = []
        for number, level in zip(range(BACKUPS), itertools.cycle(LEVELS), strict=False):
            time.sleep(self.random.uniform(0.05, 1.0))
            backups.append(self.take(guest, level, is_copied=bool(number % 2)))

        self.end_clients()
        done = history.History(self.source.query)
        self.assertEqual(
            done.content(f'{done.server_uuid}:1-{len(done)}'),
            history.content_of(self.source.query),
        )
        for backup in backups:
            self.assert_exact(backup, done)

    def assert_exact(self, backup, done):
        inspection = backup.inspection
        self.assertEqual((verification.SOUND, ()), (inspection.verdict, inspection.reasons))
        self.assertEqual(inspection.tables, inspection.tables_checked)
        self.assertEqual(done.content(inspection.gtid_executed), backup.content, backup)
        for writer, count in backup.acknowledged.orders.items():
            self.assertGreaterEqual(backup.content.orders.get(writer, 0), count, backup)
        self.assertGreaterEqual(backup.content.commits, backup.acknowledged.commits, backup)
        self.assertGreaterEqual(
            _newest(backup.content.shapes), _newest(backup.acknowledged.shapes), backup
        )


def _newest(shapes):
    return max((int(name.rpartition('_')[2]) for name in shapes), default=-1)
