# SPDX-License-Identifier: Apache-2.0
"""Messages of guests at trove-conductor, on Trove's own database."""

import inspect
import re
import uuid

import fixtures
import oslo_messaging as messaging
from oslo_config import fixture as config_fixture
from oslotest import base
from trove import rpc
from trove.common import cfg, notification
from trove.common.rpc import conductor_guest_serializer, conductor_host_serializer
from trove.common.rpc import serializer as trove_serializer
from trove.conductor import api
from trove.conductor import manager as trove_manager
from trove.guestagent.datastore import service as agent_service

from trove_ceph.conductor import manager
from trove_ceph.tests.unit.trove_compat import rpc_messages
from trove_ceph.tests.unit.trove_compat.rpc_messages import CALLED
from trove_ceph.trove_compat import strict_rpc

CONF = cfg.CONF
RESTART = f'{notification.__name__}.DBaaSInstanceRestart'


class Guest:
    """An agent, with the key of its instance."""

    def __init__(self, key):
        self.id = str(uuid.uuid4())
        self.key = key

    def serializer(self):
        base = trove_serializer.TroveRequestContextSerializer(None)
        return conductor_guest_serializer.ConductorGuestSerializer(base, self.key)


def _keep(sent):
    """Return what keeps serialized requests in a list instead of sending them."""

    def send(_target, context, message, **_options):
        sent.append((context, message))

    return send


