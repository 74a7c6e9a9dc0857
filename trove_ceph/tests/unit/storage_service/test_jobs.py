# SPDX-License-Identifier: Apache-2.0
"""Jobs: the same on every copy of the service, whichever copy runs them."""

import concurrent.futures
import json

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import copying, image_types, tasks
from trove_ceph.storage.tasks import JobState
from trove_ceph.storage_service import job_manager
from trove_ceph.tests.unit.storage_service import service_world
from trove_ceph.tests.unit.storage_service.service_world import MIB


class JobsTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = service_world.World()
        self.image, self.vault = self.world.image, self.world.vault
        self.copy = tasks.CopyTask(self.image.snapshot('s'), self.vault)
        self.later = service_world.DeferredExecutor()
        self.one = self.world.service('one', threads=self.later)
        self.other = self.world.service('other')

    def clone(self, name='clone'):
        clone = image_types.ImageRef('vault', name)
        self.world.storage.clone(self.image.snapshot('s'), clone, image_types.ImageOptions())
        return clone


class StartTest(JobsTestCase):
    def test_a_job_from_start_to_end(self):
        started = self.one.jobs.start('op', self.copy)
        self.assertEqual(
            (JobState.WAITING, 'one', 1), (started.state, started.holder, started.attempt)
        )
        # Every copy of the service returns the same.
        self.assertEqual(started, self.other.jobs.find('op'))
        self.later.run_next()
        for service in (self.one, self.other):
            found = service.jobs.find('op')
            self.assertEqual((JobState.DONE, self.copy), (found.state, found.work))
            self.assertEqual('verifying', found.phase)
            self.assertIsInstance(found.result, copying.CopyReport)
            self.assertEqual(16 * MIB, found.result.copied_bytes)
        self.assertEqual([], self.world.held_locks())
        facts = self.world.storage.describe(self.vault)
        self.assertEqual(['s'], list(copying.complete_copies(facts)))
        # As its tier defines.
        self.assertEqual('vault-data', facts.data_pool)

    def test_the_same_request_is_the_same_job(self):
        first = self.one.jobs.start('op', self.copy)
        self.assertEqual(first, self.one.jobs.start('op', self.copy))
        self.assertEqual(first, self.other.jobs.start('op', self.copy))
        self.later.run_next()
        self.assertEqual([], self.later.waiting)
        done = self.other.jobs.start('op', self.copy)
        self.assertEqual((JobState.DONE, 1, 'one'), (done.state, done.attempt, done.holder))

    def test_another_task_with_the_same_id_is_refused(self):
        self.one.jobs.start('op', self.copy)
        for other in (
            tasks.CopyTask(self.image.snapshot('s'), self.vault, compare_all=True),
            tasks.FlattenTask(self.image),
        ):
            error = self.assertRaises(
                exceptions.InvalidRequestError, self.other.jobs.start, 'op', other
            )
            self.assertIn(f'operation op: is in use for another task: {self.copy}', str(error))

    def test_busy_names_the_holder_and_its_operation(self):
        self.one.jobs.start('op', self.copy)
        self.world.storage.create_snapshot(self.image.snapshot('t'))
        again = tasks.CopyTask(self.image.snapshot('t'), self.vault)
        for service in (self.one, self.other):
            error = self.assertRaises(exceptions.BusyError, service.jobs.start, 'op-2', again)
            self.assertIn(f'{self.vault}: held by one for {self.copy}, operation op', str(error))
        self.later.run_next()
        self.other.jobs.start('op-2', tasks.FlattenTask(self.vault))

    def test_a_missing_source_is_reported_at_once(self):
        missing = image_types.ImageRef('volumes', 'missing')
        work = tasks.CopyTask(missing.snapshot('s'), self.vault)
        self.assertRaises(exceptions.NotFoundError, self.one.jobs.start, 'op', work)
        self.assertRaises(exceptions.NotFoundError, self.one.jobs.find, 'op')
        self.assertEqual([], self.world.held_locks())

    def test_a_failure_is_recorded_and_can_be_retried(self):
        self.world.cluster.capacities['vault-data'] = 6 * MIB
        self.other.jobs.start('op', self.copy)
        failed = self.one.jobs.find('op')
        self.assertEqual((JobState.FAILED, 'NoSpaceError'), (failed.state, failed.error))
        self.assertIn('vault-data', failed.message)
        self.assertRaises(exceptions.NoSpaceError, failed.raise_error)
        self.assertEqual([], self.world.held_locks())
        self.world.cluster.capacities['vault-data'] = 1024 * MIB
        self.other.jobs.start('op', self.copy)
        done = self.one.jobs.find('op')
        self.assertEqual((JobState.DONE, 2), (done.state, done.attempt))
        self.assertIsNone(done.error)

    def test_a_fence_runs_again_after_it_is_done(self):
        fence = tasks.FenceTask(self.image)
        self.other.jobs.start('op', fence)
        self.assertEqual(frozenset(), self.one.jobs.find('op').result.addresses)
        with self.world.storage.open_writer(self.image) as writer:
            self.other.jobs.start('op', fence)
            self.assertRaises(exceptions.CephUnreachableError, writer.flush)
        found = self.one.jobs.find('op')
        self.assertEqual((2, 1), (found.attempt, len(found.result.addresses)))

    def test_no_job_starts_while_the_service_stops(self):
        self.assertTrue(self.one.manager.stop(0))
        self.assertRaises(exceptions.ServiceUnavailableError, self.one.jobs.start, 'op', self.copy)


