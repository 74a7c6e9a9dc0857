# SPDX-License-Identifier: Apache-2.0
"""Backups whose request never reached a taskmanager."""

import contextlib
import datetime
import itertools
import types

from oslo_utils import timeutils
from oslotest import base
from trove.backup import models as backup_models
from trove.backup.state import BackupState

from trove_ceph import exceptions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.strategies.backup import create, expire_unstarted
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

DAY = datetime.timedelta(days=1)
LATE, RECENT = expire_unstarted.START_TIMEOUT, datetime.timedelta()


class ExpireUnstartedTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.backup = self.world.add_backup()
        self.unstarted = expire_unstarted.UnstartedBackups()

    def expire(self, since=LATE):
        """Do what the periodic task does, now and after a time."""
        self.unstarted.expire(self.world.deps())
        self.world.sleep(since.total_seconds())
        self.unstarted.expire(self.world.deps())
        expire_unstarted.show_failures(self.world.deps())
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

    def interrupt(self, error, operation):
        """Run an operation that cannot show the failure of the backup in Trove."""

        def fail(_backup_id):
            raise error

        show, self.world.trove.fail_backup = self.world.trove.fail_backup, fail
        try:
            with contextlib.suppress(exceptions.TroveCephError, interruption.Kill):
                operation()
        finally:
            self.world.trove.fail_backup = show
        self.assertEqual(RecordState.FAILED, self.world.records.get(self.backup.id).state)
        running = backup_models.Backup.running
        self.assertEqual(self.backup.id, running(self.world.instance.id).id)

    def test_shows_failures_after_an_interruption(self):
        """Each path that records a failure may be interrupted before it shows it."""

        def take():
            create.create_backup(self.world.deps(), self.backup.id)

        lost = exceptions.ServiceUnavailableError('the database failed')
        for error, operation in itertools.product((lost, interruption.Kill()), (take, self.expire)):
            self.world.guest.is_down = True
            self.interrupt(error, operation)
            reason = self.world.records.get(self.backup.id).error
            for _again in range(2):
                self.assertEqual(BackupState.FAILED, self.expire(RECENT))
            self.assertEqual(reason, self.world.records.get(self.backup.id).error)
            self.assertIsNone(backup_models.Backup.running(self.world.instance.id))
            self.world.guest.is_down = False
            self.backup = self.world.add_backup()
        create.create_backup(self.world.deps(), self.backup.id)

    def test_leaves_backups_that_have_not_failed(self):
        self.world.records.begin_taking(
            self.backup.id, self.world.instance.id, self.world.project, self.world.worker()
        )
        self.world.trove.begin_backup(self.backup.id)
        expire_unstarted.show_failures(self.world.deps())
        self.assertEqual(BackupState.BUILDING, trove_database.backup(self.backup.id).state)

    def test_continues_if_the_database_fails(self):
        other = self.world.add_backup()
        for one in (self.backup, other):
            self.world.records.record_never_begun(one.id, one.instance_id, one.tenant_id, 'lost')
        show = self.world.trove.fail_backup

        def fail(backup_id):
            if backup_id == self.backup.id:
                raise exceptions.ServiceUnavailableError('the database failed')
            show(backup_id)

        self.world.trove.fail_backup = fail
        expire_unstarted.show_failures(self.world.deps())
        self.assertEqual(BackupState.NEW, trove_database.backup(self.backup.id).state)
        self.assertEqual(BackupState.FAILED, trove_database.backup(other.id).state)

    def test_leaves_recent_backups(self):
        self.assertEqual(BackupState.NEW, self.expire(RECENT))
        self.assertEqual(BackupState.NEW, self.expire(LATE - datetime.timedelta(seconds=1)))

    def test_ignores_the_clocks_of_others(self):
        """The host of trove-api dates the request."""
        now = timeutils.utcnow()
        for created, since, state in (
            (now - 1000 * DAY, RECENT, BackupState.NEW),
            (now + 1000 * DAY, LATE, BackupState.FAILED),
        ):
            trove_database.backup(self.backup.id).update(created=created)
            self.assertEqual(state, self.expire(since))

    def test_forgets_backups_that_have_begun(self):
        self.expire(RECENT)
        self.world.trove.begin_backup(self.backup.id)
        self.assertEqual(BackupState.BUILDING, self.expire())
        other = self.world.add_backup()
        self.expire(RECENT)
        self.assertEqual(BackupState.NEW, trove_database.backup(other.id).state)

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

        self.expire(RECENT)
        self.world.sleep(LATE.total_seconds())
        deps = self.world.deps()
        object.__setattr__(deps, 'cinder', types.SimpleNamespace(find_volume=fail))
        self.unstarted.expire(deps)
        self.assertIn(self.world.volume['id'], requested_ids)
        self.assertEqual(BackupState.NEW, trove_database.backup(self.backup.id).state)
        self.assertEqual(BackupState.FAILED, self.expire())
