# SPDX-License-Identifier: Apache-2.0
import json
import random
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests.unit.bench import sample
from trove_ceph_bench import compare, results


class CompareTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path)

    def _single(self, name, **changes):
        store = results.Store(self.path / name).create('name: tuning\n')
        for iteration in range(3):
            config = sample.load_config() | changes
            run = sample.load_run(sample.load_config(), random.Random(iteration))
            store.write(iteration, config, {}, run)
        return store

    def test_ratios_with_intervals(self):
        faster = sample.load_store(self.path / 'a', workloads=['write'], threads=[16], scale=1.2)
        before = sample.load_store(self.path / 'b', workloads=['write'], threads=[16])
        found = compare.compare(faster, before)
        self.assertEqual([], found['only_store'] + found['only_baseline'])
        rows = {(row['variant'], row['metric']): row for row in found['rows']}
        self.assertEqual(3 * 4, len(rows))
        ours = rows['ours', 'tps']
        self.assertAlmostEqual(1.2, ours['ratio']['value'], places=2)
        self.assertEqual('unpaired', ours['ratio']['method'])
        self.assertEqual('better', ours['verdict'])
        self.assertEqual('no difference shown', rows['stock', 'tps']['verdict'])
        self.assertLess(rows['ours', 'p99_ms']['ratio']['value'], 1)
        self.assertIn('median', rows['ours', 'gap_max_ms']['of'])

    def test_operations_are_compared_by_wall_time(self):
        store = sample.operation_store(self.path / 'a')
        found = compare.compare(store, store)
        self.assertEqual({'seconds', 'gap_max_ms'}, {row['metric'] for row in found['rows']})
        self.assertEqual({1.0}, {round(row['ratio']['value'], 9) for row in found['rows']})

    def test_matching_ignores_the_name_of_the_plan(self):
        found = compare.compare(self._single('a', plan='tiers'), self._single('b'))
        self.assertEqual({'ours'}, {row['variant'] for row in found['rows']})

    def test_cells_match_by_name_when_the_target_was_changed(self):
        found = compare.compare(self._single('a', target={'kind': 'dsn'}), self._single('b'))
        self.assertEqual({'ours (target changed)'}, {row['variant'] for row in found['rows']})

    def test_cells_match_by_target_when_the_variant_was_renamed(self):
        found = compare.compare(self._single('a', variant='new'), self._single('b'))
        self.assertEqual({'new against ours'}, {row['variant'] for row in found['rows']})

    def test_lists_unmatched_cells(self):
        found = compare.compare(self._single('a', threads=32), self._single('b'))
        self.assertEqual([], found['rows'])
        self.assertIn('32 threads', found['only_store'][0])
        self.assertIn('16 threads', found['only_baseline'][0])

    def test_rendering(self):
        found = compare.compare(self._single('a'), self._single('b', threads=4))
        self.assertEqual(found, json.loads(compare.as_json(found)))
        self.assertIn(f'only in {self.path / "b"}: write', compare.as_table(found))
        table = compare.as_table(compare.compare(self._single('a'), self._single('c')))
        self.assertIn('write · 1:4 · 16 threads', table)
        self.assertIn('no difference shown', table)
        self.assertRegex(table, r'1\.00 +\| ')