class StopTest(JobsTestCase):
    """The service is told to stop while a request starts a job."""

    def stop_before(self, verb):
        """Stop the service before a request to the lock store; return what ``stop`` has found."""
        request, ended = getattr(self.one.lock_store._inner, verb), []

        def stop_first(*arguments):
            if not ended:
                ended.append(self.one.manager.stop(0))
            return request(*arguments)

        setattr(self.one.lock_store._inner, verb, stop_first)
        return ended

    def assert_resumed_elsewhere(self):
        self.assertEqual([], self.world.held_locks())
        self.assertEqual(JobState.DONE, self.other.jobs.start('op', self.copy).state)

    def test_before_the_job_is_recorded(self):
        self.stop_before('take')
        self.assertRaises(exceptions.ServiceUnavailableError, self.one.jobs.start, 'op', self.copy)
        self.assertEqual([], self.other.jobs.all())
        self.assert_resumed_elsewhere()

    def test_while_the_job_is_recorded(self):
        ended = self.stop_before('write')
        self.one.jobs.start('op', self.copy)
        self.assertEqual([False], ended)
        self.later.run_next()
        self.assertEqual(JobState.INTERRUPTED, self.other.jobs.find('op').state)
        self.assertTrue(self.one.manager.stop(0))
        self.assert_resumed_elsewhere()

    def test_after_stop_has_given_up_waiting(self):
        threads = concurrent.futures.ThreadPoolExecutor()
        threads.shutdown()
        late = self.world.service('late', threads=threads)
        self.assertRaises(exceptions.ServiceUnavailableError, late.jobs.start, 'op', self.copy)
        self.assertTrue(late.manager.stop(0))
        self.assertEqual({}, late.manager._running)
        # It was not the data that stopped the service.
        self.assertEqual(0, self.other.store.find('op').deaths)
        self.assert_resumed_elsewhere()

    def test_an_unexpected_error_leaves_no_locks(self):
        self.one.lock_store._inner.write = None
        self.assertRaises(TypeError, self.one.jobs.start, 'op', self.copy)
        self.assertTrue(self.one.manager.stop(0))
        self.assert_resumed_elsewhere()


class ProgressTest(JobsTestCase):
    def test_every_copy_of_the_service_reports_progress(self):
        observed = []

        class Slow(service_world.backend.FakeReader):
            def read(reader, offset, length):
                self.world.now += 2
                self.one.manager.heartbeat('vault')
                observed.append(self.other.jobs.find('op'))
                return super().read(offset, length)

        def open_reader(snapshot):
            opened = type(self.world.storage).open_reader(self.world.storage, snapshot)
            return Slow(opened._image, opened._state)

        self.one.storage._inner.open_reader = open_reader
        self.one.jobs.start('op', self.copy)
        self.later.run_next()
        copies = [found for found in observed if found.phase == 'copying']
        self.assertEqual({JobState.RUNNING}, {found.state for found in copies})
        expected = [4 * MIB, 8 * MIB, 12 * MIB, 16 * MIB]
        self.assertEqual(expected, [found.done_bytes for found in copies])
        self.assertEqual({16 * MIB}, {found.total_bytes for found in copies})
        self.assertGreater(copies[-1].bytes_per_sec, MIB)
        self.assertGreater(copies[1].left_sec, 0)
        self.assertEqual(0, copies[-1].left_sec)
        self.assertIn('verifying', {found.phase for found in observed})

    def test_jobs_are_listed_latest_first(self):
        self.one.jobs.start('op-1', self.copy)
        self.world.now += 1
        self.other.jobs.start('op-2', tasks.FlattenTask(self.clone()))
        self.assertEqual(
            [('op-2', JobState.DONE), ('op-1', JobState.WAITING)],
            [(found.operation_id, found.state) for found in self.other.jobs.all()],
        )