class ConductorTest(base.BaseTestCase):
    """Trove's own methods are recorded instead of run; its serializers are Trove's."""

    def setUp(self):
        super().setUp()
        self.bus = self.useFixture(rpc_messages.Bus())
        self.guests = [Guest('the key of guest one'), Guest('the key of guest two')]
        self.keys = {guest.id: guest.key for guest in self.guests}

        self.found = []

        def find_key(instance_id):
            self.found.append(instance_id)
            return self.keys[instance_id]

        for name in (
            'trove.instance.models.get_instance_encryption_key',
            'trove.common.rpc.conductor_host_serializer.get_instance_encryption_key',
        ):
            self.useFixture(fixtures.MonkeyPatch(name, find_key))
        self.conf = self.useFixture(config_fixture.Config(CONF))
        self.log = self.useFixture(fixtures.FakeLogger())
        self.done, self.reports = [], []
        for name in ('heartbeat', 'update_backup', 'report_root', 'notify_end', 'notify_exc_info'):
            self.record(name)
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.trove_adapter.agent_reports.note',
                lambda *report: self.reports.append(report),
            )
        )
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
        """Receive a request, which gets no answer."""
        self.assertEqual([], rpc_messages.receive(self.server, context, method, arguments))

    def send(self, guest, method, **message):
        self.receive(method, *self.encrypt(guest, **message))

    def assert_refused(self, text, method, *message):
        """Check that a request has no effect; message: as :meth:`receive` gets it."""
        self.receive(method, *message)
        self.assertIn(text, self.log.output)
        self.assertEqual(([], []), (self.done, self.reports))
        self.bus.called.assert_not_called()

    def assert_sent_in_vain(self, text, guest, method, **message):
        self.assert_refused(text, method, *self.encrypt(guest, **message))

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
        self.assertEqual([(one.id, None)], self.reports)

    def test_reads_the_key_of_a_guest_once_to_open_a_message(self):
        one = self.guests[0]
        message = self.encrypt(one, instance_id=one.id, payload={}, sent=1.5)
        self.found.clear()
        self.receive('heartbeat', *message)
        self.assertEqual([('heartbeat', one.id, {}, 1.5)], self.done)
        # And once to encrypt an answer, which it does not send.
        self.assertEqual([one.id] * 2, self.found)

    def test_what_a_guest_reports_of_another(self):
        one, two = self.guests
        for method, arguments in (
            ('heartbeat', {'payload': {'service_status': 'crashed'}}),
            ('update_backup', {'backup_id': 'backup', 'state': 'FAILED'}),
            ('report_root', {}),
        ):
            text = f"Guest {one.id} has sent a message about another instance, '{two.id}'"
            self.assert_sent_in_vain(text, one, method, instance_id=two.id, **arguments)

    def test_what_a_guest_may_not_tell_of_its_backup(self):
        one = self.guests[0]
        for name, value, text in (
            ('storage_driver', 'cinder', "no agent sends of a backup: 'storage_driver'"),
            ('tenant_id', 'other', "'tenant_id'"),
            ('deleted', True, "'deleted'"),
            ('location', f'cinder://{one.id}', 'has sent a snapshot as the location'),
        ):
            message = {'instance_id': one.id, 'backup_id': 'backup', name: value}
            self.assert_sent_in_vain(text, one, 'update_backup', **message)

    def test_snapshots_of_troves_own_taskmanager(self):
        """It takes those of instances that have another guest agent."""
        self.conf.config(taskmanager_rpc_encr_key='a key that guests do not have')
        for option in ('guest_id', 'instance_rpc_encr_key'):
            self.addCleanup(CONF.clear_override, option)
        strict_rpc.use_in_taskmanager(CONF)
        sent = []
        self.useFixture(fixtures.MonkeyPatch('trove.rpc.TRANSPORT._send', _keep(sent)))
        reported = {'state': 'COMPLETED', 'location': 'cinder://snapshot'}
        api.API(rpc_messages.request_context()).update_backup(
            self.guests[0].id, 'backup', 1.5, **reported
        )
        [(context, message)] = sent
        self.receive(message['method'], context, message['args'])
        self.assertEqual(
            [('update_backup', self.guests[0].id, 'backup', 1.5, *reported.values())], self.done
        )

    def test_in_the_name_of_the_taskmanager(self):
        """A guest has not its key."""
        message = {'sender_id': strict_rpc.TASKMANAGER, 'instance_id': self.guests[1].id}
        self.assert_sent_in_vain('is not encrypted', self.guests[0], 'report_root', **message)

    def test_what_troves_agent_tells_of_its_backup(self):
        """Each name that Trove's agent sends is accepted."""
        source = inspect.getsource(agent_service)
        source = source[source.index('backup_state = {') :]
        sent = set(re.findall(r"(?m)^ +'(\w+)': .+,?$", source))
        self.assertLessEqual({'state', 'location', 'checksum'}, sent)
        self.assertLessEqual(sent - {'backup_id'}, manager._BACKUP_FIELDS)

    def test_in_the_name_of_another(self):
        """Its key is not the one of the instance that it names."""
        one, two = self.guests
        message = {'sender_id': two.id, 'instance_id': two.id}
        self.assert_sent_in_vain('is not encrypted', one, 'report_root', **message)

    def test_an_instance_that_is_not_known(self):
        other = str(uuid.uuid4())
        message = {'sender_id': other, 'instance_id': other}
        self.assert_sent_in_vain(
            'the key of the instance', self.guests[0], 'report_root', **message
        )

    def test_an_instance_without_a_key(self):
        """Another guest cannot send messages in its name."""
        one = self.guests[0]
        for key in (None, ''):
            self.keys[one.id] = key
            one.key = ''
            self.assert_sent_in_vain('is not encrypted', one, 'report_root', instance_id=one.id)

    def test_plain_text(self):
        one = self.guests[0]
        context = rpc_messages.request_context().to_dict()
        for forged in (context, {**context, 'csz-instance-id': one.id, 'context': 'plain'}):
            self.assert_refused('it ', 'report_root', forged, {'instance_id': one.id})

    def test_plain_arguments(self):
        one = self.guests[0]
        for plain in (one.id, f'"{one.id}"', '{"entity": "x"}', '[]', None, 7):
            context, _none = self.encrypt(one)
            self.assert_refused('Refused', 'report_root', context, {'instance_id': plain})

    def test_arguments_that_another_guest_has_encrypted(self):
        """A captured argument must not help, nor may it tell whether it can be decrypted."""
        one, two = self.guests
        context, _none = self.encrypt(one)
        _context, captured = self.encrypt(two, instance_id=two.id)
        broken = {'instance_id': captured['instance_id'].replace('entity": "', 'entity": "AAAA')}
        for arguments in (captured, broken):
            self.assert_refused('has not encrypted', 'report_root', context.copy(), arguments)
            self.assertNotIn('different keys', self.log.output)

    def test_calls_methods_of_guests_only(self):
        """Trove's configuration is an attribute of each manager, and is reset by a call."""
        one = self.guests[0]
        for method in ('conf', 'run_periodic_tasks', 'add_periodic_task', '_message_too_old'):
            self.assert_sent_in_vain('NoSuchMethod', one, method)
        self.assertEqual(one.id, CONF.guest_id)

    def test_the_notification_of_a_context(self):
        one = self.guests[0]
        context = rpc_messages.request_context(CALLED)
        self.assert_sent_in_vain(CALLED, one, 'report_root', context=context, instance_id=one.id)

    def test_the_notification_of_a_message(self):
        one, two = self.guests
        good = {'notification_classname': RESTART, 'request_id': 'request'}
        forged = {**good, 'notification_classname': CALLED}
        for method, arguments in (
            ('notify_end', {'notification_args': {}}),
            ('notify_exc_info', {'message': 'text', 'exception': []}),
        ):
            self.send(one, method, serialized_notification=good, **arguments)
            self.assertEqual((method, good), self.done.pop()[:2])
            # An error would be shown to the tenant of the other instance.
            other = {**good, 'instance_id': two.id}
            self.send(one, method, serialized_notification=other, **arguments)
            self.assertEqual((method, {**good, 'instance_id': one.id}), self.done.pop()[:2])
            self.assert_sent_in_vain(
                CALLED, one, method, serialized_notification=forged, **arguments
            )
        arguments = {'notification_args': {'instance_id': two.id, 'x': 1}}
        self.send(one, 'notify_end', serialized_notification=good, **arguments)
        self.assertEqual([('notify_end', good, {'instance_id': one.id, 'x': 1})], self.done)

    def test_without_encryption(self):
        """Nothing tells the sender, but no class of his is called."""
        self.conf.config(enable_secure_rpc_messaging=False)
        one, two = self.guests
        one.key = None
        self.send(one, 'report_root', instance_id=two.id)
        self.assertEqual([('report_root', two.id, None)], self.done)
        self.done.clear()
        context = rpc_messages.request_context(CALLED)
        self.assert_sent_in_vain(CALLED, one, 'report_root', context=context, instance_id=one.id)

    def test_troves_own_conductor_believes_a_guest(self):
        """Once this fails, Trove needs no other manager."""
        one, two = self.guests
        for context in (None, rpc_messages.request_context(CALLED)):
            context, arguments = self.encrypt(one, context, instance_id=two.id)
            rpc_messages.receive(self.stock_server, context, 'report_root', arguments)
        self.assertEqual([('report_root', two.id), ('report_root', two.id)], self.done)
        self.bus.called.assert_called_once()
