# SPDX-License-Identifier: Apache-2.0
"""What Trove's servers accept from the bus: Trove's own serializer, and the strict one."""

import inspect
import re

import fixtures
import oslo_messaging as messaging
from oslotest import base
from trove import rpc
from trove.common import notification
from trove.common.rpc import conductor_host_serializer, secure_serializer
from trove.common.rpc import serializer as trove_serializer
from trove.guestagent import api as agent_api

from trove_ceph import exceptions
from trove_ceph.guestagent import manager as guest_manager
from trove_ceph.taskmanager import manager as taskmanager_manager
from trove_ceph.tests.unit.trove_compat import rpc_messages
from trove_ceph.tests.unit.trove_compat.rpc_messages import CALLED, KEY
from trove_ceph.trove_adapter import guest_rpcapi, notify
from trove_ceph.trove_compat import strict_rpc

UNTRUSTED = exceptions.UntrustedMessageError
#: It passes for an encrypted context, which Trove then cannot decode.
PLAIN = {'context': 'plain text', 'user': 'forger'}


class Endpoint:
    target = messaging.Target(version='1.0')

    def __init__(self):
        self.requests = []
        #: An attribute of the endpoint that can be called, as ``conf`` of Trove's managers.
        self.conf = lambda context: self.requests.append('conf')

    def delete_instance(self, context, instance_id, force=False):
        self.requests.append((context.user_id, instance_id, force))
        return 'deleted'


class StrictRpcTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.bus = self.useFixture(rpc_messages.Bus())
        self.log = self.useFixture(fixtures.FakeLogger())
        self.endpoint = Endpoint()
        self.sender = self.serializer(KEY)
        self.reply_q = 'reply_of_a_service'

    def serializer(self, key):
        """Return the serializer of a client of Trove."""
        base = trove_serializer.TroveRequestContextSerializer(None)
        return secure_serializer.SecureSerializer(base, key)

    def server(self, key=KEY, is_strict=True, has_answers=True):
        if is_strict:
            strict_rpc.use(strict_rpc.StrictSerializer, has_answers)
        target = messaging.Target(topic='taskmanager', server='here')
        return rpc.get_server(target, [self.endpoint], key=key)

    def encrypted_context(self, path=None):
        return self.sender.serialize_context(rpc_messages.request_context(path))

    def encrypted(self, value):
        return self.sender.serialize_entity(None, value)

    def send(self, context, method, arguments, **server):
        return rpc_messages.receive(self.server(**server), context, method, arguments, self.reply_q)

    def delete(self, context, instance_id, **server):
        return self.send(context, 'delete_instance', {'instance_id': instance_id}, **server)

    def assert_refused(self, text, context, instance_id, **server):
        """Check that a request has no effect, and that its sender learns nothing."""
        self.assertEqual([], self.delete(context, instance_id, **server))
        self.assertIn('Refused a message in the queue taskmanager: ', self.log.output)
        self.assertIn(text, self.log.output)
        self.assertNotIn('Traceback', self.log.output)
        self.assertEqual([], self.endpoint.requests)

    def test_a_request_under_the_key(self):
        (answer,) = self.delete(self.encrypted_context(), self.encrypted('one'))
        self.assertEqual([('user', 'one', False)], self.endpoint.requests)
        self.assertEqual('deleted', self.serializer(KEY).deserialize_entity(None, answer))

    def test_decrypts_each_part_of_a_request_once(self):
        decrypt = strict_rpc.decrypt
        decrypted = []
        self.useFixture(
            fixtures.MonkeyPatch(
                f'{strict_rpc.__name__}.decrypt',
                lambda *sealed: decrypted.append(sealed) or decrypt(*sealed),
            )
        )
        self.delete(self.encrypted_context(), self.encrypted('one'))
        self.assertEqual([('user', 'one', False)], self.endpoint.requests)
        self.assertEqual(2, len(decrypted))

    def test_troves_own_serializer_accepts_plain_text(self):
        """Once this fails, Trove needs no other serializer."""
        self.delete(PLAIN.copy(), 'one', is_strict=False)
        self.assertEqual([('forger', 'one', False)], self.endpoint.requests)

    def test_troves_own_serializer_calls_what_a_context_names(self):
        """Once this fails, Trove needs no other serializer."""
        forged = {**PLAIN, 'trove_notification': {'notification_classname': CALLED, 'shell': True}}
        self.delete(forged, 'one', is_strict=False)
        self.assertTrue(self.bus.called.call_args.kwargs['shell'])

    def test_plain_text_is_refused(self):
        encrypted = self.encrypted_context()
        for context, instance_id in (
            (PLAIN.copy(), 'one'),
            (PLAIN.copy(), self.encrypted('one')),
            (encrypted, 'one'),
            (encrypted, None),
            (encrypted, {'one': 1}),
            (encrypted, ''),
            (encrypted, 'AAAA'),
            ({}, self.encrypted('one')),
            ({'user': 'forger'}, self.encrypted('one')),
        ):
            self.assert_refused('not encrypted', context, instance_id)

    def test_another_key_is_refused(self):
        self.sender = self.serializer('the key of a guest')
        self.assert_refused('different keys', self.encrypted_context(), self.encrypted('one'))

    def test_keys_that_are_none(self):
        """As what Trove decrypts under another key often is."""
        for key in ('', 'short'):
            self.sender = self.serializer(key)
            context, instance_id = self.encrypted_context(), self.encrypted('one')
            self.assert_refused('not encrypted', context, instance_id, key=key)

    def test_a_context_of_another_type_is_refused(self):
        base = trove_serializer.TroveSerializer(None)
        encrypted = secure_serializer.SecureSerializer(base, KEY).serialize_context(['a list'])
        self.assert_refused('has no context', encrypted, self.encrypted('one'))

    def test_calls_no_class_but_notifications_of_trove(self):
        for path in (
            CALLED,
            'trove.common.notification.CONF',
            'trove.common.notification.EndNotification',
            'trove.common.notification.NoSuch',
            'trove.common.notification.',
            '.DBaaSInstanceRestart',
        ):
            self.assert_refused(repr(path), self.encrypted_context(path), self.encrypted('one'))
        self.bus.called.assert_not_called()

    def test_notifications_that_are_no_mapping(self):
        for serialized in ('text', ['list'], {'request_id': 'without a class'}):
            self.assertRaises(UNTRUSTED, strict_rpc.check_notification, serialized)

    def test_accepts_each_notification_of_trove(self):
        names = [name for name in vars(notification) if name.startswith('DBaaSInstance')]
        self.assertIn('DBaaSInstanceCreate', names)
        for name in names:
            path = f'{notification.__name__}.{name}'
            strict_rpc.check_notification({'notification_classname': path})

    def test_without_a_key(self):
        """enable_secure_rpc_messaging is off: plain text is what everyone sends."""
        self.sender = self.serializer(None)
        self.delete(self.encrypted_context(), 'one', key=None)
        self.assertEqual([('user', 'one', False)], self.endpoint.requests)
        self.endpoint.requests.clear()
        self.assert_refused(CALLED, self.encrypted_context(CALLED), 'one', key=None)

    def test_the_sender_of_an_unknown_method_learns_of_it_if_he_has_the_key(self):
        arguments = {'x': self.encrypted('one')}
        (answer,) = self.send(self.encrypted_context(), 'no_such', arguments)
        self.assertIn('no_such', str(answer))
        self.assertEqual([], self.send(PLAIN.copy(), 'no_such', arguments))
        self.assertEqual([], self.send(self.encrypted_context(), 'no_such', {'x': 'plain'}))

    def test_calls_methods_only(self):
        for method in ('conf', '__init__', 'target', 'requests'):
            self.send(self.encrypted_context(), method, {})
        self.assertEqual([], self.endpoint.requests)

    def test_answers_go_to_queues_of_services_only(self):
        for self.reply_q in ('guestagent.forger', 'taskmanager', '', None):
            answers = self.delete(self.encrypted_context(), self.encrypted('one'))
            self.assertEqual([], answers)
        self.assertEqual(4, len(self.endpoint.requests))

    def test_a_server_without_answers(self):
        context, instance_id = self.encrypted_context(), self.encrypted('one')
        self.assertEqual([], self.delete(context, instance_id, has_answers=False))
        self.assertEqual([], self.send(context, 'no_such', {}, has_answers=False))
        self.assertEqual(1, len(self.endpoint.requests))

    def test_a_server_that_needs_another_serializer(self):
        strict_rpc.use(strict_rpc.StrictSerializer, has_answers=True)
        error = self.assertRaises(
            exceptions.UnsupportedTroveError,
            rpc.get_server,
            messaging.Target(topic='trove-conductor', server='here'),
            [self.endpoint],
            key=None,
            secure_serializer=conductor_host_serializer.ConductorHostSerializer,
        )
        self.assertIn('trove-conductor', str(error))


