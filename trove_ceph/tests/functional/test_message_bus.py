# SPDX-License-Identifier: Apache-2.0
"""The storage service on a real RabbitMQ with the lab's users, and a guest's permissions."""

import functools
import json
import queue
import re
import threading
import time
import uuid
from concurrent import futures

import amqp.exceptions
import fixtures
import kombu
import oslo_messaging as messaging
from amqp import spec
from oslo_config import cfg
from oslo_messaging import conffixture
from trove import rpc
from trove.common import context as trove_context
from trove.common.rpc import serializer as trove_serializer

from trove_ceph import exceptions, message_auth
from trove_ceph.conf import storage as storage_conf
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.storage.fake import backend, cluster, lock_store
from trove_ceph.storage_service import (
    endpoint,
    message_keys,
    rpcapi,
    server,
    signed_client,
)
from trove_ceph.strategies.replacement.dependencies import StartState
from trove_ceph.tests.functional import base, rabbitmq
from trove_ceph.tiers.qos import events
from trove_ceph.trove_adapter import agent_queues, guest_rpcapi
from trove_ceph.trove_compat import strict_rpc

TIMEOUT_SEC = 60
POOLS = ('volumes', 'vault')
SERVICE, TROVE = 'trove-ceph', 'trove'
REFUSED = amqp.exceptions.AccessRefused
MIB = image_types.MIB
#: The configuration of the storage service with Kolla-Ansible.
KOLLA = base.CHECKOUT / 'etc/kolla/ansible/roles/trove-ceph/templates/trove-ceph-storage.conf.j2'


class MessageBusTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        self.key_file = str(self.directory / 'keys.json')
        message_keys.create(self.key_file)
        self.queue_options = {}

    def start_rabbitmq(self, **options):
        self.rabbit = self.useFixture(rabbitmq.RabbitMQ(self.directory, **options))

    def configuration(self, who, guests=None):
        """Return the configuration of a process with a user's credentials."""
        conf = cfg.ConfigOpts()
        self.useFixture(conffixture.ConfFixture(conf))
        storage_conf.register(conf)
        conf([])
        conf.set_override('transport_url', self.rabbit.url(guests or 'guest'))
        conf.set_override('transport_url', self.rabbit.url(who), 'trove_ceph_storage')
        conf.set_override('key_file', self.key_file, 'trove_ceph_storage')
        conf.set_override('pools', list(POOLS), 'trove_ceph_storage')
        conf.set_override('heartbeat_timeout_threshold', 0, 'oslo_messaging_rabbit')
        for name, value in self.queue_options.items():
            conf.set_override(name, value, 'oslo_messaging_rabbit')
        return conf

    def serve(self):
        """Start a copy of the service on a cluster in memory, as its own user of RabbitMQ."""
        conf = self.configuration('storage')
        fake_cluster = cluster.Cluster(dict.fromkeys(POOLS, 1024 * MIB), time.monotonic)
        self.storage = backend.FakeBackend(fake_cluster)
        service = server.Service(
            self.storage,
            lock_store.FakeLockStore(fake_cluster),
            server.find_pools(conf.trove_ceph_storage),
            conf.trove_ceph_storage,
            f'host:{uuid.uuid4().hex[:6]}',
        )
        self.server = server.Server(service, self.connect(conf))
        self.server.start()
        self.addCleanup(self.server.stop)
        return service

    def connect(self, conf):
        """Connect to the service's bus; the connection is closed after the test."""
        connection = rpcapi.connect(conf)
        self.addCleanup(connection.transport.cleanup)
        return connection

    def images(self):
        return [str(one.image) for pool in POOLS for one in self.storage.list_images(pool)]

    def test_permissions_of_each_user(self):
        """One test, because a broker takes ten seconds to start."""
        self.start_rabbitmq()
        self._service_and_caller()
        self._guest_at_the_service()
        self._caller_without_keys()
        self._agent_and_conductor()
        self._queues_of_an_agent_that_is_gone()
        self._requests_before_an_agent_listens()
        self._guest_at_troves_own_services()
        self._messages_that_a_guest_forges()
        self._cinder_and_the_listener()

    def test_permissions_with_queues_of_kolla_ansible(self):
        """They are enough for quorum queues and streams, too."""
        options = dict(re.findall(r'(?m)^(rabbit_\w+) = (.+)$', KOLLA.read_text()))
        prefetch = options.pop('rabbit_qos_prefetch_count')
        self.assertIn('om_rabbitmq_qos_prefetch_count', prefetch)
        self.assertEqual({'true'}, set(options.values()))
        self.assertLessEqual({'rabbit_quorum_queue', 'rabbit_stream_fanout'}, set(options))
        self.start_rabbitmq(has_durable_exchanges=True)
        self.queue_options = {**dict.fromkeys(options, True), 'rabbit_qos_prefetch_count': 50}
        self._service_and_caller()
        self._agent_and_conductor()
        self._cinder_and_the_listener()

    def _service_and_caller(self):
        self.service = self.serve()
        self.image = image_types.ImageRef('volumes', f'volume-{uuid.uuid4()}')
        self.storage.create_image(self.image, 8 * MIB, image_types.ImageOptions())
        caller = rpcapi.StorageAPI(self.connect(self.configuration('caller')), TIMEOUT_SEC)
        snapshot = self.image.snapshot(names.snapshot_name('backup', str(uuid.uuid4())))
        caller.create_snapshot(snapshot)
        vault = image_types.ImageRef('vault', names.image_name('vault', str(uuid.uuid4())))
        caller.run('copy', tasks.CopyTask(snapshot, vault), TIMEOUT_SEC)
        self.assertEqual([snapshot.name], caller.describe(vault).snapshot_names)
        # Operators use the service's own configuration file.
        operator = rpcapi.StorageAPI(self.connect(self.configuration('storage')), TIMEOUT_SEC)
        self.assertEqual(['copy'], [one.operation_id for one in operator.list_jobs()])
        error = self.assertRaises(exceptions.NotPermittedError, caller.trash, self.image)
        self.assertIn('it has snapshots', str(error))

    def _guest_at_the_service(self):
        """A guest's credentials do not open the service's virtual host."""
        with self.rabbit.connection('guest', SERVICE) as connection:
            self.assertRaises(amqp.exceptions.NotAllowed, connection.connect)
        # So no verb can be requested, not even with stolen keys.
        conf = self.configuration('guest', guests='openstack')
        conf.set_override('transport_url', self.rabbit.url('guest', SERVICE), 'trove_ceph_storage')
        conf.set_override('rabbit_retry_interval', 1, 'oslo_messaging_rabbit')
        thief = rpcapi.StorageAPI(self.connect(conf), timeout_sec=2)
        self.assertRaises(exceptions.ServiceUnavailableError, thief.list_jobs)
        # Trove's virtual host, which the guest can open, has no queue of the service.
        with self.rabbit.connection('guest', TROVE) as connection:
            for queue in (rpcapi.TOPIC, f'{rpcapi.TOPIC}.{self.service.name}'):
                with connection.channel() as channel:
                    self.assertRaises(
                        (REFUSED, amqp.exceptions.NotFound), channel.basic_consume, queue
                    )
        # A caller's configuration with Trove's transport is refused.
        conf = self.configuration('guest')
        self.assertRaises(exceptions.InvalidTransportError, rpcapi.connect, conf)

    def _caller_without_keys(self):
        """With a caller's credentials but without the keys, each verb is refused."""
        before = self.images()
        conf = self.configuration('caller')
        target = messaging.Target(
            exchange=rpcapi.EXCHANGE, topic=rpcapi.TOPIC, version=rpcapi.VERSION
        )
        transport = messaging.get_rpc_transport(conf, self.rabbit.url('caller'))
        self.addCleanup(transport.cleanup)
        client = messaging.get_rpc_client(transport, target).prepare(timeout=TIMEOUT_SEC)
        own = message_keys.KeyFile(str(self.directory / 'own.json'))
        message_keys.create(own.path)
        forger = message_auth.Caller(own)
        for verb in endpoint.permissions_of(endpoint.Endpoint):
            message, _request = forger.sign(verb, {}, TIMEOUT_SEC, None)
            for forged, reason in ((message, 'unknown-key'), ({'verb': verb}, 'malformed')):
                reply = client.call({}, signed_client.METHOD, message=forged)
                self.assertEqual({'refused': reason}, reply)
            # The verbs themselves are not methods on the bus.
            error = self.assertRaises(messaging.RemoteError, client.call, {}, verb)
            self.assertEqual('NoSuchMethod', error.exc_type)
        self.assertEqual(before, self.images())
        # Nor can it consume the requests of others, or reply to them.
        with self.rabbit.connection('caller') as connection:
            for queue in (rpcapi.TOPIC, f'{rpcapi.TOPIC}.{self.service.name}'):
                with connection.channel() as channel:
                    self.assertRaises(REFUSED, channel.basic_consume, queue)
            with connection.channel() as channel:
                channel.queue_declare('reply_own')
                self.assertRaises(REFUSED, channel.queue_bind, 'reply_own', rpcapi.EXCHANGE, '#')
            with connection.channel() as channel:
                self.assertRaises(REFUSED, self.publish, channel, '', 'reply_own')

    def publish(self, channel, exchange, routing_key, content=None):
        """Publish a message, and wait for the broker's confirmation."""
        channel.confirm_select()
        body = {'oslo.version': '2.0', 'oslo.message': json.dumps(content or {})}
        message = amqp.Message(
            json.dumps(body), content_type='application/json', content_encoding='utf-8'
        )
        channel.basic_publish(message, exchange=exchange, routing_key=routing_key)
        channel.wait(spec.Basic.Ack)

    def _agent_and_conductor(self):
        """The guest's permissions are enough for Trove's agent."""
        received = []

        class Agent:
            target = messaging.Target(version='1.0')

            def rpc_ping(self, _context):
                return True

        class Conductor:
            target = messaging.Target(version='1.0')

            def heartbeat(self, _context, instance_id):
                received.append(instance_id)
                heard.set()

        heard = threading.Event()
        guest = self.transport('guest')
        trove = self.transport('trove')
        topic = f'guestagent.{uuid.uuid4()}'
        for transport, name, end in (
            (trove, 'trove-conductor', Conductor()),
            (guest, topic, Agent()),
        ):
            target = messaging.Target(topic=name, server=name)
            running = messaging.get_rpc_server(transport, target, [end])
            running.start()
            self.addCleanup(running.wait)
            self.addCleanup(running.stop)
        client = messaging.get_rpc_client(trove, messaging.Target(topic=topic))
        self.assertIs(True, client.prepare(timeout=TIMEOUT_SEC).call({}, 'rpc_ping'))
        conductor = messaging.Target(topic='trove-conductor')
        caller = messaging.get_rpc_client(guest, conductor)
        caller.cast({}, 'heartbeat', instance_id='one')
        self.assertTrue(heard.wait(TIMEOUT_SEC))
        self.assertEqual(['one'], received)

    def _queues_of_an_agent_that_is_gone(self):
        """The user of Trove's services deletes them, with their requests."""
        instance_id = str(uuid.uuid4())
        topic = f'guestagent.{instance_id}'
        names = (topic, f'{topic}.{instance_id}')
        with self.rabbit.connection('trove') as connection, connection.channel() as channel:
            for name in names:
                channel.queue_declare(name, durable=False, auto_delete=False)
            channel.basic_publish(amqp.Message('a request'), routing_key=topic)
        conf = self.configuration('trove')
        conf.set_override('transport_url', self.rabbit.url('trove'))
        for _again in range(2):
            self.assertTrue(agent_queues.delete(conf, instance_id))
            for name in names:
                with (
                    self.rabbit.connection('trove') as connection,
                    connection.channel() as channel,
                ):
                    self.assertRaises(
                        amqp.exceptions.NotFound, channel.queue_declare, name, passive=True
                    )

    def _requests_before_an_agent_listens(self):
        """They wait in the queue that the taskmanager has created."""

        class Agent:
            target = messaging.Target(version='1.0')

            def start_moved_server(self, _context, **arguments):
                return {'state': 'starting', 'error': '', 'server_id': arguments['server_id']}

        self.useFixture(fixtures.MonkeyPatch('trove.rpc.TRANSPORT', self.transport('trove')))
        instance_id, server_id = str(uuid.uuid4()), str(uuid.uuid4())
        for function in ('DBInstance.get_by', 'get_instance_encryption_key'):
            self.useFixture(
                fixtures.MonkeyPatch(f'trove.instance.models.{function}', lambda *_, **__: None)
            )
        guest = guest_rpcapi.GuestAPI(trove_context.TroveContext(), instance_id)
        guest.agent_low_timeout = 3
        request = functools.partial(
            guest.start_moved_server, 'replacement', '9.7.4', '', {}, server_id
        )
        self.assertRaises(exceptions.GuestSilentError, request)
        for _again in range(2):
            guest.create_queue()
        guest.agent_low_timeout = TIMEOUT_SEC
        target = messaging.Target(topic=f'guestagent.{instance_id}', server=instance_id)
        agent = messaging.get_rpc_server(self.transport('guest'), target, [Agent()])
        with futures.ThreadPoolExecutor() as pool:
            answer = pool.submit(request)
            while not self._count_requests(target.topic) and not answer.done():
                time.sleep(0.1)
            agent.start()
            self.addCleanup(agent.wait)
            self.addCleanup(agent.stop)
            self.assertEqual(StartState.STARTING, answer.result().state)

    def _count_requests(self, name):
        with self.rabbit.connection('trove') as connection, connection.channel() as channel:
            return channel.queue_declare(name, passive=True).message_count

    def transport(self, who):
        conf = self.configuration(who)
        conf.set_override('control_exchange', 'trove')
        result = messaging.get_rpc_transport(conf, self.rabbit.url(who))
        self.addCleanup(result.cleanup)
        return result

    def _guest_at_troves_own_services(self):
        with self.rabbit.connection('trove') as connection, connection.channel() as channel:
            exchange = kombu.Exchange('trove', 'topic', durable=False)
            kombu.Queue('taskmanager', exchange, durable=False).bind(channel).declare()
        with self.rabbit.connection('guest') as connection:
            for queue in ('taskmanager', 'trove-conductor', 'reply_anything'):
                with connection.channel() as channel:
                    self.assertRaises(
                        (REFUSED, amqp.exceptions.NotFound), channel.basic_consume, queue
                    )
                with connection.channel() as channel:
                    self.assertRaises(REFUSED, channel.queue_delete, queue)
            with connection.channel() as channel:
                channel.queue_declare('guestagent.spy')
            for key in ('taskmanager', 'guestagent.#', 'guestagent.*', '#'):
                with connection.channel() as channel:
                    self.assertRaises(REFUSED, channel.queue_bind, 'guestagent.spy', 'trove', key)
            with connection.channel() as channel:
                self.assertRaises(REFUSED, self.publish, channel, 'trove', 'taskmanager')
            # RabbitMQ cannot prevent this, as doc/source/admin/message-bus.rst describes.
            with connection.channel() as channel:
                self.publish(channel, '', 'taskmanager')
            with connection.channel() as channel:
                channel.queue_declare('guestagent.of-a-neighbour')
                channel.basic_consume('guestagent.of-a-neighbour')

    def _messages_that_a_guest_forges(self):
        """They arrive at the taskmanager, but it acts on those under its key only."""
        deleted = queue.SimpleQueue()

        class Taskmanager:
            target = messaging.Target(version='1.0')

            def delete_instance(self, _context, instance_id):
                deleted.put(instance_id)

        key = 'a key that guests do not have'
        self.useFixture(fixtures.MonkeyPatch('trove.rpc.TRANSPORT', self.transport('trove')))
        serializer = strict_rpc.StrictSerializer(
            trove_serializer.TroveRequestContextSerializer(None), key
        )
        taskmanager = messaging.get_rpc_server(
            rpc.TRANSPORT,
            messaging.Target(topic='taskmanager', server='host'),
            [Taskmanager()],
            serializer=serializer,
        )
        strict_rpc.guard(taskmanager, serializer, 'taskmanager', has_answers=True)
        taskmanager.start()
        self.addCleanup(taskmanager.wait)
        self.addCleanup(taskmanager.stop)
        forged = {
            'method': 'delete_instance',
            'version': '1.0',
            'args': {'instance_id': 'forged'},
            '_unique_id': uuid.uuid4().hex,
            '_context_context': 'plain text',
            # An error would tell what the key decrypts.
            '_msg_id': uuid.uuid4().hex,
            '_reply_q': 'guestagent.of-the-forger',
        }
        log = self.useFixture(fixtures.FakeLogger())
        with self.rabbit.connection('guest') as connection, connection.channel() as channel:
            channel.queue_declare('guestagent.of-the-forger')
            self.publish(channel, '', 'taskmanager', forged)
        api = rpc.get_client(messaging.Target(topic='taskmanager'), key=key)
        call = api.prepare(timeout=TIMEOUT_SEC).call
        call(trove_context.TroveContext(), 'delete_instance', instance_id='asked for')
        self.assertEqual('asked for', deleted.get(timeout=TIMEOUT_SEC))
        self.assertTrue(deleted.empty())
        self.assertIn('Refused a message in the queue taskmanager', log.output)
        self.assertEqual(0, self._count_requests('guestagent.of-the-forger'))

    def _cinder_and_the_listener(self):
        """The service receives notifications of changed volumes, with few permissions."""
        conf = self.configuration('events', guests='events')
        changed = queue.SimpleQueue()
        listener = events.listener(conf, ['trove-ceph-qos'], 'openstack', changed.put)
        listener.start()
        self.addCleanup(listener.wait)
        self.addCleanup(listener.stop)
        conf = self.configuration('openstack', guests='openstack')
        bus = messaging.get_notification_transport(conf)
        self.addCleanup(bus.cleanup)
        cinder = messaging.Notifier(
            bus,
            'volume.host',
            driver='messagingv2',
            topics=['trove-ceph-qos'],
        )
        cinder.info({}, 'volume.resize.end', {'volume_id': 'changed'})
        self.assertEqual('changed', changed.get(timeout=TIMEOUT_SEC))
