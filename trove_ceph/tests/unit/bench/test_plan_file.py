# SPDX-License-Identifier: Apache-2.0
import os
import re
import shlex
import textwrap
from pathlib import Path

import fixtures
import testtools
import yaml
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import dataset, plan, plan_file
from trove_ceph_bench.report import references

CHECKOUT = Path(__file__).resolve().parents[4]

PLAN = """\
name: tiny
description: Two servers
variants:
  - name: ours
    role: subject
    target:
      server:
        mysqld: {rootfs: auto}
        on: {local: /srv}
  - name: stock
    role: baseline
    target:
      instance: first-database
workloads: [read, write]
datasets: [cached, 1:4]
threads: [4, 16]
repeats: 2
warmup_sec: 1
measure_sec: 3
events:
  - {at_sec: 2, name: snapshot, command: 'rbd snap create ${BENCH_IMAGE}@a'}
"""

OPERATIONS = """\
name: dumps
operations:
  sizes_mib: [256, 64]
  repeats: 2
  contenders:
    - {name: ours, role: subject, operation: backup, target: {instance: a}, run: 'true'}
    - {name: stock, role: baseline, operation: backup, target: {instance: a}, run: 'echo ${HOME}'}
"""

#: Shipped plans take these from the environment and have no default for them.
REQUIRED = {
    'BENCH_IMAGE': 'volumes/volume-1',
    'BENCH_INSTANCE_IMAGE': 'volumes/volume-1',
    'BENCH_STOCK_INSTANCE': 'c',
    'BENCH_STOCK_IMAGE': 'volumes/volume-3',
    'BENCH_SAME_POOL_INSTANCE': 'b',
    'BENCH_SAME_POOL_IMAGE': 'volumes/volume-2',
}


def block_of(indented):
    return textwrap.dedent(f'    {indented}')


class PlanFileTestCase(base.BaseTestCase):
    def load(self, text, *settings, **environment):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'plan.yaml'
        path.write_text(text)
        return plan_file.load(str(path), environment, settings)

    def assert_refused(self, old, new, *parts, text=PLAN):
        """Assert that a changed plan is refused, with a one-line message that has these parts."""
        self.assertIn(old, text)
        error = self.assertRaises(exceptions.InvalidPlanError, self.load, text.replace(old, new, 1))
        self.assertNotIn('\n', str(error))
        for part in parts:
            self.assertIn(part, str(error))


class LoadTestCase(PlanFileTestCase):
    def test_values_and_defaults(self):
        loaded = self.load(PLAN)

        self.assertIsInstance(loaded, plan.LoadPlan)
        self.assertEqual(['ours', 'stock'], [each.name for each in loaded.variants])
        self.assertEqual('oltp_update_index', loaded.workloads[1].script)
        self.assertEqual(['cached', '1:4'], loaded.datasets)
        self.assertEqual('ours', loaded.reference)
        self.assertEqual((2, 1, 3), (loaded.repeats, loaded.warmup_sec, loaded.measure_sec))
        self.assertTrue(loaded.committer)
        self.assertIsNone(loaded.buffer_pool_mib)
        self.assertEqual(PLAN, loaded.text)

    def test_a_key_named_on_is_a_string(self):
        target = self.load(PLAN).variants[0].targets[0]
        self.assertEqual({'local': '/srv'}, target['server']['on'])

    def test_operations(self):
        loaded = self.load(OPERATIONS)

        self.assertIsInstance(loaded, plan.OperationsPlan)
        self.assertEqual(['ours', 'stock'], [each.name for each in loaded.contenders])
        self.assertEqual((10, 2), (loaded.settle_sec, loaded.repeats))

    def test_every_shipped_plan_is_valid(self):
        shipped = plan_file.shipped()
        expected = {'quick', 'tuning', 'tiers', 'threads', 'intel', 'seagate', 'hci-fleet'}
        self.assertEqual(set(), expected - set(shipped))
        for name, description in shipped.items():
            loaded = plan_file.load(name, REQUIRED)
            self.assertEqual(name, loaded.name)
            self.assertEqual(loaded.description, description)

    def test_references_of_shipped_plans_exist(self):
        known = {each['id'] for each in references.published()['ratios']}
        for name in plan_file.shipped():
            content = yaml.safe_load(plan_file.load(name, REQUIRED).text)
            used = {each.get('reference') for each in content.get('ratios', ())}
            self.assertEqual(set(), used - known - {None})

    def test_plans_in_the_documentation_are_valid(self):
        text = (CHECKOUT / 'doc' / 'source' / 'admin' / 'benchmark.rst').read_text()
        blocks = re.findall(r'\n    (name: .*?\n)\n(?=\S)', text, re.DOTALL)
        self.assertEqual(['flush', 'dumps'], [self.load(block_of(each)).name for each in blocks])

    def test_a_folder_does_not_hide_a_shipped_plan(self):
        folder = self.useFixture(fixtures.TempDir()).path
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        os.mkdir('tuning')
        self.assertEqual('tuning', plan_file.load('tuning', REQUIRED).name)

    def test_missing_plan(self):
        with testtools.ExpectedException(exceptions.InvalidPlanError, '.*nowhere.*quick.*tuning'):
            plan_file.load('nowhere', {})


