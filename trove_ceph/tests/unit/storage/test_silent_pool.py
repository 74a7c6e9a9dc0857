# SPDX-License-Identifier: Apache-2.0
"""A pool that does not answer stops its own jobs and no others."""

import threading
import time

import fixtures
from oslo_config import cfg
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.conf import storage as storage_conf
from trove_ceph.storage import image_types, tasks
from trove_ceph.storage.fake import backend, lock_store
from trove_ceph.storage.tasks import JobState
from trove_ceph.storage_service import server
from trove_ceph.tests.unit.storage_service import service_world

SILENT = 'volumes'
TIMEOUT_SEC = 60


class HookedLockStore:
    """A fake lock store with a hook that runs before each request."""

    def __init__(self, cluster, before):
        self._inner = lock_store.FakeLockStore(cluster)
        self._before = before

    def __getattr__(self, verb):
        def called(target, *arguments):
            # The target is a pool, or a lock in it.
            self._before(verb, getattr(target, 'pool', target))
            return getattr(self._inner, verb)(target, *arguments)

        return called


def wait_to_be_canceled(_backend, image, progress, cancel):
    while not cancel.wait(0.01):
        progress(0, 1)
    raise exceptions.CanceledError(f'{image}: canceled')


class SilentPoolTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = service_world.World()
        self.clone = image_types.ImageRef('vault', 'clone')
        self.world.storage.clone(
            self.world.image.snapshot('s'), self.clone, image_types.ImageOptions()
        )


class TimeoutTest(SilentPoolTestCase):
    """Each request times out, as requests to Ceph do."""

    def setUp(self):
        super().setUp()
        self.requests, self.is_silent = [], False
        self.later = service_world.DeferredExecutor()
        self.one, self.waiting = self.service(), self.service(self.later)

    def service(self, threads=None):
        service = self.world.service('one', threads=threads)
        service.lock_store._inner = HookedLockStore(self.world.cluster, self.before)
        return service

    def before(self, verb, pool):
        self.requests.append((verb, pool))
        if self.is_silent and pool == SILENT:
            raise exceptions.CephUnreachableError(f'pool {pool}: timed out')

    def detect_silence(self):
        """Let the heartbeat detect that the pool is silent."""
        self.is_silent = True
        self.assertRaises(exceptions.CephUnreachableError, self.one.manager.heartbeat, SILENT)
        self.world.now += 30
        self.requests.clear()

    def assert_requests_only(self, expected):
        self.assertEqual({expected}, {pool for _verb, pool in self.requests})

    def test_a_fence_sends_no_request_to_other_pools(self):
        self.is_silent = True
        self.one.jobs.start('fence', tasks.FenceTask(self.clone))
        self.assert_requests_only('vault')
        self.assertEqual(JobState.DONE, self.one.jobs.find('fence').state)

    def test_jobs_of_other_pools_start_once_the_silence_is_detected(self):
        self.detect_silence()
        self.one.jobs.start('flatten', tasks.FlattenTask(self.clone))
        self.assertEqual(JobState.DONE, self.one.jobs.find('flatten').state)
        self.assert_requests_only('vault')

    def test_an_id_is_looked_up_once_in_each_pool(self):
        self.one.jobs.start('flatten', tasks.FlattenTask(self.clone))
        first = self.requests[: self.requests.index(('take', 'vault'))]
        self.assertEqual([('read', 'vault'), ('read', 'volumes')], first)

    def test_jobs_of_a_silent_pool_are_not_reported_missing(self):
        self.one.jobs.start('flatten', tasks.FlattenTask(self.world.image))
        self.is_silent = True
        for verb in (self.one.jobs.find, self.one.jobs.cancel):
            error = self.assertRaises(exceptions.CephUnreachableError, verb, 'flatten')
            self.assertIn(SILENT, str(error))
        self.is_silent = False
        self.assertEqual(JobState.DONE, self.one.jobs.find('flatten').state)

    def test_jobs_of_other_pools_are_listed(self):
        self.one.jobs.start('there', tasks.FlattenTask(self.world.image))
        self.one.jobs.start('here', tasks.FlattenTask(self.clone))
        self.assertEqual(2, len(self.one.jobs.survey()[0]))
        # The request times out, and later no request is sent.
        self.is_silent = True
        for _ in range(2):
            found, silent = self.one.jobs.survey()
            self.assertEqual((['here'], [SILENT]), ([one.operation_id for one in found], silent))
            self.world.now += 30
            self.requests.clear()
        self.one.jobs.survey()
        self.assert_requests_only('vault')
        # Callers that act on the list need all jobs.
        self.assertRaises(exceptions.CephUnreachableError, self.one.jobs.all)

    def test_a_pool_that_answers_again_is_used_again(self):
        self.one.jobs.start('op', tasks.FlattenTask(self.world.image))
        self.detect_silence()
        self.is_silent = False
        self.one.manager.heartbeat(SILENT)
        other = tasks.FlattenTask(self.clone)
        self.assertRaises(exceptions.InvalidRequestError, self.one.jobs.start, 'op', other)

    def test_its_own_jobs_fail(self):
        self.detect_silence()
        for work in (
            tasks.FenceTask(self.world.image),
            tasks.FlattenTask(self.world.image),
            tasks.CopyTask(self.world.image.snapshot('s'), self.world.vault),
        ):
            self.assertRaises(exceptions.CephUnreachableError, self.one.jobs.start, 'op', work)
        self.assertEqual([], self.world.held_locks())

    def test_a_purge_needs_all_pools(self):
        trashed = self.world.storage.trash(self.clone)
        self.detect_silence()
        purge = tasks.PurgeTask('vault', trashed.image_id)
        self.assertRaises(exceptions.CephUnreachableError, self.one.jobs.start, 'purge', purge)
        self.assertEqual([trashed], self.world.storage.list_trash('vault'))

    def test_jobs_of_other_pools_are_canceled_and_deleted(self):
        self.waiting.jobs.start('flatten', tasks.FlattenTask(self.clone))
        self.detect_silence()
        self.one.jobs.cancel('flatten')
        self.waiting.manager.heartbeat('vault')
        self.later.run_next()
        self.assertEqual(JobState.CANCELED, self.one.jobs.find('flatten').state)
        self.world.now += service_world.RETENTION_SEC
        self.one.jobs.delete_expired('vault')
        self.is_silent = False
        self.assertRaises(exceptions.NotFoundError, self.one.jobs.find, 'flatten')


