# SPDX-License-Identifier: Apache-2.0
"""A waiting guest on oslo.messaging's in-memory bus; the attacker can put any message on it."""

import functools
import json
import logging
import threading
from unittest import mock

import fixtures
import oslo_messaging as messaging
from oslotest import base
from trove.common.rpc import secure_serializer

from trove_ceph import exceptions, message_auth
from trove_ceph.guestagent import (
    hot_server,
    replacement_process,
    waiting_guest,
    waiting_messages,
)
from trove_ceph.guestagent.waiting_messages import Verb
from trove_ceph.host import file_replacement
from trove_ceph.tests.unit.guestagent import waiting_world
from trove_ceph.tests.unit.guestagent.waiting_world import GUEST, INSTANCE, TENANTS_SECRET

NOW = 1_700_000_000.0


class FakeProcess:
    """Replaces files in this process."""

    def __init__(self):
        self.runs = True
        self.error = None

    def is_running(self):
        return self.runs

    def replace(self, replacement):
        if self.error:
            raise self.error
        file_replacement.replace(replacement)


class WaitingTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.machine = self.useFixture(waiting_world.Machine())
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        self.process = FakeProcess()
        self.obstacle = None
        self.server = waiting_world.Server()
        self.hot = hot_server.HotServer(lambda: self.server, self.server.run)

    def guest(self, prepare=lambda: None):
        return waiting_guest.WaitingGuest(
            self.machine.conf(), self.process, prepare, lambda: self.obstacle, self.hot
        )


