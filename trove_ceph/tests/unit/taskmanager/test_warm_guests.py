# SPDX-License-Identifier: Apache-2.0
"""The warm guests as the creation of an instance and a replacement see them."""

import datetime
import types

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestState, PoolKey
from trove_ceph.taskmanager import warm_guests
from trove_ceph.tests.unit.db import guest_helpers

GUEST = guest_helpers.record(
    'guest', datetime.datetime(2026, 1, 1), GuestState.CLAIMED, server_id='server'
)
KEY = PoolKey('flavor', 'image', 'digest', 'zone', 'pool')
REQUEST = ('instance', 'version', 'flavor', 'image', 'zone')


class WarmGuestsTest(base.BaseTestCase):
    """The test case acts as the store and as the binding."""

    def setUp(self):
        super().setUp()
        self.key, self.error = KEY, None
        self.claims, self.forgotten = [], []
        name = 'trove_ceph.strategies.guests.bind.Binding'
        self.useFixture(fixtures.MonkeyPatch(name, lambda *_: types.SimpleNamespace(run=self.run_)))
        self.guests = warm_guests.WarmGuests(
            self,
            lambda *_request: self.key,
            None,
            lambda volume_type: volume_type == 'nvme',
            self.forgotten.append,
            lambda request: request(),
        )

    def claim(self, *arguments):
        self.claims.append(arguments)
        return GUEST

    def run_(self):
        if self.error is not None:
            raise self.error

    def test_claims_a_guest_that_fits(self):
        self.assertEqual(GUEST, self.guests.claim(*REQUEST))
        self.assertEqual(GUEST, self.guests.claim(*REQUEST, not_on_host='host'))
        self.assertEqual([(KEY, 'instance', None), (KEY, 'instance', 'host')], self.claims)

    def test_without_a_pool(self):
        self.key = None
        self.assertIsNone(self.guests.claim(*REQUEST))
        self.assertEqual([], self.claims)

    def test_volumes_that_can_be_fenced(self):
        self.assertTrue(self.guests.can_fence('nvme'))
        self.assertFalse(self.guests.can_fence('lvm'))

    def test_queues_of_a_bound_guest_are_deleted(self):
        self.guests.bind(GUEST, None)
        self.assertEqual(['guest'], self.forgotten)

    def test_queues_of_a_guest_that_is_not_bound_go_with_the_guest(self):
        self.error = exceptions.ServiceUnavailableError('it was not attached')
        self.assertRaises(type(self.error), self.guests.bind, GUEST, None)
        self.assertEqual([], self.forgotten)
