# SPDX-License-Identifier: Apache-2.0
"""The quota of a project in the vault."""

import datetime
import uuid

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import tables
from trove_ceph.db.backup_record import RecordState
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup import backup_types, delete, tenant_errors
from trove_ceph.tests.unit.strategies import vault_helpers
from trove_ceph.tests.unit.strategies import world as worlds

MIB = units.Mi


class VaultQuotaTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        vault_helpers.write(self.world, 'abcd')
        self.backup = vault_helpers.take(self.world)

    def set_quota(self, gib):
        self.world.policy = backup_types.BackupSettings(vault_quota_gib=gib)

    def fill_quota(self, used_bytes):
        """Add a backup of the project whose copy occupies this much of the vault."""
        other = vault_helpers.take(self.world)
        with vault_helpers.claimed(self.world, other) as claim:
            location = image_types.SnapshotRef(
                'vault', names.image_name('vault', str(uuid.uuid4())), 's'
            )
            self.world.records.results.begin_copying(claim, location)
            self.world.records.results.record_copied(claim, used_bytes, 1.0, used_bytes)
        return other

    def date_back(self, backup_id):
        """Make a backup an hour older, since records have whole seconds and no order within one."""
        with self.world.records._transactions.writing() as session:
            row = session.get(tables.BackupRow, backup_id)
            row.snapshot_at -= datetime.timedelta(hours=1)

    def test_refuses_a_copy_beyond_the_quota(self):
        other = self.fill_quota(1024 * MIB - 3 * MIB)
        self.set_quota(1)
        error = self.assertRaises(
            exceptions.VaultQuotaExceededError, vault_helpers.copy, self.world, self.backup
        )
        for words in ('quota of the vault is 1 GiB (1024 MiB)', '1021 MiB are used', 'about 4 MiB'):
            self.assertIn(words, str(error))
        # Tenants see this message, since they can act on it; and the copy was not begun.
        self.assertEqual(str(error), tenant_errors.tenant_message(error))
        self.assertIsNone(self.world.records.get(self.backup).copy)
        delete.delete_backup(self.world.deps(), other)
        self.assertEqual(RecordState.COPIED, vault_helpers.copy(self.world, self.backup).state)

    def test_copies_within_the_quota(self):
        self.fill_quota(1024 * MIB - 16 * MIB)
        self.set_quota(1)
        self.assertEqual(RecordState.COPIED, vault_helpers.copy(self.world, self.backup).state)

    def test_an_increment_needs_as_much_as_its_base_moved(self):
        self.set_quota(1)
        vault_helpers.copy(self.world, self.backup)
        self.date_back(self.backup)
        vault_helpers.write(self.world, '-x')
        second = vault_helpers.copy(self.world, vault_helpers.take(self.world))
        self.assertEqual((self.backup, MIB), (second.copy_base_id, second.moved_bytes))
        # The latest copy holds 16 MiB, and moved 1 MiB; the next one needs about as much.
        other = self.fill_quota(1024 * MIB - 17 * MIB)
        third = vault_helpers.take(self.world)
        self.assertRaises(exceptions.VaultQuotaExceededError, vault_helpers.copy, self.world, third)
        delete.delete_backup(self.world.deps(), other)
        self.fill_quota(1024 * MIB - 18 * MIB)
        record = vault_helpers.copy(self.world, third)
        self.assertEqual(
            (RecordState.COPIED, second.backup_id), (record.state, record.copy_base_id)
        )

    def test_ignores_copies_of_other_projects(self):
        self.fill_quota(1024 * MIB)
        self.set_quota(1)
        with self.world.records._transactions.writing() as session:
            rows = session.query(tables.BackupRow).filter(tables.BackupRow.backup_id != self.backup)
            rows.update({'project_id': 'another'})
        self.assertEqual(RecordState.COPIED, vault_helpers.copy(self.world, self.backup).state)
