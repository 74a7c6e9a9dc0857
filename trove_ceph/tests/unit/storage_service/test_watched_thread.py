# SPDX-License-Identifier: Apache-2.0
import threading

from oslo_config import cfg
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.conf import storage as storage_conf
from trove_ceph.storage import image_types, tasks
from trove_ceph.storage.fake import lock_store
from trove_ceph.storage_service import server, watched_thread
from trove_ceph.tests.unit.storage_service import service_world

WAIT_SEC = 30


class WatchedThreadTest(base.BaseTestCase):
    def run_thread(self, function, is_ending=False):
        told = []
        thread = watched_thread.WatchedThread(
            'leases-vault', function, lambda: is_ending, told.append
        )
        thread.start()
        thread.join()
        return told

    def test_it_fails(self):
        def fail():
            raise OSError('no more threads')

        expected = 'thread leases-vault has ended: OSError: no more threads'
        self.assertEqual([expected], self.run_thread(fail))

    def test_it_returns_before_it_was_told_to(self):
        expected = 'thread leases-vault has ended: it returned'
        self.assertEqual([expected], self.run_thread(lambda: None))

    def test_it_was_told_to_end(self):
        self.assertEqual([], self.run_thread(lambda: None, is_ending=True))


class FailingLedger(lock_store.FakeLockStore):
    """One whose client fails in a way that nothing is prepared for."""

    def __init__(self, cluster, verb):
        super().__init__(cluster)
        self.verb, self.fails = verb, threading.Event()

    def _may_fail(self, verb):
        if verb == self.verb and self.fails.is_set():
            raise RuntimeError('not thought of')

    def renew(self, *arguments):
        self._may_fail('renew')
        super().renew(*arguments)

    def read(self, *arguments):
        self._may_fail('read')
        return super().read(*arguments)


class ServiceTest(base.BaseTestCase):
    """The work of a copy of the service whose threads die is broken off, and goes on elsewhere."""

    def serve(self, verb):
        world = service_world.World()
        conf = cfg.ConfigOpts()
        storage_conf.register(conf)
        conf.set_override('lock_duration_sec', 15, 'trove_ceph_storage')
        entries = FailingLedger(world.cluster, verb)
        service = server.Service(
            world.storage, entries, service_world.POOLS, conf.trove_ceph_storage, 'one'
        )
        self.addCleanup(service.stop)
        return world, entries, service

    def assert_broken_off(self, verb):
        world, entries, service = self.serve(verb)
        failed, lost = threading.Event(), threading.Event()
        reasons = []

        def fail(reason):
            reasons.append(reason)
            failed.set()

        service.on_failure = fail
        service.start()
        lease = service._leases.take(
            [tasks.image_lock(world.image)], 'operation', 'copy it', lost.set
        )
        entries.fails.set()
        self.assertTrue(failed.wait(WAIT_SEC))
        self.assertTrue(lost.wait(WAIT_SEC))
        self.assertFalse(lease.is_good())
        self.assertIn('RuntimeError: not thought of', reasons[0])
        entries.fails.clear()
        self.assertRaises(
            exceptions.ServiceUnavailableError,
            service._jobs.start,
            'other',
            tasks.CopyTask(world.image.snapshot('s'), image_types.ImageRef('vault', 'copy')),
        )

    def test_the_thread_that_renews_locks_dies(self):
        self.assert_broken_off('renew')

    def test_the_thread_that_writes_down_jobs_dies(self):
        self.assert_broken_off('read')
