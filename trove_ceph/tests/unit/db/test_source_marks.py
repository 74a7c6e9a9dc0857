# SPDX-License-Identifier: Apache-2.0
"""The marks of instances: what the change of a source has left to do."""

import datetime

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import source_marks, transactions
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.tests.unit.db import database

_DATABASE = database.Shared()


class SourceMarkStoreTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        self.store = source_marks.SourceMarkStore(
            transactions.Transactions(_DATABASE.emptied(), lambda: self.now)
        )

    def test_the_last_mark_counts(self):
        self.assertIsNone(self.store.find('one'))
        for mark in (SourceMark.UNFINISHED_PROMOTION, *[SourceMark.EJECTED] * 2):
            self.store.set('one', mark)
            self.assertIs(mark, self.store.find('one'))
        for _again in range(2):
            self.store.remove('one')
        self.assertIsNone(self.store.find('one'))

    def test_age(self):
        self.assertIsNone(self.store.age_sec('one'))
        self.store.set('one', SourceMark.UNFINISHED_PROMOTION)
        self.now += datetime.timedelta(seconds=9)
        self.store.set('one', SourceMark.EJECTED)
        self.now += datetime.timedelta(seconds=3)
        self.store.set('one', SourceMark.EJECTED)
        self.assertEqual(3.0, self.store.age_sec('one'))

    def test_lists_the_oldest_first(self):
        self.store.set('two', SourceMark.EJECTED)
        self.now += datetime.timedelta(seconds=1)
        self.store.set('one', SourceMark.UNFINISHED_EJECTION)
        self.now += datetime.timedelta(seconds=1)
        # A repetition makes it no younger.
        self.store.set('two', SourceMark.EJECTED)
        self.assertEqual(
            [('two', SourceMark.EJECTED), ('one', SourceMark.UNFINISHED_EJECTION)],
            list(self.store.list().items()),
        )

    def test_lacking_tables(self):
        empty = transactions.Transactions(database.facade(':memory:'))
        store = source_marks.SourceMarkStore(empty)
        error = self.assertRaises(exceptions.ServiceUnavailableError, store.list)
        self.assertIn('db sync', str(error))
