# SPDX-License-Identifier: Apache-2.0
"""The taskmanager's calls, answered by the agent's own code."""

import datetime
import json
import time
import types
import uuid

import fixtures
import oslo_messaging as messaging
from oslotest import base
from trove.common import cfg as trove_cfg

from trove_ceph import exceptions, message_auth
from trove_ceph.db.guest_record import GuestState
from trove_ceph.guestagent import hot_server, waiting_guest, waiting_messages
from trove_ceph.guestagent.waiting_messages import LoadState
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.tests.unit.guestagent import waiting_world
from trove_ceph.trove_adapter import guest_keys, waiting_guest_rpcapi

CONF = trove_cfg.CONF
NOW = datetime.datetime(2026, 1, 1)


class WaitingGuestTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        CONF.set_override('inst_rpc_key_encr_key', 'a key of the control plane')
        self.addCleanup(CONF.clear_override, 'inst_rpc_key_encr_key')
        self.keys = guest_keys.make()
        self.guest = guest_helpers.record(
            str(uuid.uuid4()),
            NOW,
            GuestState.READY,
            encrypted_key=guest_keys.encrypt(self.keys),
        )
        self.obstacle, self.bindings, self.sent, self.failure = None, [], [], None
        self.server = waiting_world.Server()
        self.endpoint = self.make_endpoint(self.keys.signing)
        self.change_reply = lambda reply: reply
        self.useFixture(fixtures.MonkeyPatch('trove.rpc.get_client', self.get_client))
        self.api = waiting_guest_rpcapi.WaitingGuestAPI(context=None)

    def make_endpoint(self, secret):
        keys = waiting_messages.signing_keys(self.guest.guest_id, secret)
        return waiting_guest.Endpoint(
            message_auth.Verifier(keys, self.guest.guest_id, skew_sec=60),
            lambda: self.obstacle,
            self.bindings.append,
            waiting_guest.Outcome(),
            hot_server.HotServer(lambda: self.server, self.server.run),
        )

    def get_client(self, target, key, version_cap):
        self.assertEqual(self.keys.rpc, key)
        self.assertEqual(f'guestagent.{self.guest.guest_id}', target.topic)
        return types.SimpleNamespace(prepare=lambda timeout: self)

    def call(self, _context, verb, message):
        if self.failure:
            raise self.failure
        # As on the bus.
        message = json.loads(json.dumps(message))
        self.sent.append((verb, message))
        return self.change_reply(getattr(self.endpoint, verb)(None, message))

    def binding(self):
        return waiting_messages.Binding(
            instance_id=str(uuid.uuid4()),
            files={'/etc/trove/conf.d/guest_info.conf': '[DEFAULT]\n'},
            volume_id=str(uuid.uuid4()),
            interfaces=(
                waiting_messages.Interface(
                    mac='fa:16:3e:00:00:01',
                    mtu=1400,
                    addresses=('192.0.2.5/26',),
                    gateway='192.0.2.1',
                    routes=(waiting_messages.Route('10.1.0.0/16', '192.0.2.9'),),
                    nameservers=('192.0.2.53',),
                ),
            ),
        )

    def assert_unavailable(self, part, verb, *arguments):
        error = self.assertRaises(
            exceptions.GuestUnavailableError, getattr(self.api, verb), self.guest, *arguments
        )
        self.assertIn(part, str(error))
        self.assertIn(self.guest.guest_id, str(error))

    def test_ping(self):
        answer = self.api.ping(self.guest)
        self.assertEqual((True, ''), (answer.can_bind, answer.reason))
        self.obstacle = 'there is no networkd'
        answer = self.api.ping(self.guest)
        self.assertEqual((False, 'there is no networkd'), (answer.can_bind, answer.reason))

    def test_bind(self):
        binding = self.binding()
        self.api.bind(self.guest, binding)
        self.assertEqual([binding], self.bindings)

    def test_load(self):
        self.assertIs(LoadState.NONE, self.api.ping(self.guest).load)
        load = waiting_messages.Load(**waiting_world.LOAD)
        self.api.load(self.guest, load)
        self.api.load(self.guest, load)
        answer = self.api.ping(self.guest)
        self.assertEqual((LoadState.STARTING, False), (answer.load, answer.can_bind))
        self.server.finish()
        answer = self.api.ping(self.guest)
        self.assertEqual((LoadState.SERVING, True), (answer.load, answer.can_bind))
        self.assertEqual([load], self.server.loads)

    def test_load_that_is_refused(self):
        self.api.bind(self.guest, self.binding())
        load = waiting_messages.Load(**waiting_world.LOAD)
        self.assert_unavailable('has accepted a binding before', 'load', load)

    def test_second_binding_is_refused(self):
        self.api.bind(self.guest, self.binding())
        self.assert_unavailable('has accepted a binding before', 'bind', self.binding())
        self.assertEqual(1, len(self.bindings))

    def test_replayed_binding_is_refused(self):
        self.api.bind(self.guest, self.binding())
        ((_, message),) = [one for one in self.sent if one[0] == 'bind']
        # Another run of the agent does not know what this one has accepted.
        for endpoint in (self.endpoint, self.make_endpoint(self.keys.signing)):
            self.assertIn('refused', endpoint.bind(None, message))
        self.assertEqual(1, len(self.bindings))

    def test_guest_with_another_key(self):
        self.endpoint = self.make_endpoint(guest_keys.make().signing)
        self.assert_unavailable('refuses the request: its signature is wrong', 'ping')
        self.assert_unavailable('refuses the request', 'bind', self.binding())

    def test_forged_replies(self):
        for forged in (
            None,
            {},
            {'can_bind': True, 'address': {'server': 's', 'run_id': 'r'}},
            {'key_id': self.guest.guest_id, 'content': '{"can_bind": true}', 'mac': '0' * 64},
        ):
            self.change_reply = lambda _reply, forged=forged: forged
            self.assert_unavailable('is not authentic', 'ping')
            self.assert_unavailable('is not authentic', 'bind', self.binding())
        self.assertEqual([], self.bindings)

    def test_reply_to_another_request(self):
        earlier = []
        self.change_reply = lambda reply: earlier.append(reply) or earlier[0]
        self.api.ping(self.guest)
        self.assert_unavailable('answers another request', 'ping')

    def test_guest_that_cannot_replace_its_files(self):
        self.bindings = None
        self.endpoint._replace_files = lambda _binding: self.fail_to_write()
        self.assert_unavailable('no space', 'bind', self.binding())

    def fail_to_write(self):
        raise exceptions.GuestNotBoundError('no space')

    def test_silent_guest(self):
        for failure in (messaging.MessagingTimeout(), KeyError('forged by a message')):
            self.failure = failure
            self.assert_unavailable(type(failure).__name__, 'ping')

    def test_request_expires_with_its_timeout(self):
        self.api.ping(self.guest)
        ((_, message),) = self.sent
        lifetime = json.loads(message['content'])['expires_at'] - time.time()
        self.assertLessEqual(lifetime, waiting_guest_rpcapi.PING_TIMEOUT_SEC)

    def test_long_texts_of_a_guest_are_cut(self):
        self.obstacle = 'x' * 100_000
        self.assertEqual(1000, len(self.api.ping(self.guest).reason))
