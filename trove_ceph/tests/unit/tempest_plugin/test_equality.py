# SPDX-License-Identifier: Apache-2.0
"""Tests of the comparison of a source with its replica."""

import functools
import types

from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph_tempest_plugin import equality


class Server:
    """A server in memory, whose GTIDs are words.

    :ivar executed: the GTIDs
    :ivar tables: checksums by table
    """

    def __init__(self, host, executed, tables):
        self.address = types.SimpleNamespace(host=host)
        self.executed = set(executed.split())
        self.tables = tables
        self.wait = lambda seconds: None
        self.waits = []

    def query(self, statement, *arguments):
        if statement.startswith('SELECT @@GLOBAL'):
            return [(' '.join(sorted(self.executed)),)]
        if 'WAIT_FOR' in statement:
            gtids, seconds = arguments
            self.waits.append(seconds)
            if not set(gtids.split()) <= self.executed:
                self.wait(seconds)
            return [(0 if set(gtids.split()) <= self.executed else 1,)]
        if 'GTID_SUBTRACT' in statement:
            first, second = (set(text.split()) for text in arguments)
            return [(' '.join(sorted(first - second)),)]
        if statement == 'SHOW TABLES':
            return [(name,) for name in self.tables]
        assert statement.startswith('CHECKSUM TABLE `'), statement
        return [(f'shop.{name}', self.tables[name]) for name in self.tables if name in statement]


class EqualityTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.source = Server('source', 'a b c', {'orders': 1, 'users': 2})
        self.replica = Server('replica', 'a b c', {'orders': 1, 'users': 2})
        self.pair = equality.Equality(
            self.source,
            self.replica,
            functools.partial(waiting.Deadline, clock=lambda: self.now, sleep=self.fail),
        )

    def test_equal_servers(self):
        self.pair.wait_until_caught_up(60)
        self.assertEqual(('', []), (self.pair.errant(), self.pair.faults()))

    def test_waits_for_a_replica_that_is_behind(self):
        self.replica.executed = {'a'}

        def wait(seconds):
            self.now += seconds
            if self.now >= 60:
                self.replica.executed = {'a', 'b', 'c'}

        self.replica.wait = wait
        self.pair.wait_until_caught_up(100)
        self.assertEqual([30, 30], self.replica.waits)

    def test_replica_that_does_not_catch_up(self):
        self.replica.executed = {'a'}

        def wait(seconds):
            self.now += seconds

        self.replica.wait = wait
        error = self.assertRaises(exceptions.TroveCephError, self.pair.wait_until_caught_up, 40)
        self.assertIn('replica lacks transactions of source after 40 s: b c', str(error))
        self.assertEqual([30, 10], self.replica.waits)

    def test_errant_transactions(self):
        self.replica.executed |= {'x', 'y'}
        self.assertEqual('x y', self.pair.errant())
        self.assertEqual(['only the replica has x y'], self.pair.faults())

    def test_missing_transactions(self):
        self.replica.executed -= {'b'}
        self.assertEqual('', self.pair.errant())
        self.assertEqual(['the replica lacks b'], self.pair.faults())

    def test_different_tables(self):
        self.replica.tables = {'orders': 7, 'carts': 3}
        self.assertEqual(
            [
                'table carts: checksum None on the source, 3 on the replica',
                'table orders: checksum 1 on the source, 7 on the replica',
                'table users: checksum 2 on the source, None on the replica',
            ],
            self.pair.faults(),
        )

    def test_tables_that_cannot_be_read_are_not_equal(self):
        self.source.tables = self.replica.tables = {'orders': None}
        self.assertEqual(
            ['table orders: checksum None on the source, None on the replica'], self.pair.faults()
        )

    def test_nothing_to_compare_is_a_fault(self):
        self.source.tables = self.replica.tables = {}
        self.assertEqual(['there is no table to compare'], self.pair.faults())
