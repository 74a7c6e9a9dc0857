# SPDX-License-Identifier: Apache-2.0
import types

import cinderclient.exceptions
import fixtures
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import clients

from trove_ceph.db import tables
from trove_ceph.tests.unit.strategies.test_restore_clone_volume import make_world
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF


class CinderClientTest(base.BaseTestCase):
    """The check of Trove's API before it requests a restore."""

    def setUp(self):
        super().setUp()
        self.world = make_world()
        self.backup = trove_database.backup(self.world.backup)
        self.stock = types.SimpleNamespace(
            volumes='of Cinder',
            volume_snapshots=types.SimpleNamespace(get=self._get, list='them'),
            client=types.SimpleNamespace(session=types.SimpleNamespace(timeout=60)),
        )
        for name, value in (
            ('trove.common.clients_admin.cinder_client_trove_admin', lambda *_: self.stock),
            ('trove_ceph.db.backups.BackupStore', lambda: self.world.records),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))
        CONF.set_override(
            'remote_cinder_client', 'trove_ceph.trove_adapter.cinder_client.cinder_client'
        )
        self.addCleanup(CONF.clear_override, 'remote_cinder_client')

    def _get(self, snapshot_id):
        if snapshot_id not in self.world.cinder.snapshots:
            raise cinderclient.exceptions.NotFound(404)
        return snapshot_id

    def test_finds_an_existing_snapshot(self):
        self.assertTrue(self.backup.check_location_exist('context'))

    def test_accepts_a_copy_without_a_snapshot(self):
        self.world.cinder.snapshots.clear()
        self.assertTrue(self.backup.check_location_exist('context'))

    def test_refuses_an_incomplete_copy(self):
        self.world.cinder.snapshots.clear()
        with self.world.records._transactions.writing() as session:
            session.get(tables.BackupRow, self.world.backup).copied_at = None
        self.assertFalse(self.backup.check_location_exist('context'))

    def test_refuses_a_missing_snapshot_of_another_driver(self):
        self.backup.location = 'cinder://of-trove'
        self.assertFalse(self.backup.check_location_exist('context'))

    def test_delegates_all_else_to_troves_client(self):
        client = clients.create_cinder_client('context')
        self.assertEqual(('of Cinder', 'them'), (client.volumes, client.volume_snapshots.list))
