# SPDX-License-Identifier: Apache-2.0
"""Tests of the client that remembers what the server acknowledged."""

import contextlib
import types

import pymysql
from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph_tempest_plugin import ledger

GENEROUS_SEC = 60


class Server:
    """A server in memory.

    :ivar fails: numbers of rows at which a connection breaks, with whether the row is there
    """

    def __init__(self):
        self.address = types.SimpleNamespace(host='db')
        self.rows = set()
        self.fails = {}
        self.verdict = 'OK'
        self.connections = 0

    @contextlib.contextmanager
    def connect(self, _reply_timeout_sec):
        self.connections += 1
        yield self

    @contextlib.contextmanager
    def cursor(self):
        yield self

    def execute(self, _statement, arguments):
        (number,) = arguments
        is_written = self.fails.pop(number, None)
        if is_written is not False:
            self.rows.add(number)
        if is_written is not None:
            raise pymysql.OperationalError(2013, 'lost connection')

    def query(self, statement):
        if statement.startswith('SELECT'):
            return [(number,) for number in self.rows]
        return [('ledger', 'check', 'status', self.verdict)] if 'CHECK' in statement else []


class LedgerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.server = Server()
        self.times = iter(range(1, 1_000_000_000))

    def commit(self, commits=10):
        entries = ledger.Ledger(self.server, clock=lambda: next(self.times))
        with entries:
            entries.wait_for_commits(commits, GENEROUS_SEC)
        return entries

    def test_everything_acknowledged_is_there(self):
        entries = self.commit(10)
        self.assertEqual([], entries.faults())
        self.assertGreaterEqual(entries.figures()['commits'], 10)

    def test_goes_on_after_errors(self):
        # Of the rows without acknowledgement one was written, the other was not.
        self.server.fails = {3: True, 4: False}
        entries = self.commit(10)
        self.assertEqual(3, self.server.connections)
        self.assertEqual([], entries.faults())

    def test_a_lost_commit(self):
        entries = self.commit(10)
        self.server.rows -= {2, 5}
        self.assertEqual(['2 acknowledged commits are lost: [2, 5]'], entries.faults())

    def test_a_row_of_another_writer(self):
        entries = self.commit(10)
        self.server.rows.add(10**12)
        self.assertIn('1 rows were never sent', entries.faults()[0])

    def test_a_corrupt_table(self):
        entries = self.commit(1)
        self.server.verdict = 'Corrupt'
        self.assertEqual(['CHECK TABLE ledger: Corrupt'], entries.faults())

    def test_rows_of_another_server(self):
        entries = self.commit(10)
        promoted = Server()
        promoted.rows = self.server.rows - {7}
        self.assertEqual([], entries.faults())
        self.assertEqual(['1 acknowledged commits are lost: [7]'], entries.faults(promoted))

    def test_largest_gap(self):
        self.times = iter([1.0, 2.0, 62.5, *range(63, 1_000_000)])
        self.assertEqual(60.5, self.commit(5).figures()['gap_max_sec'])

    def test_no_commit_in_time(self):
        entries = ledger.Ledger(
            self.server, start_wait=lambda timeout_sec: waiting.Deadline(0, sleep=self.fail)
        )
        error = self.assertRaises(exceptions.TroveCephError, entries.wait_for_commits, 3, 60)
        self.assertIn('db: 3 of 3 commits were not acknowledged within 60 s', str(error))
