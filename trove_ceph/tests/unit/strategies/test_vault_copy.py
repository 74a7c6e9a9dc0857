# SPDX-License-Identifier: Apache-2.0
import oslo_messaging as messaging
from oslo_utils import units
from oslotest import base

from trove_ceph import enums, exceptions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.storage import copying as storage_copying
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup import backup_types, delete, vault_copy, volume_cleanup
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import vault_helpers
from trove_ceph.tests.unit.strategies import world as worlds

MIB = units.Mi


class CopyingInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """An incremental copy."""

    def make_world(self):
        world = worlds.World()
        vault_helpers.write(world, 'abc')
        world.first = vault_helpers.snapshot(world)
        vault_helpers.copy(world, world.first)
        vault_helpers.write(world, '-x')
        world.backup = vault_helpers.snapshot(world)
        return world

    def make_operation(self, world, strike=None):
        claim = vault_helpers.claim(world, world.backup)
        return vault_copy.VaultCopy(world.deps(strike), claim).steps()

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual((RecordState.COPIED, None), (record.state, record.copy_wanted_at))
        self.assertEqual((world.first, MIB), (record.copy_base_id, record.moved_bytes))
        self.assertEqual(vault_helpers.vault(world).snapshot(record.location.name), record.copy)
        self.assertEqual(
            vault_helpers.content(world, record.location), vault_helpers.content(world, record.copy)
        )
        first = world.records.get(world.first).location.name
        self.assertEqual([first, record.location.name], world.snapshots(vault_helpers.vault(world)))
        self.assertEqual(
            {vault_helpers.vault(world).name, world.vault.name},
            world.images('vault') | {world.vault.name},
        )
        self.assertEqual([], world.held_locks())

    def check_undone(self, world):
        record = world.records.get(world.backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.copy))
        self.assertEqual(1, len(world.snapshots(vault_helpers.vault(world))))


class FirstCopyInterruptionTest(interruption.InterruptionTests, base.BaseTestCase):
    """A full copy."""

    def make_world(self):
        world = worlds.World()
        vault_helpers.write(world, 'abc')
        world.backup = vault_helpers.snapshot(world)
        return world

    def make_operation(self, world):
        claim = vault_helpers.claim(world, world.backup)
        return vault_copy.VaultCopy(world.deps(), claim).steps()

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual(RecordState.COPIED, record.state)
        self.assertEqual((None, None), (record.copy_base_id, record.copy_base_because))
        self.assertEqual((3 * MIB, 12 * MIB), (record.moved_bytes, record.used_bytes))
        self.assertEqual(vault_helpers.vault(world).snapshot(record.location.name), record.copy)
        self.assertEqual(
            vault_helpers.content(world, record.location), vault_helpers.content(world, record.copy)
        )

    def check_undone(self, world):
        record = world.records.get(world.backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.copy))
        self.assertNotIn(vault_helpers.vault(world).name, world.images('vault'))


