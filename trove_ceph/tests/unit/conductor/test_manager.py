# SPDX-License-Identifier: Apache-2.0
"""Messages of guests at trove-conductor, on Trove's own database."""

import uuid

import fixtures
import oslo_messaging as messaging
from oslo_config import fixture as config_fixture
from oslotest import base
from trove import rpc
from trove.common import cfg, notification
from trove.common.rpc import conductor_guest_serializer, conductor_host_serializer
from trove.common.rpc import serializer as trove_serializer
from trove.conductor import manager as trove_manager

from trove_ceph import exceptions
from trove_ceph.conductor import manager
from trove_ceph.tests.unit.trove_compat import rpc_messages
from trove_ceph.tests.unit.trove_compat.rpc_messages import CALLED

CONF = cfg.CONF
UNTRUSTED = exceptions.UntrustedMessageError
RESTART = f'{notification.__name__}.DBaaSInstanceRestart'


class Guest:
    """An agent, with the key of its instance."""

    def __init__(self, key):
        self.id = str(uuid.uuid4())
        self.key = key

    def serializer(self):
        base = trove_serializer.TroveRequestContextSerializer(None)
        return conductor_guest_serializer.ConductorGuestSerializer(base, self.key)


class ConductorTest(base.BaseTestCase):
    """Trove's own methods are recorded instead of run; its serializers are Trove's."""

    def setUp(self):
        super().setUp()
        self.bus = self.useFixture(rpc_messages.Bus())
        self.guests = [Guest('key of one'), Guest('key of two')]
        keys = {guest.id: guest.key for guest in self.guests}

        def find_key(instance_id):
            return keys[instance_id]

        for name in (
            'trove.instance.models.get_instance_encryption_key',
            'trove.common.rpc.conductor_host_serializer.get_instance_encryption_key',
        ):
            self.useFixture(fixtures.MonkeyPatch(name, find_key))
        self.conf = self.useFixture(config_fixture.Config(CONF))
        self.done = []
        for name in ('heartbeat', 'update_backup', 'report_root', 'notify_end', 'notify_exc_info'):
            self.record(name)
        self.stock_server = self.serve(trove_manager.Manager())
        self.server = self.serve(manager.Manager())

    def record(self, name):
        def done(_manager, _context, *arguments, **named):
            self.done.append((name, *arguments, *named.values()))

        self.useFixture(fixtures.MonkeyPatch(f'trove.conductor.manager.Manager.{name}', done))

    def serve(self, endpoint):
        return rpc.get_server(
            messaging.Target(topic='trove-conductor', server='here'),
            [endpoint],
            key=None,
            secure_serializer=conductor_host_serializer.ConductorHostSerializer,
        )

    def encrypt(self, guest, context=None, sender_id=None, **arguments):
        """Return context and arguments as the agent of a guest sends them.

        :param sender_id: in whose name
        """
        self.conf.config(guest_id=sender_id or guest.id)
        serializer = guest.serializer()
        encrypted = serializer.serialize_context(context or rpc_messages.request_context())
        return encrypted, {
            name: serializer.serialize_entity(None, value) for name, value in arguments.items()
        }

    def receive(self, method, context, arguments):
        return rpc_messages.receive(self.server, context, method, **arguments)

    def send(self, guest, method, **message):
        return self.receive(method, *self.encrypt(guest, **message))

    def test_what_a_guest_reports_of_itself(self):
        one = self.guests[0]
        self.send(one, 'heartbeat', instance_id=one.id, payload={'service_status': 'healthy'})
        self.send(one, 'update_backup', instance_id=one.id, backup_id='backup', state='COMPLETED')
        self.send(one, 'report_root', instance_id=one.id)
        self.assertEqual(
            [
                ('heartbeat', one.id, {'service_status': 'healthy'}, None),
                ('update_backup', one.id, 'backup', None, 'COMPLETED'),
                ('report_root', one.id, None),
            ],
            self.done,
        )

    def test_what_a_guest_reports_of_another(self):
        one, two = self.guests
        for method, arguments in (
            ('heartbeat', {'payload': {'service_status': 'crashed'}}),
            ('update_backup', {'backup_id': 'backup', 'state': 'FAILED'}),
            ('report_root', {}),
        ):
            error = self.assertRaises(
                UNTRUSTED, self.send, one, method, instance_id=two.id, **arguments
            )
            self.assertIn(one.id, str(error))
            self.assertIn(two.id, str(error))
        self.assertEqual([], self.done)

    def test_in_the_name_of_another(self):
        """Its key is not the one of the instance that it names."""
        one, two = self.guests
        self.assertRaises(
            UNTRUSTED, self.send, one, 'report_root', sender_id=two.id, instance_id=two.id
        )
        self.assertEqual([], self.done)

    def test_plain_text(self):
        one = self.guests[0]
        context = rpc_messages.request_context().to_dict()
        for forged in (context, {**context, 'csz-instance-id': one.id, 'context': 'plain'}):
            self.assertRaises(
                UNTRUSTED, self.receive, 'report_root', forged, {'instance_id': one.id}
            )
        self.assertEqual([], self.done)

    def test_plain_arguments(self):
        one = self.guests[0]
        for plain in (one.id, f'"{one.id}"', '{"entity": "x"}', '[]', None, 7):
            context, _none = self.encrypt(one)
            self.assertRaises(
                UNTRUSTED, self.receive, 'report_root', context, {'instance_id': plain}
            )
        self.assertEqual([], self.done)

    def test_arguments_that_another_guest_has_encrypted(self):
        """A captured argument must not help."""
        one, two = self.guests
        context, _none = self.encrypt(one)
        _context, captured = self.encrypt(two, instance_id=two.id)
        error = self.assertRaises(UNTRUSTED, self.receive, 'report_root', context, captured)
        self.assertIn(two.id, str(error))
        self.assertEqual([], self.done)

    def test_the_notification_of_a_context(self):
        one = self.guests[0]
        context = rpc_messages.request_context(CALLED)
        self.assertRaises(
            UNTRUSTED, self.send, one, 'report_root', context=context, instance_id=one.id
        )
        self.bus.called.assert_not_called()
        self.assertEqual([], self.done)

    def test_the_notification_of_a_message(self):
        one, two = self.guests
        ended = {'notification_args': {}}
        failed = {'message': 'text', 'exception': []}
        good = {'notification_classname': RESTART, 'request_id': 'request'}
        for method, arguments in (('notify_end', ended), ('notify_exc_info', failed)):
            for accepted in (good, {**good, 'instance_id': one.id}):
                self.send(one, method, serialized_notification=accepted, **arguments)
            self.assertEqual([method, method], [each[0] for each in self.done])
            self.done.clear()
            for forged in (
                {**good, 'notification_classname': CALLED},
                {**good, 'instance_id': two.id},
            ):
                self.assertRaises(
                    UNTRUSTED, self.send, one, method, serialized_notification=forged, **arguments
                )
        self.assertRaises(
            UNTRUSTED,
            self.send,
            one,
            'notify_end',
            serialized_notification=good,
            notification_args={'instance_id': two.id},
        )
        self.assertEqual([], self.done)
        self.bus.called.assert_not_called()

    def test_without_encryption(self):
        """Nothing tells the sender, but no class of his is called."""
        self.conf.config(enable_secure_rpc_messaging=False)
        one, two = self.guests
        one.key = None
        self.send(one, 'report_root', instance_id=two.id)
        self.assertEqual([('report_root', two.id, None)], self.done)
        context = rpc_messages.request_context(CALLED)
        self.assertRaises(
            UNTRUSTED, self.send, one, 'report_root', context=context, instance_id=one.id
        )
        self.bus.called.assert_not_called()

    def test_troves_own_conductor_believes_a_guest(self):
        """Once this fails, Trove needs no other manager."""
        self.server = self.stock_server
        one, two = self.guests
        self.send(one, 'report_root', instance_id=two.id)
        self.assertEqual([('report_root', two.id)], self.done)
        context = rpc_messages.request_context(CALLED)
        self.send(one, 'report_root', context=context, instance_id=one.id)
        self.bus.called.assert_called_once()
