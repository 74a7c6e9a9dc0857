# SPDX-License-Identifier: Apache-2.0
"""The order of the steps of a backup, the checks of settings, and failures."""

import itertools

import fixtures
from trove.backup.state import BackupState

from trove_ceph import exceptions
from trove_ceph.db import transactions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.enums import QuiesceLevel, UnsafeAction
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import creation_case
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
_TRANSACTIONS = 'trove_ceph.db.transactions.Transactions'


def _count_transactions(test):
    """Return a list that gets an entry for each transaction on our tables."""
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


class CreationTest(creation_case.CreationTestCase):
    # Quiesce levels.

    def test_quiesces_nothing_by_default(self):
        record = self.take()
        requests = [event for event in self.world.events if event.startswith('guest')]
        self.assertEqual(['guest check_backup_settings'], requests)
        self.assertEqual([], self.world.guest.locks + self.world.guest.freezes)
        self.assertEqual((QuiesceLevel.NONE, None), (record.quiesce, record.quiesced_sec))
        self.assertLessEqual(0, record.snapshot_sec)
        self.assertLessEqual(record.snapshot_sec, record.take_sec)
        self.assertEqual(worlds.fake_cinder.GIB, record.size_bytes)

    def test_ignores_a_position_that_cannot_be_recorded(self):
        for found in ('u:1' * verification.MAX_GTID_BYTES, ['u:1'], None):
            world = self.world = worlds.World()
            # At this level the settings are checked first, and the first answer has the position.
            self.set_policy(level=QuiesceLevel.DDL)
            world.guest.position = found
            self.assertIsNone(self.take(backup=world.add_backup()).gtid_before)
        self.assertEqual('uuid:1-7', worlds.World().guest.position)

    def test_quiesces_for_the_snapshot_alone(self):
        """Stock stays frozen until Cinder is ready, at least 2.4 seconds (defect 1)."""
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

    # The order of the steps.

    def test_snapshot_comes_first(self):
        """The backup shows the database as it was when it was requested."""
        for self.world.is_answered_late in (False, True):
            self.world.events.clear()
            record = self.take(backup=self.world.add_backup())
            # One request to Cinder, for the volume, precedes the snapshot.
            self.assertEqual(['cinder GET', 'storage create_snapshot'], self.world.events[:2])
            self.assertEqual(1, self.world.events.count('guest check_backup_settings'))
            self.assertEqual((QuiesceLevel.NONE, RecordState.TAKEN), (record.quiesce, record.state))

    def test_requests_of_a_backup(self):
        """The requests and transactions that one backup costs."""
        transactions = _count_transactions(self)
        listed = self.world.cinder.count_of_listings
        self.take()
        requests = [one for one in self.world.events if one.startswith('storage')]
        self.assertEqual(['storage create_snapshot'], requests)
        self.assertEqual(1, self.world.cinder.count_of_listings - listed)
        self.assertLessEqual(len(transactions), 8, transactions)

    def test_records_a_position_from_before_the_snapshot(self):
        self.world.guest.position = 'uuid:1-12'
        self.assertEqual('uuid:1-7', self.take().gtid_before)

    def test_starts_again_after_a_change_during_the_snapshot(self):
        """The settings at the time of the snapshot are not known."""
        self.world.served.storage._inner.create_snapshot = self._then(
            self.world.served.storage.create_snapshot,
            lambda: setattr(self.world.guest, 'evidence', 'changed'),
        )
        self.assert_checked_first()

    def test_starts_again_if_the_settings_are_not_proved(self):
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

    def test_starts_again_with_an_agent_of_an_earlier_release(self):
        answer = {'reasons': [], 'gtid_executed': 'uuid:1-7'}
        self.world.guest.check_backup_settings = lambda: answer
        self.assert_checked_first()

    def assert_checked_first(self):
        """Take a backup, and assert that its first snapshot was replaced after a check."""
        record = self.take()
        self.world.cinder.work()
        kinds = ('guest check_backup_settings', 'storage create_snapshot')
        requests = [one for one in self.world.events if one in kinds]
        self.assertEqual([*kinds[::-1], *kinds, kinds[0]], requests)
        (snapshot,) = self.world.cinder.snapshots
        self.assertEqual([f'snapshot-{snapshot}'], self.world.snapshots())
        self.assertEqual(
            (RecordState.TAKEN, QuiesceLevel.NONE, 'uuid:1-7'),
            (record.state, record.quiesce, record.gtid_before),
        )
        self.assertIsNone(record.error)

    def test_starts_again_after_a_slow_answer(self):
        """The agent must have proof from before the snapshot, even if it answers an hour later."""
        check = self.world.guest.check_backup_settings

        def slow():
            answer = check()
            # One hour, with heartbeats.
            for _half_minute in range(120):
                self.world.sleep(30)
            return answer

        self.world.guest.check_backup_settings = slow
        self.assert_checked_first()

    def test_fails_if_settings_change_between_check_and_snapshot(self):
        """The settings are checked again after the snapshot even if they are checked first."""
        for level in (QuiesceLevel.NONE, QuiesceLevel.DDL, QuiesceLevel.FREEZE):
            self.world = worlds.World()
            self.backup = self.world.add_backup()
            self.set_policy(level=level)
            changes = map(str, itertools.count())
            # At level none, both the first and the second snapshot meet a change.
            self.world.served.storage._inner.create_snapshot = self._then(
                self.world.served.storage.create_snapshot,
                lambda changes=changes: setattr(self.world.guest, 'evidence', next(changes)),
            )
            self.assert_fails(exceptions.UnsafeSettingsError, 'were changed while')

    def test_fails_if_settings_are_unsafe_after_the_snapshot(self):
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

    def test_refuses_unsafe_settings(self):
        self.world.guest.reasons = [UNFLUSHED]
        self.assert_fails(exceptions.UnsafeSettingsError, 'sync_binlog=0', 'sync_binlog = 1')
        self.assertEqual(1, self.world.events.count('guest check_backup_settings'))
        self.world.events.clear()
        self.set_policy(level=QuiesceLevel.DDL)
        self.assert_fails(
            exceptions.UnsafeSettingsError, 'sync_binlog=0', backup=self.world.add_backup()
        )
        self.assertNotIn('storage create_snapshot', self.world.events)

    def test_raises_the_level_for_unsafe_settings(self):
        self.world.guest.reasons = [UNFLUSHED]
        self.set_policy(unsafe_action=UnsafeAction.RAISE)
        record = self.take()
        self.assertEqual(
            (QuiesceLevel.FREEZE, QuiesceLevel.NONE), (record.quiesce, record.raised_from)
        )
        self.assertIn('sync_binlog=0', record.raised_because)
        self.assertTrue(self.world.guest.freezes)

    def test_refuses_settings_that_no_level_makes_safe(self):
        self.world.guest.reasons = [UNFLUSHED, OUTSIDE]
        self.set_policy(level=QuiesceLevel.FREEZE, unsafe_action=UnsafeAction.RAISE)
        self.assert_fails(exceptions.UnsafeSettingsError, 'redo log: /elsewhere')

    def test_accepts_at_freeze_what_is_unsafe_below(self):
        self.world.guest.reasons = [UNFLUSHED]
        self.set_policy(level=QuiesceLevel.FREEZE)
        record = self.take()
        self.assertEqual((QuiesceLevel.FREEZE, None), (record.quiesce, record.raised_from))

    # Defects of Trove's own driver.

    def test_no_lock_leaks_when_the_taskmanager_dies(self):
        """Defects 2 and 3: stock never thaws, and its lock stays with a pooled connection."""
        self.set_policy(level=QuiesceLevel.FREEZE)
        strike = worlds.Strike(self.number_of('storage create_snapshot'), after=True)
        self.assertRaises(interruption.Kill, self.take, strike)
        self.assertTrue(self.world.guest.is_held)
        self.world.now += worlds.LIMIT_SEC + 10
        self.assertFalse(self.world.guest.is_held)

    def test_releases_a_guest_that_does_not_answer(self):
        """Defect 4: stock leaks FTWRL if pre fails, and post may overtake pre."""
        self.set_policy(level=QuiesceLevel.FREEZE)
        quiescing = self.number_of('guest quiesce_for_backup')
        strike = worlds.Strike(quiescing, after=True, lost=True)
        self.assertRaises(exceptions.ServiceUnavailableError, self.take, strike)
        self.assertFalse(self.world.guest.is_held)
        self.assertEqual([], self.world.snapshots())

    def test_fails_if_the_snapshot_comes_too_late(self):
        """Defect 2: stock does not notice that a lock was lost before the snapshot."""
        self.set_policy(level=QuiesceLevel.FREEZE)
        create = self.world.served.storage.create_snapshot

        def slow(snapshot):
            self.world.now += worlds.LIMIT_SEC + 1
            create(snapshot)

        self.world.served.storage._inner.create_snapshot = slow
        self.assert_fails(exceptions.NotQuiescedError, 'resumed before', 'the limit passed')

    def test_reports_a_failure_and_leaves_nothing(self):
        """Defect 5: stock sends backup_create.end, and Cinder's snapshot stays."""
        for self.world.cinder.failing in ('before', 'after'):
            backup = self.world.add_backup()
            self.assert_fails(exceptions.AdoptionFailedError, backup=backup)
            message = self.world.records.get(backup.id).error
            self.assertIn('could not register it', message)

    def test_a_slow_cinder_does_not_extend_the_freeze(self):
        """Defect 1: stock keeps the file system frozen while it polls Cinder."""
        self.set_policy(level=QuiesceLevel.FREEZE)
        self.world.cinder.lag = 8
        record = self.take()
        self.assertEqual(0, record.quiesced_sec)
        self.assertGreater(record.take_sec, 1)

    def test_reports_the_exhausted_quota_of_snapshots(self):
        """Defect 12: all tenants share the quota of the service project."""
        self.world.cinder.quota.limits[worlds.SERVICE, 'snapshots'] = 0
        self.assert_fails(exceptions.QuotaExceededError)
        message = self.world.records.get(self.backup.id).error
        self.assertIn('own quota of volumes is used up', message)

    # Invalid requests.

    def test_refuses_servers_that_cannot_be_backed_up(self):
        """No level makes them safe, and the server is not quiesced to find that out."""
        self.set_policy(level=QuiesceLevel.FREEZE, unsafe_action=UnsafeAction.RAISE)
        for code, word in (('volume-full', '0 MiB free'), ('server-down', 'does not answer')):
            reason = {'code': code, 'object': word, 'remedy': 'do', 'freeze_suffices': False}
            self.world.guest.reasons = [reason]
            self.assert_fails(exceptions.UnsafeSettingsError, word, backup=self.world.add_backup())
        self.assertNotIn('guest quiesce_for_backup', self.world.events)

    def test_refuses_a_volume_that_is_frozen_already(self):
        """Quiescing fails, and leaves the thaw to the process that froze it."""
        self.set_policy(level=QuiesceLevel.FREEZE)

        def freeze(_self):
            raise exceptions.NotQuiescedError('the volume is frozen already')

        self.useFixture(fixtures.MonkeyPatch(f'{worlds.__name__}.SimulatedHold.freeze', freeze))
        self.assert_fails(exceptions.ServiceUnavailableError, 'is frozen already')

    def test_refuses_a_parent_of_another_instance(self):
        other = trove_database.add_instance(self.world.project, None)
        parent = trove_database.add_backup(other, state=BackupState.COMPLETED)
        child = self.world.add_backup(parent_id=parent.id)
        self.assert_fails(exceptions.InvalidBackupError, parent.id, backup=child)

    def test_refuses_a_deleted_instance(self):
        self.world.delete_server()
        self.assert_fails(exceptions.InvalidBackupError, 'was deleted')

    def test_refuses_a_volume_on_no_tier(self):
        self.world.volume['host'] = worlds.OTHER
        error = self.assertRaises(exceptions.NotAdoptableError, self.take)
        self.assertIn(f'is on backend {worlds.OTHER}, which belongs to no tier', str(error))
        # Tenants must not learn where their data is stored.
        record = self.world.records.get(self.backup.id)
        self.assertEqual(RecordState.FAILED, record.state)
        self.assertIn('cannot be used for it', record.error)
        self.assertNotIn(worlds.OTHER, record.error)

    def test_accepts_a_volume_of_a_cinder_cluster(self):
        """Its host names one service of the cluster, which may be down."""
        self.world.cinder.form_cluster('blocks', 'two')
        self.assertEqual('lab@nvme#nvme', self.world.volume['host'])
        record = self.take()
        self.assertEqual(RecordState.TAKEN, record.state)
        (snapshot,) = self.world.cinder.snapshots
        self.assertEqual([f'snapshot-{snapshot}'], self.world.snapshots())

    def test_refuses_an_instance_without_a_volume(self):
        del self.world.cinder.volumes[self.world.volume['id']]
        self.assert_fails(exceptions.InvalidBackupError, 'has no volume')

    def test_fails_if_the_guest_is_down(self):
        self.world.guest.is_down = True
        self.assert_fails(exceptions.ServiceUnavailableError, 'guest agent')

    def test_refuses_a_deleted_backup(self):
        self.backup.update(deleted=True)
        self.assertRaises(exceptions.InvalidBackupError, self.take)
        self.assertEqual([], self.world.snapshots())
