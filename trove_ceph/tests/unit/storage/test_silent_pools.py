# SPDX-License-Identifier: Apache-2.0
"""Requests to pools that may not answer."""

import contextlib
import threading
import time

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage.ceph import silent_pools

TIMEOUT_SEC = 60


class SilentPoolsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.closed = threading.Semaphore(0)

    @contextlib.contextmanager
    def open_pool(self, name):
        yield f'context of {name}'
        self.closed.release()

    def pools(self, timeout_sec):
        return silent_pools.SilentPools(self.open_pool, timeout_sec)

    def test_an_answer_is_returned(self):
        found = self.pools(TIMEOUT_SEC).ask('one', lambda context: context.upper())
        self.assertEqual('CONTEXT OF ONE', found)
        self.assertTrue(self.closed.acquire(timeout=TIMEOUT_SEC))

    def test_an_error_is_raised(self):
        def refuse(_context):
            raise exceptions.NotFoundError('no such object')

        pools = self.pools(TIMEOUT_SEC)
        self.assertRaises(exceptions.NotFoundError, pools.ask, 'one', refuse)
        self.assertEqual(1, pools.ask('one', lambda _: 1))

    def test_a_silent_pool_gets_one_request(self):
        answers, sent = threading.Event(), []

        def request(_context):
            sent.append(len(sent))
            return answers.wait(TIMEOUT_SEC)

        pools = self.pools(timeout_sec=0)
        self.addCleanup(answers.set)
        for _ in range(2):
            error = self.assertRaises(exceptions.CephUnreachableError, pools.ask, 'one', request)
            self.assertIn('pool one', str(error))
        self.assertEqual([0], sent)
        # Another pool is not affected.
        other = threading.Event()
        with contextlib.suppress(exceptions.CephUnreachableError):
            pools.ask('two', lambda _: other.set())
        self.assertTrue(other.wait(TIMEOUT_SEC))

        answers.set()
        again, deadline = threading.Event(), time.monotonic() + TIMEOUT_SEC
        while not again.is_set():
            self.assertLess(time.monotonic(), deadline)
            with contextlib.suppress(exceptions.CephUnreachableError):
                pools.ask('one', lambda _: again.set())
        self.assertEqual([0], sent)