class EnvironmentTestCase(PlanFileTestCase):
    """The variables on which the commands of a plan depend."""

    SET = REQUIRED | dict.fromkeys(
        ('BENCH_POOL', 'BENCH_QUIESCE', 'BENCH_ZONE', 'BENCH_DIRECTORY', 'BENCH_PASSWORD'), 'x'
    )

    def names(self, name):
        return plan_file.load(name, self.SET).environment.keys()

    def test_of_operations(self):
        # An attempt without a target takes the pool from outside, one with a target does not.
        self.assertEqual({'BENCH_POOL'}, self.names('storage-copy'))
        self.assertEqual(set(), self.names('backup-increment'))
        self.assertIsNone(plan_file.load('quick', self.SET).environment)
        self.assertEqual({'BENCH_ZONE'}, self.names('create-latency') - {'BENCH_STOCK_INSTANCE'})

    def test_of_loads(self):
        # That of the plan's own prepare.
        self.assertEqual({'BENCH_QUIESCE'}, self.names('backup-tps'))


class PaperTestCase(PlanFileTestCase):
    """The plans of the reference documents have the figures of these."""

    def plan(self, name, *settings):
        return plan_file.load(name, REQUIRED, settings)

    def phases(self, loaded):
        return loaded.warmup_sec, loaded.measure_sec

    def test_intel(self):
        loaded = self.plan('intel')
        self.assertEqual((['14000000 rows'], 30), (loaded.datasets, loaded.tables))
        self.assertEqual((300, 300), self.phases(loaded))
        self.assertEqual({8}, {cell.threads for cell in loaded.cells()})
        self.assertEqual((20, 20), (max(loaded.instances), len(loaded.variants[0].targets)))
        server = loaded.variants[0].targets[0]['server']
        self.assertEqual(21 * units.Gi, server['options']['innodb_buffer_pool_size'])
        self.assertEqual(150, server['on']['rbd']['size_gib'])

    def test_seagate(self):
        loaded = self.plan('seagate')
        self.assertEqual((['45000000 rows'], 1), (loaded.datasets, loaded.tables))
        self.assertEqual(300, loaded.measure_sec)
        self.assertEqual({100}, {cell.threads for cell in loaded.cells()})
        for variant in loaded.variants:
            options = variant.targets[0]['server']['options']
            self.assertEqual(6 * units.Gi, options['innodb_buffer_pool_size'])
            self.assertEqual(6 * 4 * units.Gi, options['innodb_redo_log_capacity'])

    def test_block_sizes(self):
        loaded = self.plan('block-sizes')
        wanted = {
            f'{pattern}-{size}k-qd{depth}'
            for pattern in ('randread', 'randwrite')
            for size in (4, 8, 16)
            for depth in (1, 16, 64)
        }
        self.assertEqual(wanted, set(loaded.fio))
        self.assertEqual(len(wanted), len(loaded.fio))

    def test_hci_fleet(self):
        loaded = self.plan('hci-fleet')
        (fleet,) = loaded.variants
        self.assertEqual(10, len(fleet.targets))
        self.assertEqual(list(range(1, 11)), [each['number'] for each in fleet.targets])
        for each in fleet.targets:
            self.assertEqual({'ram_mib': 8192, 'vcpus': 4}, each['create']['flavor'])
            self.assertEqual(100, each['create']['volume_gib'])
        self.assertEqual(['write', 'read', 'mixed-70-30'], [each.name for each in loaded.workloads])
        self.assertEqual(75 * units.Gi, dataset.size_bytes(loaded.datasets[0], loaded.tables))

    def test_hci_split(self):
        loaded = self.plan('hci-split')
        decoupled, divided = loaded.variants
        self.assertEqual(decoupled.targets, divided.targets)
        self.assertEqual(len(divided.targets), loaded.instances[-1])
        # The published reads diverge after six instances: numbers up to there, and one beyond.
        self.assertEqual([1, 2, 3, 4, 6], loaded.instances[:-1])
        self.assertGreater(loaded.instances[-1], 6)
        self.assertEqual(
            ['lift', 'apply', 'apply'],
            [each.split()[-1] for each in (decoupled.prepare, divided.prepare, loaded.cleanup)],
        )
        order = [cell.variant.name for cell in loaded.cells()]
        self.assertEqual(['decoupled', 'hci'] * (len(order) // 2), order)
        # Repeats are outermost, so that a drift of the machine meets all numbers of instances.
        self.assertEqual(
            sorted(cell.iteration for cell in loaded.cells()),
            [cell.iteration for cell in loaded.cells()],
        )

    def test_fill(self):
        loaded = self.plan('fill')
        self.assertEqual([14, 70, 87], loaded.fill_percent)
        self.assertEqual(['write'], [each.name for each in loaded.workloads])
        self.assertEqual(['1:5'], loaded.datasets)

    def settings_in_comment(self, name):
        text = (Path(plan_file.__file__).parent / 'plans' / f'{name}.yaml').read_text()
        comment = ' '.join(re.findall(r'^#   (--.*)$', text, re.MULTILINE))
        arguments = shlex.split(comment)
        self.assertEqual({'--set'}, set(arguments[::2]))
        return arguments[1::2]

    def test_hci_split_of_three_as_its_comment_says(self):
        loaded = self.plan('hci-split', *self.settings_in_comment('hci-split'))
        self.assertEqual([3, 3], [len(each.targets) for each in loaded.variants])
        self.assertEqual([1, 2, 3], loaded.instances)

    def test_the_fleet_of_a_small_cloud_as_its_comment_says(self):
        loaded = self.plan('hci-fleet', *self.settings_in_comment('hci-fleet'))
        self.assertEqual(['1:15'], loaded.datasets)
        self.assertEqual(2, len(loaded.variants[0].targets))
        self.assertEqual({'name': 'db.small'}, loaded.variants[0].targets[0]['create']['flavor'])


class ScaleTestCase(PlanFileTestCase):
    def test_reduces_the_memory_and_the_redo_log_of_servers(self):
        loaded = plan_file.load('seagate', REQUIRED, ['scale=0.1'])
        options = loaded.variants[0].targets[0]['server']['options']
        self.assertEqual(6 * units.Gi // 10, options['innodb_buffer_pool_size'])
        self.assertEqual(24 * units.Gi // 10, options['innodb_redo_log_capacity'])
        self.assertEqual(200, options['max_connections'])

    def test_keeps_least_values(self):
        loaded = plan_file.load('seagate', REQUIRED, ['scale=0.0001'])
        options = loaded.variants[0].targets[0]['server']['options']
        self.assertEqual(16 * units.Mi, options['innodb_buffer_pool_size'])
        self.assertEqual(64 * units.Mi, options['innodb_redo_log_capacity'])

    def test_is_stored_with_the_plan(self):
        loaded = self.load(PLAN, 'scale=0.01')
        self.assertEqual(0.01, loaded.scale)
        self.assertEqual(0.01, yaml.safe_load(loaded.text)['scale'])

    def test_out_of_range(self):
        for scale in ('0', '-1', '2', 'small'):
            self.assert_refused('repeats: 2', f'repeats: 2\nscale: {scale}', 'line 18', 'scale')


class RoomTestCase(PlanFileTestCase):
    text = PLAN.replace('{local: /srv}', '{rbd: {pool: p, size_gib: 10}}')

    def test_data_that_do_not_fit_the_volume(self):
        self.assert_refused(
            '1:4', '10GiB', 'datasets[1]', '10.0 GiB', 'volumes of ours', '10 GiB', text=self.text
        )

    def test_rows_count_in_every_table(self):
        self.assert_refused('1:4', '20000000 rows', 'datasets[1]', '18.2 GiB', text=self.text)
        self.load(self.text.replace('1:4', '20000000 rows'), 'tables=1')

    def test_reduced_data_fit(self):
        self.assertEqual(0.1, self.load(self.text.replace('1:4', '10GiB'), 'scale=0.1').scale)


class MessageTestCase(PlanFileTestCase):
    def test_unknown_workload(self):
        self.assert_refused('write]', 'writ]', 'line 14', 'workloads[1]', 'write?', 'seagate')

    def test_misspelt_key(self):
        self.assert_refused('threads:', 'treads:', 'line 16', 'treads', 'did you mean threads?')

    def test_missing_key(self):
        self.assert_refused('description: Two servers\n', '', 'lacks description')

    def test_no_threads(self):
        self.assert_refused('[4, 16]', '[0]', 'line 16', 'threads[0]', '0 is too small', '1')

    def test_wrong_role(self):
        self.assert_refused('baseline', 'base', 'variants[1].role', 'subject, baseline, control')

    def test_wrong_type(self):
        self.assert_refused('repeats: 2', 'repeats: two', 'line 17', 'whole number', "'two'")

    def test_wrong_kind_of_target(self):
        self.assert_refused(
            'instance: first', 'instanse: first', 'variants[1].target', 'instance, dsn, server'
        )

    def test_wrong_key_deep_in_a_target(self):
        self.assert_refused('local: /srv', 'locl: /srv', 'line 9', 'target.server.on', 'local?')

    def test_unknown_dataset(self):
        self.assert_refused('1:4', '4:1', 'datasets[1]', 'the ratio', "'4:1'")

    def test_key_given_twice(self):
        self.assert_refused('repeats: 2', 'name: x\nrepeats: 2', 'name', 'twice')

    def test_same_name_twice(self):
        self.assert_refused('name: stock', 'name: ours', 'variants[1]', "'ours' is used twice")

    def test_target_and_targets(self):
        self.assert_refused(
            '      instance: first-database',
            '      instance: a\n    targets: [{instance: b}]',
            *('variants[1]', 'target', 'several instances'),
        )

    def test_count_of_targets_that_the_plan_does_not_make(self):
        self.assert_refused(
            '      instance: first-database',
            '      instance: first-database\n    count: 2',
            *('variants[1].count', 'server or create'),
        )

    def test_more_instances_than_targets(self):
        self.assert_refused('repeats: 2', 'instances: [3]', 'instances[0]', '3 is more', '(1)')

    def test_unknown_reference(self):
        self.assert_refused('repeats: 2', 'reference: theirs', 'reference', 'ours, stock')

    def test_ratio_of_an_unknown_variant(self):
        self.assert_refused(
            'repeats: 2', 'ratios: [{name: a, of: ours, to: x}]', 'ratios[0].to', 'ours, stock'
        )

    def test_fill_of_a_pool(self):
        for percent in (0, 100):
            self.assert_refused(
                'repeats: 2', f'fill_percent: [{percent}]', 'fill_percent[0]', f'{percent} is too'
            )

    def test_event_after_the_end(self):
        self.assert_refused('at_sec: 2', 'at_sec: 3', 'events[0].at_sec', 'lasts 3 s')

    def test_event_of_an_unknown_variant(self):
        self.assert_refused(
            'at_sec: 2', 'variants: [theirs], at_sec: 2', 'events[0].variants[0]', 'ours, stock'
        )

    def test_invalid_yaml(self):
        self.assert_refused('name: tiny', ': [', 'invalid YAML', 'line 1')

    def test_not_a_plan(self):
        self.assert_refused(PLAN, 'hello', 'not a plan')

    def test_two_contenders_with_one_name(self):
        self.assert_refused(
            'name: stock', 'name: ours', 'contenders[1]', 'used twice', text=OPERATIONS
        )

    def test_contender_without_target(self):
        target = ', target: {instance: a}'
        self.assert_refused(target, '', 'contenders[0]', "needs a 'target'", text=OPERATIONS)
        text = OPERATIONS.replace('repeats: 2', 'committer: false').replace(target, '')
        self.assertEqual({None}, {each.target for each in self.load(text).contenders})

    def test_contender_without_command(self):
        self.assert_refused(", run: 'true'", '', 'contenders[0]', 'lacks run', text=OPERATIONS)


class VariableTestCase(PlanFileTestCase):
    text = PLAN.replace('instance: first-database', 'instance: ${BENCH_INSTANCE:-first}')

    def instance(self, text, **environment):
        return self.load(text, **environment).variants[1].targets[0]['instance']

    def test_value_default_and_empty_value(self):
        self.assertEqual('first', self.instance(self.text))
        self.assertEqual('shop', self.instance(self.text, BENCH_INSTANCE='shop'))
        self.assertEqual('first', self.instance(self.text, BENCH_INSTANCE=''))

    def test_missing_value(self):
        self.assert_refused(
            'first-database', '${SHOP}', 'line 13', 'variants[1].target.instance', 'SHOP'
        )

    def test_variables_in_commands_are_left_to_the_shell(self):
        loaded = self.load(PLAN, BENCH_IMAGE='b')
        self.assertEqual('rbd snap create ${BENCH_IMAGE}@a', loaded.events[0].command)
        contender = self.load(OPERATIONS).contenders[1]
        self.assertEqual('echo ${HOME}', contender.run)


class SettingTestCase(PlanFileTestCase):
    def test_replaces_values_and_stores_them_with_the_plan(self):
        loaded = self.load(PLAN, 'repeats=1', 'threads=[8]', 'variants.1.name=theirs')

        self.assertEqual((1, [8]), (loaded.repeats, loaded.threads))
        self.assertEqual('theirs', loaded.variants[1].name)
        stored = yaml.safe_load(loaded.text)
        self.assertEqual((1, [8]), (stored['repeats'], stored['threads']))
        self.assertIn('repeats=1', loaded.text.splitlines()[0])

    def test_invalid_settings(self):
        for setting in ('repeats', 'a.b=1', 'variants.7.name=x', 'repeats=[', 'repeats=0'):
            error = self.assertRaises(exceptions.InvalidPlanError, self.load, PLAN, setting)
            self.assertIn('repeats' if 'repeats' in setting else setting, str(error))
