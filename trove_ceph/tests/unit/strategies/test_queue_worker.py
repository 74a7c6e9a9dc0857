# SPDX-License-Identifier: Apache-2.0
import datetime
import threading

from oslotest import base

from trove_ceph import enums, exceptions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup import (
    backup_types,
    delete,
    queue_worker,
    storage_jobs,
    vault_copy,
)
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import test_vault_copy, test_verify
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.verification import world as servers

SINCE = datetime.timedelta(minutes=30)
MINUTE = datetime.timedelta(minutes=1)


class FulfillingTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.prepare()

    def prepare(self):
        self.world = test_verify.World()
        test_vault_copy.write(self.world, 'ab')

    def take(self, copy=False, verify=enums.VerifyWhen.NEVER):
        self.world.policy = backup_types.BackupSettings(copy=copy, verify=verify)
        self.world.date += MINUTE
        return test_vault_copy.take(self.world)

    def fulfill(self, room=100):
        queue_worker.work_off(self.world.deps(), SINCE, worlds.AtOnce(room))

    def set_vault_bytes(self, count):
        for pool in ('vault', 'vault-data'):
            self.world.cluster.capacities[pool] = count

    def get(self, backup_id):
        return self.world.records.get(backup_id)

    def test_taking_makes_wishes_and_waits_for_none(self):
        backup = self.take(copy=True, verify=enums.VerifyWhen.ALWAYS)
        record = self.get(backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.worker))
        self.assertNotIn('storage start', self.world.events)
        self.fulfill()
        record = self.get(backup)
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.worker))
        self.assertEqual('copy', record.verification['of'])
        self.assertEqual([], self.world.records.wishes.due(SINCE))

    def test_what_is_wanted_by_default(self):
        for copy, verify, wanted in (
            (False, enums.VerifyWhen.NEVER, (False, False)),
            (False, enums.VerifyWhen.ALWAYS, (False, True)),
            (True, enums.VerifyWhen.COPIED, (True, False)),
        ):
            record = self.get(self.take(copy, verify))
            found = record.copy_wanted_at is not None, record.verify_wanted_at is not None
            self.assertEqual(wanted, found)
        self.fulfill()
        states = [one.state for one in self.world.records.of_instance(self.world.instance.id)]
        self.assertEqual([RecordState.VERIFIED, RecordState.VERIFIED, RecordState.TAKEN], states)

    def test_oldest_first_and_no_more_than_there_is_room_for(self):
        first, second = self.take(), self.take()
        for backup in (second, first):
            self.world.date += MINUTE
            self.world.records.wishes.want_verification(backup)
        self.fulfill(room=1)
        self.assertEqual(RecordState.TAKEN, self.get(first).state)
        self.assertEqual(RecordState.VERIFIED, self.get(second).state)

    def test_copies_of_an_instance_one_after_the_other(self):
        first, second = self.take(copy=True), self.take(copy=True)
        self.fulfill()
        self.assertEqual(
            (RecordState.COPIED, RecordState.TAKEN), (self.get(first).state, self.get(second).state)
        )
        self.world.records.wishes.want_copy(first)
        self.fulfill()
        self.assertEqual(first, self.get(second).copy_base_id)

    def test_somebody_else_is_copying(self):
        first, second = self.take(copy=True), self.take(copy=True)
        self.world.records.claim(first, 'another', SINCE)
        self.fulfill()
        self.assertEqual(RecordState.TAKEN, self.get(second).state)
        self.world.date += SINCE + MINUTE
        self.fulfill()
        self.assertEqual(RecordState.COPIED, self.get(first).state)

    def test_of_several_that_try_one_does(self):
        backup = self.take(copy=True)
        self.world.records.claim(backup, 'another', SINCE)
        queue_worker.work_off_one(self.world.deps(), backup, SINCE)
        self.assertEqual(RecordState.TAKEN, self.get(backup).state)
        self.assertEqual('another', self.get(backup).worker)

    def test_failures_are_tried_again_less_and_less_often(self):
        self.set_vault_bytes(0)
        backup = self.take(copy=True)
        for minutes in (1, 2, 4, 8):
            self.fulfill()
            record = self.get(backup)
            self.assertEqual(datetime.timedelta(minutes=minutes), record.retry_at - self.world.date)
            self.assertIn('there is no room for it', record.copy_error)
            self.assertNotIn('vault', record.copy_error)
            self.assertIsNone(record.worker)
            self.world.date = record.retry_at - datetime.timedelta(seconds=1)
            self.assertEqual([], self.world.records.wishes.due(SINCE))
            self.world.date = record.retry_at
        for _again in range(30):
            self.world.records.claim(backup, 'w', SINCE)
            self.world.records.wishes.note_failure(backup, 'w', copy_error='full')
            self.world.records.wishes.release(backup, 'w')
        self.assertEqual(datetime.timedelta(hours=6), self.get(backup).retry_at - self.world.date)
        self.set_vault_bytes(1024**3)
        # Asked for anew, it does not wait.
        self.world.records.wishes.want_copy(backup)
        self.fulfill()
        record = self.get(backup)
        self.assertEqual(
            (RecordState.COPIED, None, None), (record.state, record.copy_error, record.failures)
        )

    def test_verification_waits_for_the_copy(self):
        backup = self.take(copy=True, verify=enums.VerifyWhen.ALWAYS)
        self.world.servers.raises = {'start': servers.refused()}
        self.set_vault_bytes(0)
        self.fulfill()
        record = self.get(backup)
        self.assertEqual(RecordState.TAKEN, record.state)
        self.assertIn('waits for the copy', record.verify_error)
        self.assertIsNotNone(record.verify_wanted_at)
        self.set_vault_bytes(1024**3)
        self.world.date = record.retry_at
        self.fulfill()
        record = self.get(backup)
        self.assertEqual((RecordState.COPIED, None), (record.state, record.copy_wanted_at))
        self.assertIn('there is no server that can open it', record.verify_error)
        self.world.servers.raises = {}
        self.world.date = record.retry_at
        self.fulfill()
        self.assertEqual(RecordState.VERIFIED, self.get(backup).state)

    def test_damage_is_looked_for_no_more(self):
        backup = self.take(copy=True, verify=enums.VerifyWhen.ALWAYS)
        self.world.servers.raises = {'start': servers.corrupt('redo')}
        self.fulfill()
        self.assertEqual(RecordState.DAMAGED, self.get(backup).state)
        self.assertEqual([], self.world.records.wishes.due(SINCE))
        self.world.servers.raises = {}
        self.world.records.wishes.want_verification(backup)
        self.fulfill()
        self.assertEqual(RecordState.VERIFIED, self.get(backup).state)

    def test_what_was_copied_of_a_suspected_one_stays(self):
        """It goes on there, once the suspicion is gone."""
        backup = self.take(copy=True, verify=backup_types.VerifyWhen.ALWAYS)
        place = self.get(backup).place
        begun = image_types.ImageRef('vault', 'begun').snapshot(place.name)
        self.world.storage.create_image(begun.of, 4 * 1024**2, image_types.ImageOptions())
        self.world.records.copies.begin_copying(backup, begun)
        for note in (
            self.world.records.copies.note_suspected,
            self.world.records.copies.note_damaged,
        ):
            note(backup, {'verdict': 'corrupt'}, 1.0, 'a page')
            self.world.records.wishes.want_verification(backup)
            self.world.servers.raises = {'start': servers.fault()}
            self.fulfill()
            self.assertIn('begun', self.world.images('vault'))
            self.assertEqual(begun, self.get(backup).copy)
            self.assertIsNotNone(self.get(backup).copy_wanted_at)

    def test_killed_after_each_request(self):
        for number in range(100):
            self.prepare()
            backup = self.take(copy=True, verify=enums.VerifyWhen.ALWAYS)
            strike = worlds.Strike(number, after=True)
            try:
                queue_worker.work_off(self.world.deps(strike), SINCE, worlds.AtOnce())
            except interruption.Kill:
                # Nobody else has it until it was not seen for long.
                self.fulfill()
                self.assertNotEqual(RecordState.VERIFIED, self.get(backup).state)
                self.world.date += SINCE + MINUTE
                self.fulfill()
            record = self.get(backup)
            self.assertEqual((RecordState.VERIFIED, None), (record.state, record.failures))
            self.assertEqual(1, len(self.world.inspections()))
            self.assertEqual({record.copy.image}, self.world.images('vault') - {'copy'})
            if not strike.struck:
                break
        self.assertTrue(3 < number < 99, number)

    def test_copy_that_is_not_wanted_any_more(self):
        backup = self.take(copy=True)
        test_vault_copy.claim(self.world, backup)
        for step in queue_worker.vault_copy.VaultCopy(self.world.deps(), backup).steps()[:2]:
            step.do()
        self.world.storage.create_image(
            self.get(backup).copy.of, 1024**2, test_vault_copy.image_types.ImageOptions()
        )
        self.world.records.release(backup, storage_jobs.worker(self.world.deps()))
        self.world.records.wishes.want_no_copy(backup)
        self.fulfill()
        self.assertEqual((RecordState.TAKEN, None), (self.get(backup).state, self.get(backup).copy))
        self.assertNotIn(test_vault_copy.vault(self.world).name, self.world.images('vault'))
        self.fulfill()

    def test_deletion_waits_for_the_worker(self):
        """Whatever the worker is about to begin, it finds that the deletion has begun."""
        backup = self.take(copy=True)
        deps = self.world.deps()
        worker = storage_jobs.worker(deps)
        self.world.records.claim(backup, worker, SINCE)
        asked, seen = self.world.sleep, []

        def sleep(seconds):
            asked(seconds)
            if not seen:
                seen.append(self.world.snapshots())
                self.assertRaises(
                    exceptions.InvalidBackupError, vault_copy.copy_to_vault, deps, backup
                )
                place = test_vault_copy.vault(self.world).snapshot('s')
                copies = self.world.records.copies
                self.assertRaises(exceptions.LockLostError, copies.begin_copying, backup, place)
                self.world.records.wishes.release(backup, worker)

        self.world.sleep = sleep
        delete.delete_backup(self.world.deps(), backup)
        # Nothing of it was touched while somebody was working on it.
        self.assertEqual([1], [len(one) for one in seen])
        self.assertIsNone(self.world.records.find(backup))

    def test_deletion_that_begins_while_a_copy_does(self):
        """The worker has looked at the backup, and has not yet written down where it copies to."""
        backup = self.take(copy=True)
        begin, begun = self.world.records.copies.begin_copying, []

        def begin_later(*arguments, **named):
            self.world.records.begin_deleting(backup, 'another', MINUTE, MINUTE)
            begun.append(True)
            begin(*arguments, **named)

        self.world.records.copies.begin_copying = begin_later
        self.fulfill()
        self.assertEqual([True], begun)
        record = self.get(backup)
        self.assertEqual(
            (RecordState.DELETING, None, None), (record.state, record.copy, record.worker)
        )
        self.assertEqual(set(), self.world.images('vault') - {'copy'})
        delete.delete_backup(self.world.deps(), backup)
        self.assertIsNone(self.world.records.find(backup))

    def test_deletion_waits_for_no_dead_worker(self):
        backup = self.take(copy=True)
        deps = self.world.deps()
        self.world.records.claim(backup, storage_jobs.worker(deps), SINCE)
        self.world.date += 2 * MINUTE
        delete.delete_backup(self.world.deps(), backup)
        self.assertIsNone(self.world.records.find(backup))
        queue_worker.work_off_one(deps, backup, SINCE)
        self.world.records.wishes.note_failure(backup, storage_jobs.worker(deps), copy_error='late')
        self.assertIsNone(self.world.records.find(backup))

    def test_failures_nobody_thought_of(self):
        backup = self.take(copy=True)
        deps = self.world.deps()
        object.__setattr__(deps, 'vault', lambda: 1 // 0)
        queue_worker.work_off(deps, SINCE, worlds.AtOnce())
        record = self.get(backup)
        self.assertEqual((1, None), (record.failures, record.worker))
        self.assertIn('nobody thought of', record.copy_error)


class ThreadsTest(base.BaseTestCase):
    def test_so_many_and_no_more(self):
        threads = queue_worker.WorkerThreads(1)
        going, ended = threading.Event(), threading.Event()
        self.addCleanup(going.set)

        def work():
            going.wait(60)
            ended.set()
            raise ValueError('the thread must give its room back all the same')

        self.assertTrue(threads.start(work))
        self.assertFalse(threads.start(work))
        going.set()
        self.assertTrue(ended.wait(60))
        while not threads.start(lambda: None):
            pass
