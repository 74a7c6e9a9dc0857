# SPDX-License-Identifier: Apache-2.0
"""A pool that does not answer stops its own work and no other."""

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


class Ledger:
    """That of a cluster in memory, which does something else before each request."""

    def __init__(self, cluster, before):
        self._inner = lock_store.FakeLockStore(cluster)
        self._before = before

    def __getattr__(self, verb):
        def asked(place, *arguments):
            # A pool, or a lock in it.
            self._before(verb, getattr(place, 'pool', place))
            return getattr(self._inner, verb)(place, *arguments)

        return asked


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


class GivenUpTest(SilentPoolTestCase):
    """Each request is given up in the end, as those to Ceph are."""

    def setUp(self):
        super().setUp()
        self.asked, self.is_silent = [], False
        self.later = service_world.Later()
        self.one, self.waiting = self.service(), self.service(self.later)

    def service(self, threads=None):
        made = self.world.service('one', threads=threads)
        made.lock_store._inner = Ledger(self.world.cluster, self.before)
        return made

    def before(self, verb, pool):
        self.asked.append((verb, pool))
        if self.is_silent and pool == SILENT:
            raise exceptions.CephUnreachableError(f'asking {pool}: timed out')

    def notice(self):
        """Do what is done every few seconds, until the silence has lasted."""
        self.is_silent = True
        self.assertRaises(exceptions.CephUnreachableError, self.one.manager.heartbeat, SILENT)
        self.world.now += 30
        self.asked.clear()

    def assert_asked_only(self, expected):
        self.assertEqual({expected}, {pool for _verb, pool in self.asked})

    def test_a_fence_asks_no_other_pool(self):
        self.is_silent = True
        self.one.jobs.start('fence', tasks.FenceTask(self.clone))
        self.assert_asked_only('vault')
        self.assertEqual(JobState.DONE, self.one.jobs.find('fence').state)

    def test_work_elsewhere_begins_and_is_found_once_the_silence_is_noticed(self):
        self.notice()
        self.one.jobs.start('flatten', tasks.FlattenTask(self.clone))
        self.assertEqual(JobState.DONE, self.one.jobs.find('flatten').state)
        self.assert_asked_only('vault')

    def test_each_pool_is_asked_once_whether_it_knows_an_id(self):
        self.one.jobs.start('flatten', tasks.FlattenTask(self.clone))
        first = self.asked[: self.asked.index(('take', 'vault'))]
        self.assertEqual([('read', 'vault'), ('read', 'volumes')], first)

    def test_what_it_keeps_is_not_said_to_be_nothing(self):
        self.one.jobs.start('flatten', tasks.FlattenTask(self.world.image))
        self.is_silent = True
        for verb in (self.one.jobs.find, self.one.jobs.cancel):
            error = self.assertRaises(exceptions.CephUnreachableError, verb, 'flatten')
            self.assertIn(SILENT, str(error))
        self.is_silent = False
        self.assertEqual(JobState.DONE, self.one.jobs.find('flatten').state)

    def test_the_jobs_of_the_others_are_listed(self):
        self.one.jobs.start('there', tasks.FlattenTask(self.world.image))
        self.one.jobs.start('here', tasks.FlattenTask(self.clone))
        self.assertEqual(2, len(self.one.jobs.survey()[0]))
        # Given up, and then not even asked.
        self.is_silent = True
        for _ in range(2):
            found, silent = self.one.jobs.survey()
            self.assertEqual((['here'], [SILENT]), ([one.operation_id for one in found], silent))
            self.world.now += 30
            self.asked.clear()
        self.one.jobs.survey()
        self.assert_asked_only('vault')
        # Whoever acts on what there is has to know all.
        self.assertRaises(exceptions.CephUnreachableError, self.one.jobs.all)

    def test_when_it_answers_again_it_is_asked_again(self):
        self.one.jobs.start('op', tasks.FlattenTask(self.world.image))
        self.notice()
        self.is_silent = False
        self.one.manager.heartbeat(SILENT)
        other = tasks.FlattenTask(self.clone)
        self.assertRaises(exceptions.InvalidRequestError, self.one.jobs.start, 'op', other)

    def test_its_own_work_waits(self):
        self.notice()
        for work in (
            tasks.FenceTask(self.world.image),
            tasks.FlattenTask(self.world.image),
            tasks.CopyTask(self.world.image.snapshot('s'), self.world.vault),
        ):
            self.assertRaises(exceptions.CephUnreachableError, self.one.jobs.start, 'op', work)
        self.assertEqual([], self.world.held_locks())

    def test_a_purge_needs_to_know_all_readers(self):
        trashed = self.world.storage.trash(self.clone)
        self.notice()
        purge = tasks.PurgeTask('vault', trashed.image_id)
        self.assertRaises(exceptions.CephUnreachableError, self.one.jobs.start, 'purge', purge)
        self.assertEqual([trashed], self.world.storage.list_trash('vault'))

    def test_other_work_is_canceled_and_forgotten(self):
        self.waiting.jobs.start('flatten', tasks.FlattenTask(self.clone))
        self.notice()
        self.one.jobs.cancel('flatten')
        self.waiting.manager.heartbeat('vault')
        self.later.run_next()
        self.assertEqual(JobState.CANCELED, self.one.jobs.find('flatten').state)
        self.world.now += service_world.RETENTION_SEC
        self.one.jobs.delete_expired('vault')
        self.is_silent = False
        self.assertRaises(exceptions.NotFoundError, self.one.jobs.find, 'flatten')


class BlockingTest(SilentPoolTestCase):
    """Requests to it wait for as long as the test does, in a service with threads."""

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
            Ledger(self.world.cluster, self.wait),
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
        # To this one the pool answers.
        jobs = self.world.service('other').jobs
        deadline = time.monotonic() + TIMEOUT_SEC
        while (found := jobs.find(operation_id)).state.is_active and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def test_the_others_are_renewed_canceled_and_fenced(self):
        self.service.start()
        self.assertTrue(self.is_silent.wait(TIMEOUT_SEC))
        self.start('flatten', tasks.FlattenTask(self.clone))
        for _ in range(3):
            self.assertTrue(self.renewed.acquire(timeout=TIMEOUT_SEC))
        # By word in the lock_store, as another copy of the service leaves it.
        self.world.service('other').jobs.cancel('flatten')
        self.assertEqual(JobState.CANCELED, self.wait_for('flatten').state)
        self.start('fence', tasks.FenceTask(self.clone))
        self.assertEqual(JobState.DONE, self.wait_for('fence').state)
