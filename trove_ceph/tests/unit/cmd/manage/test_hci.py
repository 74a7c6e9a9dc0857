# SPDX-License-Identifier: Apache-2.0
import itertools
import json
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph.tests.unit.cmd.manage import command

_TREE = Path(__file__).parents[5]
_SHIPPED = _TREE / 'etc' / 'trove-ceph' / 'hci.yaml'
_PAGE = _TREE / 'doc' / 'source' / 'admin' / 'hci.rst'
_PROMPT = '    $ trove-ceph-manage hci '


class HciTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.file = Path(self.useFixture(fixtures.TempDir()).path) / 'hci.yaml'
        self.file.write_text(_SHIPPED.read_text())

    def change(self, before, after):
        text = self.file.read_text()
        self.assertIn(before, text)
        self.file.write_text(text.replace(before, after))

    def run_command(self, *words, status=0):
        result = command.run('hci', *words, str(self.file))
        self.assertEqual(status, result.status, result)
        return result

    def test_plan(self):
        out = self.run_command('plan').out
        self.assertIn('| hci-1 | 20 ', out)
        self.assertNotIn('source:', out)
        self.assertIn('source: TripleO', self.run_command('plan', '--explain').out)

    def test_documents(self):
        found = json.loads(self.run_command('plan', '-f', 'json').out)
        self.assertEqual(63900, found['hosts'][0]['reservation']['reserved_host_memory_mb'])
        self.assertEqual(8192 * 1024**2, found['hosts'][0]['osd_memory_target_bytes'])
        self.assertEqual(found, yaml.safe_load(self.run_command('plan', '-f', 'yaml').out))

    def test_options_replace_values_of_the_file(self):
        words = ('--osds-per-device', '4', '--vcpus-per-osd', '1.5', '--guests-per-host', '12')
        [host, *_] = json.loads(self.run_command('plan', *words, '-f', 'json').out)['hosts']
        self.assertEqual((16, 1.5, 12), (len(host['osds']), host['vcpus_per_osd'], host['guests']))

    def test_check(self):
        self.assertEqual('ok: 5 hosts meet every rule\n', self.run_command('check').out)
        self.change('nics:\n', 'nics: # bond1 carries nothing\n')
        self.change('networks: [cluster]', 'networks: [management]')
        out = self.run_command('check', status=1).out
        self.assertIn('warning: 0 errors, 5 warnings\n', out)
        self.assertIn('WARNING hosts.hci-1.nics (and 4 more like it): no cluster network', out)
        # A plan with warnings can be deployed.
        self.run_command('plan')

    def test_a_host_that_cannot_carry_the_load(self):
        out = self.run_command('check', '--guests-per-host', '27', status=2).out
        self.assertIn('ERROR hosts.hci-1 (and 4 more like it): 27 databases', out)
        self.assertIn('26 or less by NUMA nodes', out)
        found = json.loads(
            self.run_command('check', '--guests-per-host', '27', '-f', 'json', status=2).out
        )
        self.assertEqual('guests-fit', found['findings'][0]['rule'])
        self.assertIn(
            '27 databases', self.run_command('plan', '--guests-per-host', '27', status=2).out
        )

    def test_a_file_that_is_wrong(self):
        self.change('guest_memory: 8GiB', 'guest_memory: 8GB')
        for verb in ('plan', 'check'):
            result = self.run_command(verb, status=2)
            self.assertEqual('', result.out)
            self.assertIn('workload.guest_memory: 8GB is 7.5 GiB', result.err)

    def test_a_command_line_that_is_wrong(self):
        for option, value, expected in (
            ('--guests-per-host', '0', '0 is too small; the least is 1'),
            ('--guests-per-host', 'many', "must be a whole number of databases, not 'many'"),
            ('--osds-per-device', '2.5', 'must be a whole number of OSDs'),
            ('--vcpus-per-osd', '[', 'must be a number of CPUs (threads)'),
            ('--vcpus-per-osd', '9' * 5000, 'must be a number of CPUs (threads)'),
        ):
            result = self.run_command('plan', option, value, status=2)
            self.assertIn(expected, result.err)

    def test_help_teaches(self):
        text = command.run('hci', '--help').out
        self.assertIn('check, plan', text)
        self.assertIn('trove-ceph-manage hci plan /etc/trove-ceph/hci.yaml --explain', text)
        self.assertIn('exit status:', text)

    def test_the_page_for_operators_shows_real_output(self):
        shown = _PAGE.read_text().split(_PROMPT)[1:]
        self.assertEqual(4, len(shown))
        for part in shown:
            words, *lines = part.splitlines()
            block = itertools.takewhile(lambda line: not line or line.startswith('    '), lines)
            expected = [line.strip() for line in block if line.strip()]
            verb, path, *options = words.split()
            self.assertEqual('/etc/trove-ceph/hci.yaml', path)
            printed = command.run('hci', verb, str(self.file), *options).out
            self.assertTrue(expected)
            # A page may leave out lines, and shows those that it has in their order.
            rest = iter([line.strip() for line in printed.splitlines()])
            for line in expected:
                self.assertIn(line, rest, words)
