# SPDX-License-Identifier: Apache-2.0
"""The clients with which Trove itself creates instances, and a service that never answers."""

import fixtures
from keystoneauth1.exceptions import ConnectTimeout
from trove.common import cfg as trove_cfg
from trove.common import clients

from trove_ceph.tests.unit.trove_adapter import test_service_session
from trove_ceph.trove_adapter import limited_clients, service_session

CONF = trove_cfg.CONF
_REQUESTS = {
    'nova': lambda nova: nova.servers.get('server'),
    'cinder': lambda cinder: cinder.volumes.get('volume'),
    'neutron': lambda neutron: neutron.show_port('port'),
}


class LimitedClientsTest(test_service_session.SilentServiceTestCase):
    def setUp(self):
        super().setUp()
        for name in _REQUESTS:
            self.addCleanup(CONF.clear_override, f'remote_{name}_client')
            once = f'trove.common.clients_admin.ADMIN_{name.upper()}_CLIENT'
            self.useFixture(fixtures.MonkeyPatch(once, None))

    def ask_all(self):
        """Have Trove ask each service."""
        for name, ask in _REQUESTS.items():
            client = getattr(clients, f'create_{name}_client')('context', None)
            self.assertRaises(ConnectTimeout, ask, client)

    def test_a_service_that_never_answers_ends_the_request(self):
        limited_clients.use(CONF)
        self.ask_all()
        self.ask_all()
        self.assertEqual({service_session.TIMEOUT_SEC}, set(self.service.waited))

    def test_clients_of_the_configuration_stay(self):
        other = 'trove_ceph.trove_adapter.cinder_client.cinder_client'
        CONF.set_override('remote_cinder_client', other)
        limited_clients.use(CONF)
        self.assertEqual(other, CONF.remote_cinder_client)
        self.assertNotIn('clients_admin', CONF.remote_nova_client)
        # This one has a limit of its own.
        self.ask_all()
        self.assertEqual({service_session.TIMEOUT_SEC}, set(self.service.waited))
