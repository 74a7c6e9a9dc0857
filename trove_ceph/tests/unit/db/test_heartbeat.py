# SPDX-License-Identifier: Apache-2.0
import threading

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import claims, heartbeat
from trove_ceph.db.roles import Role

ONE, TWO = (claims.Claim(Role.COPY, name, 'worker', name) for name in ('one', 'two'))


class FakeClaims:
    """The claims in the tables, reduced to heartbeats."""

    def __init__(self, *claimed):
        self.claimed = set(claimed)
        self.is_down = False
        self.called = threading.Event()

    def heartbeat_all(self, held):
        self.called.set()
        if self.is_down:
            raise exceptions.ServiceUnavailableError('the database failed')
        return self.claimed.intersection(held)


class HeartbeatTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 100.0
        self.claims = FakeClaims(ONE, TWO)
        self.heartbeat = heartbeat.Heartbeat(self.claims, 5, 45, lambda: self.now)

    def test_claim_is_valid_while_heartbeats_are_written(self):
        with self.heartbeat.hold(ONE):
            for _ in range(20):
                self.now += 30
                self.heartbeat.beat()
                self.heartbeat.check(ONE)
        self.heartbeat.check(ONE)

    def test_claim_that_another_worker_took(self):
        self.heartbeat.add(ONE)
        self.heartbeat.add(TWO)
        self.claims.claimed.remove(ONE)
        self.heartbeat.beat()
        error = self.assertRaises(exceptions.ClaimLostError, self.heartbeat.check, ONE)
        self.assertIn('claim of worker to copy one', str(error))
        self.heartbeat.check(TWO)
        # A lost claim stays lost.
        self.claims.claimed.add(ONE)
        self.heartbeat.beat()
        self.assertRaises(exceptions.ClaimLostError, self.heartbeat.check, ONE)

    def test_worker_stops_before_another_one_may_resume(self):
        self.heartbeat.add(ONE)
        self.claims.is_down = True
        self.now += 35
        self.assertRaises(exceptions.ServiceUnavailableError, self.heartbeat.beat)
        self.heartbeat.check(ONE)
        self.now += 2
        self.assertRaises(exceptions.ClaimLostError, self.heartbeat.check, ONE)
        # The claim stays lost when the database is back.
        self.claims.is_down = False
        self.heartbeat.beat()
        self.assertRaises(exceptions.ClaimLostError, self.heartbeat.check, ONE)

    def test_no_database_access_without_claims(self):
        self.claims.is_down = True
        self.heartbeat.beat()
        self.heartbeat.add(ONE)
        self.heartbeat.drop(ONE)
        self.heartbeat.drop(None)
        self.heartbeat.beat()
        self.assertFalse(self.claims.called.is_set())

    def test_thread_survives_a_failure(self):
        beating = heartbeat.Heartbeat(self.claims, 0.001, 45)
        self.claims.is_down = True
        beating.add(ONE)
        beating.start()
        beating.start()
        self.addCleanup(beating.stop)
        for _ in range(3):
            self.assertTrue(self.claims.called.wait(60))
            self.claims.called.clear()

    def test_clock_counts_suspends(self):
        self.assertGreater(heartbeat.boottime(), 0)
