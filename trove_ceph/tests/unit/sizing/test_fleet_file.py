# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph import exceptions, schema_problems
from trove_ceph.sizing import fleet_file, plan, schema
from trove_ceph.tests.unit.sizing import sample
from trove_ceph.yaml_file import Problem

SHIPPED = Path(__file__).parents[4] / 'etc' / 'trove-ceph' / 'fleet.yaml'
HDD = {'class': 'hdd', 'size': '8TB'}


class ValuesTest(base.BaseTestCase):
    """What a file describes."""

    def test_iops_of_each_database(self):
        self.assertEqual(300, sample.request().fleet.databases[0].iops)
        changes = {'databases/0/iops_per_gib': None, 'databases/0/iops': 500}
        self.assertEqual(500, sample.request(changes).fleet.databases[0].iops)

    def test_growth_is_compound(self):
        fleet = sample.request({'growth_percent': 30, 'years': 2}).fleet
        self.assertAlmostEqual(1.69, fleet.growth)
        self.assertAlmostEqual(1.69 * 100 * 100 * 1024**3, fleet.data_bytes)
        self.assertAlmostEqual(1.69 * 100 * 300, fleet.iops)

    def test_groups_add_up(self):
        group = {'instances': 2, 'size': '1GiB', 'iops': 7}
        fleet = sample.request({'databases': [group, group | {'iops': 1}]}).fleet
        self.assertEqual((4, 4 * 1024**3, 16), (fleet.instances, fleet.data_bytes, fleet.iops))

    def test_min_size_is_that_of_ceph(self):
        for changes, expected in (
            ({'copies': 2}, 1),
            ({'copies': 3}, 2),
            ({'erasure': {'k': 4, 'm': 2}, 'optimised_for': 'capacity'}, 5),
            ({'erasure': {'k': 4, 'm': 1}, 'optimised_for': 'capacity'}, 4),
        ):
            cluster = {'device': {'class': 'nvme', 'size': '4TB'}, **changes}
            found = sample.request({'cluster': cluster}).design.redundancy
            self.assertEqual(expected, found.min_size, changes)

    def test_shipped_file_is_an_example_of_each_key(self):
        request = fleet_file.load(str(SHIPPED), {})
        self.assertEqual((), plan.make(request).violations)
        text = SHIPPED.read_text()
        for key in _keys(schema.FLEET_FILE):
            self.assertRegex(text, rf'\b{key}:', key)


def _keys(part):
    for key, value in part.get('properties', {}).items():
        yield key
        yield from _keys(value)
    yield from _keys(part['items']) if 'items' in part else ()


class BadInputTest(base.BaseTestCase):
    """An error names the field and its form."""

    def check(self, changes, field, expected):
        problem = self.assertRaises(Problem, sample.request, changes)
        self.assertEqual(field, schema_problems.path_text(problem.path), changes)
        self.assertIn(expected, str(problem))

    def test_missing_values(self):
        self.check({'databases': None}, '', 'lacks databases')
        self.check({'databases': []}, 'databases', 'must not be empty')
        self.check({'databases/0/size': None}, 'databases[0]', 'lacks size')
        self.check({'cluster/device': None}, 'cluster', 'lacks device')
        self.check({'cluster/device/class': None}, 'cluster.device', 'lacks class')
        self.check({'databases/0/iops_per_gib': None}, 'databases[0]', 'lacks iops or iops_per_gib')
        hardware = {'currency': 'USD', 'node': 9000, 'device': 700, 'years': 5, 'watts': 400}
        self.check({'hardware': hardware}, 'hardware', 'lacks price_per_kwh')

    def test_numbers_without_units(self):
        for value in (100, '100', '100G', '100gb', 100.0, '1e3GB'):
            self.check({'databases/0/size': value}, 'databases[0].size', 'a size with its unit')
        self.check({'cluster/device/size': 800}, 'cluster.device.size', 'a size with its unit')
        self.check(
            {'cluster/device/throughput': 150}, 'cluster.device.throughput', 'with their unit'
        )
        self.check({'io_size': 16384}, 'io_size', 'a size with its unit')

    def test_absurd_numbers(self):
        for path, value, expected in (
            ('databases/0/instances', -1, 'the least is 1'),
            ('databases/0/instances', 0, 'the least is 1'),
            ('databases/0/instances', 10**30, 'the most is 1000000'),
            ('databases/0/instances', 1.5, 'a whole number'),
            ('databases/0/instances', True, 'a whole number'),
            ('databases/0/iops_per_gib', -3, 'above 0'),
            ('databases/0/size', '-5GiB', 'a size with its unit'),
            ('databases/0/size', '100KiB', 'from 1GiB to 64TiB; check its unit'),
            ('databases/0/size', '9000PiB', 'from 1GiB to 64TiB; check its unit'),
            ('cluster/device/size', '3.84GB', 'from 100GB to 200TB; check its unit'),
            ('cluster/device/throughput', '150KB', 'from 10MB to 100GB; check its unit'),
            ('growth_percent', -5, 'the least is 0'),
            ('growth_percent', 0.2, '0.2 is less than 1%; write 20 for 20%'),
            ('growth_percent', '20%', 'such as 20, not'),
            ('years', 1000, 'the most is 20'),
            ('write_share', 30, 'the most is 1'),
            ('write_share', '50%', 'must be a share of operations, from 0 to 1'),
            ('cluster/copies', 1, 'the least is 2'),
            ('cluster/fill_percent', 100, 'the most is 95'),
        ):
            field = path.replace('/0', '[0]').replace('/', '.')
            self.check({path: value}, field, expected)

    def test_contradictions(self):
        self.check({'cluster/device': HDD}, 'cluster.device.class', 'cannot carry an IOPS')
        self.check({'cluster/erasure': {'k': 4, 'm': 2}}, 'cluster.erasure', 'not for volumes')
        both = {'cluster/erasure': {'k': 4, 'm': 2}, 'cluster/copies': 3}
        self.check(both, 'cluster.erasure', 'copies or erasure, not both')
        self.check({'databases/0/iops': 5}, 'databases[0].iops', 'iops or iops_per_gib, not both')
        ssd = {'class': 'ssd', 'size': '2TB'}
        self.check({'cluster/device': ssd}, 'cluster.device', 'lacks iops')
        self.check({'cluster/device/db': 'ssd'}, 'cluster.device.db', 'not faster')
        self.check({'cluster/monitors': 4}, 'cluster.monitors', '4 must be odd')
        rack = {'cluster/failure_domain': 'rack'}
        self.check(rack, 'cluster', 'lacks nodes_per_rack')
        rack['cluster/nodes_per_rack'] = 4
        self.check(rack | {'cluster/nodes': 10}, 'cluster.nodes', 'a multiple of the 4 servers')
        self.check(rack | {'cluster/nodes': 4}, 'cluster.nodes', 'are 1 racks, fewer than the 2')
        few = {'cluster/nodes': 2, 'cluster/copies': 3}
        self.check(few, 'cluster.nodes', '2 servers are 2 hosts, fewer than the 3')
        disks = {'cluster': {'device': HDD, 'optimised_for': 'throughput'}}
        disks['databases/0/iops_per_gib'] = None
        hardware = {'currency': 'USD', 'node': 9, 'device': 7, 'years': 5, 'watts': 4}
        disks['hardware'] = hardware | {'price_per_kwh': 0.2}
        self.check(disks, 'hardware', 'lacks db_device')