class BasesTest(base.BaseTestCase):
    """The choice of the base of a copy, and the deletion of bases."""

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        vault_helpers.write(self.world, 'abcd')
        self.backups = []

    def take(self, letters='', **facts):
        """Change the volume and return the id of a backup of it."""
        vault_helpers.write(self.world, letters)
        self.backups.append(vault_helpers.take(self.world, **facts))
        return self.backups[-1]

    def copy(self, backup_id):
        record = vault_helpers.copy(self.world, backup_id)
        self.assert_whole()
        return record

    def delete(self, backup_id):
        delete.delete_backup(self.world.deps(), backup_id)
        self.backups.remove(backup_id)
        self.assert_whole()

    def assert_whole(self):
        """Assert that each copy equals its source, and that the vault holds nothing else."""
        expected = {}
        for record in map(self.world.records.get, self.backups):
            if record.copied_at is not None:
                self.assertEqual(
                    vault_helpers.content(self.world, record.location),
                    vault_helpers.content(self.world, record.copy),
                )
                expected.setdefault(record.copy.image, set()).add(record.copy.name)
        self.assertEqual(set(expected), self.world.images('vault') - {self.world.vault.name})
        for image, snapshots in expected.items():
            found = self.world.snapshots(image_types.ImageRef('vault', image))
            self.assertEqual(snapshots, set(found))

    def test_chooses_the_latest_copy(self):
        first, second, third = self.take(), self.take('-x'), self.take('--x')
        self.assertEqual(4 * MIB, self.copy(first).moved_bytes)
        self.copy(second)
        record = self.copy(third)
        self.assertEqual((second, MIB), (record.copy_base_id, record.moved_bytes))
        self.assertIsNone(record.copy_base_because)

    def test_chooses_the_requested_base(self):
        first, second = self.take(), self.take('-x')
        third = self.take('--x', parent_id=first)
        self.copy(first)
        self.copy(second)
        record = self.copy(third)
        self.assertEqual((first, 2 * MIB), (record.copy_base_id, record.moved_bytes))
        self.assertIsNone(record.copy_base_because)

    def test_chooses_another_base_if_the_requested_one_has_no_copy(self):
        first, second = self.take(), self.take('-x')
        third = self.take('--x', parent_id=second)
        self.copy(first)
        record = self.copy(third)
        self.assertEqual(first, record.copy_base_id)
        self.assertEqual(f'backup {second} is not in the vault', record.copy_base_because)

    def test_copies_out_of_order(self):
        first, second, third = self.take(), self.take('-x'), self.take('-y')
        self.copy(first)
        self.assertEqual(first, self.copy(third).copy_base_id)
        self.assertEqual(first, self.copy(second).copy_base_id)
        fourth = self.take('---z')
        record = self.copy(fourth)
        self.assertEqual((third, MIB), (record.copy_base_id, record.moved_bytes))

    def test_does_not_choose_a_later_backup(self):
        first, second = self.take(), self.take('-x')
        self.assertEqual(vault_helpers.vault(self.world), self.copy(second).copy.of)
        record = self.copy(first)
        # A difference cannot go back in time.
        self.assertEqual(names.image_name('vault', first), record.copy.image)
        self.assertIsNone(record.copy_base_id)
        third = self.take('--x')
        self.assertEqual(second, self.copy(third).copy_base_id)

    def test_deletes_members_of_a_chain(self):
        chain = [self.take('-' * number + 'x') for number in range(4)]
        for backup in chain:
            self.copy(backup)
        for backup in (chain[1], chain[0], chain[3]):
            self.delete(backup)
        last = self.take('yy')
        self.assertEqual(chain[2], self.copy(last).copy_base_id)
        self.delete(chain[2])
        self.delete(last)
        self.assertEqual([], self.world.trash())

    def test_copies_in_full_if_the_base_is_deleted(self):
        first, second = self.take(), self.take('-x')
        self.copy(first)
        self.delete(first)
        record = self.copy(second)
        self.assertEqual((None, 4 * MIB), (record.copy_base_id, record.moved_bytes))

    def test_chooses_again_if_the_base_is_deleted_before_the_copy(self):
        first, second = self.take(), self.take('-x')
        self.copy(first)
        self.world.records.queue.request_copy(second)
        claim = vault_helpers.claim(self.world, second)
        for step in vault_copy.VaultCopy(self.world.deps(), claim).steps()[:2]:
            step.do()
        self.assertEqual(first, self.world.records.get(second).copy_base_id)
        self.delete(first)
        record = self.copy(second)
        self.assertIsNone(record.copy_base_id)
        self.assertEqual(f'backup {first} was deleted', record.copy_base_because)

    def test_keeps_the_copy_if_the_base_is_deleted_after_it(self):
        first, second = self.take(), self.take('-x')
        self.copy(first)
        self.world.records.queue.request_copy(second)
        claim = vault_helpers.claim(self.world, second)
        for step in vault_copy.VaultCopy(self.world.deps(), claim).steps()[:3]:
            step.do()
        delete.delete_backup(self.world.deps(), first)
        self.backups.remove(first)
        location = self.world.records.get(second).copy
        self.assertEqual(location, self.copy(second).copy)

    def test_does_not_choose_a_damaged_or_missing_copy(self):
        first, second = self.take(), self.take('-x')
        location = self.copy(first).copy
        vault_helpers.record_damaged(self.world, first)
        record = self.copy(second)
        self.assertEqual(names.image_name('vault', second), record.copy.image)
        self.assertEqual(f'backup {first} is damaged', record.copy_base_because)
        self.delete(first)
        third = self.take('--x')
        self.world.storage.remove_snapshot(record.copy)
        self.backups.remove(second)
        record = vault_helpers.copy(self.world, third)
        self.assertEqual(f'backup {second} no longer has a complete copy', record.copy_base_because)
        self.assertEqual(location.of, record.copy.of)

    def test_does_not_choose_a_copy_of_another_volume(self):
        first = self.take()
        self.copy(first)
        volume = self.world.cinder.add_volume(worlds.SERVICE, worlds.NVME, status='in-use')
        self.world.instance.update(volume_id=volume['id'])
        vault_helpers.write(self.world, 'z', self.world.cinder.image(volume))
        second, third = self.take(), self.take()
        record = self.copy(second)
        self.assertEqual(names.image_name('vault', second), record.copy.image)
        self.assertEqual(f'backup {first} was taken of another volume', record.copy_base_because)
        record = self.copy(third)
        self.assertEqual((second, 0), (record.copy_base_id, record.moved_bytes))
        for backup in (first, second, third):
            self.delete(backup)
        self.assertEqual([], self.world.trash())

    def test_does_not_choose_a_copy_in_another_vault(self):
        first, second = self.take(), self.take('-x')
        self.copy(first)
        record = self.world.records.get(first)
        elsewhere = image_types.SnapshotRef('vault-old', record.copy.image, record.copy.name)
        with vault_helpers.claimed(self.world, first) as claim:
            self.world.records.results.begin_copying(claim, elsewhere)
        because = vault_copy._plan(self.world.deps(), self.world.records.get(second)).because
        self.assertEqual(f'backup {first} has its copy in another vault', because)

    def test_a_verified_backup_stays_verified(self):
        first = self.take()
        with vault_helpers.claimed(self.world, first, Role.VERIFY) as claim:
            self.world.records.results.record_verified(claim, 'uuid:1-7', {}, 1.0)
        self.assertEqual(RecordState.VERIFIED, self.copy(first).state)


class CopyingTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        vault_helpers.write(self.world, 'abcd')
        self.backup = vault_helpers.take(self.world)

    def assert_fails(self, error_class, *words):
        error = self.assertRaises(error_class, vault_helpers.copy, self.world, self.backup)
        for word in words:
            self.assertIn(word, str(error))

    def fill_vault(self, free_bytes):
        for pool in ('vault', 'vault-data'):
            self.world.cluster.capacities[pool] = free_bytes

    def test_removes_a_partial_copy_if_the_vault_is_full(self):
        self.fill_vault(2 * MIB)
        self.assert_fails(exceptions.NoSpaceError, 'vault')
        record = self.world.records.get(self.backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.copy))
        volume_cleanup.purge_trashed(self.world.deps())
        self.assertNotIn(vault_helpers.vault(self.world).name, self.world.images('vault'))
        self.assertEqual([], self.world.trash())
        self.fill_vault(1024 * MIB)
        self.assertEqual(RecordState.COPIED, vault_helpers.copy(self.world, self.backup).state)

    def test_keeps_other_copies_if_the_vault_is_full(self):
        before = vault_helpers.copy(self.world, self.backup)
        vault_helpers.write(self.world, 'wxyz')
        second = vault_helpers.take(self.world)
        self.fill_vault(6 * MIB)
        self.assertRaises(exceptions.NoSpaceError, vault_helpers.copy, self.world, second)
        self.assertEqual([before.copy.name], self.world.snapshots(before.copy.of))
        self.assertEqual(
            vault_helpers.content(self.world, before.location),
            vault_helpers.content(self.world, before.copy),
        )
        self.fill_vault(1024 * MIB)
        record = vault_helpers.copy(self.world, second)
        self.assertEqual(
            vault_helpers.content(self.world, record.location),
            vault_helpers.content(self.world, record.copy),
        )
        self.assertEqual(self.backup, record.copy_base_id)

    def test_refuses_an_image_with_other_data(self):
        self.world.storage.create_image(
            vault_helpers.vault(self.world), 4 * MIB, image_types.ImageOptions()
        )
        vault_helpers.write(self.world, '?', vault_helpers.vault(self.world))
        self.assert_fails(exceptions.AlreadyExistsError, 'has other content')
        record = vault_helpers.copy(self.world, self.backup)
        self.assertEqual(vault_helpers.vault(self.world), record.copy.of)

    def test_leaves_an_image_with_a_snapshot_made_by_hand(self):
        self.world.storage.create_image(
            vault_helpers.vault(self.world), 4 * MIB, image_types.ImageOptions()
        )
        self.world.storage.create_snapshot(vault_helpers.vault(self.world).snapshot('by-hand'))
        record = vault_helpers.copy(self.world, self.backup)
        self.assertEqual(names.image_name('vault', self.backup), record.copy.image)
        self.assertEqual(['by-hand'], self.world.snapshots(vault_helpers.vault(self.world)))

    def test_fails_without_a_vault(self):
        deps = self.world.deps()

        def refuse():
            raise exceptions.InvalidTiersError('no tier has the purpose vault')

        object.__setattr__(deps, 'vault', refuse)
        with vault_helpers.claimed(self.world, self.backup) as claim:
            self.assertRaises(exceptions.InvalidTiersError, vault_copy.copy_to_vault, deps, claim)
        self.assertIsNone(self.world.records.get(self.backup).copy)

    def test_fails_if_the_snapshot_is_gone(self):
        self.world.storage.remove_snapshot(self.world.records.get(self.backup).location)
        self.assert_fails(exceptions.NotFoundError, 'no longer exists')

    def test_refuses_damaged_and_deleted_backups(self):
        vault_helpers.record_damaged(self.world, self.backup)
        self.assert_fails(exceptions.InvalidBackupError, 'is damaged')
        self.world.records.begin_deleting(self.backup, self.world.worker())
        self.assertIsNone(vault_helpers.claim(self.world, self.backup))

    def test_stops_if_the_backup_is_deleted(self):
        """The worker that deletes the backup has its claim, and the copy fails."""
        start_before = self.world.served.endpoint.start
        deleter = self.world.worker()

        def start(context, **arguments):
            self.world.records.begin_deleting(self.backup, deleter)
            return start_before(context, **arguments)

        self.world.served.endpoint.start = start
        self.assert_fails(exceptions.ClaimLostError, 'is being deleted')
        self.assertEqual(deleter.name, self.world.records.get(self.backup).claimed_by)
        self.assertEqual(RecordState.DELETING, self.world.records.get(self.backup).state)

    def test_waits_for_a_long_job(self):
        threads = worlds.service_world.DeferredExecutor()
        self.world.served = self.world.service(threads=threads)
        self.world.records.queue.request_copy(self.backup)
        began, sleep_before = self.world.now, self.world.sleep

        def sleep(seconds):
            sleep_before(seconds)
            for pool in worlds.service_world.POOLS.images:
                self.world.served.leases.renew(pool)
            if self.world.now > began + 1000:
                threads.run_next()

        self.world.sleep = sleep
        self.assertEqual(RecordState.COPIED, vault_helpers.copy(self.world, self.backup).state)
        self.assertGreater(self.world.now, began + 1000)

    def test_fails_if_the_service_does_not_answer(self):
        def lose(_context, **_arguments):
            raise messaging.MessagingTimeout

        began = self.world.now
        self.world.served.endpoint.start = lose
        self.assert_fails(exceptions.ServiceUnavailableError, 'no answer to start')
        self.assertLess(self.world.now, began + 600)

    def test_requests_a_verification_after_the_copy(self):
        self.world.policy = backup_types.BackupSettings(verify=enums.VerifyWhen.COPIED)
        self.assertIsNotNone(vault_helpers.copy(self.world, self.backup).verify_wanted_at)

    def test_counts_what_an_attempt_moved_whose_result_was_lost(self):
        self.world.records.queue.request_copy(self.backup)
        with vault_helpers.claimed(self.world, self.backup) as claim:
            for step in vault_copy.VaultCopy(self.world.deps(), claim).steps()[:2]:
                step.do()
        record = self.world.records.get(self.backup)
        storage = self.world.storage
        storage_copying.copy(storage, record.location, storage, record.copy.of)
        record = vault_helpers.copy(self.world, self.backup)
        self.assertEqual((4 * MIB, 16 * MIB), (record.moved_bytes, record.used_bytes))

    def test_the_storage_finds_the_copy_complete(self):
        record = vault_helpers.copy(self.world, self.backup)
        facts = self.world.storage.describe(record.copy.of)
        self.assertEqual([record.copy.name], list(storage_copying.complete_copies(facts)))
