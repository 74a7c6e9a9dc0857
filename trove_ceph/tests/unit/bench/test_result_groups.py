# SPDX-License-Identifier: Apache-2.0
import random
from pathlib import Path

from oslotest import base

from trove_ceph.tests.unit.bench import sample
from trove_ceph_bench import result_groups, results, stats


def make_run(iteration=0, changes=None, **config):
    config = sample.load_config() | config
    measured = sample.load_run(sample.load_config(), random.Random(iteration)) | (changes or {})
    return results.Run(iteration, config, measured, {}, Path('/r'))


def make_operation(iteration=0, changes=None, **config):
    config = sample.operation_config() | config
    measured = sample.operation_run(sample.operation_config(), random.Random(iteration))
    return results.Run(iteration, config, measured | (changes or {}), {}, Path('/r'))


class CellTest(base.BaseTestCase):
    def test_runs_of_one_configuration_make_a_cell(self):
        found = result_groups.gather([make_run(0), make_run(0, threads=4), make_run(1)])
        self.assertEqual([[0], [0, 1]], [sorted(cell.runs) for cell in found])
        self.assertEqual([4, 16], [cell.config['threads'] for cell in found])

    def test_values_by_repeat(self):
        runs = [make_run(0), make_run(1)]
        (cell,) = result_groups.gather(runs)
        expected = {each.iteration: each.run['totals']['tps'] for each in runs}
        self.assertEqual(expected, cell.values('tps'))
        self.assertEqual(2, cell.estimate('tps').n)

    def test_unmeasured_repeats_are_skipped(self):
        without = {'committer': None, 'rbd': None}
        (cell,) = result_groups.gather([make_run(0), make_run(1, without)])
        self.assertEqual([0], list(cell.values('gap_max_ms')))
        (cell,) = result_groups.gather([make_run(0, without)])
        self.assertEqual({}, cell.values('write_iops'))
        self.assertIsNone(cell.estimate('write_iops'))
        self.assertIsNone(cell.figure('gap_max_ms'))

    def test_percentile_names_with_a_dot(self):
        (cell,) = result_groups.gather([make_run(0)])
        latency = cell.runs[0].run['totals']['latency_ms']
        self.assertEqual({0: latency['p99.9']}, cell.values('p99.9_ms'))

    def test_interrupted_repeats_count_only_without_complete_ones(self):
        cut = {'complete': False, 'reason': 'interrupted'}
        (cell,) = result_groups.gather([make_run(0), make_run(1, cut)])
        self.assertEqual([0], list(cell.counted))
        (cell,) = result_groups.gather([make_run(1, cut)])
        self.assertEqual([1], list(cell.counted))

    def test_only_successful_operations_count(self):
        runs = [
            make_operation(0),
            make_operation(1, {'exit_code': 1}),
            make_operation(2, {'complete': False}),
        ]
        (cell,) = result_groups.gather(runs)
        self.assertEqual([0], list(cell.counted))

    def test_gaps_by_median_and_throughput_by_mean(self):
        (cell,) = result_groups.gather([make_run(0), make_run(1)])
        self.assertIn('median', cell.figure('gap_max_ms'))
        self.assertIn('value', cell.figure('tps'))


class RatioTest(base.BaseTestCase):
    """Repeats are pairs if the variants were measured in turn."""

    def method(self, ours, theirs):
        """Return the method of a ratio of runs with these changes, by repeat."""
        (group,) = result_groups.group(
            result_groups.gather(
                make_run(iteration, changes, variant=variant)
                for variant, runs in (('ours', ours), ('stock', theirs))
                for iteration, changes in enumerate(runs)
            )
        )
        ratio = result_groups.ratio(group.cells['ours'], group.cells['stock'], 'tps')
        return ratio.method

    def test_of_one_session(self):
        one, two = {'session': 'a'}, {'session': 'b'}
        self.assertEqual('paired', self.method([one, one], [one, one]))
        self.assertEqual('paired', self.method([one, two], [one, two]))
        self.assertEqual('unpaired', self.method([one, one], [two, two]))
        self.assertEqual('unpaired', self.method([one, one], [one, two]))
        self.assertEqual('unpaired', self.method([one, one], [one, {}]))

    def test_of_results_without_a_session(self):
        def at(*hours):
            return [{'started': f'2026-11-21T{hour:02d}:00:00+00:00'} for hour in hours]

        self.assertEqual('paired', self.method(at(0, 2, 4), at(1, 3, 5)))
        self.assertEqual('paired', self.method(at(1, 2), at(0, 3)))
        # One variant after the other.
        self.assertEqual('unpaired', self.method(at(0, 1, 2), at(3, 4, 5)))