class EndpointTest(WaitingTestCase):
    """Attacks on the endpoint, whose clock the test sets."""

    def setUp(self):
        super().setUp()
        self.now = NOW
        self.keys = waiting_messages.signing_keys(GUEST, self.machine.signing_key)
        self.caller = message_auth.Caller(self.keys, lambda: self.now)
        self.bound = []
        self.endpoint = self.start()

    def start(self):
        """Start the agent, perhaps again."""
        verifier = message_auth.Verifier(self.keys, GUEST, 60, lambda: self.now)
        self.outcome = waiting_guest.Outcome()
        return waiting_guest.Endpoint(
            verifier, lambda: self.obstacle, self.bound.append, self.outcome, self.hot
        )

    def sign(self, verb, address=None, arguments=None, caller=None):
        return (caller or self.caller).sign(verb, arguments or {}, 30, address)

    def send(self, verb, address=None, arguments=None, caller=None):
        message, request = self.sign(verb, address, arguments, caller)
        reply = getattr(self.endpoint, verb)({}, message)
        return self.caller.open_reply(reply, request)

    def address(self):
        return message_auth.Address(**self.send('ping')['address'])

    def assert_refused(self, reason, verb, message):
        self.assertEqual({'refused': str(reason)}, getattr(self.endpoint, verb)({}, message))
        self.assertEqual([], self.bound)

    def test_ping(self):
        reply = self.send('ping')

        self.assertEqual((True, ''), (reply['can_bind'], reply['reason']))
        self.assertEqual(GUEST, reply['address']['server'])
        self.assertTrue(reply['version'])

    def test_ping_tells_an_obstacle(self):
        self.obstacle = 'no networkd'
        reply = self.send('ping')
        self.assertEqual((False, 'no networkd'), (reply['can_bind'], reply['reason']))

    def test_bind_once(self):
        address = self.address()
        arguments = self.machine.arguments()

        self.assertTrue(self.send('bind', address, arguments)['bound'])

        self.assertEqual([INSTANCE], [one.instance_id for one in self.bound])
        other = arguments | {'instance_id': waiting_world.VOLUME}
        for again in (arguments, other):
            reply = self.send('bind', address, again)
            self.assertIn('has accepted a binding before', reply['error'])
            self.assertNotIn('bound', reply)
        self.assertEqual(1, len(self.bound))
        self.assertFalse(self.send('ping')['can_bind'])

    def test_a_failed_binding_is_the_last(self):
        self.endpoint._replace_files = mock.Mock(
            side_effect=exceptions.StorageCommandError('No space left')
        )
        address = self.address()
        self.assertEqual(
            'No space left', self.send('bind', address, self.machine.arguments())['error']
        )
        self.assertTrue(self.outcome.wait(0))
        self.assertRaises(exceptions.GuestNotBoundError, self.outcome.bound)
        self.assertIn('before', self.send('bind', address, self.machine.arguments())['error'])

    def test_an_unexpected_error_is_signed_and_the_last(self):
        self.endpoint._replace_files = mock.Mock(side_effect=KeyError(TENANTS_SECRET))
        reply = self.send('bind', self.address(), self.machine.arguments())
        self.assertEqual('bind failed: KeyError', reply['error'])
        self.assertTrue(self.outcome.wait(0))

    def test_malformed_arguments_change_nothing(self):
        reply = self.send('bind', self.address(), {'instance_id': INSTANCE})
        self.assertIn('malformed', reply['error'])
        self.assertFalse(self.outcome.is_begun())

    def test_forged(self):
        message, _ = self.sign('bind', self.address(), self.machine.arguments())
        content = json.loads(message['content']) | {'verb': 'ping'}
        for forged in (None, {}, 'bind', message | {'mac': '0' * 64}):
            reply = self.endpoint.bind({}, forged)
            self.assertEqual({'refused'}, set(reply))
        changed = message | {'content': json.dumps(content)}
        self.assert_refused('bad-signature', 'ping', changed)
        self.assert_refused('bad-signature', 'bind', changed)

    def test_forged_with_the_key_of_another_guest(self):
        for guest_id in (GUEST, waiting_world.VOLUME):
            keys = waiting_messages.signing_keys(guest_id, 'ab' * 32)
            message, _ = self.sign(
                'bind', self.address(), self.machine.arguments(), message_auth.Caller(keys)
            )
            self.assertEqual({'refused'}, set(self.endpoint.bind({}, message)))
        self.assertEqual([], self.bound)

    def test_replayed(self):
        message, _ = self.sign('ping')
        self.endpoint.ping({}, message)
        self.assert_refused('replayed', 'ping', message)
        message, _ = self.sign('bind', self.address(), self.machine.arguments())
        self.endpoint.bind({}, message)
        del self.bound[:]
        self.assert_refused('replayed', 'bind', message)

    def test_expired(self):
        address = self.address()
        message, _ = self.sign('bind', address, self.machine.arguments())
        self.now += 30 + 60 + 1
        self.assert_refused('expired', 'bind', message)
        self.now = NOW - 61
        self.assert_refused('from-the-future', 'bind', message)

    def test_the_address_of_a_former_run(self):
        address = self.address()
        self.endpoint = self.start()
        message, _ = self.sign('bind', address, self.machine.arguments())
        self.assert_refused('other-recipient', 'bind', message)

    def test_bind_without_an_address(self):
        reply = self.send('bind', None, self.machine.arguments())
        self.assertIn('names no address', reply['error'])
        self.assertEqual([], self.bound)

    def test_load(self):
        address = self.address()
        self.assertTrue(self.send('load', address, waiting_world.LOAD)['loading'])
        reply = self.send('ping')
        self.assertEqual(
            ('starting', False, 'its MySQL is starting'),
            (reply['load'], reply['can_bind'], reply['reason']),
        )
        self.assertIn('starting', self.send('bind', address, self.machine.arguments())['error'])
        self.server.finish()
        reply = self.send('ping')
        self.assertEqual(('serving', True), (reply['load'], reply['can_bind']))
        self.assertTrue(self.send('load', address, waiting_world.LOAD)['loading'])
        self.assertEqual(1, len(self.server.loads))
        self.assertTrue(self.send('bind', address, self.machine.arguments())['bound'])
        self.assertIn('before', self.send('load', address, waiting_world.LOAD)['error'])

    def test_load_that_fails(self):
        self.server.error = exceptions.InvalidBackupError('it has no database')
        self.send('load', self.address(), waiting_world.LOAD)
        self.server.finish()
        reply = self.send('ping')
        self.assertEqual(
            ('failed', False, 'its MySQL is failed: it has no database'),
            (reply['load'], reply['can_bind'], reply['reason']),
        )
        self.assertIn(
            'failed', self.send('bind', self.address(), self.machine.arguments())['error']
        )
        self.assertFalse(self.outcome.is_begun())

    def test_server_that_has_died_since(self):
        self.send('load', self.address(), waiting_world.LOAD)
        self.server.finish()
        self.server.serves = False
        reply = self.send('ping')
        self.assertEqual((False, 'its MySQL does not serve'), (reply['can_bind'], reply['reason']))

    def test_volume_of_another_load(self):
        other = waiting_world.LOAD | {'volume_id': INSTANCE}
        self.send('load', self.address(), waiting_world.LOAD)
        self.assertIn('has volume', self.send('load', self.address(), other)['error'])
        self.server.finish()
        for volume_id in (INSTANCE, GUEST):
            arguments = self.machine.arguments(volume_id=volume_id)
            self.assertIn('cannot be bound', self.send('bind', self.address(), arguments)['error'])
        self.assertEqual([], self.bound)

    def test_load_without_an_address(self):
        reply = self.send('load', None, waiting_world.LOAD)
        self.assertIn('names no address', reply['error'])
        self.assertEqual([], self.server.loads)

    def test_malformed_load(self):
        for changes in (
            {'volume_id': '../x'},
            {'version': '8.4;reboot'},
            {'version': '-v'},
            {'contents': None},
        ):
            reply = self.send('load', self.address(), waiting_world.LOAD | changes)
            self.assertIn('malformed', reply['error'], changes)
        self.assertIn('malformed', self.send('load', self.address(), {})['error'])
        self.assertEqual([], self.server.loads)

    def test_a_ping_is_no_bind(self):
        """The verb is in the signature, not the method that was called."""
        message, request = self.sign('ping', self.address(), self.machine.arguments())
        reply = self.caller.open_reply(self.endpoint.bind({}, message), request)
        self.assertEqual('The message is not for bind', reply['error'])
        self.assertEqual([], self.bound)


