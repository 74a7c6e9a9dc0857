# SPDX-License-Identifier: Apache-2.0
"""The warm guests of a replacement, in the tables of guests."""

import dataclasses
import uuid

from trove.common import cfg as trove_cfg

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.strategies.guests import bind
from trove_ceph.taskmanager import replacement_guests, warm_guests
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.tests.unit.trove_adapter import test_replaced_instance

CONF = trove_cfg.CONF
INSTANCE, VOLUME = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
RECORD = dataclasses.replace(
    test_replaced_instance.record(INSTANCE),
    flavor_id=guest_helpers.KEY.flavor_id,
    image_id=guest_helpers.KEY.image_id,
)
REQUEST = bind.BindRequest(INSTANCE, 'db1', VOLUME, (), {}, {}, ())


class ReplacementGuestsTest(guest_helpers.GuestStoreTestCase):
    """The test case acts as the pools, and as the services that a binding uses."""

    def setUp(self):
        super().setUp()
        for name, value, group in (
            ('network_isolation', False, 'network'),
            ('management_networks', ['management'], None),
        ):
            CONF.set_override(name, value, group)
            self.addCleanup(CONF.clear_override, name, group)
        self.taken, self.calls, self.requests = [], [], []
        self.error = self.key_error = None
        self.limit = 1000
        deps = bind.BindDependencies(
            agents=self, servers=self, ports=self, store=self.store, volumes=self, fence=self.fence
        )
        self.warm = warm_guests.WarmGuests(self.store, self.request_key, deps)
        self.guests = self.of(self.warm)

    def of(self, warm):
        return replacement_guests.ReplacementGuests(self.store, warm, self.take_port)

    def take_port(self, port_id, instance_id, _instance_port_ids):
        if self.error is not None:
            raise self.error
        self.taken.append((port_id, instance_id))

    def request_key(self, *request):
        self.requests.append(request)
        if self.key_error is not None:
            raise self.key_error
        return guest_helpers.KEY

    # What a binding calls.

    def bind(self, guest, binding):
        self.calls.append('bind')

    def find_interface(self, port_id):
        raise AssertionError('the request has no port')

    def attach_volume(self, server_id, volume_id):
        self.calls.append('attach_volume')

    def find_volume(self, volume_id):
        return self

    status = 'in-use'

    def describe(self, *arguments):
        self.calls.append('describe')

    def delete(self, server_id):
        self.calls.append('delete')

    def fence(self, volume_id, confirm):
        self.assertEqual(self.check, confirm)
        self.calls.append('fence')

    def check(self):
        """Lose the claim after some requests."""
        self.limit -= 1
        if self.limit < 0:
            raise exceptions.ClaimLostError('another worker continues it')

    # Tests.

    def claim(self, not_on=None, **values):
        return self.guests.claim(dataclasses.replace(RECORD, **values), not_on)

    def test_claims_what_the_record_needs(self):
        self.make('one', server_id='server')
        self.assertEqual('one', self.claim(availability_zone='east').guest_id)
        self.assertEqual([('version', RECORD.flavor_id, RECORD.image_id, 'east')], self.requests)

    def test_claims_on_another_host(self):
        self.make('one', server_id='server')
        self.assertIsNone(self.claim(not_on='host'))
        self.assertEqual('one', self.claim(not_on='elsewhere').guest_id)

    def test_hot_guest_of_a_creation_that_was_interrupted(self):
        self.make('hot', GuestState.HOT, server_id='server')
        digest = guest_helpers.HOT_DIGEST
        self.store.claim_hot(guest_helpers.KEY, digest, RECORD.instance_id)
        self.make('ready', server_id='other')
        self.assertEqual('ready', self.claim().guest_id)
        self.assertIs(GuestState.RETIRED, self.store.find('hot').state)

    def test_returns_the_guest_of_an_interrupted_claim(self):
        for name in ('one', 'two'):
            self.make(name, server_id=name)
        first = self.claim()
        self.assertEqual(first.guest_id, self.claim().guest_id)
        other = self.claim(instance_id='other')
        self.assertNotEqual(first.guest_id, other.guest_id)

    def test_retires_a_guest_that_was_claimed_for_another_flavor_or_host(self):
        for changes, not_on in (({'flavor_id': '3'}, None), ({}, 'host')):
            self.make('one', server_id='server')
            self.claim()
            self.assertIsNone(self.claim(not_on, **changes))
            self.assertIs(GuestState.RETIRED, self.guests.find('one').state)
            self.store.delete('one')

    def test_no_guest_is_no_error(self):
        self.assertIsNone(self.claim())
        self.assertIsNone(self.of(None).claim(RECORD, None))
        self.make('one', server_id='server')
        self.key_error = exceptions.InvalidConfigurationError('no such flavor')
        self.assertIsNone(self.claim())
        self.key_error = None
        # Docker has another configuration there, which it reads only when it starts.
        CONF.set_override('network_isolation', True, 'network')
        self.assertIsNone(self.claim())

    def test_finds_its_guest_whose_host_is_not_known(self):
        self.make('one', host=None)
        for _again in range(2):
            self.assertEqual('one', self.claim().guest_id)
        self.assertIs(GuestState.CLAIMED, self.guests.find('one').state)

    def test_binds(self):
        """Trove deletes the ports of an instance by their name."""
        self.make('one', server_id='server', port_id='port')
        self.guests.bind(self.claim(), REQUEST, self.check)
        self.assertEqual([('port', INSTANCE)], self.taken)
        self.assertEqual(['bind', 'attach_volume', 'describe'], self.calls)
        self.assertEqual(GuestState.BOUND, self.guests.find('one').state)

    def test_retires_a_guest_whose_port_cannot_be_taken(self):
        self.make('one', server_id='server', port_id='port')
        guest = self.claim()
        self.error = exceptions.ServiceUnavailableError('Neutron is down')
        self.assertRaises(
            exceptions.ServiceUnavailableError, self.guests.bind, guest, REQUEST, self.check
        )
        self.assertEqual(GuestState.RETIRED, self.guests.find('one').state)
        self.assertEqual([], self.calls)

    def test_worker_that_lost_its_claim_sends_no_further_request(self):
        """A late fence would cut off the server that the other worker has chosen."""
        for limit, calls in ((0, []), (1, ['bind']), (2, ['bind', 'attach_volume'])):
            name = f'guest-{limit}'
            self.make(name, server_id=name, port_id='port')
            guest = self.claim(instance_id=name)
            self.calls.clear()
            self.limit = limit
            error = self.assertRaises(
                exceptions.TroveCephError, self.guests.bind, guest, REQUEST, self.check
            )
            self.assertIn('another worker continues it', str(error))
            self.assertEqual(calls, self.calls)
            self.assertEqual(GuestState.CLAIMED, self.guests.find(name).state)

    def test_fence_of_a_guest_that_is_not_bound_needs_the_claim(self):
        self.make('one', server_id='server', port_id='port')
        self.describe = lambda *_arguments: self.fail_to_describe()
        error = exceptions.ServiceUnavailableError
        self.assertRaises(error, self.guests.bind, self.claim(), REQUEST, self.check)
        self.assertEqual(['bind', 'attach_volume', 'delete', 'fence'], self.calls)

    def fail_to_describe(self):
        # The guest is detached when its server is deleted.
        self.status = 'available'
        raise exceptions.ServiceUnavailableError('Nova is down')

    def test_retires_the_guest_that_was_the_old_server(self):
        for name in ('old', 'new'):
            self.make(name, GuestState.BOUND, server_id=f'{name}-server')
        for _again in range(2):
            self.guests.retire_old(RECORD)
            self.assertEqual(GuestState.RETIRED, self.guests.find('old').state)
            self.assertEqual(GuestState.BOUND, self.guests.find('new').state)
        self.assertIsNone(self.guests.find('unknown'))
