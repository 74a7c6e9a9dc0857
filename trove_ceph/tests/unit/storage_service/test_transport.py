# SPDX-License-Identifier: Apache-2.0
"""The storage service's transport is compared with the one that guests can reach."""

import oslo_messaging as messaging
import testscenarios
from oslo_config import cfg
from oslo_messaging import conffixture
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage_service import transport
from trove_ceph.tests.unit.storage_service import bus

GUESTS = 'rabbit://trove:secret@one:5672,trove:secret@two:5672/trove'
load_tests = testscenarios.load_tests_apply_scenarios


class OverlapTest(base.BaseTestCase):
    scenarios = [
        (own, {'own': own, 'expected': expected})
        for own, expected in (
            ('rabbit://storage:other@one:5672/trove-ceph', None),
            ('rabbit://storage:other@three/trove', None),
            # Another broker may have a user with that name.
            ('rabbit://trove:other@three/trove-ceph', None),
            ('rabbit://storage:other@two:5671/trove', 'same virtual host trove on two'),
            ('rabbit://storage:other@zero,storage:other@ONE/trove', 'same virtual host trove on'),
            ('rabbit://trove:secret@three/elsewhere', 'same user and password'),
            ('rabbit://trove:changed@one/trove-ceph', 'same user on one'),
        )
    ]

    def test_overlap(self):
        conf = cfg.ConfigOpts()
        parse = messaging.TransportURL.parse
        found = transport.find_overlap(parse(conf, self.own), parse(conf, GUESTS))
        if self.expected is None:
            self.assertIsNone(found)
        else:
            self.assertIn(self.expected, found)

    def test_the_default_virtual_host_has_three_spellings(self):
        conf = cfg.ConfigOpts()
        urls = [
            messaging.TransportURL.parse(conf, f'rabbit://{user}:{user}@one{path}')
            for user, path in (('a', ''), ('b', '/'), ('c', '//'))
        ]
        for own in urls:
            for other in urls:
                self.assertIn('same virtual host /', transport.find_overlap(own, other))


class ConfigurationTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.guests = self.useFixture(conffixture.ConfFixture(self.conf))
        self.storage = self.useFixture(bus.StorageTransport(self.conf))
        self.conf([])

    def refusal(self):
        error = self.assertRaises(exceptions.InvalidTransportError, transport.check, self.conf)
        self.assertRaises(exceptions.InvalidTransportError, transport.connect, self.conf)
        self.assertNotIn('secret', str(error))
        return str(error)

    def test_accepts_a_separate_transport(self):
        self.guests.transport_url = GUESTS
        self.storage.set('transport_url', 'rabbit://storage:secret2@one/trove-ceph')
        transport.check(self.conf)
        self.assertEqual('trove-ceph', transport.find_url(self.conf).virtual_host)

    def test_accepts_any_transport_without_a_default(self):
        self.storage.set('transport_url', 'rabbit://storage:secret2@localhost/')
        transport.check(self.conf)

    def test_refuses_a_missing_url(self):
        self.guests.transport_url = GUESTS
        self.storage.set('transport_url', None)
        self.assertIn('is not set', self.refusal())

    def test_refuses_the_transport_of_guests(self):
        self.guests.transport_url = GUESTS
        self.storage.set('transport_url', GUESTS)
        self.assertIn('has the same virtual host', self.refusal())

    def test_refuses_an_invalid_url(self):
        self.storage.set('transport_url', '//storage:secret@two/x')
        self.assertIn('is not a transport URL', self.refusal())

    def test_explicitly_allowed(self):
        self.guests.transport_url = GUESTS
        self.storage.set('allow_guest_transport', True)
        for url in (None, GUESTS):
            self.storage.set('transport_url', url)
            transport.check(self.conf)
            self.assertEqual('trove', transport.find_url(self.conf).virtual_host)

    def test_refuses_a_missing_key_file(self):
        self.storage.set('key_file', '/nowhere')
        self.assertRaises(exceptions.KeyFileError, transport.check, self.conf)
        self.assertRaises(exceptions.KeyFileError, transport.connect, self.conf)
