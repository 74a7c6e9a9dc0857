# SPDX-License-Identifier: Apache-2.0
"""A policy and its backups, through Trove's models, the message bus and the taskmanager."""

import datetime
import types

import fixtures
from oslotest import base
from trove.backup.state import BackupState
from trove.common import cfg as trove_cfg

from trove_ceph.db import policies, transactions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.policy_record import PolicyRunState, Retention, Scope
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.api import world as api_world
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF


class ManagerPoliciesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.notifications = []
        server = types.SimpleNamespace(status='ACTIVE')
        nova = types.SimpleNamespace(servers=types.SimpleNamespace(get=lambda _: server))
        neutron = types.SimpleNamespace(list_ports=lambda **_: {'ports': []})
        notifier = types.SimpleNamespace(info=lambda _context, event, _body: self.tell(event))
        for name, value in (
            ('trove_ceph.taskmanager.factory.make_dependencies', lambda *_: self.world.deps()),
            ('trove.common.clients.create_nova_client', lambda *_, **__: nova),
            ('trove.common.clients.create_neutron_client', lambda *_, **__: neutron),
            ('trove.rpc.get_notifier', lambda **_: notifier),
            ('trove.taskmanager.api.API.get_client', lambda *_, **__: api_world.Bus(self)),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))
        self.useFixture(bus.StorageTransport(CONF))
        self.manager = manager.Manager()
        self.useFixture(api_world.TiersFile())
        # Other tests reset the configuration.
        trove_database.path()
        self.now = datetime.datetime(2026, 3, 1)
        self.policies = policies.PolicyStore(
            transactions.Transactions(worlds._facade(), lambda: self.now)
        )
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.db.policies.PolicyStore', lambda: self.policies)
        )

    def tell(self, event):
        self.notifications.append(event)

    def append(self, cast):
        """Run the call in the taskmanager."""
        method, context, arguments = cast
        getattr(self.manager, method)(context, **arguments)

    def tick(self, minutes=1):
        self.manager.run_backup_policies(None)
        self.now += datetime.timedelta(minutes=minutes)

    def test_takes_and_expires_backups(self):
        self.policies.add(
            'hourly',
            Scope.TIER,
            'gold',
            interval_min=60,
            keep=Retention(last=1),
            verify_every=2,
            quiesce='ddl',
        )
        self.tick()
        (first,) = self.world.records.of_project(self.world.project)
        row = trove_database.backup(first.backup_id)
        self.assertEqual((RecordState.TAKEN, BackupState.COMPLETED), (first.state, row.state))
        self.assertEqual(('ddl', 'ddl'), (first.quiesce, first.quiesce_wanted))
        self.assertIsNotNone(first.verify_wanted_at)
        self.assertIsNone(first.copy_wanted_at)
        self.assertEqual(self.world.project, row.tenant_id)
        events = ['dbaas.backup_create.start', 'dbaas.backup_create.end']
        self.assertEqual(events, self.notifications)
        self.tick(60)
        self.tick()
        self.tick()
        # The second backup is complete, and the first one has expired.
        (second,) = self.world.records.of_project(self.world.project)
        self.assertNotEqual(first.backup_id, second.backup_id)
        self.assertIsNone(second.verify_wanted_at)
        self.assertTrue(trove_database.backup(first.backup_id).deleted)
        self.assertEqual(1, len(self.world.snapshots()))
        run = self.policies.runs()[self.world.instance.id]
        self.assertEqual((PolicyRunState.DONE, 2), (run.state, run.count))
        self.assertEqual('dbaas.backup_delete.end', self.notifications[-1])

    def test_it_is_a_periodic_task(self):
        self.assertIn('run_backup_policies', [name for name, _ in self.manager._periodic_tasks])
