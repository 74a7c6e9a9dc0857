# SPDX-License-Identifier: Apache-2.0
import json

from oslotest import base

from trove_ceph_bench import model, plan, workloads

OURS = plan.Variant('ours', 'subject', ({'instance': 'a1'}, {'instance': 'a2'}))
STOCK = plan.Variant('stock', 'baseline', ({'instance': 'b1'},))
DATA = model.Dataset('cached', 4, 1000)


def load_plan(**more):
    defaults = {
        'name': 'tiny',
        'description': 'Two servers',
        'variants': [OURS, STOCK],
        'workloads': [workloads.get('read'), workloads.get('write')],
        'datasets': ['cached', '1:4'],
        'reference': 'ours',
        'text': '',
        'threads': [4, 16],
        'repeats': 2,
        'warmup_sec': 1,
        'measure_sec': 3,
    }
    return plan.LoadPlan(**defaults | more)


def operations_plan(**more):
    contenders = [
        plan.Contender(name, 'subject', 'backup', 'true', {'instance': 'a'})
        for name in ('ours', 'stock')
    ]
    defaults = {
        'name': 'dumps',
        'description': '',
        'sizes_mib': [256, 64],
        'contenders': contenders,
        'text': '',
        'repeats': 2,
    }
    return plan.OperationsPlan(**defaults | more)


class EnvironmentTestCase(base.BaseTestCase):
    def test_is_a_part_of_the_configuration_if_there_is_one(self):
        for make in (self.of_load, self.of_operation):
            self.assertNotIn('environment', make())
            found = make(environment={'BENCH_POOL': 'fast'})
            self.assertEqual({'BENCH_POOL': 'fast'}, found['environment'])

    @staticmethod
    def of_load(**more):
        loads = load_plan(**more)
        return loads.configuration(next(loads.cells()), DATA)

    @staticmethod
    def of_operation(**more):
        operations = operations_plan(**more)
        return operations.configuration(next(operations.attempts()))


class LoadPlanTestCase(base.BaseTestCase):
    def test_order(self):
        cells = list(load_plan().cells())

        self.assertEqual(2 * 2 * 2 * 2 * 2, len(cells))
        # Variants alternate innermost, then threads, workloads, repeats; data changes least often.
        self.assertEqual(
            [
                ('cached', 0, 'read', 4, 'ours'),
                ('cached', 0, 'read', 4, 'stock'),
                ('cached', 0, 'read', 16, 'ours'),
                ('cached', 0, 'read', 16, 'stock'),
                ('cached', 0, 'write', 4, 'ours'),
            ],
            [self.key(cell) for cell in cells[:5]],
        )
        self.assertEqual(('cached', 1, 'read', 4, 'ours'), self.key(cells[8]))
        self.assertEqual(('1:4', 0, 'read', 4, 'ours'), self.key(cells[16]))

    @staticmethod
    def key(cell):
        return cell.dataset, cell.iteration, cell.workload.name, cell.threads, cell.variant.name

    def test_the_pool_fills_up_before_repeats(self):
        cells = list(load_plan(fill_percent=[14, 70]).cells())
        self.assertEqual(2 * 32, len(cells))
        self.assertEqual([14] * 16 + [70] * 16, [cell.fill_percent for cell in cells[:32]])
        self.assertEqual([0] * 8 + [1] * 8, [cell.iteration for cell in cells[:16]])

    def test_some_variants_only(self):
        self.assertEqual({'stock'}, {each.variant.name for each in load_plan().cells(['stock'])})

    def test_skips_a_variant_with_too_few_targets(self):
        cells = list(load_plan(instances=[1, 2]).cells())

        self.assertEqual(
            {('ours', 1), ('ours', 2), ('stock', 1)},
            {(each.variant.name, each.instances) for each in cells},
        )

    def test_threads_of_the_workload(self):
        loads = load_plan(threads=(), workloads=[workloads.get('write'), workloads.get('seagate')])
        self.assertEqual(
            {('write', plan.DEFAULT_THREADS), ('seagate', 100)},
            {(each.workload.name, each.threads) for each in loads.cells()},
        )

    def test_configuration(self):
        loads = load_plan(instances=[2], events=[model.Event(1, 'snapshot', 'true')])
        configuration = loads.configuration(next(loads.cells()), DATA)

        self.assertEqual(configuration, json.loads(json.dumps(configuration)))
        self.assertEqual([{'instance': 'a1'}, {'instance': 'a2'}], configuration['targets'])
        self.assertEqual({'name': 'cached', 'tables': 4, 'rows': 1000}, configuration['dataset'])
        self.assertEqual('oltp_point_select', configuration['workload']['script'])
        self.assertEqual(
            [{'at_sec': 1, 'name': 'snapshot', 'command': 'true'}], configuration['events']
        )
        self.assertNotIn('restart', configuration)
        self.assertNotIn('iteration', configuration)

    def test_events_of_some_variants(self):
        every, ours = model.Event(1, 'a', 'x'), model.Event(2, 'b', 'y', ['ours'])
        loaded = load_plan(events=[every, ours])
        cells = {cell.variant.name: cell for cell in loaded.cells()}
        self.assertEqual([every, ours], loaded.load(cells['ours'], DATA).events)
        self.assertEqual([every], loaded.load(cells['stock'], DATA).events)
        # The conditions, which decide the comparison, are the same for both.
        expected = [
            {'at_sec': 1, 'name': 'a', 'command': 'x'},
            {'at_sec': 2, 'name': 'b', 'command': 'y', 'variants': ['ours']},
        ]
        for cell in cells.values():
            self.assertEqual(expected, loaded.configuration(cell, DATA)['events'])

    def test_configuration_of_one_target(self):
        loads = load_plan(restart=True)
        configuration = loads.configuration(next(loads.cells()), DATA)

        self.assertEqual({'instance': 'a1'}, configuration['target'])
        self.assertTrue(configuration['restart'])

    def test_load(self):
        loads = load_plan(committer=False)
        load = loads.load(next(loads.cells()), DATA)

        self.assertEqual((4, 1, 3, False), (load.threads, 1, load.measure_sec, load.committer))
        self.assertEqual(DATA, load.dataset)


class OperationsPlanTestCase(base.BaseTestCase):
    def test_order(self):
        attempts = operations_plan().attempts()
        self.assertEqual(
            [
                *((64, 0, 'ours'), (64, 0, 'stock'), (64, 1, 'ours'), (64, 1, 'stock')),
                *((256, 0, 'ours'), (256, 0, 'stock'), (256, 1, 'ours'), (256, 1, 'stock')),
            ],
            [(each.size_mib, each.iteration, each.contender.name) for each in attempts],
        )

    def test_some_contenders_only(self):
        attempts = operations_plan().attempts(['ours'])
        self.assertEqual({'ours'}, {each.contender.name for each in attempts})

    def test_configuration(self):
        operations = operations_plan()
        configuration = operations.configuration(next(operations.attempts()))

        self.assertEqual(configuration, json.loads(json.dumps(configuration)))
        self.assertEqual(('operation', 'backup', 64), self.values(configuration))
        self.assertEqual(
            {'prepare': None, 'run': 'true', 'cleanup': None, 'cost': {}},
            configuration['commands'],
        )

    @staticmethod
    def values(configuration):
        return tuple(configuration[key] for key in ('kind', 'operation', 'data_mib'))
