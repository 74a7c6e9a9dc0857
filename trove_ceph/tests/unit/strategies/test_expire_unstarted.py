# SPDX-License-Identifier: Apache-2.0
"""Backups whose request never reached a taskmanager."""

import datetime
import types

from oslotest import base
from trove.backup import models as backup_models
from trove.backup.state import BackupState

from trove_ceph import exceptions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.strategies.backup import create, expire_unstarted
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

AT_ONCE = datetime.timedelta(seconds=-5)


class ExpireUnstartedTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.backup = self.world.add_backup()

    def expire(self, since=AT_ONCE):
        expire_unstarted.expire_unstarted(self.world.deps(), since)
        return trove_database.backup(self.backup.id).state

    def test_fails_a_backup_whose_request_was_lost(self):
        running = backup_models.Backup.running
        self.assertEqual(self.backup.id, running(self.world.instance.id).id)
        self.assertEqual(BackupState.FAILED, self.expire())
        record = self.world.records.get(self.backup.id)
        self.assertEqual((RecordState.FAILED, None), (record.state, record.claimed_by))
        self.assertIn('never begun', record.error)
        self.assertEqual(self.world.project, record.project_id)
        # Another backup of the instance is possible.
        self.assertIsNone(running(self.world.instance.id))
        create.create_backup(self.world.deps(), self.world.add_backup().id)

    def test_refuses_a_late_request(self):
        self.expire()
        error = self.assertRaises(
            exceptions.InvalidBackupError, create.create_backup, self.world.deps(), self.backup.id
        )
        self.assertIn('never begun', str(error))
        self.assertEqual([], self.world.snapshots())
        self.assertEqual(BackupState.FAILED, trove_database.backup(self.backup.id).state)
        self.assertEqual(RecordState.FAILED, self.world.records.get(self.backup.id).state)

    def test_leaves_recent_backups(self):
        self.assertEqual(BackupState.NEW, self.expire(expire_unstarted.START_TIMEOUT))

    def test_leaves_a_backup_that_begins_now(self):
        self.world.records.begin_taking(
            self.backup.id, self.world.instance.id, self.world.project, self.world.worker()
        )
        self.assertEqual(BackupState.NEW, self.expire())
        self.assertEqual(RecordState.TAKING, self.world.records.get(self.backup.id).state)

    def test_leaves_backups_of_volumes_on_no_tier(self):
        other = self.world.add_backup(storage_driver='swift')
        self.world.volume['host'] = worlds.OTHER
        self.assertEqual(BackupState.NEW, self.expire())
        self.assertEqual(BackupState.NEW, trove_database.backup(other.id).state)
        self.assertEqual([], self.world.records.of_project(self.world.project))

    def test_leaves_backups_of_other_agents(self):
        version = trove_database.foreign_version()
        self.world.instance.update(datastore_version_id=version)
        self.assertEqual(BackupState.NEW, self.expire())
        self.assertIsNone(self.world.records.find(self.backup.id))

    def test_leaves_a_backup_while_cinder_does_not_answer(self):
        """The location of the volume is not known then."""
        requested_ids = []

        def fail(volume_id):
            requested_ids.append(volume_id)
            raise exceptions.ServiceUnavailableError('Cinder failed')

        deps = self.world.deps()
        object.__setattr__(deps, 'cinder', types.SimpleNamespace(find_volume=fail))
        expire_unstarted.expire_unstarted(deps, AT_ONCE)
        self.assertIn(self.world.volume['id'], requested_ids)
        self.assertEqual(BackupState.NEW, trove_database.backup(self.backup.id).state)
        self.assertEqual(BackupState.FAILED, self.expire())
