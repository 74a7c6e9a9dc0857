# SPDX-License-Identifier: Apache-2.0
import json
import random
import tempfile
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench import sample
from trove_ceph_bench import check, results


class ThresholdsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'thresholds.yaml'

    def _refused(self, text, *words):
        self.path.write_text(text)
        error = self.assertRaises(exceptions.InvalidPlanError, check.load, self.path)
        for word in (str(self.path), *words):
            self.assertIn(word, str(error))

    def test_read(self):
        self.path.write_text('- {metric: tps, variant: ours, to: stock, min_ratio: 1.0}\n')
        self.assertEqual(
            [{'metric': 'tps', 'variant': 'ours', 'to': 'stock', 'min_ratio': 1.0}],
            check.load(self.path),
        )

    def test_refuses_invalid_thresholds_with_their_location(self):
        self._refused('- {metric: tps, min: 1}\n- {metric: speed, min: 1}\n', 'entry 2', 'speed')
        self._refused('- {metric: tps}\n', 'entry 1', 'a bound is missing')
        self._refused('- {metric: tps, min_ratio: 1}\n', "'to' is a dependency")
        self._refused('- {metric: tps, min: fast}\n', 'entry 1, min')
        self._refused('- {metric: tps, min: 1, worklod: read}\n', 'worklod')
        self._refused('{}\n', 'the file')
        self._refused('[]\n', 'the file')
        self._refused('- [\n', 'while parsing')

    def test_missing_file(self):
        error = self.assertRaises(exceptions.InvalidPlanError, check.load, self.path)
        self.assertIn('No such file', str(error))


