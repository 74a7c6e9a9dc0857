# SPDX-License-Identifier: Apache-2.0
import json

import fixtures

from trove_ceph.db import replacements, transactions
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.db import replacement_helpers


class ReplacementsTest(replacement_helpers.ReplacementStoreTestCase):
    def setUp(self):
        super().setUp()
        self.config = self.useFixture(fixtures.TempDir()).join('trove.conf')
        self.write(self.facade.writer.get_engine().url)
        # The command reads the clock of the database.
        self.store = replacements.ReplacementStore(transactions.Transactions(self.facade))
        self.now = self.store.now()

    def write(self, url):
        with open(self.config, 'w') as config:
            config.write(f'[database]\nconnection = {url}\n')

    def run_command(self, *words, status=0):
        result = command.run('replacements', *words, '--config-file', self.config)
        self.assertEqual(status, result.status, result)
        return result

    def json_of(self, *words):
        return json.loads(self.run_command(*words, '-f', 'json').out)

    def test_list(self):
        self.assertEqual([], self.json_of('list'))
        self.make('ended', ReplacementState.COMPLETED)
        self.make('open', ReplacementState.MOVING)
        self.assertEqual({'ended', 'open'}, self.ids('list'))
        self.assertEqual(['i-open'], [one['instance_id'] for one in self.json_of('list', '--open')])
        self.assertEqual({'ended'}, self.ids('list', '--instance', 'i-ended'))
        self.assertEqual(1, len(self.ids('list', '--limit', '1')))
        table = self.run_command('list').out
        self.assertIn('moving', table)
        self.assertNotIn('old_server_id', table)

    def ids(self, *words):
        return {one['replacement_id'] for one in self.json_of(*words)}

    def test_show(self):
        _record, claim = self.make('r', ReplacementState.FENCING)
        self.store.note(claim, old_host='compute-1', port_ids=('a', 'b'))
        found = self.json_of('show', 'r')
        self.assertEqual(
            ('failover', 'tenant', 'fencing', 'compute-1', ['a', 'b'], None),
            tuple(
                found[name]
                for name in ('kind', 'requested_by', 'state', 'old_host', 'port_ids', 'ended_at')
            ),
        )
        created = f"{self.store.find('r').created_at.isoformat()}Z"
        self.assertEqual(created, found['created_at'])
        self.assertGreaterEqual(found['age_sec'], 0)

    def test_shows_all_that_is_recorded(self):
        """The keys and tokens of claims are not in the record."""
        record, _claim = self.make('r', ReplacementState.FENCING)
        self.assertEqual({'age_sec', *vars(record)}, set(self.json_of('show', 'r')))

    def test_end(self):
        self.make('r', ReplacementState.STARTING)
        result = self.run_command('end', 'r', '--reason', 'the agent is dead', '-f', 'json')
        self.assertEqual('the agent is dead', json.loads(result.out)['given_up_because'])
        self.assertIn('ends it within seconds', result.err)
        self.assertEqual('the agent is dead', self.store.find('r').given_up_because)

    def test_end_refuses_other_states(self):
        for state in ReplacementState:
            if state is not ReplacementState.STARTING:
                self.make(state, state)
                result = self.run_command('end', state, '--reason', 'why', status=1)
                self.assertIn(f'not in "{state}"', result.err)
                self.assertIsNone(self.store.find(state).given_up_because)

    def test_replacements_without_a_record(self):
        for words in (['show', 'x'], ['end', 'x', '--reason', 'why']):
            result = self.run_command(*words, status=1)
            self.assertIn('replacement x: has no record', result.err)

    def test_wrong_command_lines(self):
        for words in (['show'], ['end', 'r'], ['list', '--limit', 'x']):
            self.run_command(*words, status=2)

    def test_database_that_does_not_answer(self):
        self.write('sqlite:////nowhere/at/all.sqlite')
        for words in (['list'], ['show', 'r'], ['end', 'r', '--reason', 'why']):
            self.assertIn('database failed', self.run_command(*words, status=3).err)