class BusTest(WaitingTestCase):
    """The whole wait, through the server of oslo.messaging."""

    def start(self, guest):
        self.result = None

        def wait():
            try:
                self.result = guest.wait()
            except exceptions.TroveCephError as error:
                self.result = error

        self.thread = threading.Thread(target=wait, daemon=True)
        self.thread.start()
        transport = messaging.get_rpc_transport(self.machine.conf())
        self.addCleanup(transport.cleanup)
        self.taskmanager = waiting_world.Taskmanager(self.machine, transport)

    def wait_until_ready(self):
        while not (reply := self.taskmanager.ping())['can_bind']:
            self.assertIn('preparing', reply['reason'])

    def end(self):
        self.thread.join(30)
        self.assertFalse(self.thread.is_alive())
        return self.result

    def test_bound(self):
        self.start(self.guest())
        self.wait_until_ready()

        reply = self.taskmanager.bind(self.machine.arguments())

        self.assertTrue(reply['bound'])
        self.assertEqual(INSTANCE, self.end().instance_id)
        self.assertEqual(INSTANCE, self.machine.conf().guest_id)

    def test_calls_nothing_that_the_context_of_a_message_names(self):
        """Trove's serializer does, before anything has authenticated the message."""
        self.start(self.guest())
        self.wait_until_ready()
        client = messaging.get_rpc_client(
            self.taskmanager.transport,
            messaging.Target(topic=waiting_messages.topic(GUEST)),
            serializer=messaging.NoOpSerializer(),
        )
        called = self.useFixture(
            fixtures.MockPatch('trove.common.notification.DBaaSInstanceCreate.__init__')
        ).mock
        context = {
            'context': 'plain text',
            'trove_notification': {
                'notification_classname': 'trove.common.notification.DBaaSInstanceCreate'
            },
        }
        reply = client.prepare(timeout=30).call(context, 'ping', message='no message')
        decrypted = secure_serializer.SecureSerializer(None, self.machine.rpc_key)
        self.assertIn('refused', decrypted.deserialize_entity({}, reply))
        called.assert_not_called()

    def test_the_answer_is_sent_before_the_guest_leaves(self):
        """Even if the server is stopped while the answer is made."""
        original = message_auth.Verifier.sign_reply

        def slow(verifier, request, answer):
            if request.verb == 'bind':
                threading.Event().wait(0.5)
            return original(verifier, request, answer)

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.message_auth.Verifier.sign_reply', slow))
        self.start(self.guest())
        self.wait_until_ready()
        self.assertTrue(self.taskmanager.bind(self.machine.arguments())['bound'])

    def test_a_bound_guest_is_gone(self):
        self.start(self.guest())
        self.wait_until_ready()
        self.taskmanager.bind(self.machine.arguments())
        self.end()
        self.assertRaises(
            messaging.MessagingTimeout, self.taskmanager.call, Verb.PING, timeout_sec=0.2
        )

    def test_files_that_cannot_be_written(self):
        self.start(self.guest())
        self.wait_until_ready()
        files = self.machine.arguments()['files']
        below = self.machine.path('guest_info.conf') + '/x'
        process = replacement_process.ReplacementProcess(root_helper='env')
        self.addCleanup(process.close)
        self.process.replace = process.replace

        reply = self.taskmanager.bind(self.machine.arguments(files=files | {below: TENANTS_SECRET}))

        self.assertIn('The files were not replaced', reply['error'])
        self.assertNotIn('bound', reply)
        self.assertIsInstance(self.end(), exceptions.GuestNotBoundError)
        self.assertEqual(GUEST, self.machine.conf().guest_id)

    def test_cannot_bind_until_prepared(self):
        prepared = threading.Event()
        prepare = mock.Mock(side_effect=lambda: prepared.wait(30))
        self.start(self.guest(prepare))
        self.assertFalse(self.taskmanager.ping()['can_bind'])
        prepared.set()
        self.wait_until_ready()
        self.taskmanager.bind(self.machine.arguments())
        self.end()

    def test_preparing_is_retried(self):
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.guestagent.waiting_guest._PREPARE_RETRY_SEC', 0.1)
        )
        prepare = mock.Mock(side_effect=[OSError('docker does not answer'), None])
        self.start(self.guest(prepare))
        self.wait_until_ready()
        self.assertEqual(2, prepare.call_count)
        self.assertIn('docker does not answer', self.log.output)
        self.taskmanager.bind(self.machine.arguments())
        self.end()

    def test_cannot_bind_without_root(self):
        self.start(self.guest())
        self.wait_until_ready()
        self.process.runs = False
        reply = self.taskmanager.ping()
        self.assertEqual(
            (False, 'the process that replaces its files has ended'),
            (reply['can_bind'], reply['reason']),
        )
        self.process.runs = True
        self.taskmanager.bind(self.machine.arguments())
        self.end()

    def test_no_secret_is_logged(self):
        self.start(self.guest())
        self.wait_until_ready()
        self.assertRaises(messaging.NoSuchMethod, self.taskmanager.call, 'no-such-verb')
        self.taskmanager.call(Verb.BIND, self.machine.arguments())
        self.taskmanager.bind(self.machine.arguments())
        self.end()
        self.assertIn('waits for an instance', self.log.output)
        for secret in (self.machine.rpc_key, self.machine.signing_key, TENANTS_SECRET):
            self.assertNotIn(secret, self.log.output)

    def test_the_bus_carries_no_plain_text(self):
        sent = []
        original = messaging._drivers.impl_fake.FakeExchange.deliver_message

        def record(exchange, *arguments, **options):
            sent.append(repr(arguments))
            return original(exchange, *arguments, **options)

        self.useFixture(
            fixtures.MonkeyPatch(
                'oslo_messaging._drivers.impl_fake.FakeExchange.deliver_message', record
            )
        )
        self.start(self.guest())
        self.wait_until_ready()
        self.taskmanager.bind(self.machine.arguments())
        self.end()
        self.assertIn('bind', ''.join(sent))
        self.assertNotIn(TENANTS_SECRET, ''.join(sent))
        self.assertNotIn(INSTANCE, ''.join(sent))


