# SPDX-License-Identifier: Apache-2.0
import datetime
import threading

from oslotest import base

from trove_ceph import enums, exceptions
from trove_ceph.db import claims
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup import backup_types, delete, queue_worker, vault_copy
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import test_verify, vault_helpers
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.verification import world as servers

MINUTE = datetime.timedelta(minutes=1)


class QueueWorkerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.prepare()

    def prepare(self):
        self.world = test_verify.World()
        vault_helpers.write(self.world, 'ab')

    def take(self, copy=False, verify=enums.VerifyWhen.NEVER):
        self.world.policy = backup_types.BackupSettings(copy=copy, verify=verify)
        self.world.date += MINUTE
        return vault_helpers.take(self.world)

    def fulfill(self, room=100, deps=None):
        """Run the due jobs of a new worker in its threads."""
        deps = deps or self.world.deps(expiry=claims.DEFAULT_EXPIRY)
        for role in (Role.COPY, Role.VERIFY):
            queue_worker.start_due_jobs(deps, role, worlds.AtOnce(room))

    def due(self):
        worker = self.world.worker()
        listed = self.world.records.queue.list_due
        return [*listed(Role.COPY, worker), *listed(Role.VERIFY, worker)]

    def set_vault_bytes(self, count):
        for pool in ('vault', 'vault-data'):
            self.world.cluster.capacities[pool] = count

    def get(self, backup_id):
        return self.world.records.get(backup_id)

    def test_a_backup_requests_copy_and_verification_without_waiting(self):
        backup = self.take(copy=True, verify=enums.VerifyWhen.ALWAYS)
        record = self.get(backup)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.claimed_by))
        self.assertNotIn('storage start', self.world.events)
        self.fulfill()
        record = self.get(backup)
        self.assertEqual((RecordState.VERIFIED, None), (record.state, record.claimed_by))
        self.assertEqual('copy', record.verification['of'])
        self.assertEqual([], self.due())

    def test_requests_what_is_configured(self):
        for copy, verify, expected in (
            (False, enums.VerifyWhen.NEVER, (False, False)),
            (False, enums.VerifyWhen.ALWAYS, (False, True)),
            (True, enums.VerifyWhen.COPIED, (True, False)),
        ):
            record = self.get(self.take(copy, verify))
            found = record.copy_wanted_at is not None, record.verify_wanted_at is not None
            self.assertEqual(expected, found)
        self.fulfill()
        states = [one.state for one in self.world.records.of_instance(self.world.instance.id)]
        self.assertEqual([RecordState.VERIFIED, RecordState.VERIFIED, RecordState.TAKEN], states)

    def test_starts_the_oldest_first_as_long_as_threads_are_free(self):
        first, second = self.take(), self.take()
        for backup in (second, first):
            self.world.date += MINUTE
            self.world.records.queue.request_verification(backup)
        self.fulfill(room=1)
        self.assertEqual(RecordState.TAKEN, self.get(first).state)
        self.assertEqual(RecordState.VERIFIED, self.get(second).state)

    def test_copies_backups_of_an_instance_one_after_the_other(self):
        first, second = self.take(copy=True), self.take(copy=True)
        self.fulfill()
        self.assertEqual(
            (RecordState.COPIED, RecordState.TAKEN), (self.get(first).state, self.get(second).state)
        )
        self.world.records.queue.request_copy(first)
        self.fulfill()
        self.assertEqual(first, self.get(second).copy_base_id)

    def test_waits_for_a_copy_by_another_worker(self):
        first, second = self.take(copy=True), self.take(copy=True)
        vault_helpers.claim(self.world, first)
        self.fulfill()
        self.assertEqual(RecordState.TAKEN, self.get(second).state)
        self.world.date += MINUTE
        self.fulfill()
        self.assertEqual(RecordState.COPIED, self.get(first).state)

    def test_one_of_several_workers_runs_a_job(self):
        backup = self.take(copy=True)
        other = vault_helpers.claim(self.world, backup)
        deps = self.world.deps(expiry=claims.DEFAULT_EXPIRY)
        queue_worker.run_job(deps, Role.COPY, self.get(backup))
        self.assertEqual(RecordState.TAKEN, self.get(backup).state)
        self.assertEqual(other.token, self.get(backup).claim_token)

    def test_retries_failures_with_growing_delays(self):
        self.set_vault_bytes(0)
        backup = self.take(copy=True)
        for minutes in (1, 2, 4, 8):
            self.fulfill()
            record = self.get(backup)
            self.assertEqual(
                datetime.timedelta(minutes=minutes), record.copy_retry_at - self.world.date
            )
            self.assertIn('the storage has no room for it', record.copy_error)
            self.assertNotIn('vault', record.copy_error)
            self.assertIsNone(record.claimed_by)
            self.world.date = record.copy_retry_at - datetime.timedelta(seconds=1)
            self.assertEqual([], self.due())
            self.world.date = record.copy_retry_at
        self.fulfill()
        self.set_vault_bytes(1024**3)
        # Another request does not bring the next attempt forward.
        self.world.records.queue.request_copy(backup)
        self.assertEqual([], self.due())
        self.world.date = self.get(backup).copy_retry_at
        self.fulfill()
        record = self.get(backup)
        self.assertEqual(
            (RecordState.COPIED, None, None),
            (record.state, record.copy_error, record.copy_failures),
        )

    def test_records_that_the_quota_of_the_vault_is_exceeded(self):
        backup, other = self.take(copy=True), self.take()
        self.world.policy = backup_types.BackupSettings(vault_quota_gib=1)
        with vault_helpers.claimed(self.world, other) as claim:
            location = image_types.SnapshotRef('vault', 'elsewhere', 's')
            self.world.records.results.begin_copying(claim, location)
            self.world.records.results.record_copied(claim, 1024**3, 1.0, 1024**3)
        self.fulfill()
        record = self.get(backup)
        self.assertIn('quota of the vault is 1 GiB', record.copy_error)
        self.assertEqual((RecordState.TAKEN, 1), (record.state, record.copy_failures))

    def test_a_verification_waits_for_the_copy(self):
        backup = self.take(copy=True, verify=enums.VerifyWhen.ALWAYS)
        self.world.servers.raises = {'start': servers.refused()}
        self.set_vault_bytes(0)
        self.fulfill()
        record = self.get(backup)
        self.assertEqual(RecordState.TAKEN, record.state)
        self.assertIn('waits for the copy', record.verify_error)
        self.assertIsNotNone(record.verify_wanted_at)
        self.set_vault_bytes(1024**3)
        self.world.date = record.copy_retry_at
        self.fulfill()
        record = self.get(backup)
        self.assertEqual((RecordState.COPIED, None), (record.state, record.copy_wanted_at))
        self.assertIn('no MySQL server is configured that can open it', record.verify_error)
        self.world.servers.raises = {}
        self.world.date = record.verify_retry_at
        self.fulfill()
        self.assertEqual(RecordState.VERIFIED, self.get(backup).state)

    def test_a_damaged_backup_is_not_verified_again(self):
        backup = self.take(copy=True, verify=enums.VerifyWhen.ALWAYS)
        self.world.servers.raises = {'start': servers.corrupt('redo')}
        self.fulfill()
        self.assertEqual(RecordState.DAMAGED, self.get(backup).state)
        self.assertEqual([], self.due())
        self.world.servers.raises = {}
        self.world.records.queue.request_verification(backup)
        self.fulfill()
        self.assertEqual(RecordState.VERIFIED, self.get(backup).state)

    def test_keeps_the_partial_copy_of_a_suspected_backup(self):
        """The copy continues once the suspicion is dropped."""
        backup = self.take(copy=True, verify=enums.VerifyWhen.ALWAYS)
        location = self.get(backup).location
        begun = image_types.ImageRef('vault', 'begun').snapshot(location.name)
        self.world.storage.create_image(begun.of, 4 * 1024**2, image_types.ImageOptions())
        results = self.world.records.results
        with vault_helpers.claimed(self.world, backup) as claim:
            results.begin_copying(claim, begun)
        for note in (results.record_suspected, results.record_damaged):
            with vault_helpers.claimed(self.world, backup, Role.VERIFY) as claim:
                note(claim, {'verdict': 'corrupt'}, 1.0, 'a page')
            self.world.records.queue.request_verification(backup)
            self.world.servers.raises = {'start': servers.fault()}
            self.fulfill()
            self.assertIn('begun', self.world.images('vault'))
            self.assertEqual(begun, self.get(backup).copy)
            self.assertIsNotNone(self.get(backup).copy_wanted_at)

    def test_continues_after_a_kill_at_each_request(self):
        for number in range(100):
            self.prepare()
            backup = self.take(copy=True, verify=enums.VerifyWhen.ALWAYS)
            strike = worlds.Strike(number, after=True)
            try:
                deps = self.world.deps(strike, claims.DEFAULT_EXPIRY)
                for _again in range(2):
                    self.fulfill(deps=deps)
            except interruption.Kill:
                # No other worker gets it before its claim expires.
                self.fulfill()
                self.assertNotEqual(RecordState.VERIFIED, self.get(backup).state)
                self.world.date += MINUTE
                self.fulfill()
            record = self.get(backup)
            self.assertEqual((RecordState.VERIFIED, None), (record.state, record.copy_failures))
            self.assertEqual(1, len(self.world.inspections()))
            self.assertEqual({record.copy.image}, self.world.images('vault') - {'copy'})
            if not strike.struck:
                break
        self.assertTrue(3 < number < 99, number)

    def test_a_deletion_waits_for_the_worker(self):
        """Before anything that it begins, the worker finds that the deletion has begun."""
        backup = self.take(copy=True)
        deps = self.world.deps()
        claim = vault_helpers.claim(self.world, backup)
        sleep_before, observed = self.world.sleep, []

        def sleep(seconds):
            sleep_before(seconds)
            if not observed:
                observed.append(self.world.snapshots())
                self.assertRaises(
                    exceptions.InvalidBackupError, vault_copy.copy_to_vault, deps, claim
                )
                location = vault_helpers.vault(self.world).snapshot('s')
                results = self.world.records.results
                self.assertRaises(exceptions.ClaimLostError, results.begin_copying, claim, location)
                self.world.records.claims.release(claim)

        self.world.sleep = sleep
        delete.delete_backup(self.world.deps(expiry=claims.DEFAULT_EXPIRY), backup)
        # The backup was not touched while a worker had it.
        self.assertEqual([1], [len(one) for one in observed])
        self.assertIsNone(self.world.records.find(backup))

    def test_a_deletion_may_begin_together_with_a_copy(self):
        """The worker has read the record, and has not recorded yet where it copies to."""
        backup = self.take(copy=True)
        begin, begun = self.world.records.results.begin_copying, []

        def begin_later(*arguments, **named):
            another = claims.Claimant('another')
            self.assertIsNone(self.world.records.begin_deleting(backup, another))
            begun.append(True)
            begin(*arguments, **named)

        self.world.records.results.begin_copying = begin_later
        self.fulfill()
        self.assertEqual([True], begun)
        record = self.get(backup)
        self.assertEqual(
            (RecordState.DELETING, None, None), (record.state, record.copy, record.claimed_by)
        )
        self.assertEqual(set(), self.world.images('vault') - {'copy'})
        delete.delete_backup(self.world.deps(), backup)
        self.assertIsNone(self.world.records.find(backup))

    def test_a_deletion_does_not_wait_for_a_dead_worker(self):
        backup = self.take(copy=True)
        record = self.get(backup)
        claim = vault_helpers.claim(self.world, backup)
        self.world.date += MINUTE
        delete.delete_backup(self.world.deps(expiry=claims.DEFAULT_EXPIRY), backup)
        self.assertIsNone(self.world.records.find(backup))
        queue_worker.run_job(self.world.deps(), Role.COPY, record)
        note = self.world.records.queue.record_failure
        self.assertRaises(exceptions.ClaimLostError, note, claim, 'late')
        self.assertIsNone(self.world.records.find(backup))

    def test_records_unexpected_errors(self):
        backup = self.take(copy=True)
        deps = self.world.deps()
        object.__setattr__(deps, 'vault', lambda: 1 // 0)
        self.fulfill(deps=deps)
        record = self.get(backup)
        self.assertEqual((1, None), (record.copy_failures, record.claimed_by))
        self.assertIn('an unexpected error occurred', record.copy_error)


class ThreadsTest(base.BaseTestCase):
    def test_limits_the_number_of_threads(self):
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