class CheckTest(base.BaseTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.path = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.loads = sample.load_store(cls.path / 'loads')
        cls.operations = sample.operation_store(cls.path / 'operations')

    def _check(self, *thresholds, store=None, conservative=False):
        found = check.check(store or self.loads, thresholds, conservative)
        return [str(failure) for failure in found]

    def test_met(self):
        self.assertEqual(
            [],
            self._check(
                {'metric': 'tps', 'variant': 'ours', 'to': 'stock', 'min_ratio': 1.0},
                {'metric': 'gap_max_ms', 'variant': 'ours', 'max': 500},
                {'metric': 'p99_ms', 'workload': 'read', 'threads': 4, 'max': 60000},
            ),
        )

    def test_a_ratio_below_its_bound(self):
        (failure,) = self._check(
            {
                'metric': 'tps',
                'workload': 'write',
                'threads': 16,
                'variant': 'stock',
                'to': 'ours',
                'min_ratio': 1.0,
            }
        )
        self.assertIn('write · 1:4 · 16 threads · with snapshot · stock', failure)
        self.assertRegex(failure, r'ratio of tps to ours is 0\.7\d+, below 1\.00')

    def test_without_a_variant_the_bound_applies_to_all(self):
        failures = self._check({'metric': 'gap_max_ms', 'max': 500})
        self.assertEqual(6, len(failures))
        self.assertEqual([], [failure for failure in failures if '· stock: gap' not in failure])

    def test_the_worst_repeat_counts_for_gaps(self):
        cells = {'metric': 'gap_max_ms', 'variant': 'ours', 'workload': 'write', 'threads': 16}
        self.assertEqual([], self._check(cells | {'max': 197}))
        (failure,) = self._check(cells | {'max': 190})
        self.assertIn('gap_max_ms is 197, above 190', failure)

    def test_the_worst_repeat_counts_for_ratios_of_gaps(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        store = results.Store(path).create('{name: x, repeats: 10}')
        for iteration in range(10):
            # Nine short stalls and a long one, against ten of 100 ms, of which one is longer.
            for variant, gap in (
                ('ours', 10_000.0 if iteration == 9 else 10.0),
                ('stock', 50_000.0 if iteration == 9 else 100.0),
            ):
                config = sample.load_config(variant)
                run = sample.load_run(config, random.Random(iteration))
                run['committer'] = run['committer'] | {'gap_max_ms': gap}
                store.write(iteration, config, {}, run)
        bound = {'metric': 'gap_max_ms', 'variant': 'ours', 'to': 'stock'}
        (failure,) = self._check(bound | {'max_ratio': 2}, store=store)
        self.assertIn('ratio of gap_max_ms to stock is 100, above 2.00', failure)
        self.assertEqual([], self._check(bound | {'max_ratio': 100}, store=store))
        (failure,) = self._check(bound | {'min_ratio': 0.2}, store=store)
        self.assertIn('is 0.100, below', failure)

    def test_conservative_compares_the_interval_with_the_bound(self):
        cells = {'variant': 'ours', 'to': 'stock', 'workload': 'write', 'threads': 16}
        threshold = cells | {'metric': 'tps', 'min_ratio': 1.38}
        self.assertEqual([], self._check(threshold))
        self.assertEqual(1, len(self._check(threshold | {'conservative': True})))
        self.assertEqual(1, len(self._check(threshold, conservative=True)))
        lenient = threshold | {'conservative': False}
        self.assertEqual([], self._check(lenient, conservative=True))

    def test_conservative_needs_an_interval(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'once'
        once = sample.load_store(path, repeats=1, workloads=['write'], threads=[4])
        threshold = {'metric': 'tps', 'variant': 'ours', 'min': 1, 'conservative': True}
        (failure,) = self._check(threshold, store=once)
        self.assertIn('no interval', failure)

    def test_a_threshold_that_matches_nothing_fails(self):
        for threshold in (
            {'metric': 'tps', 'workload': 'reed', 'min': 0},
            {'metric': 'tps', 'variant': 'theirs', 'min': 0},
            {'metric': 'seconds', 'max': 9},
        ):
            (failure,) = self._check(threshold)
            self.assertIn('no result matches', failure)

    def test_ratio_to_an_unknown_variant_fails(self):
        failures = self._check(
            {'metric': 'tps', 'variant': 'ours', 'to': 'theirs', 'min_ratio': 0.1}
        )
        self.assertIn('is unknown', failures[0])

    def test_an_unmeasured_metric_fails(self):
        failures = self._check({'metric': 'write_iops', 'variant': 'local', 'min': 1})
        self.assertIn('write_iops was not measured', failures[0])

    def test_operations(self):
        fast = {'metric': 'seconds', 'operation': 'backup', 'variant': 'ours', 'max': 5}
        cheap = {'metric': 'moved_bytes', 'variant': 'stock', 'data_mib': 64, 'max': 1000}
        self.assertEqual([], self._check(fast, store=self.operations))
        (failure,) = self._check(cheap, store=self.operations)
        self.assertIn('backup · 64 MiB · stock', failure)


class RepeatsTest(base.BaseTestCase):
    """A threshold is not met by some of the repeats."""

    THRESHOLD = {'metric': 'seconds', 'variant': 'ours', 'max': 100}

    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        self.config = sample.operation_config('ours', 64)

    def store(self, *changes, repeats=3, **plan):
        """Return a store with these results, each in turn for the next repeat."""
        operations = {'operations': {'repeats': repeats, **plan}}
        store = results.Store(self.path).create(json.dumps({'name': 'x', **operations}))
        for iteration, each in enumerate(changes):
            self.write(store, iteration, each)
        return store

    def write(self, store, iteration, changes):
        run = sample.operation_run(self.config, random.Random(iteration)) | changes
        store.write(iteration, self.config, {}, run)

    def check(self, store):
        return [str(failure) for failure in check.check(store, [self.THRESHOLD])]

    def test_a_failed_repeat_fails(self):
        lost = {'exit_code': 1, 'reason': 'run failed: a commit is lost'}
        (failure,) = self.check(self.store({}, lost, lost))
        self.assertIn('2 of 3 repeats failed or are not complete: run failed', failure)

    def test_a_missing_repeat_fails(self):
        (failure,) = self.check(self.store({}, {}))
        self.assertIn('2 of 3 repeats are measured', failure)
        self.assertEqual([], self.check(self.store({}, {}, {})))

    def test_a_contender_may_have_fewer_repeats(self):
        contender = {'name': 'ours', 'operation': 'backup', 'repeats': 2}
        self.assertEqual([], self.check(self.store({}, {}, contenders=[contender])))

    def test_a_failed_attempt_fails_also_after_a_repetition(self):
        store = self.store({'exit_code': 1, 'reason': 'run failed: a commit is lost'}, {}, {})
        store.put_attempt_aside(0, self.config)
        self.write(store, 0, {})
        (failure,) = self.check(store)
        self.assertIn('1 attempt failed and was repeated: run failed: a commit is lost', failure)

    def test_an_attempt_that_never_began_does_not_count(self):
        unprepared = {'exit_code': 1, 'reason': 'prepare failed', 'seconds': None}
        store = self.store(unprepared, {}, {})
        store.put_attempt_aside(0, self.config)
        self.write(store, 0, {})
        self.assertEqual([], self.check(store))