class KeyTest(WaitingTestCase):
    def test_a_malformed_key(self):
        for key in ('x', 'abcd', 'zz' * 32):
            self.machine.write('waiting-guest.conf', f'[trove_ceph]\nwaiting_guest_key = {key}\n')
            error = self.assertRaises(exceptions.KeyFileError, self.guest().wait)
            self.assertNotIn(f'{key} ', str(error))

    def test_the_key_is_no_part_of_a_representation(self):
        keys = waiting_messages.signing_keys(GUEST, self.machine.signing_key)
        self.assertNotIn(self.machine.signing_key, repr(keys))
        binding = waiting_messages.parse_binding(self.machine.arguments())
        self.assertNotIn(TENANTS_SECRET, repr(binding))


class PrepareTest(base.BaseTestCase):
    def test_what_an_agent_needs_later(self):
        from trove.cmd import guest  # noqa: F401
        from trove.common import cfg as trove_cfg

        conf = trove_cfg.CONF
        self.addCleanup(conf.reset)
        conf(['--config-file', '/dev/null'], project='trove')
        for name, value in (('datastore_manager', 'mysql'), ('datastore_version', '9.7.4')):
            conf.set_override(name, value)
            self.addCleanup(conf.clear_override, name)
        create = self.useFixture(
            fixtures.MockPatch('trove.guestagent.common.operating_system.create_user')
        ).mock
        docker = self.useFixture(fixtures.MockPatch('docker.from_env')).mock
        rehearse = self.useFixture(fixtures.MockPatch('trove_ceph.guestagent.rehearsal.run')).mock

        functools.partial(waiting_guest.prepare, conf)()

        uid = conf.database_service_uid
        create.assert_called_once_with('database', user_id=uid, group_id=uid)
        docker.return_value.ping.assert_called_once_with()
        rehearse.assert_called_once_with(docker.return_value, 'mysql:9.7.4', uid, uid)
