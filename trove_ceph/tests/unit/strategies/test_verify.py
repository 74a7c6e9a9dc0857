# SPDX-License-Identifier: Apache-2.0
import datetime
import itertools
import logging

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import backups
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import verify as backup_verify
from trove_ceph.tests.unit.strategies import vault_helpers
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.verification import world as servers
from trove_ceph.verification import inspection
from trove_ceph.verification import report as verification

UNFINISHED = verification.NotSoundError(verification.UNFINISHED, 'the time was up')


class World(worlds.World):
    """A world whose storage service inspects backups with servers that tests control."""

    def __init__(self):
        super().__init__()
        self.date = datetime.datetime(2026, 1, 1)
        self.records = backups.BackupStore(worlds._facade(), lambda: self.date)
        self.servers = servers.World()
        self.servers.storage = self.storage
        self.served = self.service(inspector=self._inspector)

    def _inspector(self, storage):
        return inspection.Inspector(storage, self.servers.sandbox, servers.SETTINGS)

    def inspections(self):
        """Return the requests to the storage service, the latest first."""
        listed = self.deps().storage.list_jobs()
        return [one.work for one in listed if isinstance(one.work, backup_verify.tasks.InspectTask)]


class CopiesWorld(World):
    """A world whose storage service has two copies, which get requests in turns."""

    def __init__(self):
        super().__init__()
        copies = [self.service(name, inspector=self._inspector) for name in ('one', 'two')]
        self._turns = itertools.cycle(copies)

    @property
    def served(self):
        return next(self._turns)

    @served.setter
    def served(self, service):
        self._turns = itertools.cycle([service])


def verify(world, backup_id, strike=None):
    """Verify a backup, and return its record."""
    # Two requests differ by their second.
    world.date += datetime.timedelta(seconds=1)
    world.now += 1
    world.records.queue.request_verification(backup_id)
    with vault_helpers.claimed(world, backup_id, Role.VERIFY) as claim:
        backup_verify.verify_backup(world.deps(strike), claim)
    return world.records.get(backup_id)


class VerificationInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    def make_world(self):
        world = World()
        world.backup = vault_helpers.take(world)
        world.records.queue.request_verification(world.backup)
        return world

    def make_operation(self, world, strike=None):
        claim = vault_helpers.claim(world, world.backup, Role.VERIFY)
        return backup_verify.BackupVerification(world.deps(strike), claim).steps()

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.verify_wanted_at))
        self.assertEqual(servers.POSITION, record.gtid_executed)
        self.assertEqual('sound', record.verification['verdict'])
        self.assertIsNotNone(record.verified_at)
        self.assertEqual(1, len(world.inspections()))
        self.assert_nothing_left(world)

    def check_undone(self, world):
        record = world.records.get(world.backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.verification))
        self.assert_nothing_left(world)

    def assert_nothing_left(self, world):
        self.assertEqual({world.volume_image.name}, world.images())
        self.assertEqual(([], []), (world.held_locks(), world.servers.open_clones()))


class DamagedInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """A backup that two copies of the service find damaged, one after the other."""

    def make_world(self):
        world = CopiesWorld()
        world.backup = vault_helpers.take(world)
        world.servers.raises = {'start': servers.corrupt('redo')}
        world.records.queue.request_verification(world.backup)
        return world

    def make_operation(self, world, strike=None):
        claim = vault_helpers.claim(world, world.backup, Role.VERIFY)
        return backup_verify.BackupVerification(world.deps(strike), claim).steps()

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual((RecordState.DAMAGED, None), (record.state, record.verify_wanted_at))
        found = [record.verification['first'], record.verification]
        self.assertEqual(2, len({one['clone_id'] for one in found}))
        self.assert_nothing_left(world)

    def check_undone(self, world):
        record = world.records.get(world.backup)
        self.assertIn(record.state, (RecordState.TAKEN, RecordState.SUSPECTED))
        self.assertIsNotNone(record.verify_wanted_at)
        self.assert_nothing_left(world)

    def assert_nothing_left(self, world):
        self.assertEqual({world.volume_image.name}, world.images())
        self.assertEqual(([], []), (world.held_locks(), world.servers.open_clones()))


class VerificationTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.make_backup()

    def make_backup(self, world=None):
        self.world = world or World()
        self.backup = vault_helpers.take(self.world)

    def find(self, **raises):
        """Let the server fail from now on."""
        self.world.servers.raises = raises

    def verify(self):
        return verify(self.world, self.backup)

    def test_marks_a_sound_backup_as_verified(self):
        record = self.verify()
        (work,) = self.world.inspections()
        self.assertEqual((record.location, self.backup), (work.snapshot, work.check_id))
        self.assertEqual(('9.7', None), (work.version, work.deep))
        # The server had this at the check of the settings; it may have executed more since.
        self.assertEqual(('uuid:1-7', False), (work.expected_gtid, work.exact))
        self.assertEqual('snapshot', record.verification['of'])
        self.assertEqual(record.verification['tables_checked'], len(self.world.servers.checked))
        self.assertIn('at', record.verification)
        self.assertIsNone(record.verify_error)

    def test_expects_exactly_the_same_transactions_in_a_copy(self):
        self.verify()
        record = vault_helpers.copy(self.world, self.backup)
        self.assertEqual(RecordState.VERIFIED, record.state)
        self.assertEqual('copy', self.verify().verification['of'])
        work = self.world.inspections()[0]
        self.assertEqual(record.copy, work.snapshot)
        self.assertEqual((servers.POSITION, True), (work.expected_gtid, work.exact))

    def test_finds_missing_transactions(self):
        position = f'{servers.SOURCE}:1-310'
        self.world.records._update(self.backup, gtid_before=position)
        record = self.verify()
        self.assertEqual(RecordState.DAMAGED, record.state)
        self.assertIn(
            f'incomplete: lacks the transactions {servers.SOURCE}:304-310', record.verify_error
        )
        self.assertIn('take another backup', record.verify_error)
        self.assertEqual((None, None), (record.gtid_executed, record.verified_at))

    def test_marks_a_backup_as_damaged_after_two_inspections(self):
        self.world.records.queue.request_copy(self.backup)
        self.find(start=servers.corrupt('redo'))
        record = self.verify()
        self.assertEqual(2, len(self.world.inspections()))
        first = record.verification['first']
        self.assertEqual(('corrupt', ['redo']), (first['verdict'], first['reasons']))
        self.assertNotEqual(first['clone_id'], record.verification['clone_id'])
        self.assertEqual(
            (RecordState.DAMAGED, 'corrupt'), (record.state, record.verification['verdict'])
        )
        self.assertIn('corrupt: redo', record.verify_error)
        # The copy is made once the backup is found sound.
        self.assertIsNotNone(record.copy_wanted_at)
        self.assertFalse(bool(trove_database.backup(self.backup).deleted))
        self.assertEqual([record.location.name], self.world.snapshots())
        self.find(start=servers.refused())
        self.assertRaises(exceptions.NotInspectableError, self.verify)
        self.find(start=UNFINISHED)
        for _ in range(2):
            record = self.verify()
            self.assertEqual(RecordState.DAMAGED, record.state)
            self.assertEqual('corrupt', record.verification['before']['verdict'])
            self.assertNotIn('before', record.verification['before'])

    def test_marks_a_damaged_backup_as_sound_after_checking_all_tables(self):
        self.find(start=servers.corrupt('redo'))
        self.verify()
        self.find()
        record = self.verify()
        self.assertTrue(self.world.inspections()[0].deep)
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.verify_error))
        self.assertEqual(['redo'], record.verification['before']['reasons'])

    def test_a_verified_backup_can_be_found_damaged(self):
        verified_at = self.verify().verified_at
        self.find(start=servers.corrupt('redo'))
        record = self.verify()
        self.assertEqual((RecordState.DAMAGED, verified_at), (record.state, record.verified_at))
        self.assertEqual(servers.POSITION, record.gtid_executed)

    def copy(self):
        """Copy the backup to the vault, and damage the copy."""
        self.verify()
        return vault_helpers.copy(self.world, self.backup).copy

    def test_replaces_a_damaged_copy_of_a_sound_snapshot(self):
        """The backup stays, and no copy in the damaged image is the base of the new one."""
        damaged = self.copy()
        self.find(start=[servers.corrupt('redo'), servers.corrupt('redo'), None])
        record = self.verify()
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.verify_error))
        self.assertEqual('snapshot', record.verification['of'])
        self.assertEqual(['redo'], record.verification['copy']['reasons'])
        self.assertIsNone(record.copy)
        self.assertIn('it was damaged: corrupt: redo', record.copy_base_because)
        self.assertNotIn(damaged.image, self.world.images('vault'))
        record = vault_helpers.copy(self.world, self.backup)
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.copy_base_id))
        self.assertIn('it was damaged', record.copy_base_because)
        self.assertEqual('copy', self.verify().verification['of'])

    def test_marks_a_backup_as_damaged_with_its_copy(self):
        copy = self.copy()
        self.find(start=servers.corrupt('redo'))
        record = self.verify()
        self.assertEqual(5, len(self.world.inspections()))
        self.assertEqual((RecordState.DAMAGED, copy), (record.state, record.copy))
        self.assertEqual('snapshot', record.verification['of'])
        self.assertEqual('corrupt', record.verification['copy']['verdict'])

    def test_keeps_a_copy_that_one_inspection_finds_damaged(self):
        copy = self.copy()
        self.find(start=[servers.corrupt('redo'), None])
        record = self.verify()
        self.assertEqual((RecordState.VERIFIED, copy), (record.state, record.copy))
        self.assertEqual('copy', record.verification['of'])
        self.assertEqual([copy.name], self.world.snapshots(copy.of))

    def test_keeps_a_damaged_copy_unless_the_snapshot_is_sound(self):
        damaged = [servers.corrupt('redo')] * 2
        for third, expected in (
            (UNFINISHED, None),
            (servers.refused(), exceptions.NotInspectableError),
            (servers.fault(), exceptions.InspectionFaultError),
        ):
            self.make_backup()
            copy = self.copy()
            self.find(start=[*damaged, third])
            if expected:
                self.assertRaises(expected, self.verify)
            else:
                self.verify()
            record = self.world.records.get(self.backup)
            self.assertEqual((RecordState.SUSPECTED, copy), (record.state, record.copy))
            self.assertEqual([copy.name], self.world.snapshots(copy.of))
            self.assertIsNone(record.copy_wanted_at)

    def test_fails_if_the_pool_of_the_snapshot_does_not_answer(self):
        """It is not known then whether the backup restores."""
        copy = self.copy()
        self.find(start=servers.corrupt('redo'))
        describe = self.world.served.endpoint.describe

        endpoint = self.world.served.endpoint

        def unreachable(context, image, **arguments):
            if image.pool != copy.pool:
                raise exceptions.CephUnreachableError('no answer')
            return describe(context, image=image, **arguments)

        endpoint.describe = unreachable
        self.assertRaises(exceptions.CephUnreachableError, self.verify)
        record = self.world.records.get(self.backup)
        self.assertEqual((RecordState.SUSPECTED, copy), (record.state, record.copy))

    def test_keeps_a_damaged_copy_without_a_snapshot(self):
        copy = self.copy()
        self.world.storage.remove_snapshot(self.world.records.get(self.backup).location)
        self.find(start=servers.corrupt('redo'))
        record = self.verify()
        self.assertEqual((RecordState.DAMAGED, copy), (record.state, record.copy))
        self.assertEqual('copy', record.verification['of'])

    def test_replaces_a_missing_copy(self):
        copy = self.copy()
        self.world.storage.remove_snapshot(copy)
        record = self.verify()
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.copy))
        self.assertEqual('it no longer exists', record.copy_base_because)
        self.assertIsNotNone(record.copy_wanted_at)

    def test_an_unfinished_inspection_proves_nothing(self):
        self.find(start=UNFINISHED)
        record = self.verify()
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.verified_at))
        self.assertIn('unfinished: the time was up', record.verify_error)
        self.assertIsNone(record.verify_wanted_at)
        self.find()
        self.assertEqual((RecordState.VERIFIED, None), (self.verify().state, record.verified_at))

    def test_a_backup_is_suspected_until_the_second_inspection_ends(self):
        self.find(start=[servers.corrupt('redo'), servers.fault()])
        self.assertRaises(exceptions.InspectionFaultError, self.verify)
        record = self.world.records.get(self.backup)
        self.assertEqual(RecordState.SUSPECTED, record.state)
        self.assertEqual(
            ('corrupt', 'snapshot'), tuple(record.verification[name] for name in ('verdict', 'of'))
        )
        self.assertIn(
            'corrupt: redo; a second inspection has not confirmed this yet', record.verify_error
        )
        self.assertIsNotNone(record.verify_wanted_at)
        # The same request continues with the second inspection: the first one is recorded.
        self.find(start=servers.corrupt('redo'))
        with vault_helpers.claimed(self.world, self.backup, Role.VERIFY) as claim:
            backup_verify.verify_backup(self.world.deps(), claim)
        self.assertEqual(RecordState.DAMAGED, self.world.records.get(self.backup).state)
        self.assertEqual(2, len(self.world.inspections()))

    def test_drops_a_suspicion_that_is_not_confirmed(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.find(start=[servers.corrupt('redo'), None])
        record = self.verify()
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.verify_error))
        self.assertEqual(['redo'], record.verification['first']['reasons'])
        self.assertIn('is sound, although an inspection by one found corrupt: redo', log.output)

    def test_a_later_verification_drops_the_suspicion(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.find(start=[servers.corrupt('redo'), UNFINISHED])
        record = self.verify()
        self.assertEqual((RecordState.SUSPECTED, None), (record.state, record.verify_wanted_at))
        self.assertIn('an earlier inspection found corrupt: redo', record.verify_error)
        self.find(start=UNFINISHED)
        self.assertEqual(RecordState.SUSPECTED, self.verify().state)
        self.find()
        self.assertEqual(RecordState.VERIFIED, self.verify().state)
        self.assertIn('is sound, although an earlier verification found', log.output)

    def test_a_backup_stays_suspected_if_inspections_disagree(self):
        missing = verification.NotSoundError(verification.INCOMPLETE, 'mysql.ibd is not there')
        self.find(start=[servers.corrupt('redo'), missing])
        record = self.verify()
        self.assertEqual((RecordState.SUSPECTED, None), (record.state, record.verify_wanted_at))
        self.assertIn('incomplete: mysql.ibd', record.verify_error)
        self.assertIn('an earlier inspection found corrupt: redo', record.verify_error)

    def test_another_copy_of_the_service_does_the_second_inspection(self):
        self.make_backup(CopiesWorld())
        self.find(start=servers.corrupt('redo'))
        began = self.world.now
        record = self.verify()
        self.assertEqual(RecordState.DAMAGED, record.state)
        by = {record.verification['inspected_by'], record.verification['first']['inspected_by']}
        self.assertEqual({'one', 'two'}, by)
        self.assertLess(self.world.now, began + 30)

    def test_the_same_copy_does_the_second_inspection_if_it_is_the_only_one(self):
        self.find(start=servers.corrupt('redo'))
        began = self.world.now
        record = self.verify()
        self.assertEqual(RecordState.DAMAGED, record.state)
        self.assertEqual('one', record.verification['inspected_by'])
        self.assertEqual('one', record.verification['first']['inspected_by'])
        self.assertGreaterEqual(self.world.now, began + 60)

    def test_reports_prepared_xa_transactions(self):
        self.world.servers.prepared = ["X'61',X'',1"]
        record = self.verify()
        self.assertEqual(
            (["X'61',X'',1"], 1),
            tuple(record.verification[name] for name in ('prepared_xa', 'prepared_xa_count')),
        )

    def test_retries_a_failed_inspection(self):
        self.find(start=servers.refused())
        self.assertRaises(exceptions.NotInspectableError, self.verify)
        record = self.world.records.get(self.backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.verification))
        self.assertIsNotNone(record.verify_wanted_at)
        self.find()
        self.assertEqual(RecordState.VERIFIED, self.verify().state)
        self.assertEqual(1, len(self.world.inspections()))

    def test_each_request_runs_an_inspection_of_its_own(self):
        for count in (1, 2):
            self.verify()
            self.assertEqual(count, len(self.world.inspections()))

    def test_refuses_failed_and_deleted_backups(self):
        with vault_helpers.claimed(self.world, self.backup, Role.VERIFY) as claim:
            backup_verify.verify_backup(self.world.deps(), claim)
        self.assertEqual([], self.world.inspections())
        trove_database.backup(self.backup).update(datastore_version_id=None)
        self.assertRaisesRegex(exceptions.InvalidBackupError, 'version', self.verify)
        self.world.records.begin_deleting(self.backup, self.world.worker())
        self.assertIsNone(vault_helpers.claim(self.world, self.backup, Role.VERIFY))

    def test_stops_if_the_backup_is_deleted(self):
        start_before = self.world.served.endpoint.start

        def start(context, **arguments):
            answer = start_before(context, **arguments)
            self.world.records.begin_deleting(self.backup, self.world.worker())
            return answer

        self.world.served.endpoint.start = start
        self.assertRaises(exceptions.ClaimLostError, self.verify)
        record = self.world.records.get(self.backup)
        self.assertEqual((RecordState.DELETING, None), (record.state, record.verification))
