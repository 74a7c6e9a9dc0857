# SPDX-License-Identifier: Apache-2.0
"""What Trove's servers accept from the bus: Trove's own serializer, and the strict one."""

import oslo_messaging as messaging
from oslotest import base
from trove import rpc
from trove.common import notification
from trove.common.rpc import conductor_host_serializer, secure_serializer
from trove.common.rpc import serializer as trove_serializer

from trove_ceph import exceptions
from trove_ceph.tests.unit.trove_compat import rpc_messages
from trove_ceph.tests.unit.trove_compat.rpc_messages import CALLED, KEY
from trove_ceph.trove_compat import strict_rpc

UNTRUSTED = exceptions.UntrustedMessageError
#: It passes for an encrypted context, which Trove then cannot decode.
PLAIN = {'context': 'plain text', 'user': 'forger'}


class Endpoint:
    target = messaging.Target(version='1.0')

    def __init__(self):
        self.requests = []

    def delete_instance(self, context, instance_id, force=False):
        self.requests.append((context.user_id, instance_id, force))
        return 'deleted'


class StrictRpcTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.bus = self.useFixture(rpc_messages.Bus())
        self.endpoint = Endpoint()
        self.sender = self.serializer(KEY)

    def serializer(self, key):
        """Return the serializer of a client of Trove."""
        base = trove_serializer.TroveRequestContextSerializer(None)
        return secure_serializer.SecureSerializer(base, key)

    def server(self, key=KEY, is_strict=True):
        if is_strict:
            strict_rpc.use(strict_rpc.StrictSerializer)
        target = messaging.Target(topic='taskmanager', server='here')
        return rpc.get_server(target, [self.endpoint], key=key)

    def encrypted_context(self, path=None):
        return self.sender.serialize_context(rpc_messages.request_context(path))

    def encrypted(self, value):
        return self.sender.serialize_entity(None, value)

    def delete(self, context, instance_id, **server):
        return rpc_messages.receive(
            self.server(**server), context, 'delete_instance', instance_id=instance_id
        )

    def test_a_request_under_the_key(self):
        answer = self.delete(self.encrypted_context(), self.encrypted('one'))
        self.assertEqual([('user', 'one', False)], self.endpoint.requests)
        self.assertEqual('deleted', self.serializer(KEY).deserialize_entity(None, answer))

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
            ({}, self.encrypted('one')),
            ({'user': 'forger'}, self.encrypted('one')),
        ):
            self.assertRaises(UNTRUSTED, self.delete, context, instance_id)
        self.assertEqual([], self.endpoint.requests)

    def test_another_key_is_refused(self):
        self.sender = self.serializer('the key of a guest')
        error = self.assertRaises(
            UNTRUSTED, self.delete, self.encrypted_context(), self.encrypted('one')
        )
        self.assertIn('taskmanager_rpc_encr_key', str(error))
        self.assertEqual([], self.endpoint.requests)

    def test_a_context_of_another_type_is_refused(self):
        base = trove_serializer.TroveSerializer(None)
        encrypted = secure_serializer.SecureSerializer(base, KEY).serialize_context(['a list'])
        self.assertRaises(UNTRUSTED, self.delete, encrypted, self.encrypted('one'))

    def test_calls_no_class_but_notifications_of_trove(self):
        for path in (
            CALLED,
            'trove.common.notification.CONF',
            'trove.common.notification.EndNotification',
            'trove.common.notification.NoSuch',
            'trove.common.notification.',
            '.DBaaSInstanceRestart',
        ):
            context = self.encrypted_context(path)
            error = self.assertRaises(UNTRUSTED, self.delete, context, self.encrypted('one'))
            self.assertIn(repr(path), str(error))
        self.bus.called.assert_not_called()
        self.assertEqual([], self.endpoint.requests)

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
        context = self.encrypted_context(CALLED)
        self.assertRaises(UNTRUSTED, self.delete, context, 'one', key=None)

    def test_a_server_that_needs_another_serializer(self):
        strict_rpc.use(strict_rpc.StrictSerializer)
        error = self.assertRaises(
            exceptions.UnsupportedTroveError,
            rpc.get_server,
            messaging.Target(topic='trove-conductor', server='here'),
            [self.endpoint],
            key=None,
            secure_serializer=conductor_host_serializer.ConductorHostSerializer,
        )
        self.assertIn('trove-conductor', str(error))