class BlockingTest(SilentPoolTestCase):
    """Requests to the pool block during the whole test, in a service with threads."""

    def setUp(self):
        super().setUp()
        self.answers, self.is_silent = threading.Event(), threading.Event()
        self.renewed = threading.Semaphore(0)
        for name, value in (
            ('storage_service.server._RENEWALS', 1200),
            ('storage_service.server._HEARTBEAT_SEC', 0.05),
            ('storage_service.job_store.SILENT_SEC', 0),
            ('storage.fake.backend.FakeBackend.flatten', wait_to_be_canceled),
        ):
            self.useFixture(fixtures.MonkeyPatch(f'trove_ceph.{name}', value))
        conf = cfg.ConfigOpts()
        storage_conf.register(conf)
        conf([])
        self.service = server.Service(
            backend.FakeBackend(self.world.cluster),
            HookedLockStore(self.world.cluster, self.wait),
            service_world.POOLS,
            conf.trove_ceph_storage,
            'one',
        )
        self.addCleanup(self.service.stop)
        self.addCleanup(self.answers.set)

    def wait(self, verb, pool):
        if pool == SILENT:
            self.is_silent.set()
            self.answers.wait(TIMEOUT_SEC)
        elif verb == 'renew':
            self.renewed.release()

    def start(self, operation_id, work):
        self.service.endpoint.start({}, operation_id=operation_id, work=work)

    def wait_for(self, operation_id):
        """Wait until a job has ended, and return it."""
        # The pool answers this copy of the service.
        jobs = self.world.service('other').jobs
        deadline = time.monotonic() + TIMEOUT_SEC
        while (found := jobs.find(operation_id)).state.is_active and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def test_leases_jobs_and_fences_of_other_pools_work(self):
        self.service.start()
        self.assertTrue(self.is_silent.wait(TIMEOUT_SEC))
        self.start('flatten', tasks.FlattenTask(self.clone))
        for _ in range(3):
            self.assertTrue(self.renewed.acquire(timeout=TIMEOUT_SEC))
        # By a request in the lock store, as from another copy of the service.
        self.world.service('other').jobs.cancel('flatten')
        self.assertEqual(JobState.CANCELED, self.wait_for('flatten').state)
        self.start('fence', tasks.FenceTask(self.clone))
        self.assertEqual(JobState.DONE, self.wait_for('fence').state)

    def test_fences_that_block_delay_no_fence_of_another_pool(self):
        """One placement group is silent, so that no fence in its pool can be proved."""
        self.answers.set()
        self.service.start()
        proved = threading.Event()
        self.addCleanup(proved.set)

        def await_blocklist(_backend, image):
            if image.pool == SILENT:
                proved.wait()

        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.storage.fake.backend.FakeBackend.await_blocklist', await_blocklist
            )
        )
        for number in range(server._FENCES + 1):
            image = image_types.ImageRef(SILENT, f'image-{number}')
            self.world.storage.create_image(image, service_world.MIB, image_types.ImageOptions())
            self.start(f'fence-{number}', tasks.FenceTask(image))
        self.start('fence', tasks.FenceTask(self.clone))
        self.assertEqual(JobState.DONE, self.wait_for('fence').state)
        proved.set()
        self.assertEqual(JobState.DONE, self.wait_for(f'fence-{server._FENCES}').state)
