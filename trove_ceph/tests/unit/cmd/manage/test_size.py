# SPDX-License-Identifier: Apache-2.0
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import fixtures
import testtools
import yaml
from oslotest import base

from trove_ceph.tests.unit.cmd.manage import command, test_shell
from trove_ceph.tests.unit.sizing import sample

ADMIN = Path(__file__).parents[5] / 'doc' / 'source' / 'admin'
ALONE = ('--instances', '100', '--size', '100GiB', '--iops-per-gib', '3', '--growth', '0')
NVME = ('--device-class', 'nvme', '--device-size', '3.84TB')
needs_crushtool = testtools.skipUnless(
    shutil.which('crushtool'), 'needs crushtool, which is in ceph-base'
)


class SizeTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.fleet, self.svg = self.folder / 'fleet.yaml', self.folder / 'cluster.svg'
        self.write()

    def write(self, changes=()):
        self.fleet.write_text(yaml.safe_dump(sample.changed(changes)))

    def run_command(self, *words, status=0):
        result = command.run('size', *words)
        self.assertEqual(status, result.status, result)
        return result

    def of_file(self, *words, status=0):
        return self.run_command('--fleet', str(self.fleet), *words, status=status)


class OutputTest(SizeTestCase):
    def test_text(self):
        out = self.of_file().out
        self.assertIn('Cluster: 10 servers with 1 nvme of 3.84 TB each, 2 copies', out)
        self.assertRegex(out, r'nodes +10 +one server is at most 10% of the cluster\n')
        self.assertRegex(out, r'\| AWS EBS io2 .*USD 3,200 .*\n\| us-east-1, 2026-01 ')
        self.assertLessEqual(max(map(len, out.splitlines())), 100)
        self.assertIn('the hardware may cost USD 38,400 over 3 years, 3,840 for a server', out)
        self.assertNotIn('CRUSH', out)

    def test_explain_shows_all_rules_and_sources(self):
        out = self.of_file('--explain').out
        self.assertIn('one server is at most 10% of the cluster [QCT 2015, Table 1]', out)
        self.assertIn('not 3: 3 OSD servers are the least', out)

    def test_document(self):
        found = json.loads(self.of_file('-f', 'json').out)
        self.assertEqual(
            (10, '2 copies'), (found['cluster']['nodes'], found['cluster']['redundancy'])
        )
        self.assertEqual([], found['problems'])
        self.assertEqual(
            ['AWS', 'AWS', 'Google', 'Azure'],
            [one['cloud']['provider'] for one in found['costs']['clouds']],
        )
        self.assertEqual((None, None), (found['failure'], found['crush']))
        self.assertEqual(found, yaml.safe_load(self.of_file('-f', 'yaml').out))

    def test_options_alone(self):
        alone = json.loads(self.run_command(*ALONE, *NVME, '-f', 'json').out)
        self.assertEqual(json.loads(self.of_file('-f', 'json').out)['cluster'], alone['cluster'])

    def test_options_replace_values(self):
        out = self.of_file('--copies', '3', '--instances', '300').out
        self.assertIn('Fleet: 300 databases', out)
        self.assertIn('3 copies', out)
        words = ('--optimised-for', 'capacity', '--erasure', '8+3', '--device-class', 'hdd')
        out = self.of_file(*words, '--device-iops', '1000', '--iops', '1').out
        self.assertIn('12 servers', out)

    def test_broken_rules(self):
        result = self.of_file('--nodes', '5', status=1)
        self.assertIn('problem: nodes: 5 is less than 10 (one server', result.out)


class PictureTest(SizeTestCase):
    SPACE = '{http://www.w3.org/2000/svg}'

    def texts(self, *words, status=0):
        self.of_file('--svg', str(self.svg), *words, status=status)
        root = ElementTree.fromstring(self.svg.read_text())
        self.assertEqual('0 0 1280 760', root.get('viewBox'))
        return [text.text for text in root.iter(f'{self.SPACE}text')]

    def test_limits(self):
        texts = self.texts()
        self.assertIn('10 servers with 1 nvme of 3.84 TB, 2 copies: 19.2 TB usable', texts)
        for expected in ('fill: 55.9% of 70.0%', 'devices of a server: 1 of 2', '55.9%', '62.1%'):
            self.assertIn(expected, texts)
        self.assertEqual(set(), {str(node) for node in range(10)} - set(texts))

    @needs_crushtool
    def test_the_rest_of_a_rack(self):
        racks = {'cluster/copies': 3, 'cluster/failure_domain': 'rack', 'cluster/nodes_per_rack': 4}
        self.write(racks | {'cluster/nodes': 12})
        out = self.of_file('--fail', 'host', status=1).out
        self.assertRegex(out, r'computed: 38.1% full, the rest of a rack 46.6%, recovered after ')
        self.assertNotIn('keep the balancer on', out)
        texts = self.texts('--fail', 'host', status=1)
        self.assertIn('Hosts without 1 lost (red): 38.1% full', texts)
        self.assertIn('rest of the rack', texts)
        self.assertIn('46.6%', texts)

    @needs_crushtool
    def test_lost_racks(self):
        self.write({'cluster/nodes_per_rack': 5, 'cluster/nodes': 20})
        texts = self.texts('--fail', 'rack', status=1)
        self.assertIn('Hosts without 5 lost (red): 37.3% full', texts)
        self.assertIn('rack 3', texts)
        self.assertTrue([text for text in texts if text.startswith('37.3%, fullest OSD ')])

    def test_matplotlib_is_missing(self):
        words = ('size', '--fleet', str(self.fleet), '--svg', str(self.svg), 'matplotlib')
        done = test_shell.python(test_shell.WITHOUT_EXTRA, *words)
        self.assertEqual((3, ''), (done.returncode, done.stdout))
        self.assertIn('the Python package matplotlib: install trove-ceph[sizing]', done.stderr)
        self.assertFalse(self.svg.exists())

    def test_file_cannot_be_written(self):
        result = self.of_file('--svg', str(self.folder / 'none' / 'a.svg'), status=3)
        self.assertIn('a.svg: cannot be written', result.err)


