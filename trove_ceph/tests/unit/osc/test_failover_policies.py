# SPDX-License-Identifier: Apache-2.0
"""The commands for failover policies, through python-troveclient and Trove's real API."""

from trove_ceph.tests.unit.osc import harness


class CommandsTest(harness.CommandTestCase):
    def set(self, options='', **identity):
        return self.shown(f'failover policy set {options}', **identity)

    def test_sets_shows_and_unsets_that_of_an_instance(self):
        target = f'--instance {self.instance.id}'
        shown = self.set(target)
        self.assertEqual(
            ('instance', self.instance.id, True),
            (shown['scope'], shown['target'], shown['enabled']),
        )
        self.assertEqual(shown, self.shown(f'failover policy show {shown["id"]}'))
        changed = self.set(f'{target} --disable')
        self.assertEqual((shown['id'], False), (changed['id'], changed['enabled']))
        self.assertTrue(self.set(target)['enabled'])
        self.assertEqual('replica', self.set(f'{target} --prefer replica')['prefer'])
        self.assertEqual('replica', self.set(f'{target} --disable')['prefer'])
        self.assertEqual((0, ''), self.run_command(f'failover policy unset {target}'))
        self.assertEqual([], self.world.failover_policies.all())
        status, output = self.run_command(f'failover policy unset {target}')
        self.assertEqual(1, status)
        self.assertIn('has no failover policy of its own', output)

    def test_sets_that_of_a_datastore(self):
        operator = {'role': 'admin'}
        shown = self.set('--datastore mysql/9.7', **operator)
        self.assertEqual('mysql/9.7', shown['target'])
        self.assertEqual(shown['id'], self.set('--datastore mysql/9.7 --disable', **operator)['id'])
        self.assertEqual(1, self.run_command('failover policy set --datastore mysql')[0])
        # That of an instance is another one.
        own = self.set(f'--instance {self.instance.id}')
        rows = self.shown(f'failover policy list --instance {self.instance.id}')
        self.assertEqual([own['id'], shown['id']], [row['ID'] for row in rows])

    def test_lists(self):
        own = self.set(f'--instance {self.instance.id}')
        (row,) = self.shown('failover policy list')
        self.assertEqual((own['id'], 'instance', True), (row['ID'], row['Scope'], row['Enabled']))
        other = {'project': self.world.other, 'role': 'admin'}
        self.assertEqual([], self.shown('failover policy list', **other))
        self.assertEqual(1, len(self.shown('failover policy list --all-projects', **other)))