class CancelTest(JobsTestCase):
    def test_cancel_before_it_runs(self):
        self.one.jobs.start('op', self.copy)
        self.one.jobs.cancel('op')
        self.later.run_next()
        self.assertEqual(JobState.CANCELED, self.other.jobs.find('op').state)
        self.assertEqual([], self.world.held_locks())

    def test_cancel_by_another_copy_of_the_service(self):
        self.one.jobs.start('op', self.copy)
        self.assertEqual(JobState.WAITING, self.other.jobs.cancel('op').state)
        self.one.manager.heartbeat('vault')
        self.later.run_next()
        self.assertEqual(JobState.CANCELED, self.other.jobs.find('op').state)
        # The request does not affect a later attempt.
        self.assertEqual({}, self.one.lock_store.read('vault', 'cancel/'))
        self.assertEqual(JobState.WAITING, self.one.jobs.start('op', self.copy).state)
        self.one.manager.heartbeat('vault')
        self.later.run_next()
        self.assertEqual(JobState.DONE, self.other.jobs.find('op').state)

    def test_cancel_while_it_runs(self):
        clone = self.clone()

        def cancel_at_half(done, total):
            if done == total // 2:
                self.one.jobs.cancel('op')

        flatten = self.one.storage._inner.flatten

        def flatten_and_cancel(image, progress, cancel):
            def note(done, total):
                progress(done, total)
                cancel_at_half(done, total)

            flatten(image, note, cancel)

        self.one.storage._inner.flatten = flatten_and_cancel
        self.one.jobs.start('op', tasks.FlattenTask(clone))
        self.later.run_next()
        found = self.other.jobs.find('op')
        self.assertEqual((JobState.CANCELED, 8 * MIB), (found.state, found.done_bytes))
        self.assertIsNotNone(self.world.storage.describe(clone).parent)

    def test_a_job_that_has_ended_is_not_canceled(self):
        self.other.jobs.start('op', self.copy)
        self.assertEqual(JobState.DONE, self.one.jobs.cancel('op').state)
        self.assertEqual(JobState.DONE, self.one.jobs.find('op').state)

    def test_cancel_a_job_of_a_dead_copy(self):
        self.one.jobs.start('op', self.copy)
        self.world.expire_dead_clients()
        self.assertEqual(JobState.CANCELED, self.other.jobs.cancel('op').state)
        self.assertEqual(JobState.CANCELED, self.other.jobs.find('op').state)
        self.assertEqual([], self.world.held_locks())

    def test_cancel_an_unknown_job(self):
        self.assertRaises(exceptions.NotFoundError, self.one.jobs.cancel, 'op')


