# SPDX-License-Identifier: Apache-2.0
import contextlib
import datetime
import itertools

import fixtures
from oslotest import base
from trove.backup.state import BackupState

from trove_ceph import exceptions
from trove_ceph.db import transactions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.enums import QuiesceLevel, UnsafeAction
from trove_ceph.strategies.backup import backup_types, delete, options, recovery
from trove_ceph.strategies.backup import create as backup_create
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.verification import report as verification

UNFLUSHED = {
    'code': 'sync-binlog',
    'object': 'sync_binlog=0',
    'remedy': 'sync_binlog = 1',
    'freeze_suffices': True,
}
OUTSIDE = {
    'code': 'outside-volume',
    'object': 'redo log: /elsewhere',
    'remedy': 'move it to the data volume',
    'freeze_suffices': False,
}


HOUR = datetime.timedelta(hours=1)
AT_ONCE = datetime.timedelta(seconds=-5)
_TRANSACTIONS = 'trove_ceph.db.transactions.Transactions'


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


def _count_transactions(test):
    """Return a list that grows by each transaction on our tables."""
    begun = []

    def counted(kind):
        begin = getattr(transactions.Transactions, kind)

        def using(self):
            begun.append(kind)
            return begin(self)

        test.useFixture(fixtures.MonkeyPatch(f'{_TRANSACTIONS}.{kind}', using))

    for kind in ('reading', 'writing'):
        counted(kind)
    return begun


