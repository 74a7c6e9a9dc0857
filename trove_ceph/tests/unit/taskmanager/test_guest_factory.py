# SPDX-License-Identifier: Apache-2.0
import datetime
import types

import fixtures
from keystoneauth1 import session
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context

from trove_ceph import exceptions
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import claims, heartbeat
from trove_ceph.strategies.guests import dependencies, hot_spec
from trove_ceph.taskmanager import guest_factory
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.strategies import guest_world
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import service_session

CONF = trove_cfg.CONF
GROUP = 'trove_ceph_guests'


class GuestFactoryTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        taskmanager_conf.register(CONF)
        trove_database.path()
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.common.clients_admin.get_keystone_session',
                lambda: session.Session(cinder_http.Token('service', 'admin')),
            )
        )

    def set(self, name, value):
        CONF.set_override(name, value, GROUP)
        self.addCleanup(CONF.clear_override, name, GROUP)

    def test_defaults_are_those_of_the_options(self):
        self.assertEqual(dependencies.PoolSettings(), guest_factory.settings(CONF))
        self.assertEqual((), guest_factory.pools(CONF))

    def test_settings(self):
        self.set('least', 2)
        self.set('max_age_sec', 3600)
        found = guest_factory.settings(CONF)
        self.assertEqual((2, datetime.timedelta(hours=1)), (found.least, found.max_age))

    def test_pools(self):
        self.set('pools', ['mysql/8.4:small', 'mysql/9.7:small'])
        self.assertEqual(2, len(guest_factory.pools(CONF)))
        self.set('pools', ['small'])
        self.assertRaises(exceptions.InvalidConfigurationError, guest_factory.pools, CONF)

    def test_hot_volume(self):
        self.assertIsNone(guest_factory.hot_volume(CONF))
        self.set('hot_volume', 'nvme:10')
        self.assertIsNone(guest_factory.hot_volume(CONF))
        self.set('hot', 1)
        volume = hot_spec.HotVolume('nvme', 10)
        self.assertEqual(volume, guest_factory.hot_volume(CONF))
        found = guest_factory.settings(CONF)
        self.assertEqual((1, volume), (found.hot, found.hot_volume))
        for text, part in (('', 'is empty'), ('nvme', 'is no volume')):
            self.set('hot_volume', text)
            error = self.assertRaises(
                exceptions.InvalidConfigurationError, guest_factory.hot_volume, CONF
            )
            self.assertIn(part, str(error))

    def test_requests_to_the_services_have_a_time_limit(self):
        """Creating the clients sends none."""
        servers = guest_factory.make_servers(CONF)
        for client in (
            guest_factory.connect_to_nova(CONF).client,
            *(servers._nova.client, servers._neutron.httpclient, servers._glance.http_client),
        ):
            self.assertEqual(service_session.TIMEOUT_SEC, client.session.timeout, client)

    def test_neutron_and_glance_are_found_by_troves_options(self):
        for name, value in (
            ('neutron_service_type', 'net'),
            ('neutron_endpoint_type', 'internalURL'),
            ('neutron_url', 'http://neutron.test:9696'),
            ('glance_service_type', 'images'),
            ('glance_endpoint_type', 'adminURL'),
        ):
            CONF.set_override(name, value)
            self.addCleanup(CONF.clear_override, name)
        neutron = guest_factory.connect_to_neutron(CONF).httpclient
        self.assertEqual(
            ('net', 'internalURL', 'http://neutron.test:9696'),
            (neutron.service_type, neutron.interface, neutron.endpoint_override),
        )
        images = guest_factory.connect_to_glance(CONF).http_client
        self.assertEqual(('images', 'adminURL'), (images.service_type, images.interface))

    def test_keeper_of_no_pools(self):
        """It sends no request to Nova, Neutron or Glance."""
        world = guest_world.World()
        deps = types.SimpleNamespace(
            worker=claims.Claimant('one'), heartbeat=heartbeat.Heartbeat(world.store.claims, 5, 45)
        )
        keeper = guest_factory.make_keeper(CONF, trove_context.TroveContext(), deps)
        log = self.useFixture(fixtures.FakeLogger('trove_ceph'))
        keeper.keep()
        self.assertEqual('', log.output)
        self.assertFalse(keeper._deps.is_replacing('instance'))
