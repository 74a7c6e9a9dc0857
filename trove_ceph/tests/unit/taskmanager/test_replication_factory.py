# SPDX-License-Identifier: Apache-2.0
import threading
import types

import fixtures
from keystoneauth1 import session
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context

from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.strategies.replication import dependencies
from trove_ceph.taskmanager import replication_factory
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.strategies import replication_world
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import nova

CONF = trove_cfg.CONF


class ReplicationFactoryTest(base.BaseTestCase):
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

    def make(self):
        """Creating the clients sends no request."""
        return replication_factory.make_dependencies(
            CONF, trove_context.TroveContext(), types.SimpleNamespace()
        )

    def set(self, name, value, group):
        CONF.set_override(name, value, group)
        self.addCleanup(CONF.clear_override, name, group)

    def test_defaults_are_those_of_the_options(self):
        self.assertEqual(dependencies.Limits(), self.make().limits)

    def test_limits_follow_the_options(self):
        self.set('most_replicas', 3, 'trove_ceph_replication')
        self.set('most_clone_depth', 2, 'trove_ceph_replication')
        self.assertEqual(dependencies.Limits(3, 2), self.make().limits)

    def test_reads_the_tiers_file_at_each_use(self):
        path = self.useFixture(fixtures.TempDir()).join('tiers.yaml')
        self.set('tiers_file', path, 'trove_ceph_backup')
        found = self.make()
        for name in ('one', 'two'):
            with open(path, 'w') as file:
                file.write(
                    f'tiers: {{{name}: {{purpose: vault, pool: p, copies: 2, '
                    'placement_groups: {count: 8}}}'
                )
            self.assertEqual([name], list(found.tiers().tiers))

    # Re-provisioning.

    def reprovisioning(self, make):
        """Creating the clients sends no request."""
        world = replication_world.ReplicationWorld()
        return make(CONF, trove_context.TroveContext(), world.replication_deps())

    def test_dependencies_of_reprovisioning(self):
        made = self.reprovisioning(replication_factory.make_reprovision_dependencies)
        self.assertIsInstance(made.servers, nova.Nova)
        options = CONF.trove_ceph_replication
        self.assertEqual(options.exchange_timeout_sec, made.exchange_timeout_sec)
        self.assertEqual(CONF.trove_ceph_replacement.patience_sec, made.patience_sec)

    def test_requests_are_continued_though_the_watch_makes_none(self):
        CONF.set_override('reprovisionings_at_once', 0, 'trove_ceph_replication')
        self.addCleanup(CONF.clear_override, 'reprovisionings_at_once', 'trove_ceph_replication')
        made = self.reprovisioning(replication_factory.make_reprovisionings)
        done = threading.Event()
        self.assertTrue(made._work._threads.start(done.set))
        self.assertTrue(done.wait(60))

    def test_reprovisionings_of_this_process(self):
        """There is none in the table."""
        made = self.reprovisioning(replication_factory.make_reprovisionings)
        log = self.useFixture(fixtures.FakeLogger('trove_ceph'))
        made.start_due()
        self.assertEqual('', log.output)
