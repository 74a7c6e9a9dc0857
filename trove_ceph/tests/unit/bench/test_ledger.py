# SPDX-License-Identifier: Apache-2.0
import pymysql
from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph.tests.unit.bench import fake_ledger
from trove_ceph_bench import ledger, model

ADDRESS = model.Address('app', 'secret', 'shop')


class LedgerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.servers = fake_ledger.Servers()
        self.client = ledger.Client(ADDRESS, self.servers.connect)

    def test_commit_returns_the_rows_before(self):
        self.servers.rows['192.0.2.1'] = 7
        self.assertEqual(7, self.client.commit('192.0.2.1'))
        self.assertEqual(8, self.client.commit('192.0.2.1'))
        (login, *_) = self.servers.logins
        self.assertEqual(
            ('192.0.2.1', 3306, 'app', 'secret', 'shop', True),
            tuple(
                login[name]
                for name in ('host', 'port', 'user', 'password', 'database', 'autocommit')
            ),
        )
        self.assertEqual(ledger.CONNECT_TIMEOUT_SEC, login['connect_timeout'])

    def test_commit_fails_without_a_server(self):
        self.assertIsNone(self.client.commit('192.0.2.1'))
        self.servers.rows['192.0.2.1'] = 0
        for failure in (pymysql.OperationalError(2013, 'lost'), TimeoutError()):
            self.servers.failures = [failure]
            self.assertIsNone(self.client.commit('192.0.2.1'))
            self.assertIs(failure, self.client.error)

    def test_writer_remembers_what_is_acknowledged(self):
        self.servers.rows['192.0.2.1'] = 3
        self.servers.numbers['192.0.2.1'] = [1, 2]
        self.servers.dies_after = 10
        with ledger.Writer(self.client, '192.0.2.1') as writer:
            writer.wait_for(5)
            # It ends by itself when the server dies.
            writer._thread.join()
        self.assertEqual(list(range(3, 10)), writer.acknowledged)
        self.assertIsInstance(writer.error, pymysql.OperationalError)

    def test_writer_stops(self):
        self.servers.rows['192.0.2.1'] = 0
        with ledger.Writer(self.client, '192.0.2.1') as writer:
            writer.wait_for(1)
        self.assertEqual(writer.acknowledged, self.servers.numbers['192.0.2.1'])
        self.assertIsNone(writer.error)

    def test_writer_waits_for_commits_of_its_own(self):
        self.servers.rows['192.0.2.1'] = 20
        self.servers.dies_after = 21
        with ledger.Writer(self.client, '192.0.2.1') as writer:
            self.assertRaises(exceptions.LoadFailedError, writer.wait_for, 20)
        self.assertEqual([1], writer.acknowledged)

    def test_no_commit_is_an_error(self):
        with ledger.Writer(self.client, '192.0.2.1') as writer:
            error = self.assertRaises(exceptions.LoadFailedError, writer.wait_for, 1)
        self.assertIn('192.0.2.1: no commit: ', str(error))

    def test_wait_is_bounded(self):
        clock = [0.0]

        def start_wait(timeout_sec):
            return waiting.Deadline(
                timeout_sec, lambda: clock[0], lambda sec: clock.__setitem__(0, clock[0] + sec)
            )

        writer = ledger.Writer(self.client, '192.0.2.1', start_wait)
        error = self.assertRaises(exceptions.LoadFailedError, writer.wait_for, 1)
        self.assertIn('0 of 1 commits within 60 s', str(error))

    def test_rows_of_a_server_that_answers(self):
        self.assertIsNone(self.client.rows('192.0.2.1'))
        self.servers.rows['192.0.2.1'] = 4
        self.assertEqual((4, 4), (self.client.rows('192.0.2.1'), self.servers.rows['192.0.2.1']))

    def test_numbers_are_those_of_writers(self):
        error = self.assertRaises(exceptions.LoadFailedError, self.client.numbers, '192.0.2.1')
        self.assertIn('cannot read the ledger', str(error))
        self.servers.rows['192.0.2.1'] = 0
        self.client.commit('192.0.2.1')
        with ledger.Writer(self.client, '192.0.2.1') as writer:
            writer.wait_for(1)
        self.client.commit('192.0.2.1')
        self.assertEqual(set(writer.acknowledged), self.client.numbers('192.0.2.1'))

    def test_reader_finds_the_longest_time_without_an_answer(self):
        answers = [True, False, False, True, True]

        def read():
            answer = answers.pop(0)
            if len(answers) == 1:
                # One more read follows the request to stop.
                reader._stopped.set()
            return answer

        reader = ledger.Reader(
            read,
            clock=iter([0.0, 1.0, 9.0, 20.0, 30.0, 31.0]).__next__,
            pause=lambda seconds: None,
        )
        with reader:
            reader._thread.join()
        self.assertEqual((29.0, []), (reader.gap_sec, answers))

    def test_address_of_the_client_of_a_plan(self):
        environ = {'BENCH_USER': 'app', 'BENCH_PASSWORD': 'secret', 'BENCH_DATABASE': 'shop'}
        self.assertEqual(ADDRESS, ledger.address(environ))
        for name in environ:
            known = {key: value for key, value in environ.items() if key != name}
            error = self.assertRaises(exceptions.LoadFailedError, ledger.address, known)
            self.assertIn(f'{name} is not set', str(error))
