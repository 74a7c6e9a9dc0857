# SPDX-License-Identifier: Apache-2.0
import datetime
import json

import fixtures

from trove_ceph.cmd.manage import columns
from trove_ceph.db import guests, transactions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.tests.unit.db.guest_helpers import POOL


class GuestsTest(guest_helpers.GuestStoreTestCase):
    def setUp(self):
        super().setUp()
        engine = self.facade.writer.get_engine()
        self.config = self.useFixture(fixtures.TempDir()).join('trove.conf')
        self.write(engine.url)
        # The command reads the clock of the database.
        self.store = guests.GuestStore(transactions.Transactions(self.facade))
        self.now = self.store.now() - datetime.timedelta(hours=3)

    def write(self, url):
        with open(self.config, 'w') as config:
            config.write(f'[database]\nconnection = {url}\n')

    def run_command(self, *words, status=0):
        result = command.run('guests', *words, '--config-file', self.config)
        self.assertEqual(status, result.status, result)
        return result

    def json_of(self, *words):
        return json.loads(self.run_command(*words, '-f', 'json').out)

    def test_list(self):
        self.make('one', availability_zone='zone')
        self.store.set_server('one', 'server', 'port')
        self.make('two', GuestState.BOOTING, pool='other')
        one, two = self.json_of('list')
        self.assertLess(abs(one['age_sec'] - 3 * 3600), 60)
        self.assertLess(one['answer_sec'], 60)
        self.assertEqual(
            ('one', POOL, 'ready', 'server', 'port', 'host', 'zone', None),
            tuple(
                one[name]
                for name in ('guest_id', 'pool', 'state', 'server_id', 'port_id', 'host')
                + ('availability_zone', 'reason')
            ),
        )
        self.assertEqual(('booting', None, None), (two['state'], two['answer_sec'], two['seen_at']))
        self.assertEqual([two], self.json_of('list', '--pool', 'other'))
        table = self.run_command('list').out
        self.assertIn('3 h', table)
        self.assertNotIn('config_digest', table)

    def test_show(self):
        self.make('g', GuestState.RETIRED, encrypted_key='secret')
        found = self.json_of('show', 'g')
        self.assertEqual(('retired', 'why'), (found['state'], found['reason']))
        self.assertEqual(f'{self.now.isoformat()}Z', found['created_at'])
        self.assertNotIn('secret', json.dumps(found))
        self.assertIn('why', self.run_command('show', 'g').out)
        result = self.run_command('show', 'x', status=1)
        self.assertIn('guest x: has no record', result.err)

    def test_drain(self):
        self.make('claimed', GuestState.CLAIMED)
        self.make('ready')
        self.make('booting', GuestState.BOOTING)
        self.make('other', pool='other')
        result = self.run_command('drain', POOL, '-f', 'json')
        self.assertEqual(
            ['booting', 'ready'], sorted(one['guest_id'] for one in json.loads(result.out))
        )
        self.assertIn('To keep a pool empty, remove it', result.err)
        states = {one.guest_id: one.state for one in self.store.list()}
        self.assertEqual(
            {
                'claimed': GuestState.CLAIMED,
                'ready': GuestState.RETIRED,
                'booting': GuestState.RETIRED,
                'other': GuestState.READY,
            },
            states,
        )
        self.assertEqual('drained by an operator', self.store.find('ready').reason)
        self.assertEqual(['other'], [one['guest_id'] for one in self.json_of('drain', '--all')])
        self.assertIn('No guest waits', self.run_command('drain', '--all').err)

    def test_hot_guests(self):
        self.make('hot', GuestState.HOT)
        self.make('loading', GuestState.LOADING)
        self.assertEqual(['hot', 'loading'], [one['state'] for one in self.json_of('list')])
        self.assertEqual('volume', self.json_of('show', 'hot')['volume_id'])
        drained = self.json_of('drain', POOL)
        self.assertEqual({'hot', 'loading'}, {one['guest_id'] for one in drained})

    def test_wrong_command_lines(self):
        for words in (['drain'], ['drain', POOL, '--all'], ['show']):
            self.run_command(*words, status=2)

    def test_database_that_does_not_answer(self):
        self.write('sqlite:////nowhere/at/all.sqlite')
        for words in (['list'], ['show', 'g'], ['drain', '--all']):
            self.assertIn('database failed', self.run_command(*words, status=3).err)

    def test_durations(self):
        for seconds, expected in ((None, '-'), (119, '119 s'), (120, '2 min'), (7200, '2 h')):
            self.assertEqual(expected, columns.Seconds(seconds).human_readable())
        self.assertEqual('7 d', columns.Seconds(7 * 86400).human_readable())
