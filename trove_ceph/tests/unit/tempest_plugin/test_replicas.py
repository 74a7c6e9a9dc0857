# SPDX-License-Identifier: Apache-2.0
"""Tests of the requests of scenarios for replicas, and of their waits."""

import functools

from oslotest import base
from tempest.lib import exceptions

from trove_ceph import waiting
from trove_ceph_tempest_plugin import replicas


def shown(state, **more):
    return {
        'id': 'r-1',
        'state': state,
        'replicating': state == 'following',
        'lag_sec': 0.0,
        'lag_transactions': 0,
        'reprovisioned_at': None,
        'error': None,
        'problem': None,
        **more,
    }


class FakeTrove:
    """Fake of Trove: show a replica in one state after the other."""

    def __init__(self, *states, has_extension=True, refusals=0):
        self._states = list(states)
        self._refusals = refusals
        self._has_extension = has_extension
        self.requests = []

    def create_resource(self, path, body, expected_status_code, need_response=True):
        self.requests.append((path, body, expected_status_code))
        if len(self.requests) <= self._refusals:
            raise exceptions.BadRequest('it has a current heartbeat')
        return {'replication': shown('requested')}

    def get_resource(self, kind, instance_id):
        assert (kind, instance_id) == ('replication', 'r-1')
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return {'replication': state}

    def put_resource(self, path, body, expected_status_code):
        self.requests.append((path, body, expected_status_code))

    def list_resources(self, kind, **_filters):
        if not self._has_extension:
            raise exceptions.NotFound(kind)


class ReplicasTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0

    def _sleep(self, seconds):
        self.now += seconds

    def replicas(self, *states, **more):
        start_wait = functools.partial(waiting.Deadline, clock=lambda: self.now, sleep=self._sleep)
        self.trove = FakeTrove(*states, **more)
        return replicas.Replicas(self.trove, 60, start_wait)

    def test_waits_until_it_follows_on_its_fresh_clone(self):
        found = self.replicas(
            shown('cloning'),
            shown('exchanging'),
            shown('catching_up'),
            shown('following', reprovisioned_at='2026-01-01T00:00:00'),
        )
        requested = found.reprovision('r-1', 'test')
        body = {'reprovision': {'reason': 'test'}}
        self.assertEqual([('replication/r-1/reprovision', body, 202)], self.trove.requests)
        self.assertEqual('following', found.wait_until_reprovisioned(requested)['state'])
        self.assertEqual(3, self.now)

    def test_replica_that_kept_its_old_data(self):
        found = self.replicas(shown('returning'), shown('following', error='no space'))
        error = self.assertRaises(
            exceptions.UnexpectedResponseCode,
            found.wait_until_reprovisioned,
            shown('requested'),
        )
        self.assertIn('replica r-1 was not re-provisioned: no space', str(error))

    def test_waits_until_nothing_is_behind(self):
        found = self.replicas(
            shown('following', replicating=None, lag_sec=None, lag_transactions=None),
            shown('following', lag_sec=2.5, lag_transactions=3),
            shown('following', lag_transactions=1),
            shown('following'),
        )
        self.assertEqual(0, found.wait_until_current('r-1')['lag_transactions'])
        self.assertEqual(3, self.now)

    def test_timeout_says_what_is_wrong(self):
        found = self.replicas(shown('broken', lag_sec=7.0, problem='binary logs are missing'))
        error = self.assertRaises(exceptions.TimeoutException, found.wait_until_current, 'r-1')
        self.assertIn(
            'replica r-1 is broken after 60 s, 7.0 s behind: binary logs are missing', str(error)
        )
        self.assertEqual(60, self.now)

    def test_extension(self):
        self.assertTrue(self.replicas().are_offered())
        self.assertFalse(self.replicas(has_extension=False).are_offered())

    def test_policy(self):
        self.replicas().set_policy('s-1', semi_sync=True)
        body = {'replication_policy': {'semi_sync': True}}
        self.assertEqual([('replication_policies/s-1', body, 200)], self.trove.requests)

    def test_repeats_the_ejection_while_the_agent_seems_alive(self):
        self.replicas(refusals=2).eject('s-1')
        request = ('instances/s-1/action', {'eject_replica_source': {}}, 202)
        self.assertEqual([request] * 3, self.trove.requests)
        self.assertEqual(2, self.now)

    def test_source_whose_agent_lives(self):
        self.assertRaises(exceptions.BadRequest, self.replicas(refusals=1000).eject, 's-1')
        self.assertEqual(60, self.now)
