# SPDX-License-Identifier: Apache-2.0
import contextlib
import uuid

import oslo_messaging as messaging
from oslo_utils import units
from oslotest import base

from trove_ceph import enums, exceptions
from trove_ceph.db import tables
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.storage import copying as storage_copying
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup import (
    backup_types,
    create,
    delete,
    tenant_errors,
    vault_copy,
    volume_cleanup,
)
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds

MIB = units.Mi


def take(world, **facts):
    """Return the id of a new backup."""
    backup = world.add_backup(**facts)
    create.create_backup(world.deps(), backup.id)
    return backup.id


def snapshot(world):
    """Return the id of a backup of which nobody but us knows, and that is to be copied."""
    backup_id = str(uuid.uuid4())
    place = world.volume_image.snapshot(names.snapshot_name('backup', backup_id))
    world.storage.create_snapshot(place)
    claim = world.records.begin_taking(backup_id, world.instance.id, world.project, world.worker())
    world.records.note_location(claim, place, world.volume['id'], 16 * MIB)
    world.records.note_taken(claim, place.name, 'cinder', 1.0, copy=True)
    return backup_id


def claim(world, backup_id, role=Role.COPY):
    """Claim a backup for a new worker, which knows that all others have ended."""
    return world.records.claims.claim(role, backup_id, world.worker())


@contextlib.contextmanager
def claimed(world, backup_id, role=Role.COPY):
    found = claim(world, backup_id, role)
    try:
        yield found
    finally:
        world.records.claims.release(found)


def copy(world, backup_id, strike=None):
    """Copy a backup to the vault, and return what is known of it then."""
    world.records.queue.request_copy(backup_id)
    with claimed(world, backup_id) as held:
        vault_copy.copy_to_vault(world.deps(strike), held)
    return world.records.get(backup_id)


def note_damaged(world, backup_id):
    with claimed(world, backup_id, Role.VERIFY) as held:
        world.records.results.note_damaged(held, {}, 1.0, 'pages are corrupt')


def write(world, letters, image=None):
    """Write the objects of the instance's volume anew, each with a letter; ``-`` leaves one out."""
    with world.storage.open_writer(image or world.volume_image) as writer:
        for number, letter in enumerate(letters):
            if letter != '-':
                writer.write(number * 4 * MIB, letter.encode() * MIB).result()


def content(world, snapshot):
    """Return what such objects hold in a snapshot."""
    with world.storage.open_reader(snapshot) as reader:
        return reader.read(0, 16 * MIB).result()


def vault(world):
    return image_types.ImageRef('vault', names.image_name('vault', world.instance.id))


class CopyingInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """A copy that is built upon another one."""

    def make_world(self):
        world = worlds.World()
        write(world, 'abc')
        world.first = snapshot(world)
        copy(world, world.first)
        write(world, '-x')
        world.backup = snapshot(world)
        return world

    def make_operation(self, world, strike=None):
        held = claim(world, world.backup)
        return vault_copy.VaultCopy(world.deps(strike), held).steps()

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual((RecordState.COPIED, None), (record.state, record.copy_wanted_at))
        self.assertEqual((world.first, MIB), (record.copy_base_id, record.moved_bytes))
        self.assertEqual(vault(world).snapshot(record.location.name), record.copy)
        self.assertEqual(content(world, record.location), content(world, record.copy))
        first = world.records.get(world.first).location.name
        self.assertEqual([first, record.location.name], world.snapshots(vault(world)))
        self.assertEqual(
            {vault(world).name, world.vault.name}, world.images('vault') | {world.vault.name}
        )
        self.assertEqual([], world.held_locks())

    def check_undone(self, world):
        record = world.records.get(world.backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.copy))
        self.assertEqual(1, len(world.snapshots(vault(world))))