class FailureTest(SizeTestCase):
    @needs_crushtool
    def test_a_lost_host(self):
        found = json.loads(self.of_file('--fail', 'host', '-f', 'json').out)
        self.assertEqual([0], found['failure']['lost_nodes'])
        self.assertTrue(found['failure']['is_placeable'])
        self.assertFalse(found['failure']['may_lose_data'])
        self.assertEqual(0, found['crush']['after']['incomplete'])
        self.assertGreater(found['crush']['after']['highest_fill'], found['failure']['fill'])

    @needs_crushtool
    def test_several_at_once(self):
        result = self.of_file('--fail', 'host', '--fail', 'host', status=1)
        self.assertIn('Lost: host and host (2 of 10 hosts)', result.out)
        self.assertIn('placement groups lose all that could recover them', result.out)

    @needs_crushtool
    def test_crush_without_a_failure(self):
        out = self.of_file('--crush').out
        self.assertIn('CRUSH, all hosts: 512 placement groups, all complete; mean fill 55.9%', out)

    def test_crushtool_is_missing(self):
        self.useFixture(fixtures.EnvironmentVariable('PATH', '/nonexistent'))
        result = self.of_file('--fail', 'host', '--svg', str(self.svg), status=3)
        self.assertIn('crushtool is not installed', result.err)
        self.assertFalse(self.svg.exists())


class DocumentsTest(SizeTestCase):
    @needs_crushtool
    def test_the_example_is_what_the_command_prints(self):
        prompt, _, printed = (ADMIN / 'sizing-example.txt').read_text().partition('\n')
        words = prompt.removeprefix('$ trove-ceph-manage size --fleet fleet.yaml ').split()
        fleet = ADMIN.parents[2] / 'etc' / 'trove-ceph' / 'fleet.yaml'
        self.assertEqual(printed, self.run_command('--fleet', str(fleet), *words).out)


class BadInputTest(SizeTestCase):
    def test_nothing_is_written(self):
        for words, expected in (
            ((), 'there is no fleet: name a file with --fleet'),
            (('--fleet', '/nonexistent/fleet.yaml'), 'cannot be read'),
            (ALONE, 'the options: lacks cluster'),
            (
                (*ALONE, '--device-class', 'hdd', '--device-size', '8TB'),
                '--device-class: hdd cannot',
            ),
            ((*ALONE, *NVME, '--nodes', '1'), '--nodes: 1 servers are 1 hosts, fewer than the 2'),
            ((*ALONE, *NVME, '--size', '100'), '--size: must be a size with its unit'),
            ((*ALONE, *NVME, '--size', '-1GiB'), '--size: must be a size with its unit'),
            ((*ALONE, *NVME, '--instances', '-1'), '--instances: -1 is too small'),
            ((*ALONE, *NVME, '--instances', '1' * 40), '--instances: 1111'),
            ((*ALONE, *NVME, '--instances', '{'), '--instances {: is not a value'),
            ((*ALONE, *NVME, '--erasure', '4'), '--erasure 4: must be K+M'),
            ((*ALONE, *NVME, '--fail', 'osd'), '--fail osd: must be host or rack'),
            ((*ALONE, *NVME, '--fail', 'host:10'), '--fail: nothing is left of 10 hosts'),
            ((*ALONE, *NVME, '--fail', 'rack'), '--fail rack: the cluster has no racks'),
            ((*ALONE, *NVME, '--prices', '/nonexistent'), '/nonexistent: cannot be read'),
        ):
            result = self.run_command(*_joined(words), '--svg', str(self.svg), status=2)
            self.assertIn(expected, result.err)
            self.assertEqual('', result.out)
            self.assertFalse(self.svg.exists())

    def test_a_half_filled_price_table(self):
        prices = self.folder / 'prices.yaml'
        prices.write_text('prices:\n  - provider: Cloud\n    product: fast\n')
        result = self.of_file('--prices', str(prices), '--svg', str(self.svg), status=2)
        self.assertIn('prices.yaml, line 2: prices[0]: lacks region, date, source', result.err)
        self.assertFalse(self.svg.exists())


def _joined(words):
    """Return options with their values as one word each, so that a value may begin with a dash."""
    return [f'{name}={value}' for name, value in zip(words[::2], words[1::2], strict=True)]