class GroupTest(base.BaseTestCase):
    def test_groups_variants_with_the_same_conditions(self):
        found = result_groups.group(
            result_groups.gather(
                [
                    make_run(variant='ours', target={'kind': 'a'}),
                    make_run(variant='stock', role='baseline', target={'kind': 'b'}),
                    make_run(variant='ours', threads=4),
                ]
            )
        )
        self.assertEqual([4, 16], [group.conditions['threads'] for group in found])
        self.assertEqual([{'ours'}, {'ours', 'stock'}], [set(group.cells) for group in found])

    def test_groups_contenders_with_different_commands(self):
        runs = [make_operation(), make_operation(variant='stock', commands={'run': 'x'})]
        (group,) = result_groups.group(result_groups.gather(runs))
        self.assertEqual({'ours', 'stock'}, set(group.cells))

    def test_labels(self):
        self.assertEqual(
            'write · 1:4 · 16 threads · with snapshot', result_groups.label(sample.load_config())
        )
        config = sample.load_config() | {'instances': 3, 'threads': 1, 'events': []}
        self.assertEqual('write · 1:4 · 1 thread · 3 instances', result_groups.label(config))
        self.assertEqual('backup · 256 MiB', result_groups.label(sample.operation_config()))
        self.assertEqual(
            'write · 16 threads',
            result_groups.label(config | {'threads': 16}, ['dataset', 'instances', 'phases']),
        )

    def test_common_conditions(self):
        found = result_groups.group(
            result_groups.gather([make_run(threads=4), make_run(threads=16)])
        )
        self.assertEqual(
            {'dataset', 'instances', 'phases', 'events'}, set(result_groups.common(found))
        )
        found = result_groups.group(result_groups.gather([make_run(), make_run(measure_sec=60)]))
        self.assertNotIn('phases', result_groups.common(found))
        self.assertEqual({}, result_groups.common([]))


class VariantsTest(base.BaseTestCase):
    def _variants(self, plan):
        roles = {'zeta': 'baseline', 'ours': 'subject', 'disk': 'control'}
        runs = [make_run(variant=name, role=role) for name, role in roles.items()]
        return result_groups.variants(result_groups.gather(runs), plan)

    def test_in_the_order_of_the_plan(self):
        plan = {'variants': [{'name': name} for name in ('disk', 'ours', 'zeta')]}
        self.assertEqual(['disk', 'ours', 'zeta'], [each.name for each in self._variants(plan)])
        plan = {'operations': {'contenders': plan['variants']}}
        self.assertEqual(['disk', 'ours', 'zeta'], [each.name for each in self._variants(plan)])

    def test_by_role_if_the_plan_does_not_order_them(self):
        self.assertEqual(['zeta', 'ours', 'disk'], [each.name for each in self._variants({})])

    def test_baseline(self):
        self.assertEqual('zeta', result_groups.find_baseline(self._variants({})))
        several = [result_groups.Variant('a', 'subject'), result_groups.Variant('b', 'subject')]
        self.assertEqual('a', result_groups.find_baseline(several))
        self.assertIsNone(result_groups.find_baseline(several[:1]))


class VerdictTest(base.BaseTestCase):
    def _verdict(self, metric, low, high):
        value = (low + high) / 2
        return result_groups.verdict(metric, stats.Estimate(value, low, high, 3, 'paired'))

    def test_more_throughput_and_less_time_are_better(self):
        self.assertEqual('better', self._verdict('tps', 1.1, 1.2))
        self.assertEqual('worse', self._verdict('tps', 0.8, 0.9))
        self.assertEqual('better', self._verdict('seconds', 0.8, 0.9))
        self.assertEqual('worse', self._verdict('gap_max_ms', 1.1, 1.2))

    def test_no_verdict_without_significance(self):
        self.assertEqual('no difference shown', self._verdict('tps', 0.9, 1.2))
        alone = stats.Estimate(2.0, None, None, 1, 'paired')
        self.assertEqual('one repeat', result_groups.verdict('tps', alone))
        self.assertEqual('not comparable', result_groups.verdict('tps', None))