class FirstCopyInterruptionTest(interruption.InterruptionTests, base.BaseTestCase):
    """A copy that is built upon none."""

    def make_world(self):
        world = worlds.World()
        write(world, 'abc')
        world.backup = snapshot(world)
        return world

    def make_operation(self, world):
        held = claim(world, world.backup)
        return vault_copy.VaultCopy(world.deps(), held).steps()

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual(RecordState.COPIED, record.state)
        self.assertEqual((None, None), (record.copy_base_id, record.copy_base_because))
        self.assertEqual((3 * MIB, 12 * MIB), (record.moved_bytes, record.used_bytes))
        self.assertEqual(vault(world).snapshot(record.location.name), record.copy)
        self.assertEqual(content(world, record.location), content(world, record.copy))

    def check_undone(self, world):
        record = world.records.get(world.backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.copy))
        self.assertNotIn(vault(world).name, world.images('vault'))


class BasesTest(base.BaseTestCase):
    """Upon which copy another one is built, and what becomes of it when that one goes."""

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        write(self.world, 'abcd')
        self.backups = []

    def take(self, letters='', **facts):
        """Change the volume and return the id of a backup of it."""
        write(self.world, letters)
        self.backups.append(take(self.world, **facts))
        return self.backups[-1]

    def copy(self, backup_id):
        record = copy(self.world, backup_id)
        self.assert_whole()
        return record

    def delete(self, backup_id):
        delete.delete_backup(self.world.deps(), backup_id)
        self.backups.remove(backup_id)
        self.assert_whole()

    def assert_whole(self):
        """Every copy holds what its source does, and nothing else is in the vault."""
        expected = {}
        for record in map(self.world.records.get, self.backups):
            if record.copied_at is not None:
                self.assertEqual(
                    content(self.world, record.location), content(self.world, record.copy)
                )
                expected.setdefault(record.copy.image, set()).add(record.copy.name)
        self.assertEqual(set(expected), self.world.images('vault') - {self.world.vault.name})
        for image, snapshots in expected.items():
            found = self.world.snapshots(image_types.ImageRef('vault', image))
            self.assertEqual(snapshots, set(found))

    def test_latest(self):
        first, second, third = self.take(), self.take('-x'), self.take('--x')
        self.assertEqual(4 * MIB, self.copy(first).moved_bytes)
        self.copy(second)
        record = self.copy(third)
        self.assertEqual((second, MIB), (record.copy_base_id, record.moved_bytes))
        self.assertIsNone(record.copy_base_because)

    def test_one_that_was_asked_for(self):
        first, second = self.take(), self.take('-x')
        third = self.take('--x', parent_id=first)
        self.copy(first)
        self.copy(second)
        record = self.copy(third)
        self.assertEqual((first, 2 * MIB), (record.copy_base_id, record.moved_bytes))
        self.assertIsNone(record.copy_base_because)

    def test_one_that_was_asked_for_and_is_not_in_the_vault(self):
        first, second = self.take(), self.take('-x')
        third = self.take('--x', parent_id=second)
        self.copy(first)
        record = self.copy(third)
        self.assertEqual(first, record.copy_base_id)
        self.assertEqual(f'backup {second} is not in the vault', record.copy_base_because)

    def test_out_of_order(self):
        first, second, third = self.take(), self.take('-x'), self.take('-y')
        self.copy(first)
        self.assertEqual(first, self.copy(third).copy_base_id)
        self.assertEqual(first, self.copy(second).copy_base_id)
        fourth = self.take('---z')
        record = self.copy(fourth)
        self.assertEqual((third, MIB), (record.copy_base_id, record.moved_bytes))

    def test_the_latest_first(self):
        first, second = self.take(), self.take('-x')
        self.assertEqual(vault(self.world), self.copy(second).copy.of)
        record = self.copy(first)
        # No difference leads back in time.
        self.assertEqual(names.image_name('vault', first), record.copy.image)
        self.assertIsNone(record.copy_base_id)
        third = self.take('--x')
        self.assertEqual(second, self.copy(third).copy_base_id)

    def test_chain_loses_its_links(self):
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

    def test_base_that_is_gone(self):
        first, second = self.take(), self.take('-x')
        self.copy(first)
        self.delete(first)
        record = self.copy(second)
        self.assertEqual((None, 4 * MIB), (record.copy_base_id, record.moved_bytes))

    def test_base_that_goes_meanwhile(self):
        first, second = self.take(), self.take('-x')
        self.copy(first)
        self.world.records.queue.request_copy(second)
        held = claim(self.world, second)
        for step in vault_copy.VaultCopy(self.world.deps(), held).steps()[:2]:
            step.do()
        self.assertEqual(first, self.world.records.get(second).copy_base_id)
        self.delete(first)
        record = self.copy(second)
        self.assertIsNone(record.copy_base_id)
        self.assertEqual(f'backup {first} was deleted', record.copy_base_because)

    def test_base_that_goes_when_the_copy_is_there(self):
        first, second = self.take(), self.take('-x')
        self.copy(first)
        self.world.records.queue.request_copy(second)
        held = claim(self.world, second)
        for step in vault_copy.VaultCopy(self.world.deps(), held).steps()[:3]:
            step.do()
        delete.delete_backup(self.world.deps(), first)
        self.backups.remove(first)
        place = self.world.records.get(second).copy
        self.assertEqual(place, self.copy(second).copy)

    def test_base_whose_copy_is_damaged_or_gone(self):
        first, second = self.take(), self.take('-x')
        place = self.copy(first).copy
        note_damaged(self.world, first)
        record = self.copy(second)
        self.assertEqual(names.image_name('vault', second), record.copy.image)
        self.assertEqual(f'backup {first} is damaged', record.copy_base_because)
        self.delete(first)
        third = self.take('--x')
        self.world.storage.remove_snapshot(record.copy)
        self.backups.remove(second)
        record = copy(self.world, third)
        self.assertEqual(f'backup {second} no longer has a complete copy', record.copy_base_because)
        self.assertEqual(place.of, record.copy.of)

    def test_another_volume(self):
        first = self.take()
        self.copy(first)
        volume = self.world.cinder.add_volume(worlds.SERVICE, worlds.NVME, status='in-use')
        self.world.instance.update(volume_id=volume['id'])
        write(self.world, 'z', self.world.cinder.image(volume))
        second, third = self.take(), self.take()
        record = self.copy(second)
        self.assertEqual(names.image_name('vault', second), record.copy.image)
        self.assertEqual(f'backup {first} was taken of another volume', record.copy_base_because)
        record = self.copy(third)
        self.assertEqual((second, 0), (record.copy_base_id, record.moved_bytes))
        for backup in (first, second, third):
            self.delete(backup)
        self.assertEqual([], self.world.trash())

    def test_another_vault(self):
        first, second = self.take(), self.take('-x')
        self.copy(first)
        record = self.world.records.get(first)
        elsewhere = image_types.SnapshotRef('vault-old', record.copy.image, record.copy.name)
        with claimed(self.world, first) as held:
            self.world.records.results.begin_copying(held, elsewhere)
        because = vault_copy._plan(self.world.deps(), self.world.records.get(second)).because
        self.assertEqual(f'backup {first} has its copy in another vault', because)

    def test_verified_backup_stays_so(self):
        first = self.take()
        with claimed(self.world, first, Role.VERIFY) as held:
            self.world.records.results.note_verified(held, 'uuid:1-7', {}, 1.0)
        self.assertEqual(RecordState.VERIFIED, self.copy(first).state)


class CopyingTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        write(self.world, 'abcd')
        self.backup = take(self.world)

    def assert_fails(self, error_class, *words):
        error = self.assertRaises(error_class, copy, self.world, self.backup)
        for word in words:
            self.assertIn(word, str(error))

    def fill_vault(self, free_bytes):
        for pool in ('vault', 'vault-data'):
            self.world.cluster.capacities[pool] = free_bytes

    def test_vault_that_is_full(self):
        self.fill_vault(2 * MIB)
        self.assert_fails(exceptions.NoSpaceError, 'vault')
        record = self.world.records.get(self.backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.copy))
        volume_cleanup.purge_trashed(self.world.deps())
        self.assertNotIn(vault(self.world).name, self.world.images('vault'))
        self.assertEqual([], self.world.trash())
        self.fill_vault(1024 * MIB)
        self.assertEqual(RecordState.COPIED, copy(self.world, self.backup).state)

    def test_vault_that_is_full_keeps_what_is_in_it(self):
        before = copy(self.world, self.backup)
        write(self.world, 'wxyz')
        second = take(self.world)
        self.fill_vault(6 * MIB)
        self.assertRaises(exceptions.NoSpaceError, copy, self.world, second)
        self.assertEqual([before.copy.name], self.world.snapshots(before.copy.of))
        self.assertEqual(content(self.world, before.location), content(self.world, before.copy))
        self.fill_vault(1024 * MIB)
        record = copy(self.world, second)
        self.assertEqual(content(self.world, record.location), content(self.world, record.copy))
        self.assertEqual(self.backup, record.copy_base_id)

    def test_image_that_holds_something_else(self):
        self.world.storage.create_image(vault(self.world), 4 * MIB, image_types.ImageOptions())
        write(self.world, '?', vault(self.world))
        self.assert_fails(exceptions.AlreadyExistsError, 'holds something else')
        record = copy(self.world, self.backup)
        self.assertEqual(vault(self.world), record.copy.of)

    def test_image_with_a_snapshot_made_by_hand(self):
        self.world.storage.create_image(vault(self.world), 4 * MIB, image_types.ImageOptions())
        self.world.storage.create_snapshot(vault(self.world).snapshot('by-hand'))
        record = copy(self.world, self.backup)
        self.assertEqual(names.image_name('vault', self.backup), record.copy.image)
        self.assertEqual(['by-hand'], self.world.snapshots(vault(self.world)))

    def test_no_vault(self):
        deps = self.world.deps()

        def refuse():
            raise exceptions.InvalidTiersError('no tier has the purpose vault')

        object.__setattr__(deps, 'vault', refuse)
        with claimed(self.world, self.backup) as held:
            self.assertRaises(exceptions.InvalidTiersError, vault_copy.copy_to_vault, deps, held)
        self.assertIsNone(self.world.records.get(self.backup).copy)

    def test_snapshot_that_is_gone(self):
        self.world.storage.remove_snapshot(self.world.records.get(self.backup).location)
        self.assert_fails(exceptions.NotFoundError, 'no longer exists')

    def test_backups_that_are_not_copied(self):
        note_damaged(self.world, self.backup)
        self.assert_fails(exceptions.InvalidBackupError, 'is damaged')
        self.world.records.begin_deleting(self.backup, self.world.worker())
        self.assertIsNone(claim(self.world, self.backup))

    def test_deleted_meanwhile(self):
        """Whoever deletes it has it from then on, and the copy is given up."""
        asked = self.world.served.endpoint.start
        deleter = self.world.worker()

        def start(context, **arguments):
            self.world.records.begin_deleting(self.backup, deleter)
            return asked(context, **arguments)

        self.world.served.endpoint.start = start
        self.assert_fails(exceptions.ClaimLostError, 'is being deleted')
        self.assertEqual(deleter.name, self.world.records.get(self.backup).claimed_by)
        self.assertEqual(RecordState.DELETING, self.world.records.get(self.backup).state)

    def test_job_that_takes_long(self):
        threads = worlds.service_world.Later()
        self.world.served = self.world.service(threads=threads)
        self.world.records.queue.request_copy(self.backup)
        began, asked = self.world.now, self.world.sleep

        def sleep(seconds):
            asked(seconds)
            for pool in worlds.service_world.POOLS.images:
                self.world.served.leases.renew(pool)
            if self.world.now > began + 1000:
                threads.run_next()

        self.world.sleep = sleep
        self.assertEqual(RecordState.COPIED, copy(self.world, self.backup).state)
        self.assertGreater(self.world.now, began + 1000)

    def test_service_that_does_not_answer(self):
        def lose(_context, **_arguments):
            raise messaging.MessagingTimeout

        began = self.world.now
        self.world.served.endpoint.start = lose
        self.assert_fails(exceptions.ServiceUnavailableError, 'no answer to start')
        self.assertLess(self.world.now, began + 600)

    def test_verified_once_it_is_copied(self):
        self.world.policy = backup_types.BackupSettings(verify=enums.VerifyWhen.COPIED)
        self.assertIsNotNone(copy(self.world, self.backup).verify_wanted_at)

    def test_what_storage_calls_complete(self):
        record = copy(self.world, self.backup)
        facts = self.world.storage.describe(record.copy.of)
        self.assertEqual([record.copy.name], list(storage_copying.complete_copies(facts)))

    # The quota of a project in the vault.

    def set_quota(self, gib):
        self.world.policy = backup_types.BackupSettings(vault_quota_gib=gib)

    def fill_quota(self, used_bytes):
        """Have another backup of the project occupy so much of the vault."""
        other = take(self.world)
        with claimed(self.world, other) as held:
            place = image_types.SnapshotRef(
                'vault', names.image_name('vault', str(uuid.uuid4())), 's'
            )
            self.world.records.results.begin_copying(held, place)
            self.world.records.results.note_copied(held, used_bytes, 1.0, used_bytes)
        return other

    def test_quota_that_is_used_up(self):
        other = self.fill_quota(1024 * MIB - 3 * MIB)
        self.set_quota(1)
        error = self.assertRaises(exceptions.VaultQuotaExceededError, copy, self.world, self.backup)
        for words in ('quota of the vault is 1 GiB (1024 MiB)', '1021 MiB are used', 'about 4 MiB'):
            self.assertIn(words, str(error))
        # Tenants are told, since they can do something about it; and nothing was begun.
        self.assertEqual(str(error), tenant_errors.tenant_message(error))
        self.assertIsNone(self.world.records.get(self.backup).copy)
        delete.delete_backup(self.world.deps(), other)
        self.assertEqual(RecordState.COPIED, copy(self.world, self.backup).state)

    def test_quota_that_suffices(self):
        self.fill_quota(1024 * MIB - 16 * MIB)
        self.set_quota(1)
        self.assertEqual(RecordState.COPIED, copy(self.world, self.backup).state)

    def test_quota_counts_what_an_increment_needs(self):
        self.set_quota(1)
        copy(self.world, self.backup)
        write(self.world, '-x')
        second = copy(self.world, take(self.world))
        self.assertEqual((self.backup, MIB), (second.copy_base_id, second.moved_bytes))
        # The latest copy holds 16 MiB, and moved 1 MiB; the next one needs about as much.
        other = self.fill_quota(1024 * MIB - 17 * MIB)
        third = take(self.world)
        self.assertRaises(exceptions.VaultQuotaExceededError, copy, self.world, third)
        delete.delete_backup(self.world.deps(), other)
        self.fill_quota(1024 * MIB - 18 * MIB)
        record = copy(self.world, third)
        self.assertEqual(
            (RecordState.COPIED, second.backup_id), (record.state, record.copy_base_id)
        )

    def test_quota_of_another_project(self):
        self.fill_quota(1024 * MIB)
        self.set_quota(1)
        with self.world.records._transactions.writing() as session:
            rows = session.query(tables.BackupRow).filter(tables.BackupRow.backup_id != self.backup)
            rows.update({'project_id': 'another'})
        self.assertEqual(RecordState.COPIED, copy(self.world, self.backup).state)
