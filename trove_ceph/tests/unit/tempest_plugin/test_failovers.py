# SPDX-License-Identifier: Apache-2.0
"""Tests of the requests of scenarios for failovers, and of their waits."""

import functools

from oslotest import base
from tempest.lib import exceptions

from trove_ceph import waiting
from trove_ceph_tempest_plugin import failovers


class FakeTrove:
    """Fake of Trove: show a failover in one state after the other."""

    def __init__(self, *states, has_extension=True, conflicts=0, listed=((),)):
        self._states = list(states)
        self._listed = list(listed)
        self._conflicts = conflicts
        self._has_extension = has_extension
        self.requests = []

    def create_resource(self, path, body, expected_status_code):
        self.requests.append((path, body, expected_status_code))
        if len(self.requests) <= self._conflicts:
            raise exceptions.Conflict('instance i-1: is healthy')
        kind = 'failover_policy' if path == 'failover_policies' else 'failover'
        return {kind: {'id': 'f-1'}}

    def get_resource(self, kind, failover_id):
        assert (kind, failover_id) == ('failovers', 'f-1')
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return {'failover': {'state': state, 'step': 'fence', 'error': 'not proved'}}

    def list_resources(self, kind, instance_id='i-1', **_filters):
        if not self._has_extension:
            raise exceptions.NotFound(kind)
        assert (kind, instance_id) == ('failovers', 'i-1')
        found = self._listed.pop(0) if len(self._listed) > 1 else self._listed[0]
        return {kind: [{'id': one} for one in found]}

    def delete_resource(self, *path, ignore_notfound):
        self.requests.append((path, ignore_notfound))


class FailoversTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0

    def _sleep(self, seconds):
        self.now += seconds

    def failovers(self, trove):
        start_wait = functools.partial(waiting.Deadline, clock=lambda: self.now, sleep=self._sleep)
        return failovers.Failovers(trove, 60, start_wait)

    def test_forces_a_failover(self):
        trove = FakeTrove()
        self.assertEqual('f-1', self.failovers(trove).create('i-1', 'QEMU is dead'))
        body = {'failover': {'instance': 'i-1', 'reason': 'QEMU is dead', 'force': True}}
        self.assertEqual([('failovers', body, 202)], trove.requests)

    def test_repeats_the_request_while_the_instance_seems_healthy(self):
        trove = FakeTrove(conflicts=2)
        self.assertEqual('f-1', self.failovers(trove).create_once_unhealthy('i-1', 'dead'))
        body = {'failover': {'instance': 'i-1', 'reason': 'dead'}}
        self.assertEqual([('failovers', body, 202)] * 3, trove.requests)
        self.assertEqual(2, self.now)

    def test_instance_that_stays_healthy(self):
        failovers = self.failovers(FakeTrove(conflicts=1000))
        self.assertRaises(exceptions.Conflict, failovers.create_once_unhealthy, 'i-1', 'dead')
        self.assertEqual(60, self.now)

    def test_policy(self):
        trove = FakeTrove()
        failovers = self.failovers(trove)
        failovers.delete_policy(failovers.set_policy('i-1', 'replica'))
        policy = {'scope': 'instance', 'target': 'i-1', 'prefer': 'replica'}
        body = {'failover_policy': policy}
        expected = [('failover_policies', body, 201), (('failover_policies', 'f-1'), True)]
        self.assertEqual(expected, trove.requests)

    def test_waits_for_the_request_of_others(self):
        trove = FakeTrove(listed=((), (), ('f-2', 'f-1')))
        self.assertEqual('f-2', self.failovers(trove).wait_until_requested('i-1'))
        self.assertEqual(2, self.now)

    def test_no_request_of_others(self):
        failovers = self.failovers(FakeTrove())
        self.assertRaises(exceptions.TimeoutException, failovers.wait_until_requested, 'i-1')
        self.assertEqual(60, self.now)

    def test_waits_until_it_is_complete(self):
        trove = FakeTrove('requested', 'fencing', 'moving', 'starting', 'completed')
        found = self.failovers(trove).wait_until_completed('f-1')
        self.assertEqual(('completed', 4), (found['state'], self.now))

    def test_waits_until_it_changes_something(self):
        found = self.failovers(FakeTrove('requested', 'fencing')).wait_until_begun('f-1')
        self.assertEqual(('fencing', 1), (found['state'], self.now))

    def test_failure_has_its_reason(self):
        error = self.assertRaises(
            exceptions.UnexpectedResponseCode,
            self.failovers(FakeTrove('requested', 'failed')).wait_until_completed,
            'f-1',
        )
        self.assertIn('failover f-1 is failed: not proved', str(error))

    def test_timeout_says_where_it_is(self):
        error = self.assertRaises(
            exceptions.TimeoutException,
            self.failovers(FakeTrove('fencing')).wait_until_completed,
            'f-1',
        )
        self.assertIn('fencing at step fence after 60 s: not proved', str(error))
        self.assertEqual(60, self.now)

    def test_extension(self):
        self.assertTrue(self.failovers(FakeTrove()).are_offered())
        self.assertFalse(self.failovers(FakeTrove(has_extension=False)).are_offered())