class DeathTest(JobsTestCase):
    def test_a_job_without_its_lock_is_interrupted(self):
        self.one.jobs.start('op', self.copy)
        self.assertEqual(JobState.WAITING, self.other.jobs.find('op').state)
        self.world.expire_dead_clients()
        self.assertEqual(JobState.INTERRUPTED, self.other.jobs.find('op').state)

    def test_a_former_holder_writes_nothing(self):
        self.one.jobs.start('op', self.copy)
        self.world.expire_dead_clients()
        taken_up = self.other.jobs.start('op', self.copy)
        self.assertEqual(2, taken_up.attempt)
        expected = self.other.jobs.find('op')
        self.assertEqual((JobState.DONE, 'other'), (expected.state, expected.holder))
        facts = self.world.storage.describe(self.vault)
        self.one.manager.heartbeat('vault')
        self.later.run_next()
        self.assertEqual(expected, self.one.jobs.find('op'))
        self.assertEqual(facts, self.world.storage.describe(self.vault))

    def test_the_loss_of_a_lock_stops_the_job(self):
        clone = self.clone()
        flatten = self.one.storage._inner.flatten

        def flatten_and_lose(image, progress, cancel):
            def note(done, total):
                if done:
                    self.world.cluster.locks.clear()
                    self.one.leases.renew('vault')
                progress(done, total)

            flatten(image, note, cancel)

        self.one.storage._inner.flatten = flatten_and_lose
        self.one.jobs.start('op', tasks.FlattenTask(clone))
        self.later.run_next()
        self.assertIsNotNone(self.world.storage.describe(clone).parent)
        self.assertEqual(JobState.INTERRUPTED, self.other.jobs.find('op').state)
        self.assertEqual(JobState.DONE, self.other.jobs.start('op', tasks.FlattenTask(clone)).state)

    def resume_lost(self):
        """Start a job whose lock is then lost, and resume it on the same copy of the service."""
        self.one.jobs.start('op', self.copy)
        self.world.cluster.locks.clear()
        self.assertEqual(2, self.one.jobs.start('op', self.copy).attempt)

    def test_a_lost_attempt_leaves_its_successor_on_the_same_copy(self):
        """It ends while the next attempt waits or runs in the same process."""
        self.resume_lost()
        self.one.leases.renew('vault')
        self.later.run_next()
        self.assertEqual(JobState.WAITING, self.other.jobs.find('op').state)
        self.later.run_next()
        self.assertEqual((JobState.DONE, 2), self.state_and_attempt())

    def test_the_successor_of_a_lost_attempt_is_canceled(self):
        for canceling in (self.one, self.other):
            self.resume_lost()
            self.later.run_next()
            canceling.jobs.cancel('op')
            self.one.manager.heartbeat('vault')
            self.later.run_next()
            self.assertEqual((JobState.CANCELED, 2), self.state_and_attempt())
            self.world.cluster.entries.clear()

    def test_a_lost_attempt_is_not_canceled_in_place_of_its_successor_elsewhere(self):
        self.one.jobs.start('op', self.copy)
        self.world.cluster.locks.clear()
        third = self.world.service('third', threads=self.later)
        third.jobs.start('op', self.copy)
        self.assertEqual('third', self.one.jobs.cancel('op').holder)
        third.manager.heartbeat('vault')
        self.later.run_next()
        self.later.run_next()
        self.assertEqual((JobState.CANCELED, 2), self.state_and_attempt())

    def state_and_attempt(self):
        found = self.other.jobs.find('op')
        return found.state, found.attempt

    def test_a_stopped_job_can_be_resumed_at_once(self):
        self.one.jobs.start('op', self.copy)
        self.one.manager.stop(0)
        self.later.run_next()
        self.assertEqual(JobState.INTERRUPTED, self.other.jobs.find('op').state)
        self.assertEqual([], self.world.held_locks())
        self.other.jobs.start('op', self.copy)
        self.assertEqual(JobState.DONE, self.one.jobs.find('op').state)

    def test_the_result_is_written_once_ceph_answers_again(self):
        self.one.jobs.start('op', self.copy)
        write, failures = self.one.lock_store._inner.write, []

        def write_or_fail(pool, entries, guard=None):
            if any('"done"' in (text or '') for text in entries.values()) and len(failures) < 3:
                failures.append(entries)
                raise exceptions.CephUnreachableError('writing entries: timed out')
            write(pool, entries, guard)

        self.one.lock_store._inner.write = write_or_fail
        self.later.run_next()
        self.assertEqual(3, len(failures))
        self.assertEqual(JobState.DONE, self.other.jobs.find('op').state)


class ExpiryTest(JobsTestCase):
    def test_old_records_are_deleted(self):
        self.other.jobs.start('done', self.copy)
        dying = self.clone()
        self.one.jobs.start('dead', tasks.FlattenTask(dying))
        self.world.expire_dead_clients()
        self.world.now += service_world.RETENTION_SEC
        self.one.jobs.start('running', tasks.FlattenTask(self.image))
        self.other.jobs.delete_expired('vault')
        self.assertEqual(['running'], [found.operation_id for found in self.other.jobs.all()])
        self.assertEqual(1, len(self.world.held_locks()))

    def test_recent_records_are_kept(self):
        self.other.jobs.start('done', self.copy)
        self.world.now += service_world.RETENTION_SEC - 1
        self.other.jobs.delete_expired('vault')
        self.assertEqual(JobState.DONE, self.one.jobs.find('done').state)


