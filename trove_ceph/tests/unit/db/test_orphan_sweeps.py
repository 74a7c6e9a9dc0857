# SPDX-License-Identifier: Apache-2.0

import datetime

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import orphan_sweeps, transactions
from trove_ceph.db.orphan_sweeps import OrphanSweep
from trove_ceph.tests.unit.db import database

SHARED = database.Shared()
NOW = datetime.datetime(2026, 5, 1, 12)
HOUR = datetime.timedelta(hours=1)


class OrphanSweepsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = NOW
        self.store = self.make_store(SHARED.emptied())

    def make_store(self, facade):
        return orphan_sweeps.OrphanSweepStore(transactions.Transactions(facade, lambda: self.now))

    def test_there_was_none(self):
        self.assertIsNone(self.store.find())

    def test_the_last_one_is_kept(self):
        self.store.record({'image': 3, 'job': 0}, {})
        self.assertEqual(OrphanSweep(NOW, {'image': 3, 'job': 0}, {}), self.store.find())
        self.now += HOUR
        self.store.record({'image': 3, 'job': 1}, {'image': 2})
        found = self.store.find()
        self.assertEqual(OrphanSweep(self.now, {'image': 3, 'job': 1}, {'image': 2}), found)
        self.assertEqual({'image': 1, 'job': 1}, found.left)

    def test_a_database_without_the_table(self):
        path = self.useFixture(fixtures.TempDir()).join('empty.sqlite')
        store = self.make_store(database.facade(path))
        for verb in (store.find, lambda: store.record({}, {})):
            error = self.assertRaises(exceptions.ServiceUnavailableError, verb)
            self.assertIn('trove_ceph_orphan_sweeps does not exist', str(error))