class TakingTest(base.BaseTestCase):
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

    # The default: nobody is asked to pause.

    def test_without_quiesce_nobody_waits(self):
        record = self.take()
        asked = [event for event in self.world.events if event.startswith('guest')]
        self.assertEqual(['guest check_backup_settings'], asked)
        self.assertEqual([], self.world.guest.locks + self.world.guest.freezes)
        self.assertEqual((QuiesceLevel.NONE, None), (record.quiesce, record.quiesced_sec))
        self.assertLessEqual(0, record.snapshot_sec)
        self.assertLessEqual(record.snapshot_sec, record.take_sec)
        self.assertEqual(worlds.fake_cinder.GIB, record.size_bytes)

    def test_position_of_the_guest_that_cannot_be_recorded(self):
        for found in ('u:1' * verification.MAX_GTID_BYTES, ['u:1'], None):
            world = self.world = worlds.World()
            # Of a level that is checked first, the answer before the snapshot counts.
            self.set_policy(level=QuiesceLevel.DDL)
            world.guest.position = found
            self.assertIsNone(self.take(backup=world.add_backup()).gtid_before)
        self.assertEqual('uuid:1-7', worlds.World().guest.position)

    def test_held_for_the_snapshot_and_nothing_else(self):
        """Stock freezes until Cinder is ready, 2.4 seconds at least (defect 1)."""
        for level in (QuiesceLevel.DDL, QuiesceLevel.FREEZE):
            world = self.world = worlds.World()
            self.set_policy(level=level)
            record = self.take(backup=world.add_backup())
            events = world.events
            began = events.index('guest quiesce_for_backup')
            self.assertEqual(
                ['guest quiesce_for_backup', 'storage create_snapshot']
                + ['guest release_after_backup'],
                events[began : began + 3],
            )
            self.assertEqual(level, record.quiesce)
            self.assertIsNotNone(record.quiesced_sec)
            self.assertEqual(level is QuiesceLevel.FREEZE, bool(world.guest.freezes))

    def test_level_by_datastore(self):
        self.set_policy(levels={'mysql': QuiesceLevel.DDL, 'mysql/5.7': QuiesceLevel.FREEZE})
        self.assertEqual(QuiesceLevel.DDL, self.take().quiesce)
        self.set_policy(levels={'mysql': QuiesceLevel.DDL, 'mysql/9.7': QuiesceLevel.FREEZE})
        self.assertEqual(QuiesceLevel.FREEZE, self.take(backup=self.world.add_backup()).quiesce)

    # The order.

    def test_snapshot_comes_first(self):
        """The backup shows the database as it was when it was requested."""
        for self.world.is_answered_late in (False, True):
            self.world.events.clear()
            record = self.take(backup=self.world.add_backup())
            # The volume is looked at, and nothing else.
            self.assertEqual(['cinder GET', 'storage create_snapshot'], self.world.events[:2])
            self.assertEqual(1, self.world.events.count('guest check_backup_settings'))
            self.assertEqual((QuiesceLevel.NONE, RecordState.TAKEN), (record.quiesce, record.state))

    def test_requests_of_a_backup(self):
        """What a backup costs others: storage, Cinder's listings of snapshots, our table."""
        transactions = _count_transactions(self)
        listed = self.world.cinder.count_of_listings
        self.take()
        asked = [one for one in self.world.events if one.startswith('storage')]
        self.assertEqual(['storage create_snapshot'], asked)
        self.assertEqual(1, self.world.cinder.count_of_listings - listed)
        self.assertLessEqual(len(transactions), 8, transactions)

    def test_position_is_one_from_before_the_snapshot(self):
        self.world.guest.position = 'uuid:1-12'
        self.assertEqual('uuid:1-7', self.take().gtid_before)

    def test_settings_that_were_changed_meanwhile(self):
        """Whatever they are now, nobody knows what they were when the snapshot was taken."""
        self.world.served.storage._inner.create_snapshot = self._then(
            self.world.served.storage.create_snapshot,
            lambda: setattr(self.world.guest, 'evidence', 'changed'),
        )
        self.assert_checked_first()

    def test_settings_of_which_nobody_knows_since_when_they_are_so(self):
        for case in ('evidence', 'agent', 'recently'):
            self.world = worlds.World()
            self.backup = self.world.add_backup()
            if case == 'evidence':
                self.world.guest.evidence = None
            elif case == 'agent':
                self.world.guest.restart()
            else:
                self.world.guest.evidence = 'changed'
                self.world.guest.observe()
                self.world.guest.observe()
            self.assert_checked_first()

    def test_agent_of_an_earlier_release(self):
        answer = {'reasons': [], 'gtid_executed': 'uuid:1-7'}
        self.world.guest.check_backup_settings = lambda: answer
        self.assert_checked_first()

    def assert_checked_first(self):
        """Have a backup be taken whose first snapshot does not count."""
        record = self.take()
        self.world.cinder.work()
        kinds = ('guest check_backup_settings', 'storage create_snapshot')
        asked = [one for one in self.world.events if one in kinds]
        self.assertEqual([*kinds[::-1], *kinds, kinds[0]], asked)
        (snapshot,) = self.world.cinder.snapshots
        self.assertEqual([f'snapshot-{snapshot}'], self.world.snapshots())
        self.assertEqual(
            (RecordState.TAKEN, QuiesceLevel.NONE, 'uuid:1-7'),
            (record.state, record.quiesce, record.gtid_before),
        )
        self.assertIsNone(record.error)

    def test_answer_that_takes_long(self):
        """The settings must be known to be the same since before the snapshot."""
        check = self.world.guest.check_backup_settings

        def slow():
            answer = check()
            # An hour, in which heartbeats are written.
            for _half_minute in range(120):
                self.world.sleep(30)
            return answer

        self.world.guest.check_backup_settings = slow
        self.assert_checked_first()

    def test_change_between_check_and_snapshot(self):
        """Also where the settings are checked first, they are looked at again."""
        for level in (QuiesceLevel.NONE, QuiesceLevel.DDL, QuiesceLevel.FREEZE):
            self.world = worlds.World()
            self.backup = self.world.add_backup()
            self.set_policy(level=level)
            changes = map(str, itertools.count())
            # With none at the first snapshot, and at the second one that is taken after a check.
            self.world.served.storage._inner.create_snapshot = self._then(
                self.world.served.storage.create_snapshot,
                lambda changes=changes: setattr(self.world.guest, 'evidence', next(changes)),
            )
            self.assert_fails(exceptions.UnsafeSettingsError, 'were changed while')

    def test_settings_that_are_unsafe_after_the_snapshot(self):
        self.set_policy(level=QuiesceLevel.DDL)
        self.world.served.storage._inner.create_snapshot = self._then(
            self.world.served.storage.create_snapshot,
            lambda: setattr(self.world.guest, 'reasons', [UNFLUSHED]),
        )
        self.assert_fails(exceptions.UnsafeSettingsError, 'sync_binlog=0')

    def _then(self, work, happen):
        def both(*arguments):
            answer = work(*arguments)
            happen()
            return answer

        return both

    # Settings.

    def test_unsafe_settings_are_refused(self):
        self.world.guest.reasons = [UNFLUSHED]
        self.assert_fails(exceptions.UnsafeSettingsError, 'sync_binlog=0', 'sync_binlog = 1')
        self.assertEqual(1, self.world.events.count('guest check_backup_settings'))
        self.world.events.clear()
        self.set_policy(level=QuiesceLevel.DDL)
        self.assert_fails(
            exceptions.UnsafeSettingsError, 'sync_binlog=0', backup=self.world.add_backup()
        )
        self.assertNotIn('storage create_snapshot', self.world.events)

    def test_unsafe_settings_raise_the_level(self):
        self.world.guest.reasons = [UNFLUSHED]
        self.set_policy(unsafe_action=UnsafeAction.RAISE)
        record = self.take()
        self.assertEqual(
            (QuiesceLevel.FREEZE, QuiesceLevel.NONE), (record.quiesce, record.raised_from)
        )
        self.assertIn('sync_binlog=0', record.raised_because)
        self.assertTrue(self.world.guest.freezes)

    def test_what_no_level_makes_safe(self):
        self.world.guest.reasons = [UNFLUSHED, OUTSIDE]
        self.set_policy(level=QuiesceLevel.FREEZE, unsafe_action=UnsafeAction.RAISE)
        self.assert_fails(exceptions.UnsafeSettingsError, 'redo log: /elsewhere')

    def test_frozen_is_safe_enough(self):
        self.world.guest.reasons = [UNFLUSHED]
        self.set_policy(level=QuiesceLevel.FREEZE)
        record = self.take()
        self.assertEqual((QuiesceLevel.FREEZE, None), (record.quiesce, record.raised_from))

    # Defects of Trove's own driver.

    def test_no_lock_leaks_when_the_taskmanager_dies(self):
        """Defects 2 and 3: nothing thaws, and the lock stays with a pooled connection."""
        self.set_policy(level=QuiesceLevel.FREEZE)
        strike = worlds.Strike(self._number_of('storage create_snapshot'), after=True)
        self.assertRaises(interruption.Kill, self.take, strike)
        self.assertTrue(self.world.guest.is_held)
        self.world.now += worlds.LIMIT_SEC + 10
        self.assertFalse(self.world.guest.is_held)

    def test_guest_that_does_not_answer(self):
        """Defect 4: FTWRL leaks where pre fails, and post may overtake pre."""
        self.set_policy(level=QuiesceLevel.FREEZE)
        quiescing = self._number_of('guest quiesce_for_backup')
        strike = worlds.Strike(quiescing, after=True, lost=True)
        self.assertRaises(exceptions.ServiceUnavailableError, self.take, strike)
        self.assertFalse(self.world.guest.is_held)
        self.assertEqual([], self.world.snapshots())

    def test_snapshot_that_comes_too_late(self):
        """Defect 2: a lock that was lost before the snapshot goes unnoticed."""
        self.set_policy(level=QuiesceLevel.FREEZE)
        create = self.world.served.storage.create_snapshot

        def slow(snapshot):
            self.world.now += worlds.LIMIT_SEC + 1
            create(snapshot)

        self.world.served.storage._inner.create_snapshot = slow
        self.assert_fails(exceptions.NotQuiescedError, 'resumed before', 'the limit passed')

    def test_failure_is_told_and_leaves_nothing(self):
        """Defect 5: it ends in backup_create.end, and Cinder's snapshot stays."""
        for self.world.cinder.failing in ('before', 'after'):
            backup = self.world.add_backup()
            self.assert_fails(exceptions.AdoptionFailedError, backup=backup)
            told = self.world.records.get(backup.id).error
            self.assertIn('Cinder failed to manage it', told)

    def test_cinder_that_is_slow_holds_nobody(self):
        """Defect 1: the file system stays frozen while Cinder is polled."""
        self.set_policy(level=QuiesceLevel.FREEZE)
        self.world.cinder.lag = 8
        record = self.take()
        self.assertEqual(0, record.quiesced_sec)
        self.assertGreater(record.take_sec, 1)

    def test_quota_of_snapshots(self):
        """Defect 12: the service's project has one; it is named, and nothing is left."""
        self.world.cinder.limits[worlds.SERVICE, 'snapshots'] = 0
        self.assert_fails(exceptions.QuotaExceededError)
        told = self.world.records.get(self.backup.id).error
        self.assertIn('the quota of the project that owns all volumes', told)

    # Bad input.

    def test_volumes_that_make_no_backup(self):
        """No level of quiescing makes them safe, and nobody is held while that is found out."""
        self.set_policy(level=QuiesceLevel.FREEZE, unsafe_action=UnsafeAction.RAISE)
        for code, word in (('volume-full', '0 MiB free'), ('server-down', 'does not answer')):
            reason = {'code': code, 'object': word, 'remedy': 'do', 'freeze_suffices': False}
            self.world.guest.reasons = [reason]
            self.assert_fails(exceptions.UnsafeSettingsError, word, backup=self.world.add_backup())
        self.assertNotIn('guest quiesce_for_backup', self.world.events)

    def test_volume_that_somebody_else_has_frozen(self):
        """It is thawed by whoever froze it: the hold fails, and lets go of what it has."""
        self.set_policy(level=QuiesceLevel.FREEZE)

        def freeze(_self):
            raise exceptions.NotQuiescedError('the volume is frozen already')

        self.useFixture(fixtures.MonkeyPatch(f'{worlds.__name__}.Pretended.freeze', freeze))
        self.assert_fails(exceptions.ServiceUnavailableError, 'is frozen already')

    def test_parent_of_another_instance(self):
        other = trove_database.add_instance(self.world.project, None)
        parent = trove_database.add_backup(other, state=BackupState.COMPLETED)
        child = self.world.add_backup(parent_id=parent.id)
        self.assert_fails(exceptions.InvalidBackupError, parent.id, backup=child)

    def test_instance_that_was_deleted_meanwhile(self):
        self.world.delete_server()
        self.assert_fails(exceptions.InvalidBackupError, 'was deleted')

    def test_volume_elsewhere(self):
        self.world.volume['host'] = worlds.OTHER
        error = self.assertRaises(exceptions.NotAdoptableError, self.take)
        self.assertIn(f'is on backend {worlds.OTHER}, which belongs to no tier', str(error))
        # Tenants are not told where anything lies.
        record = self.world.records.get(self.backup.id)
        self.assertEqual(RecordState.FAILED, record.state)
        self.assertIn('cannot be used for it', record.error)
        self.assertNotIn(worlds.OTHER, record.error)

    def test_volume_of_a_clustered_cinder_volume(self):
        """Its host is one of the cluster's services, which may be down since."""
        self.world.cinder.form_cluster('blocks', 'two')
        self.assertEqual('lab@nvme#nvme', self.world.volume['host'])
        record = self.take()
        self.assertEqual(RecordState.TAKEN, record.state)
        (snapshot,) = self.world.cinder.snapshots
        self.assertEqual([f'snapshot-{snapshot}'], self.world.snapshots())

    def test_volume_that_is_gone(self):
        del self.world.cinder.volumes[self.world.volume['id']]
        self.assert_fails(exceptions.InvalidBackupError, 'has no volume')

    def test_guest_that_is_down(self):
        self.world.guest.is_down = True
        self.assert_fails(exceptions.ServiceUnavailableError, 'guest agent')

    def test_backup_that_was_deleted_meanwhile(self):
        self.backup.update(deleted=True)
        self.assertRaises(exceptions.InvalidBackupError, self.take)
        self.assertEqual([], self.world.snapshots())

    # After an interruption.

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
        created = self._number_of('storage create_snapshot')
        self.assertRaises(interruption.Kill, self.take, worlds.Strike(created, after=True))
        (lost,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.world.now += worlds.LIMIT_SEC + 10
        self.take()
        (found,) = self.world.storage.describe(self.world.volume_image).snapshots
        self.assertNotEqual(lost.snapshot_id, found.snapshot_id)

    def test_another_taskmanager_carries_on(self):
        managing = self._number_of('cinder POST')
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
        looking = self._number_of('guest check_backup_settings')
        managed = self._number_of('cinder POST')
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
        managed = self._number_of('cinder POST')
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
                pause = Pause(self._number_of(event), happen, is_lost)
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
            self.assertIn(record.location.name, self.world.snapshots())
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
            number = self._number_of(event)
            strike = worlds.Strike(number, after=True)
            self.assertRaises(interruption.Kill, self.take, strike, backup)
            trove_database.instance(self.world.instance.id).update(deleted=True)
            self.assert_fails(exceptions.InvalidBackupError, 'was deleted', backup=backup)
            trove_database.instance(self.world.instance.id).update(deleted=False)

    def _number_of(self, event):
        """Return the number of the first such request of a backup."""
        other = worlds.World()
        other.policy = self.world.policy
        backup_create.create_backup(other.deps(), other.add_backup().id)
        return other.events.index(event)