class OptionsTest(base.BaseTestCase):
    """Options replace values of the file."""

    SIZE = ('databases', 0, 'size')

    def setUp(self):
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).join('fleet.yaml')
        self.write()

    def write(self, changes=()):
        Path(self.path).write_text(yaml.safe_dump(sample.changed(changes)))

    def fail_to_load(self, path, options):
        error = self.assertRaises(exceptions.InvalidFleetError, fleet_file.load, path, options)
        return str(error)

    def test_values(self):
        found = fleet_file.load(self.path, {self.SIZE: ('--size', '200GiB')})
        self.assertEqual(200 * 1024**3, found.fleet.databases[0].size_bytes)
        found = fleet_file.load(self.path, {('databases', 0, 'iops'): ('--iops', 50)})
        self.assertEqual(50, found.fleet.databases[0].iops)
        options = {('cluster', 'recovery', 'hours'): ('--recovery-hours', 2)}
        self.assertEqual(2, fleet_file.load(self.path, options).design.recovery.hours)
        self.write({'cluster/copies': 3})
        options = {
            ('cluster', 'erasure'): ('--erasure', {'k': 2, 'm': 2}),
            ('cluster', 'optimised_for'): ('--optimised-for', 'capacity'),
        }
        self.assertEqual('EC 2+2', str(fleet_file.load(self.path, options).design.redundancy))

    def test_options_alone(self):
        options = {
            ('databases', 0, 'instances'): ('--instances', 5),
            self.SIZE: ('--size', '10GiB'),
            ('databases', 0, 'iops'): ('--iops', 100),
            ('cluster', 'device', 'class'): ('--device-class', 'nvme'),
        }
        error = self.fail_to_load(None, options)
        self.assertIn('cluster.device: lacks size', error)
        self.assertIn('give at least --instances, --size, --iops or --iops-per-gib, --dev', error)
        options['cluster', 'device', 'size'] = ('--device-size', '2TB')
        self.assertEqual(5, fleet_file.load(None, options).fleet.instances)

    def test_errors_name_the_option_or_the_line(self):
        error = self.fail_to_load(self.path, {self.SIZE: ('--size', 200)})
        self.assertIn('--size: must be a size with its unit', error)
        self.assertIn('name a file with --fleet', self.fail_to_load(None, {}))
        self.write({'years': -1})
        error = self.fail_to_load(self.path, {self.SIZE: ('--size', '2GiB')})
        self.assertRegex(error, r'fleet.yaml, line \d+: years: -1 is too small')
        self.write()
        error = self.fail_to_load(self.path, {('cluster', 'nodes'): ('--nodes', 1)})
        self.assertIn('--nodes: 1 servers are 1 hosts, fewer', error)
        options = {('cluster', 'erasure'): ('--erasure', {'k': 8, 'm': 0})}
        error = self.fail_to_load(self.path, options)
        self.assertEqual('--erasure: m: 0 is too small; the least is 1', error)

    def test_several_groups_are_changed_in_the_file(self):
        group = sample.CONTENT['databases'][0]
        self.write({'databases': [group, group]})
        error = self.fail_to_load(self.path, {self.SIZE: ('--size', '2GiB')})
        self.assertIn('--size: the file has 2 groups', error)
