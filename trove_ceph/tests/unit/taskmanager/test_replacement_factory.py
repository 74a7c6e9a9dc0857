# SPDX-License-Identifier: Apache-2.0
import types
from unittest import mock

import fixtures
from keystoneauth1 import session
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context

from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import claims, heartbeat, replacements
from trove_ceph.strategies.replacement import dependencies
from trove_ceph.taskmanager import replacement_factory
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import nova, replacement_servers, service_session

CONF = trove_cfg.CONF


class ReplacementFactoryTest(base.BaseTestCase):
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
        beats = heartbeat.Heartbeat(replacements.ReplacementStore().claims, 5, 45)
        self.deps = types.SimpleNamespace(
            worker=claims.Claimant('one'),
            heartbeat=beats,
            cinder=None,
            storage=types.SimpleNamespace(describe=None),
            find_image=lambda _volume: None,
        )

    def make(self):
        return replacement_factory.make_dependencies(
            CONF, trove_context.TroveContext(), self.deps, mock.Mock()
        )

    def set(self, name, value, group):
        CONF.set_override(name, value, group)
        self.addCleanup(CONF.clear_override, name, group)

    def test_defaults_are_those_of_the_options(self):
        default = dependencies.ReplacementDependencies.patience_sec
        self.assertEqual(default, self.make().patience_sec)

    def test_clients_have_the_versions_that_they_need(self):
        """Creating them sends no request."""
        servers = self.make().servers
        self.assertEqual(
            [nova.API_VERSION, replacement_servers.ZONE_API_VERSION],
            [client.api_version.get_string() for client in (servers._client, servers._zone_client)],
        )

    def test_requests_to_the_services_have_a_time_limit(self):
        made = self.make()
        for client in (
            *(made.servers._client.client, made.servers._zone_client.client),
            *(made.servers._glance.http_client, made.network._client.httpclient),
        ):
            self.assertEqual(service_session.TIMEOUT_SEC, client.session.timeout, client)

    def test_warm_guests_are_used_if_there_are_pools(self):
        self.assertIsNone(self.make().guests._warm)
        self.set('pools', ['mysql/9.7:small'], 'trove_ceph_guests')
        self.assertIsNotNone(self.make().guests._warm)

    def test_replacements_of_this_process(self):
        """There is none in the table."""
        made = replacement_factory.make_replacements(CONF, self.make(), self.deps)
        log = self.useFixture(fixtures.FakeLogger('trove_ceph'))
        made.start_due()
        self.assertEqual('', log.output)
