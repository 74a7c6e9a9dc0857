# SPDX-License-Identifier: Apache-2.0
"""Backups that are resumed or undone after an interruption."""

import contextlib
import datetime

from trove.backup.state import BackupState

from trove_ceph import exceptions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.enums import QuiesceLevel
from trove_ceph.strategies.backup import create as backup_create
from trove_ceph.strategies.backup import delete, options, recovery
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import creation_case
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

HOUR = datetime.timedelta(hours=1)
AT_ONCE = datetime.timedelta(seconds=-5)


class Outage(worlds.Strike):
    """From one request on, no service answers."""

    def around(self, request, unavailable):
        self.struck = self.struck or next(self._numbers) == self._number
        if self.struck:
            raise unavailable
        return request()


class Pause(worlds.Strike):
    """Something happens between a request and its answer, which is then late or lost."""

    def __init__(self, number, happen, lost):
        super().__init__(number, lost=lost)
        self._happen = happen

    def around(self, request, unavailable):
        if next(self._numbers) != self._number:
            return request()
        self.struck = True
        answer = request()
        self._happen()
        if self._lost:
            raise unavailable
        return answer


def _die(*_arguments, **_options):
    raise interruption.Kill


class CreationRecoveryTest(creation_case.CreationTestCase):
    def test_keeps_a_proved_snapshot(self):
        complete, self.world.trove.complete_backup = self.world.trove.complete_backup, _die
        self.assertRaises(interruption.Kill, self.take)
        self.world.trove.complete_backup = complete
        (before,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.take()
        (found,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.assertEqual(before.snapshot_id, found.snapshot_id)

    def test_takes_an_unproved_snapshot_again(self):
        self.set_policy(level=QuiesceLevel.FREEZE)
        created = self.number_of('storage create_snapshot')
        self.assertRaises(interruption.Kill, self.take, worlds.Strike(created, after=True))
        (lost,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.world.now += worlds.LIMIT_SEC + 10
        self.take()
        (found,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.assertNotEqual(lost.snapshot_id, found.snapshot_id)

    def test_another_taskmanager_continues(self):
        managing = self.number_of('cinder POST')
        self.assertRaises(interruption.Kill, self.take, worlds.Strike(managing))
        recovery.recover(self.world.deps(expiry=HOUR), worlds.AtOnce())
        self.assertEqual(RecordState.TAKING, self.world.records.get(self.backup.id).state)
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        record = self.world.records.get(self.backup.id)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.claimed_by))

    def test_continues_after_a_kill_in_the_last_step(self):
        """Trove shows a backup as complete before our record does, never the reverse."""
        note = self.world.records.record_taken

        self.world.records.record_taken = _die
        self.assertRaises(interruption.Kill, self.take)
        self.world.records.record_taken = note
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assertEqual(RecordState.TAKEN, self.world.records.get(self.backup.id).state)
        self.assertEqual(BackupState.COMPLETED, trove_database.backup(self.backup.id).state)

    def lose_our_record(self, error):
        """Take a backup that Trove shows as complete, but our record does not."""

        def fail(*_arguments, **_options):
            raise error

        note, self.world.records.record_taken = self.world.records.record_taken, fail
        self.assertRaises(type(error), self.take)
        self.world.records.record_taken = note
        self.assert_is_there(RecordState.TAKING)

    def assert_is_there(self, state):
        record = self.world.records.get(self.backup.id)
        self.assertEqual((state, None), (record.state, record.error))
        self.assertEqual(BackupState.COMPLETED, trove_database.backup(self.backup.id).state)
        (snapshot,) = self.world.cinder.snapshots.values()
        self.assertEqual([f'snapshot-{snapshot["id"]}'], self.world.snapshots())

    def test_does_not_undo_a_shown_backup(self):
        """The deletion of its instance does not matter: the last step needs nothing of it."""
        self.lose_our_record(interruption.Kill())
        trove_database.instance(self.world.instance.id).update(deleted=True)
        self.world.guest.is_down = True
        self.world.events.clear()
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assert_is_there(RecordState.TAKEN)
        self.assertEqual([], self.world.events)
        record = self.world.records.get(self.backup.id)
        (snapshot,) = self.world.cinder.snapshots
        self.assertEqual((snapshot, None), (record.cinder_snapshot_id, record.claimed_by))

    def test_continues_a_shown_backup_after_a_failure(self):
        self.lose_our_record(exceptions.ServiceUnavailableError('the database failed'))
        self.assertIsNone(self.world.records.get(self.backup.id).claimed_by)
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assert_is_there(RecordState.TAKEN)

    def test_a_deletion_right_after_it_is_shown_goes_on(self):
        """The worker that still records the backup as complete does not disturb the deletion."""
        complete = self.world.trove.complete_backup

        def shown(*arguments):
            complete(*arguments)
            self.world.records.begin_deleting(self.backup.id, another)

        another = self.world.worker()
        self.world.trove.complete_backup = shown
        record = self.take()
        self.assertEqual((RecordState.DELETING, another.name), (record.state, record.claimed_by))

    def test_takes_the_snapshot_again_after_an_interrupted_undo(self):
        """A snapshot in Cinder that has lost its proof is removed."""
        looking = self.number_of('guest check_backup_settings')
        managed = self.number_of('cinder POST')
        self.assertRaises(interruption.Kill, self.take, worlds.Strike(managed, after=True))
        self.world.records._update(self.backup.id, snapshot_at=None)
        (lost,) = self.world.cinder.snapshots
        record = self.take()
        self.world.cinder.work()
        (found,) = self.world.cinder.snapshots
        self.assertNotEqual(lost, found)
        self.assertEqual([f'snapshot-{found}'], self.world.snapshots())
        self.assertIsNotNone(record.snapshot_at)
        self.assertGreater(managed, looking)

    def test_removes_leftovers_later(self):
        """Defect 5: stock forgets the leftovers if Cinder is down."""
        managed = self.number_of('cinder POST')
        outage = Outage(managed)
        self.assertRaises(exceptions.ServiceUnavailableError, self.take, outage)
        record = self.world.records.get(self.backup.id)
        self.assertEqual(RecordState.FAILED, record.state)
        self.assertEqual(BackupState.FAILED, trove_database.backup(self.backup.id).state)
        self.assertEqual(1, len(self.world.snapshots()))
        recovery.recover(self.world.deps(outage, AT_ONCE), worlds.AtOnce())
        self.assertEqual(1, len(self.world.snapshots()))
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assertEqual(([], {}), (self.world.snapshots(), self.world.cinder.snapshots))
        record = self.world.records.get(self.backup.id)
        self.assertEqual((RecordState.FAILED, None), (record.state, record.location))
        count = len(self.world.events)
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assertEqual(count, len(self.world.events))

    def _paused(self, happen):
        """Take backups, and do something before the answer to a request, which is late or lost.

        Yields after each backup that this happened to.
        """
        for event in ('guest check_backup_settings', 'storage create_snapshot', 'cinder POST'):
            for is_lost in (False, True):
                self.backup = self.world.add_backup()
                pause = Pause(self.number_of(event), happen, is_lost)
                # It fails if the answer is lost, or leaves the backup to the other worker.
                with contextlib.suppress(exceptions.TroveCephError):
                    backup_create.create_backup(self.world.deps(pause), self.backup.id)
                self.assertTrue(pause.struck)
                yield

    def test_leaves_a_backup_that_was_resumed(self):
        """A taskmanager that was paused undoes nothing of a backup that another has resumed."""
        for _ in self._paused(self._resume):
            record = self.world.records.get(self.backup.id)
            self.assertEqual((RecordState.TAKEN, None), (record.state, record.error))
            self.assertIn(record.location.name, self.world.snapshots())
            row = trove_database.backup(self.backup.id)
            self.assertEqual(BackupState.COMPLETED, row.state)
        self.world.cinder.work()
        self.assertEqual(len(self.world.cinder.snapshots), len(self.world.snapshots()))

    def _resume(self):
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())

    def test_leaves_a_backup_that_is_being_deleted(self):
        """Trove's API allows this after a reset of the instance's status; nothing is left."""
        for _ in self._paused(self._delete_by_another):
            self.assertFalse(trove_database.backup(self.backup.id).deleted)
            # The deletion gave up waiting, and another worker continues it.
            recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
            self.assertTrue(trove_database.backup(self.backup.id).deleted)
            self.assertIsNone(self.world.records.find(self.backup.id))
            self.world.cinder.work()
            self.assertEqual(([], {}), (self.world.snapshots(), self.world.cinder.snapshots))

    def _delete_by_another(self):
        other = self.world.deps(expiry=HOUR)
        error = self.assertRaises(exceptions.BusyError, delete.delete_backup, other, self.backup.id)
        self.assertIn('still in use by host/boot', str(error))

    def test_options_survive_a_kill_in_the_first_step(self):
        requested = options.BackupOptions(QuiesceLevel.FREEZE, copy=True, verify=True)
        begin, self.world.trove.begin_backup = self.world.trove.begin_backup, _die
        deps = self.world.deps()
        self.assertRaises(
            interruption.Kill, backup_create.create_backup, deps, self.backup.id, requested
        )
        self.world.trove.begin_backup = begin
        record = self.take()
        self.assertEqual(QuiesceLevel.FREEZE, record.quiesce)
        self.assertIsNotNone(record.copy_wanted_at)
        self.assertIsNotNone(record.verify_wanted_at)

    def test_refuses_to_continue_for_a_deleted_instance(self):
        for event in ('cinder POST', 'storage create_snapshot'):
            backup = self.world.add_backup()
            number = self.number_of(event)
            strike = worlds.Strike(number, after=True)
            self.assertRaises(interruption.Kill, self.take, strike, backup)
            trove_database.instance(self.world.instance.id).update(deleted=True)
            self.assert_fails(exceptions.InvalidBackupError, 'was deleted', backup=backup)
            trove_database.instance(self.world.instance.id).update(deleted=False)
