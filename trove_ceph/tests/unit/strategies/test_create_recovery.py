# SPDX-License-Identifier: Apache-2.0
"""Backups that are continued, taken over or undone after an interruption."""

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
    """From one request on nobody answers any more."""

    def around(self, request, unavailable):
        self.struck = self.struck or next(self._numbers) == self._number
        if self.struck:
            raise unavailable
        return request()


class Pause(worlds.Strike):
    """Something happens between a request and its answer, which then comes late or never."""

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
    def test_snapshot_that_counts_is_not_taken_again(self):
        complete, self.world.trove.complete_backup = self.world.trove.complete_backup, _die
        self.assertRaises(interruption.Kill, self.take)
        self.world.trove.complete_backup = complete
        (kept,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.take()
        (found,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.assertEqual(kept.snapshot_id, found.snapshot_id)

    def test_snapshot_of_unknown_worth_is_taken_again(self):
        self.set_policy(level=QuiesceLevel.FREEZE)
        created = self.number_of('storage create_snapshot')
        self.assertRaises(interruption.Kill, self.take, worlds.Strike(created, after=True))
        (lost,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.world.now += worlds.LIMIT_SEC + 10
        self.take()
        (found,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.assertNotEqual(lost.snapshot_id, found.snapshot_id)

    def test_another_taskmanager_carries_on(self):
        managing = self.number_of('cinder POST')
        self.assertRaises(interruption.Kill, self.take, worlds.Strike(managing))
        recovery.recover(self.world.deps(expiry=HOUR), worlds.AtOnce())
        self.assertEqual(RecordState.TAKING, self.world.records.get(self.backup.id).state)
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        record = self.world.records.get(self.backup.id)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.claimed_by))

    def test_killed_at_the_very_end(self):
        """What Trove shows as complete is so in our record soon, and never the other way round."""
        note = self.world.records.note_taken

        self.world.records.note_taken = _die
        self.assertRaises(interruption.Kill, self.take)
        self.world.records.note_taken = note
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assertEqual(RecordState.TAKEN, self.world.records.get(self.backup.id).state)
        self.assertEqual(BackupState.COMPLETED, trove_database.backup(self.backup.id).state)

    def lose_our_record(self, error):
        """Have a backup be taken up to where Trove shows it, which our record does not say."""

        def fail(*_arguments, **_options):
            raise error

        note, self.world.records.note_taken = self.world.records.note_taken, fail
        self.assertRaises(type(error), self.take)
        self.world.records.note_taken = note
        self.assert_is_there(RecordState.TAKING)

    def assert_is_there(self, state):
        record = self.world.records.get(self.backup.id)
        self.assertEqual((state, None), (record.state, record.error))
        self.assertEqual(BackupState.COMPLETED, trove_database.backup(self.backup.id).state)
        (snapshot,) = self.world.cinder.snapshots.values()
        self.assertEqual([f'snapshot-{snapshot["id"]}'], self.world.snapshots())

    def test_what_is_shown_is_not_undone(self):
        """Whatever happened to its instance meanwhile: nothing of it is needed any more."""
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

    def test_failure_after_it_was_shown(self):
        self.lose_our_record(exceptions.ServiceUnavailableError('the database failed'))
        self.assertIsNone(self.world.records.get(self.backup.id).claimed_by)
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assert_is_there(RecordState.TAKEN)

    def test_deleted_as_soon_as_it_was_shown(self):
        """A deletion that has begun is not ended by who still writes down that it was taken."""
        complete = self.world.trove.complete_backup

        def shown(*arguments):
            complete(*arguments)
            self.world.records.begin_deleting(self.backup.id, another)

        another = self.world.worker()
        self.world.trove.complete_backup = shown
        record = self.take()
        self.assertEqual((RecordState.DELETING, another.name), (record.state, record.claimed_by))

    def test_undoing_that_was_cut_off_is_gone_on_with(self):
        """Cinder's snapshot, of which it is not known any more what it holds, does not count."""
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

    def test_what_could_not_be_undone_is_later(self):
        """Defect 5: what is left of it while Cinder is down is nobody's."""
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
        self.assertEqual((RecordState.FAILED, None), (record.state, record.place))
        asked = len(self.world.events)
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assertEqual(asked, len(self.world.events))

    def _paused(self, happen):
        """Have something happen before the answer of a request, which comes late or never.

        Yields after each backup that this happened to.
        """
        for event in ('guest check_backup_settings', 'storage create_snapshot', 'cinder POST'):
            for is_lost in (False, True):
                self.backup = self.world.add_backup()
                pause = Pause(self.number_of(event), happen, is_lost)
                # It fails where an answer is lost, or leaves the backup to the other one.
                with contextlib.suppress(exceptions.TroveCephError):
                    backup_create.create_backup(self.world.deps(pause), self.backup.id)
                self.assertTrue(pause.struck)
                yield

    def test_taken_over_by_another_taskmanager(self):
        """One that was paused for long undoes nothing of what is another's now."""
        for _ in self._paused(self._take_over):
            record = self.world.records.get(self.backup.id)
            self.assertEqual((RecordState.TAKEN, None), (record.state, record.error))
            self.assertIn(record.place.name, self.world.snapshots())
            row = trove_database.backup(self.backup.id)
            self.assertEqual(BackupState.COMPLETED, row.state)
        self.world.cinder.work()
        self.assertEqual(len(self.world.cinder.snapshots), len(self.world.snapshots()))

    def _take_over(self):
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())

    def test_deleted_while_it_is_taken(self):
        """Trove's API has it deleted where somebody reset its instance: nothing is left of it."""
        for _ in self._paused(self._delete_by_another):
            self.assertFalse(trove_database.backup(self.backup.id).deleted)
            # That one did not wait for longer, and is told to others.
            recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
            self.assertTrue(trove_database.backup(self.backup.id).deleted)
            self.assertIsNone(self.world.records.find(self.backup.id))
            self.world.cinder.work()
            self.assertEqual(([], {}), (self.world.snapshots(), self.world.cinder.snapshots))

    def _delete_by_another(self):
        other = self.world.deps(expiry=HOUR)
        error = self.assertRaises(exceptions.BusyError, delete.delete_backup, other, self.backup.id)
        self.assertIn('still in use by host/boot', str(error))

    def test_what_was_asked_for_survives_the_first_step(self):
        asked = options.BackupOptions(QuiesceLevel.FREEZE, copy=True, verify=True)
        begin, self.world.trove.begin_backup = self.world.trove.begin_backup, _die
        deps = self.world.deps()
        self.assertRaises(
            interruption.Kill, backup_create.create_backup, deps, self.backup.id, asked
        )
        self.world.trove.begin_backup = begin
        record = self.take()
        self.assertEqual(QuiesceLevel.FREEZE, record.quiesce)
        self.assertIsNotNone(record.copy_wanted_at)
        self.assertIsNotNone(record.verify_wanted_at)

    def test_instance_that_was_deleted_after_an_interruption(self):
        for event in ('cinder POST', 'storage create_snapshot'):
            backup = self.world.add_backup()
            number = self.number_of(event)
            strike = worlds.Strike(number, after=True)
            self.assertRaises(interruption.Kill, self.take, strike, backup)
            trove_database.instance(self.world.instance.id).update(deleted=True)
            self.assert_fails(exceptions.InvalidBackupError, 'was deleted', backup=backup)
            trove_database.instance(self.world.instance.id).update(deleted=False)
