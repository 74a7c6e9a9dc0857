# SPDX-License-Identifier: Apache-2.0
"""The re-provisionings of a process; :mod:`test_replacements` tests when attempts are made."""

import types

import fixtures

from trove_ceph import exceptions, waiting
from trove_ceph.db import claims, heartbeat
from trove_ceph.db.replica_record import ReplicaState
from trove_ceph.taskmanager import reprovisionings
from trove_ceph.tests.unit.db import replica_helpers
from trove_ceph.tests.unit.taskmanager.test_replacements import Threads


class OneThread(Threads):
    """A thread that is free once in each call of the runner."""

    def start(self, function):
        function()
        return False


class ReprovisioningsTest(replica_helpers.ReplicaStoreTestCase):
    """The test case acts as the strategy.

    :ivar errors: of the next attempts; None: the re-provisioning ends
    """

    def setUp(self):
        super().setUp()
        self.attempts, self.errors = [], []
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.strategies.replication.reprovision.Reprovisioning', self.make_attempt
            )
        )
        self.seconds = 0
        deps = types.SimpleNamespace(
            store=self.store,
            heartbeat=heartbeat.Heartbeat(self.store.claims, 5, 45, lambda: self.seconds),
            clock=lambda: self.seconds,
        )
        self.runner = reprovisionings.Reprovisionings(
            deps,
            claims.Claimant('one'),
            Threads(),
            lambda seconds: waiting.Deadline(seconds, lambda: self.seconds, self.sleep),
        )

    def sleep(self, seconds):
        self.seconds += seconds

    def make_attempt(self, deps, claim, record):
        def run():
            self.attempts.append(record.instance_id)
            error = self.errors.pop(0) if self.errors else None
            if error is not None:
                raise error
            deps.store.fail(claim, 'why')

        return types.SimpleNamespace(run=run)

    def request(self, instance_id):
        self.add(instance_id)
        self.store.request(instance_id, replica_helpers.Requester.TENANT, 'why')

    def test_continues_what_is_requested(self):
        for name in 'rs':
            self.request(name)
        self.add('idle')
        self.runner.start_due()
        self.assertEqual(['r', 's'], self.attempts)
        self.assertIs(ReplicaState.FOLLOWING, self.store.find('r').state)

    def test_looks_again(self):
        self.request('r')
        self.errors = [exceptions.InProgressError('Nova attaches it')]
        self.runner.start_due()
        self.seconds += 2
        self.runner.start_due()
        self.assertEqual(['r', 'r'], self.attempts)

    def test_those_that_wait_take_turns_with_others(self):
        """With one free thread; the first one requested waits for long."""
        for name in 'ab':
            self.request(name)
        self.errors = [exceptions.InProgressError('it has not caught up')] * 4
        self.runner._work._threads = OneThread()
        for _ in range(4):
            self.runner.start_due()
            self.seconds += 60
        self.assertEqual(['a', 'b', 'a', 'b'], self.attempts)
        self.request('c')
        self.runner.start_due()
        self.assertEqual('c', self.attempts[-1])

    def test_deletion_ends_it(self):
        self.request('r')
        self.errors = [exceptions.ServiceUnavailableError('Nova is down')] * 2
        self.runner.cancel('r')
        self.assertEqual(['r'] * 3, self.attempts)
        self.assertIs(ReplicaState.FOLLOWING, self.store.find('r').state)

    def test_deletion_without_one(self):
        self.add('idle')
        for name in ('idle', 'unknown'):
            self.runner.cancel(name)
        self.assertEqual([], self.attempts)

    def test_deletion_that_must_be_repeated(self):
        self.request('r')
        self.errors = [exceptions.InProgressError('Nova attaches it')] * 1000
        error = self.assertRaises(exceptions.InProgressError, self.runner.cancel, 'r')
        self.assertIn('repeat the deletion of the instance', str(error))
