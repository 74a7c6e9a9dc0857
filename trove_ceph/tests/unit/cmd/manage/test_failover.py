# SPDX-License-Identifier: Apache-2.0
import datetime
import json

import fixtures
import sqlalchemy as sa
from oslotest import base

from trove_ceph.db import claims, failover_watch, tables, transactions
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.db import database

_DATABASE = database.Shared()
_REPORT = {
    'hold': None,
    'databases': 10,
    'covered': 8,
    'reporting': 9,
    'silent': 1,
    'moved_within_hour': 0,
    'findings': [
        {
            'instance_id': 'db-3',
            'verdict': 'suspect',
            'reason': 'host one does not report to Nova',
            'silent_sec': 95,
            'rounds': 2,
        }
    ],
    'left_out': 0,
}


class FailoverTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        facade = _DATABASE.emptied()
        self.config = self.useFixture(fixtures.TempDir()).join('trove.conf')
        self.write(facade.writer.get_engine().url)
        # The command reads the clock of the database.
        self.access = transactions.Transactions(facade)
        self.store = failover_watch.FailoverWatchStore(self.access)

    def write(self, url):
        with open(self.config, 'w') as config:
            config.write(f'[database]\nconnection = {url}\n')

    def run_command(self, *words, status=0):
        result = command.run('failover', *words, '--config-file', self.config)
        self.assertEqual(status, result.status, result)
        return result

    def json_of(self, *words, status=0):
        return json.loads(self.run_command(*words, '-f', 'json', status=status).out)

    def report(self, **changes):
        claim = self.store.begin_watching(claims.Claimant('host/boot/1/0/0'))
        self.store.record_report(claim, _REPORT | changes)

    def test_not_watched(self):
        shown = self.json_of('status', status=1)
        self.assertEqual((None, None, []), (shown['watched_by'], shown['hold'], shown['findings']))
        self.assertIn('[trove_ceph_failover] enabled', self.run_command('status', status=1).out)

    def test_status(self):
        self.report()
        shown = self.json_of('status')
        self.assertEqual(_REPORT | shown, shown)
        self.assertEqual('host/boot/1/0/0', shown['watched_by'])
        self.assertGreaterEqual(shown['round_age_sec'], 0)
        text = self.run_command('status').out
        self.assertIn('databases 10, covered 8, reporting 9, silent 1, moved within hour 0', text)
        self.assertIn('db-3 suspect, silent for 95 s, 2 rounds: host one does not report', text)

    def test_what_holds_all_failovers(self):
        self.report(hold='2 hosts do not report to Nova', left_out=7)
        text = self.run_command('status', status=1).out
        self.assertIn('Nothing is moved: 2 hosts do not report', text)
        self.assertIn('7 more are not listed', text)

    def test_a_round_that_failed(self):
        claim = self.store.begin_watching(claims.Claimant('host/boot/1/0/0'))
        self.store.record_report(claim, {'hold': 'the last round failed: a defect'})
        text = self.run_command('status', status=1).out
        self.assertIn('it failed', text)
        self.assertIn('a defect', text)

    def test_a_watch_whose_rounds_do_not_end(self):
        """Its claim is renewed as long as its process lives."""
        self.report()
        for age_sec, status in ((290, 0), (301, 1)):
            reported_at = self.store.now() - datetime.timedelta(seconds=age_sec)
            with self.access.writing() as session:
                session.execute(sa.update(tables.FailoverWatchRow).values(reported_at=reported_at))
            shown = self.json_of('status', status=status)
            self.assertEqual('host/boot/1/0/0', shown['watched_by'])
            self.assertGreaterEqual(shown['round_age_sec'], age_sec)
        text = self.run_command('status', status=1).out
        self.assertIn('no round of it has ended within 300 s', text)

    def test_maintenance(self):
        shown = self.json_of('maintenance', 'begin', '--reason', 'new switch')
        self.assertEqual('new switch', shown['maintenance'])
        self.assertEqual('new switch', self.store.read().maintenance)
        self.report(hold='maintenance: new switch')
        self.assertIn('Maintenance since', self.run_command('status', status=1).out)
        shown = self.json_of('maintenance', 'end')
        self.assertEqual((None, None), (shown['maintenance'], shown['maintenance_since']))
        self.assertIsNone(self.store.read().maintenance)

    def test_maintenance_needs_a_reason(self):
        self.run_command('maintenance', 'begin', status=2)
        self.assertIsNone(self.store.read().maintenance)

    def test_unreachable_database(self):
        self.write('sqlite:////nowhere/at/all.sqlite')
        self.assertIn('the database failed', self.run_command('status', status=3).err)
