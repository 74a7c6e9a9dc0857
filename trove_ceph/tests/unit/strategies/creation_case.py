# SPDX-License-Identifier: Apache-2.0
"""What the tests of taking backups share."""

from oslotest import base
from trove.backup.state import BackupState

from trove_ceph.db.backup_record import RecordState
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.backup import create as backup_create
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database


class CreationTestCase(base.BaseTestCase):
    """Has a world and one requested backup."""

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.backup = self.world.add_backup()

    def take(self, strike=None, backup=None):
        backup_create.create_backup(self.world.deps(strike), (backup or self.backup).id)
        return self.world.records.get((backup or self.backup).id)

    def set_policy(self, **facts):
        self.world.policy = backup_types.BackupSettings(limit_sec=worlds.LIMIT_SEC, **facts)

    def assert_fails(self, error_class, *words, backup=None):
        backup = backup or self.backup
        error = self.assertRaises(error_class, self.take, backup=backup)
        record = self.world.records.get(backup.id)
        for word in words:
            self.assertIn(word, str(error))
            self.assertIn(word, record.error)
        self.assertEqual(RecordState.FAILED, record.state)
        self.assertEqual(BackupState.FAILED, trove_database.backup(backup.id).state)
        self.world.cinder.work()
        self.assertEqual({}, self.world.cinder.snapshots)
        self.assertEqual([], self.world.snapshots())
        self.assertFalse(self.world.guest.is_held)

    def number_of(self, event):
        """Return the number of the first request of this kind in a backup."""
        other = worlds.World()
        other.policy = self.world.policy
        backup_create.create_backup(other.deps(), other.add_backup().id)
        return other.events.index(event)
