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
from trove_ceph.tests.unit.strategies import test_vault_copy
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.verification import world as servers
from trove_ceph.verification import inspection
from trove_ceph.verification import report as verification

UNFINISHED = verification.Finding(verification.UNFINISHED, 'the time was up')


class World(worlds.World):
    """One whose storage service inspects backups, by servers that tests decide."""

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
        """Return what was asked of the storage service, the latest first."""
        listed = self.deps().storage.list_jobs()
        return [one.work for one in listed if isinstance(one.work, backup_verify.tasks.InspectTask)]


class CopiesWorld(World):
    """One whose storage service has two copies, which are asked in turns."""

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
    """Verify a backup, and return what is known of it then."""
    # One request is told from another one by its second.
    world.date += datetime.timedelta(seconds=1)
    world.now += 1
    world.records.queue.request_verification(backup_id)
    with test_vault_copy.claimed(world, backup_id, Role.VERIFY) as held:
        backup_verify.verify_backup(world.deps(strike), held)
    return world.records.get(backup_id)


class VerifyingInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    def make_world(self):
        world = World()
        world.backup = test_vault_copy.take(world)
        world.records.queue.request_verification(world.backup)
        return world

    def make_operation(self, world, strike=None):
        held = test_vault_copy.claim(world, world.backup, Role.VERIFY)
        return backup_verify.BackupVerification(world.deps(strike), held).steps()

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
        self.assertEqual(([], []), (world.held_locks(), world.servers.held()))


class DamagedInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """A backup that is found damaged, by one copy of the service and then by another one."""

    def make_world(self):
        world = CopiesWorld()
        world.backup = test_vault_copy.take(world)
        world.servers.raises = {'start': servers.corrupt('redo')}
        world.records.queue.request_verification(world.backup)
        return world

    def make_operation(self, world, strike=None):
        held = test_vault_copy.claim(world, world.backup, Role.VERIFY)
        return backup_verify.BackupVerification(world.deps(strike), held).steps()

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
        self.assertEqual(([], []), (world.held_locks(), world.servers.held()))


class VerifyingTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.make_backup()

    def make_backup(self, world=None):
        self.world = world or World()
        self.backup = test_vault_copy.take(self.world)

    def find(self, **raises):
        """Have the server raise from now on."""
        self.world.servers.raises = raises

    def verify(self):
        return verify(self.world, self.backup)

    def test_sound(self):
        record = self.verify()
        (work,) = self.world.inspections()
        self.assertEqual((record.location, self.backup), (work.snapshot, work.check_id))
        self.assertEqual(('9.7', None), (work.version, work.deep))
        # What the server had when the guest agent was asked; more may have been added since.
        self.assertEqual(('uuid:1-7', False), (work.expected_gtid, work.exact))
        self.assertEqual('snapshot', record.verification['of'])
        self.assertEqual(record.verification['tables_checked'], len(self.world.servers.checked))
        self.assertIn('at', record.verification)
        self.assertIsNone(record.verify_error)

    def test_copy_has_exactly_the_same_transactions(self):
        self.verify()
        record = test_vault_copy.copy(self.world, self.backup)
        self.assertEqual(RecordState.VERIFIED, record.state)
        self.assertEqual('copy', self.verify().verification['of'])
        work = self.world.inspections()[0]
        self.assertEqual(record.copy, work.snapshot)
        self.assertEqual((servers.POSITION, True), (work.expected_gtid, work.exact))

    def test_transactions_that_are_missing(self):
        position = f'{servers.SOURCE}:1-310'
        self.world.records._update(self.backup, gtid_before=position)
        record = self.verify()
        self.assertEqual(RecordState.DAMAGED, record.state)
        self.assertIn(
            f'incomplete: lacks the transactions {servers.SOURCE}:304-310', record.verify_error
        )
        self.assertIn('take another backup', record.verify_error)
        self.assertEqual((None, None), (record.gtid_executed, record.verified_at))

    def test_damage_that_two_inspections_find_is_seen_and_stays(self):
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
        # It is made once the backup is found sound after all.
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

    def test_damaged_is_called_sound_by_a_look_at_all_of_it(self):
        self.find(start=servers.corrupt('redo'))
        self.verify()
        self.find()
        record = self.verify()
        self.assertTrue(self.world.inspections()[0].deep)
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.verify_error))
        self.assertEqual(['redo'], record.verification['before']['reasons'])

    def test_verified_is_found_damaged_later(self):
        verified_at = self.verify().verified_at
        self.find(start=servers.corrupt('redo'))
        record = self.verify()
        self.assertEqual((RecordState.DAMAGED, verified_at), (record.state, record.verified_at))
        self.assertEqual(servers.POSITION, record.gtid_executed)

    def copy(self):
        """Have the backup be in the vault, too, and its copy not be what it was."""
        self.verify()
        return test_vault_copy.copy(self.world, self.backup).copy

    def test_damaged_copy_of_a_sound_snapshot(self):
        """What restores is not given up, nor built upon what lies beside the damage."""
        damaged = self.copy()
        self.find(start=[servers.corrupt('redo'), servers.corrupt('redo'), None])
        record = self.verify()
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.verify_error))
        self.assertEqual('snapshot', record.verification['of'])
        self.assertEqual(['redo'], record.verification['copy']['reasons'])
        self.assertIsNone(record.copy)
        self.assertIn('it was damaged: corrupt: redo', record.copy_base_because)
        self.assertNotIn(damaged.image, self.world.images('vault'))
        record = test_vault_copy.copy(self.world, self.backup)
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.copy_base_id))
        self.assertIn('it was damaged', record.copy_base_because)
        self.assertEqual('copy', self.verify().verification['of'])

    def test_both_are_damaged(self):
        copy = self.copy()
        self.find(start=servers.corrupt('redo'))
        record = self.verify()
        self.assertEqual(5, len(self.world.inspections()))
        self.assertEqual((RecordState.DAMAGED, copy), (record.state, record.copy))
        self.assertEqual('snapshot', record.verification['of'])
        self.assertEqual('corrupt', record.verification['copy']['verdict'])

    def test_copy_that_only_one_inspection_finds_damaged_stays(self):
        copy = self.copy()
        self.find(start=[servers.corrupt('redo'), None])
        record = self.verify()
        self.assertEqual((RecordState.VERIFIED, copy), (record.state, record.copy))
        self.assertEqual('copy', record.verification['of'])
        self.assertEqual([copy.name], self.world.snapshots(copy.of))

    def test_damaged_copy_stays_unless_the_snapshot_is_found_sound(self):
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

    def test_damaged_copy_while_the_pool_of_the_snapshot_does_not_answer(self):
        """Nobody knows then whether the backup restores."""
        copy = self.copy()
        self.find(start=servers.corrupt('redo'))
        describe = self.world.served.endpoint.describe

        asked = self.world.served.endpoint

        def unreachable(context, image, **arguments):
            if image.pool != copy.pool:
                raise exceptions.CephUnreachableError('no answer')
            return describe(context, image=image, **arguments)

        asked.describe = unreachable
        self.assertRaises(exceptions.CephUnreachableError, self.verify)
        record = self.world.records.get(self.backup)
        self.assertEqual((RecordState.SUSPECTED, copy), (record.state, record.copy))

    def test_damaged_copy_without_a_snapshot(self):
        copy = self.copy()
        self.world.storage.remove_snapshot(self.world.records.get(self.backup).location)
        self.find(start=servers.corrupt('redo'))
        record = self.verify()
        self.assertEqual((RecordState.DAMAGED, copy), (record.state, record.copy))
        self.assertEqual('copy', record.verification['of'])

    def test_copy_that_is_gone(self):
        copy = self.copy()
        self.world.storage.remove_snapshot(copy)
        record = self.verify()
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.copy))
        self.assertEqual('it no longer exists', record.copy_base_because)
        self.assertIsNotNone(record.copy_wanted_at)

    def test_unfinished_is_neither(self):
        self.find(start=UNFINISHED)
        record = self.verify()
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.verified_at))
        self.assertIn('unfinished: the time was up', record.verify_error)
        self.assertIsNone(record.verify_wanted_at)
        self.find()
        self.assertEqual((RecordState.VERIFIED, None), (self.verify().state, record.verified_at))

    def test_one_inspection_makes_it_suspected_until_another_one_ends(self):
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
        # The same request for a verification goes on where it ended: the first one is known.
        self.find(start=servers.corrupt('redo'))
        with test_vault_copy.claimed(self.world, self.backup, Role.VERIFY) as held:
            backup_verify.verify_backup(self.world.deps(), held)
        self.assertEqual(RecordState.DAMAGED, self.world.records.get(self.backup).state)
        self.assertEqual(2, len(self.world.inspections()))

    def test_suspicion_that_a_second_inspection_does_not_confirm(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.find(start=[servers.corrupt('redo'), None])
        record = self.verify()
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.verify_error))
        self.assertEqual(['redo'], record.verification['first']['reasons'])
        self.assertIn('is sound, although an inspection by one found corrupt: redo', log.output)

    def test_suspicion_that_a_later_verification_does_not_share(self):
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

    def test_inspections_that_contradict_each_other(self):
        missing = verification.Finding(verification.INCOMPLETE, 'mysql.ibd is not there')
        self.find(start=[servers.corrupt('redo'), missing])
        record = self.verify()
        self.assertEqual((RecordState.SUSPECTED, None), (record.state, record.verify_wanted_at))
        self.assertIn('incomplete: mysql.ibd', record.verify_error)
        self.assertIn('an earlier inspection found corrupt: redo', record.verify_error)

    def test_second_inspection_is_by_another_copy_of_the_service(self):
        self.make_backup(CopiesWorld())
        self.find(start=servers.corrupt('redo'))
        began = self.world.now
        record = self.verify()
        self.assertEqual(RecordState.DAMAGED, record.state)
        by = {record.verification['inspected_by'], record.verification['first']['inspected_by']}
        self.assertEqual({'one', 'two'}, by)
        self.assertLess(self.world.now, began + 30)

    def test_second_inspection_is_by_the_same_copy_where_there_is_no_other(self):
        self.find(start=servers.corrupt('redo'))
        began = self.world.now
        record = self.verify()
        self.assertEqual(RecordState.DAMAGED, record.state)
        self.assertEqual('one', record.verification['inspected_by'])
        self.assertEqual('one', record.verification['first']['inspected_by'])
        self.assertGreaterEqual(self.world.now, began + 60)

    def test_xa_transactions_are_told(self):
        self.world.servers.prepared = ["X'61',X'',1"]
        record = self.verify()
        self.assertEqual(
            (["X'61',X'',1"], 1),
            tuple(record.verification[name] for name in ('prepared_xa', 'prepared_xa_count')),
        )

    def test_what_cannot_be_found_out_is_tried_again(self):
        self.find(start=servers.refused())
        self.assertRaises(exceptions.NotInspectableError, self.verify)
        record = self.world.records.get(self.backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.verification))
        self.assertIsNotNone(record.verify_wanted_at)
        self.find()
        self.assertEqual(RecordState.VERIFIED, self.verify().state)
        self.assertEqual(1, len(self.world.inspections()))

    def test_each_request_is_a_look_of_its_own(self):
        for count in (1, 2):
            self.verify()
            self.assertEqual(count, len(self.world.inspections()))

    def test_backups_that_are_not_verified(self):
        with test_vault_copy.claimed(self.world, self.backup, Role.VERIFY) as held:
            backup_verify.verify_backup(self.world.deps(), held)
        self.assertEqual([], self.world.inspections())
        trove_database.backup(self.backup).update(datastore_version_id=None)
        self.assertRaisesRegex(exceptions.InvalidBackupError, 'version', self.verify)
        self.world.records.begin_deleting(self.backup, self.world.worker())
        self.assertIsNone(test_vault_copy.claim(self.world, self.backup, Role.VERIFY))

    def test_deleted_meanwhile(self):
        asked = self.world.served.endpoint.start

        def start(context, **arguments):
            answer = asked(context, **arguments)
            self.world.records.begin_deleting(self.backup, self.world.worker())
            return answer

        self.world.served.endpoint.start = start
        self.assertRaises(exceptions.ClaimLostError, self.verify)
        record = self.world.records.get(self.backup)
        self.assertEqual((RecordState.DELETING, None), (record.state, record.verification))
