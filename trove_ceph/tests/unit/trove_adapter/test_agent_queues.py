# SPDX-License-Identifier: Apache-2.0
"""How the message bus is reached; ``functional/test_message_bus`` deletes queues of a real one."""

import contextlib
import ssl
import types

import fixtures
from oslo_config import cfg
from oslo_messaging import conffixture
from oslotest import base

from trove_ceph.trove_adapter import agent_queues

GROUP = 'oslo_messaging_rabbit'
URL = 'rabbit://trove:secret@one:5671,trove:secret@two/vhost'
QUEUES = ['guestagent.instance', 'guestagent.instance.instance']


class AgentQueuesTest(base.BaseTestCase):
    """The test case acts as the bus.

    :ivar down: the hosts that do not answer
    """

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.useFixture(conffixture.ConfFixture(self.conf))
        self.conf([])
        self.conf.set_override('transport_url', URL)
        self.down, self.requests, self.deleted = set(), [], []
        self.useFixture(fixtures.MonkeyPatch('kombu.Connection', self.connection))

    def connection(self, **options):
        self.requests.append(options)
        return contextlib.nullcontext(
            types.SimpleNamespace(
                connect=lambda: self.connect(options['hostname']),
                channel=lambda: contextlib.nullcontext(self),
            )
        )

    def connect(self, host):
        if host in self.down:
            raise OSError(f'{host} is down')

    def queue_delete(self, queue):
        self.deleted.append(queue)

    def delete(self):
        return agent_queues.delete(self.conf, 'instance')

    def test_deletes_the_queues(self):
        self.assertTrue(self.delete())
        self.assertEqual(QUEUES, self.deleted)
        (request,) = self.requests
        self.assertEqual(
            ('one', 5671, 'trove', 'secret', 'vhost', False),
            tuple(
                request[name]
                for name in ('hostname', 'port', 'userid', 'password', 'virtual_host', 'ssl')
            ),
        )

    def test_asks_the_next_host(self):
        self.down = {'one'}
        self.assertTrue(self.delete())
        self.assertEqual(QUEUES, self.deleted)
        self.assertEqual(5672, self.requests[-1]['port'])

    def test_bus_that_does_not_answer_is_no_error(self):
        self.down = {'one', 'two'}
        self.assertFalse(self.delete())
        self.assertEqual(2, len(self.requests))

    def test_other_transport(self):
        self.conf.set_override('transport_url', 'fake://')
        self.assertFalse(self.delete())
        self.assertEqual([], self.requests)

    def test_tls(self):
        self.conf.set_override('ssl', True, GROUP)
        for name, value, expected in (
            ('ssl_key_file', '', True),
            ('ssl_key_file', '/key', {'keyfile': '/key'}),
            ('ssl_cert_file', '/cert', {'keyfile': '/key', 'certfile': '/cert'}),
        ):
            self.conf.set_override(name, value, GROUP)
            self.delete()
            self.assertEqual(expected, self.requests[-1]['ssl'])

    def test_tls_checks_the_certificate_of_the_bus(self):
        self.conf.set_override('ssl', True, GROUP)
        self.conf.set_override('ssl_ca_file', '/ca', GROUP)
        self.delete()
        expected = {'ca_certs': '/ca', 'cert_reqs': ssl.CERT_REQUIRED, 'server_hostname': 'one'}
        self.assertEqual(expected, self.requests[-1]['ssl'])
