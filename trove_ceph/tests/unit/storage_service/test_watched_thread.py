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
    def run_thread(self, function, is_stopping=False):
        reasons = []
        thread = watched_thread.WatchedThread(
            'leases-vault', function, lambda: is_stopping, reasons.append
        )
        thread.start()
        thread.join()
        return reasons

    def test_a_function_that_fails(self):
        def fail():
            raise OSError('no more threads')

        expected = 'thread leases-vault has ended: OSError: no more threads'
        self.assertEqual([expected], self.run_thread(fail))

    def test_a_function_that_returns_early(self):
        expected = 'thread leases-vault has ended: it returned'
        self.assertEqual([expected], self.run_thread(lambda: None))

    def test_a_function_that_was_stopped(self):
        self.assertEqual([], self.run_thread(lambda: None, is_stopping=True))


class FailingLockStore(lock_store.FakeLockStore):
    """A lock store whose client raises an unexpected error."""

    def __init__(self, cluster, verb):
        super().__init__(cluster)
        self.verb, self.fails = verb, threading.Event()

    def _may_fail(self, verb):
        if verb == self.verb and self.fails.is_set():
            raise RuntimeError('unexpected')

    def renew(self, *arguments):
        self._may_fail('renew')
        super().renew(*arguments)

    def read(self, *arguments):
        self._may_fail('read')
        return super().read(*arguments)


class ServiceTest(base.BaseTestCase):
    """A copy of the service stops its jobs if one of its threads dies."""

    def serve(self, verb):
        world = service_world.World()
        conf = cfg.ConfigOpts()
        storage_conf.register(conf)
        conf.set_override('lock_duration_sec', 15, 'trove_ceph_storage')
        entries = FailingLockStore(world.cluster, verb)
        service = server.Service(
            world.storage, entries, service_world.POOLS, conf.trove_ceph_storage, 'one'
        )
        self.addCleanup(service.stop)
        return world, entries, service

    def assert_stops(self, verb):
        world, entries, service = self.serve(verb)
        failed, lost = threading.Event(), threading.Event()
        reasons = []

        def fail(reason):
            reasons.append(reason)
            failed.set()

        service.on_failure = fail
        service.start()
        lease = service._leases.take(
            [tasks.image_lock(world.image)], 'operation', 'copy it', lambda _: lost.set()
        )
        entries.fails.set()
        self.assertTrue(failed.wait(WAIT_SEC))
        self.assertTrue(lost.wait(WAIT_SEC))
        self.assertFalse(lease.is_valid())
        self.assertIn('RuntimeError: unexpected', reasons[0])
        entries.fails.clear()
        self.assertRaises(
            exceptions.ServiceUnavailableError,
            service._jobs.start,
            'other',
            tasks.CopyTask(world.image.snapshot('s'), image_types.ImageRef('vault', 'copy')),
        )

    def test_the_thread_that_renews_leases_dies(self):
        self.assert_stops('renew')

    def test_the_thread_that_records_progress_dies(self):
        self.assert_stops('read')