class AnswerTest(base.BaseTestCase):
    """What clients accept of those who answer."""

    def setUp(self):
        super().setUp()
        self.useFixture(rpc_messages.Bus())

    def open(self, answer, key=KEY):
        client = rpc.get_client(messaging.Target(topic='guestagent.one'), key=key)
        return client.serializer.deserialize_entity(None, answer)

    def test_troves_own_client_accepts_plain_text(self):
        """Once this fails, Trove needs no other serializer."""
        self.assertEqual('plain', self.open('plain'))

    def test_plain_text_is_refused(self):
        strict_rpc.use_for_answers()
        self.assertRaises(UNTRUSTED, self.open, 'plain')
        self.assertEqual('plain', self.open('plain', key=None))
        encrypted = secure_serializer.SecureSerializer(None, KEY).serialize_entity(None, 'answer')
        self.assertEqual('answer', self.open(encrypted))


class MethodsTest(base.BaseTestCase):
    """What is requested of agents and taskmanagers is a method of their classes."""

    def assert_allowed(self, kind, methods):
        endpoint = object.__new__(kind)
        policy = strict_rpc._OwnMethods()
        for method in sorted(methods):
            self.assertTrue(policy.is_allowed(endpoint, method), method)

    def test_agents(self):
        sources = ''.join(map(inspect.getsource, (agent_api, guest_rpcapi)))
        found = re.findall(r"_(?:call|cast|call_checked)\(\s*['\"](\w+)['\"]", sources)
        self.assertLess(40, len(found))
        # Of other datastores, or of agents that Trove has given up.
        kind = guest_manager.Manager
        self.assert_allowed(kind, [name for name in found if hasattr(kind, name)])
        self.assertLess(40, sum(hasattr(kind, name) for name in found))

    def test_taskmanagers(self):
        kind = taskmanager_manager.Manager
        own = re.findall(r"_notify\(context, '(\w+)'\)", inspect.getsource(notify))
        self.assertLess(3, len(own))
        self.assert_allowed(kind, ['create_instance', 'delete_backup', 'resize_volume', *own])
