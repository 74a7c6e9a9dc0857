# SPDX-License-Identifier: Apache-2.0
"""A database whose guest has Trove's own agent, on a cloud whose taskmanager is this project's."""

from tempest import config
from tempest.lib import decorators

from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import backup, deletion

CONF = config.CONF


class TestStockAgent(backup.BackupTestCase, deletion.DeletionScenario):
    """This project's taskmanager leaves such databases to Trove's own code."""

    @classmethod
    def skip_checks(cls):
        cls.datastore = CONF.trove_ceph.stock_datastore
        if not cls.datastore:
            raise cls.skipException('[trove_ceph] stock_datastore is empty')
        super().skip_checks()

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a0f3')
    def test_backup_by_troves_agent(self):
        """Trove's own snapshot completes, no lock is left, and its deletion leaves nothing."""
        self.require_backups()
        self.record('created', {'seconds_to_healthy': self.created_sec})
        rows, before = self.write_rows(), self.snapshots()
        stored = self.back_up('stock')
        self.assertEqual(1, len(self.snapshots() - before))
        self.assert_no_lock_is_left()
        self.assertEqual(rows, self.rows())
        self.backups.delete(stored['id'])
        self.assertEqual(before, self.snapshots())


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestStockAgent)
