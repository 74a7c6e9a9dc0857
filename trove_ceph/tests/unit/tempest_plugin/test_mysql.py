# SPDX-License-Identifier: Apache-2.0
"""Tests of the wait for a server, and of the figures of a client."""

from unittest import mock

import pymysql
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import commit_probe, model
from trove_ceph_tempest_plugin import load, mysql

ADDRESS = model.Address(user='u', password='secret', database='d', host='192.0.2.1')


class DatabaseTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.connect = self._patch('pymysql.connect')
        self.cursor = self.connect.return_value.__enter__.return_value.cursor.return_value
        self.cursor.__enter__.return_value.fetchall.return_value = [('max_connections', '128')]
        self.sleep = self._patch('time.sleep')
        self.database = mysql.Database(ADDRESS)

    def _patch(self, name):
        patch = mock.patch(name)
        self.addCleanup(patch.stop)
        return patch.start()

    def test_variable(self):
        self.assertEqual('128', self.database.variable('max_connections'))

    def test_status(self):
        self.assertEqual('128', self.database.status('Threads_running'))
        statement = 'SHOW GLOBAL STATUS LIKE %s'
        self.cursor.__enter__.return_value.execute.assert_called_once_with(
            statement, ('Threads_running',)
        )

    def test_waits_until_the_server_answers(self):
        refused = pymysql.OperationalError(2003, 'refused')
        self.connect.side_effect = [refused, refused, self.connect.return_value]
        self.database.wait_reachable(60)
        self.assertEqual(3, self.connect.call_count)

    def test_timeout_of_an_unreachable_server(self):
        self.connect.side_effect = pymysql.OperationalError(2003, 'refused')
        error = self.assertRaises(exceptions.TroveCephError, self.database.wait_reachable, -1)
        self.assertIn('192.0.2.1:3306', str(error))
        self.assertIn('refused', str(error))
        self.assertNotIn('secret', str(error))

    def test_tells_whether_the_server_answers(self):
        self.assertTrue(self.database.answers())
        for failure in (pymysql.OperationalError(2003, 'refused'), TimeoutError()):
            self.connect.side_effect = failure
            self.assertFalse(self.database.answers())
        self.assertEqual(mysql.PROBE_SEC, self.connect.call_args.kwargs['connect_timeout'])


class ClientTest(base.BaseTestCase):
    def test_figures_are_those_of_the_committer(self):
        log = commit_probe.Log(commits=[(0.5, 1.0), (1.0, 1.5), (4.0, 4.5)], errors=[2.0])
        result = commit_probe.evaluate([log], since=0.0, until=5.0)
        client = load.Client(ADDRESS)
        with mock.patch.object(commit_probe.Committer, 'stop', return_value=result):
            figures = client.figures()
        self.assertEqual(3, figures['commits'])
        self.assertEqual(1, figures['errors'])
        self.assertEqual(3000, figures['gap_max_ms'])
        self.assertEqual(1.5, figures['gap_max_at_sec'])
        self.assertEqual(500, figures['commit_p50_ms'])