class TasksTest(JobsTestCase):
    def test_verify(self):
        self.other.jobs.start('copy', self.copy)
        work = tasks.VerifyTask(self.image.snapshot('s'), self.vault.snapshot('s'))
        self.assertEqual(JobState.DONE, self.other.jobs.start('verify', work).state)
        self.assertEqual(16 * MIB, self.one.jobs.find('verify').result)
        self.world.storage.create_snapshot(self.image.snapshot('t'))
        self.world.write(b'12x4')
        self.world.storage.create_snapshot(self.image.snapshot('u'))
        wrong = tasks.VerifyTask(self.image.snapshot('u'), self.vault.snapshot('s'))
        self.other.jobs.start('verify-2', wrong)
        found = self.one.jobs.find('verify-2')
        self.assertEqual((JobState.FAILED, 'CorruptCopyError'), (found.state, found.error))
        self.assertIn(str(8 * MIB), found.message)

    def test_purge_is_refused_while_a_job_reads_the_image(self):
        """The job would read a partly removed image, without an error."""
        self.one.jobs.start('op', self.copy)
        trashed = self.world.storage.trash(self.image)
        purge = tasks.PurgeTask('volumes', trashed.image_id)
        error = self.assertRaises(exceptions.BusyError, self.other.jobs.start, 'purge', purge)
        self.assertIn(f'op ({self.copy}) reads it', str(error))
        self.world.storage.restore('volumes', trashed.image_id, self.image.name)
        self.later.run_next()
        self.world.storage.trash(self.image)
        self.other.jobs.start('purge', purge)
        self.assertEqual(JobState.DONE, self.other.jobs.find('purge').state)
        self.assertEqual([], self.world.storage.list_trash('volumes'))

    def test_purge_is_refused_while_a_comparison_reads_either_image(self):
        self.other.jobs.start('copy', self.copy)
        work = tasks.VerifyTask(self.image.snapshot('s'), self.vault.snapshot('s'))
        self.one.jobs.start('verify', work)
        for image in (self.image, self.vault):
            trashed = self.world.storage.trash(image)
            purge = tasks.PurgeTask(image.pool, trashed.image_id)
            for service in (self.one, self.other):
                error = self.assertRaises(exceptions.BusyError, service.jobs.start, 'purge', purge)
                self.assertIn(f'verify ({work}) reads it', str(error))
            self.world.storage.restore(image.pool, trashed.image_id, image.name)
        self.later.run_next()
        self.assertEqual(JobState.DONE, self.other.jobs.find('verify').state)

    def test_records_of_the_earlier_release_name_one_source(self):
        self.one.jobs.start('op', self.copy)
        text = self.one.lock_store.read('vault', 'job/op')['job/op']
        content = json.loads(text)
        expected = content.pop('source_ids')
        self.assertEqual([content['source_id']], expected)
        self.one.lock_store.write('vault', {'job/op': json.dumps(content)})
        self.assertEqual(tuple(expected), self.other.store.find('op').source_ids)

    def test_purge_of_an_image_of_which_ceph_misses_a_part(self):
        trashed = self.world.storage.trash(self.image)
        purge = tasks.PurgeTask('volumes', trashed.image_id)

        def fail(*_):
            raise exceptions.NotFoundError('purging: No such file or directory')

        self.other.storage._inner.purge = fail
        self.other.jobs.start('purge', purge)
        found = self.other.jobs.find('purge')
        # NotFoundError would tell that there is no image any more.
        self.assertEqual((JobState.FAILED, 'StorageError'), (found.state, found.error))
        self.assertIn('No such file or directory; ', found.message)
        self.assertIn('is still in the trash', found.message)
        del self.other.storage._inner.purge
        self.assertEqual(2, self.other.jobs.start('purge', purge).attempt)
        self.assertEqual([], self.world.storage.list_trash('volumes'))

    def test_purge_of_a_missing_image(self):
        purge = tasks.PurgeTask('volumes', 'abc')
        self.assertRaises(exceptions.NotFoundError, self.one.jobs.start, 'purge', purge)

    def test_a_fence_does_not_wait_for_a_thread(self):
        self.one.jobs.start('copy', self.copy)
        self.one.jobs.start('fence', tasks.FenceTask(self.image))
        self.assertEqual(JobState.DONE, self.one.jobs.find('fence').state)
        self.assertEqual(JobState.WAITING, self.one.jobs.find('copy').state)

    def test_a_fence_cancels_other_jobs_on_the_image(self):
        clone = self.clone()
        self.one.jobs.start('flatten', tasks.FlattenTask(clone))
        sleep = self.world.sleep

        def sleep_while_the_other_ends(seconds):
            sleep(seconds)
            self.one.manager.heartbeat('vault')
            if self.later.waiting:
                self.later.run_next()

        self.other.manager._sleep = sleep_while_the_other_ends
        began = self.world.now
        self.other.jobs.start('fence', tasks.FenceTask(clone))
        self.assertEqual(JobState.DONE, self.one.jobs.find('fence').state)
        self.assertEqual(JobState.CANCELED, self.one.jobs.find('flatten').state)
        self.assertLess(self.world.now, began + 5)

    def test_a_fence_does_not_wait_for_a_dead_copy(self):
        clone = self.clone()
        self.one.jobs.start('flatten', tasks.FlattenTask(clone))
        began = self.world.now
        self.other.jobs.start('fence', tasks.FenceTask(clone))
        self.assertEqual(JobState.DONE, self.other.jobs.find('fence').state)
        self.assertLessEqual(self.world.now, began + job_manager.FENCE_GRACE_SEC + 1)
