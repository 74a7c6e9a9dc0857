# SPDX-License-Identifier: Apache-2.0
import json
import random
import tempfile
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests.unit.bench import sample
from trove_ceph_bench import results
from trove_ceph_bench.report import model, page


class ModelTest(base.BaseTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.store = sample.load_store(path / 'loads')
        cls.before = sample.load_store(path / 'before', workloads=['write'], threads=[16])
        cls.loads = model.build(cls.store, cls.before)
        cls.operations = model.build(sample.operation_store(path / 'operations'))

    def _group(self, label):
        (found,) = [group for group in self.loads['loads'] if group['label'] == label]
        return {each['variant']: each for each in found['variants']}

    def test_is_json_and_deterministic(self):
        text = json.dumps(self.loads)
        self.assertEqual(self.loads, json.loads(text))
        self.assertEqual(text, json.dumps(model.build(self.store, self.before)))

    def test_compared_variants(self):
        self.assertEqual('tuning', self.loads['plan']['name'])
        self.assertEqual(
            ['stock', 'ours', 'local'], [each['name'] for each in self.loads['variants']]
        )
        self.assertEqual('stock', self.loads['baseline'])
        self.assertEqual(54, self.loads['measured']['complete'])
        self.assertIn('dataset 1:4', self.loads['throughout'])

    def test_ratios_to_the_baseline(self):
        found = self._group('write · 16 threads')
        self.assertEqual({}, found['stock']['ratios'])
        ratio = found['ours']['ratios']['tps']
        self.assertAlmostEqual(1.35, ratio['value'], delta=0.1)
        self.assertEqual('paired', ratio['method'])
        self.assertLess(ratio['low'], ratio['value'])
        self.assertEqual('better', found['ours']['verdicts']['tps'])
        self.assertEqual(3, found['ours']['figures']['tps']['n'])

    def test_summary(self):
        self.assertIn('ours: faster than stock in 6 of 6 comparisons', self.loads['summary'])
        self.assertEqual(
            ['ours: faster than stock in 3 of 3 operations'], self.operations['summary']
        )

    def test_phases_count_successful_repeats_only(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        store = results.Store(path).create('name: sample\n')
        config = sample.operation_config()
        for iteration, (code, seconds) in enumerate(((0, 1.0), (0, 2.0), (1, 9.0))):
            durations = [('request', seconds), ('copying', 0.5), ('copying', 0.25)]
            phases = [{'name': name, 'seconds': each} for name, each in durations]
            run = sample.operation_run(config, random.Random(iteration))
            run |= {'exit_code': code, 'phases': phases}
            store.write(iteration, config, sample.disclosure('ours'), run)
        (variant,) = model.build(store)['operations'][0]['variants']
        found = {name: (each['value'], each['n']) for name, each in variant['phases'].items()}
        self.assertEqual({'request': (1.5, 2), 'copying': (0.75, 2)}, found)

    def test_counts_attempts_that_failed(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        store = results.Store(path).create('name: sample\n')
        config = sample.operation_config()
        run = sample.operation_run(config, random.Random(1))
        store.write(0, config, {}, run | {'exit_code': 1, 'reason': 'run failed'})
        store.put_attempt_aside(0, config)
        store.write(0, config, {}, run)
        built = model.build(store)
        self.assertEqual(1, built['operations'][0]['variants'][0]['failed_attempts'])
        texts = [each['text'] for each in built['caveats']]
        self.assertTrue([each for each in texts if '1 attempt failed and do' in each], texts)
        self.assertIn('1 of 1 (1 failed before)', page.markdown(built))

    def test_sweeps(self):
        sweeps = {sweep['label']: sweep for sweep in self.loads['thread_sweeps']}
        self.assertEqual({'read', 'write', 'mixed-70-30'}, set(sweeps))
        self.assertEqual([4, 16], sweeps['write']['values'])
        line = sweeps['write']['lines'][0]
        self.assertEqual('stock', line['variant'])
        self.assertEqual([4, 16], [point['threads'] for point in line['points']])
        self.assertEqual([], self.loads['instance_sweeps'])
        self.assertEqual([], self.loads['fill_sweeps'])
        (sizes,) = self.operations['size_sweeps']
        self.assertEqual(list(sample.DATA_MIB), sizes['values'])

    def test_fill_sweep(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        store = results.Store(path).create('name: fill\n')
        for percent in (14, 70, 87):
            config = sample.load_config('ours') | {'fill_percent': percent}
            run = sample.load_run(config, random.Random(0))
            run['pool'] = {'stored_gib': percent / 10, 'write_iops_per_gib': 100.0 - percent}
            store.write(0, config, sample.disclosure('ours'), run)
        built = model.build(store)
        (sweep,) = built['fill_sweeps']
        self.assertEqual([14, 70, 87], sweep['values'])
        self.assertNotIn('% full', sweep['label'])
        tables = page.markdown(built).split('## ')
        (table,) = [each for each in tables if each.startswith('Writes per')]
        for percent, writes in ((14, 86), (70, 30), (87, 13)):
            self.assertRegex(table, rf'ours \| {percent} \| {writes}\.0')
        self.assertEqual(
            ['pool 14 % full', 'pool 70 % full', 'pool 87 % full'],
            [group['label'].rpartition(' · ')[2] for group in built['loads']],
        )

    def test_timelines_show_the_repeat_with_median_throughput(self):
        (timeline,) = [
            each for each in self.loads['timelines'] if each['label'] == 'read · 4 threads'
        ]
        line = timeline['lines'][1]
        tps = {
            run.iteration: run.run['totals']['tps']
            for run in self.store.runs()
            if run.config['variant'] == line['variant']
            and run.config['workload']['name'] == 'read'
            and run.config['threads'] == 4
        }
        self.assertEqual(sorted(tps.values())[1], tps[line['iteration']])
        self.assertEqual(sample.MEASURE_SEC, len(line['tps']))
        self.assertEqual('snapshot', line['events'][0]['name'])

    def test_declared_ratios_have_their_published_references(self):
        rows = self.loads['references']['measured']
        # For 4 and 16 threads each: reads 2, writes 4, and the mix 4.
        self.assertEqual(20, len(rows))
        (row,) = [
            each for each in rows if (each['where'], each['metric']) == ('write · 4 threads', 'tps')
        ]
        self.assertEqual(16, row['reference']['value'])
        self.assertAlmostEqual(1.8, row['ratio']['value'], delta=0.15)
        self.assertEqual([], self.loads['references']['unknown'])

    def test_disclosure_lists_differing_variables_first(self):
        section = self.loads['disclosure'][0]
        self.assertEqual('MySQL variables', section['name'])
        self.assertEqual(2, section['differing'])
        self.assertEqual(
            ['innodb_buffer_pool_size', 'innodb_flush_method'],
            [row['key'] for row in section['rows'][:2]],
        )
        self.assertEqual('fsync', section['rows'][1]['values']['stock'])
        self.assertEqual([False] * 3, [row['differs'] for row in section['rows'][2:]])

    def test_disclosure_of_several_instances(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        store = results.Store(path).create('name: x\n')
        config = sample.load_config()
        target = sample.disclosure('ours')['target']
        run = sample.load_run(config, random.Random(1))
        store.write(0, config, {'targets': {'db1': target, 'db2': target}}, run)
        found = model.build(store)['disclosure']
        self.assertEqual('MySQL variables', found[0]['name'])
        self.assertEqual(5, len(found[0]['rows']))

    def test_comparison_with_another_folder(self):
        rows = self.loads['comparison']['rows']
        self.assertEqual({'stock', 'ours', 'local'}, {row['variant'] for row in rows})
        self.assertIsNone(self.operations['comparison'])

    def test_files_of_every_run(self):
        self.assertEqual(54, len(self.loads['files']))
        first = self.loads['files'][0]
        self.assertIn('raw/sysbench.txt', first['files'])
        directory = (self.store.path / 'report' / first['path']).resolve()
        self.assertTrue((directory / 'run.json').exists())

    def test_empty_folder(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        found = model.build(results.Store(path).create('name: x\n'))
        self.assertIn('No measurements', found['caveats'][0]['text'])


class NotesTest(base.BaseTestCase):
    """Caveats that limit a report without weakening it."""

    def _notes(self, disclosure, **dataset):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        store = results.Store(path).create('name: x\n')
        config = sample.load_config('ours')
        config['dataset'] |= dataset
        store.write(0, config, disclosure, sample.load_run(config, random.Random(0)))
        return [each['text'] for each in model.build(store)['caveats'] if each['level'] == 'note']

    def test_reduced_data(self):
        disclosure = sample.disclosure('ours')
        (text,) = [each for each in self._notes(disclosure, scale=0.001) if 'Reduced' in each]
        self.assertIn('0.001 of the rows', text)
        self.assertFalse(any('Reduced' in each for each in self._notes(disclosure)))

    def test_cached_data(self):
        disclosure = sample.disclosure('ours')
        found = self._notes(disclosure, name='cached', rows=25000)
        self.assertTrue(any(text.startswith('Cached data') for text in found))
        # Of a cached dataset that a server does not hold, nothing is said.
        found = self._notes(disclosure, name='cached')
        self.assertFalse(any(text.startswith('Cached data') for text in found))

    def test_notes_of_the_operator_on_the_cluster(self):
        one = sample.disclosure('ours')
        one['target']['ceph']['notes'] = ['each OSD of the class hdd is slow']
        several = {'host': one['host'], 'targets': {'a': one['target'], 'b': {'ceph': None}}}
        for disclosure in (one, several):
            self.assertIn(
                'The cluster is changed for tests: each OSD of the class hdd is slow.',
                self._notes(disclosure),
            )


class CaveatsTest(base.BaseTestCase):
    def _caveats(
        self, *runs, roles=('baseline', 'subject', 'control'), repeats=2, disclosed=lambda _: {}
    ):
        """Return the warnings of a store, with some runs of the first repeat changed.

        :param runs: (variant, changes of the configuration, changes of the run)
        :param disclosed: returns the disclosure of a variant
        """
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        store = results.Store(path).create('name: x\n')
        changes = {variant: each for variant, *each in runs}
        for iteration in range(repeats):
            for variant, (_, role) in sample.VARIANTS.items():
                if role not in roles:
                    continue
                config = sample.load_config(variant)
                run = sample.load_run(config, random.Random(f'{iteration}{variant}'))
                for_config, for_run = changes.get(variant, ({}, {}))
                if iteration == 0:
                    run |= for_run
                store.write(iteration, config | for_config, disclosed(variant), run)
        found = model.build(store)['caveats']
        return {each['text']: each['where'] for each in found if each['level'] == 'warning'}

    def _assert_only(self, caveats, start, where=None):
        (text,) = caveats
        self.assertTrue(text.startswith(start), text)
        if where is not None:
            self.assertEqual(where, caveats[text])

    def test_none(self):
        self.assertEqual({}, self._caveats())

    def test_no_control(self):
        self._assert_only(self._caveats(roles=('baseline', 'subject')), 'No control', [])

    def test_one_repeat(self):
        self._assert_only(self._caveats(repeats=1), 'One repeat', [])

    def test_client_saturated(self):
        found = self._caveats(('ours', {}, {'client_saturated': True}))
        self._assert_only(found, 'Client saturated', ['write · ours'])

    def test_no_warm_up(self):
        found = self._caveats(('ours', {}, {'warmup_sec': 0}))
        self._assert_only(found, 'No warm-up', ['write · ours'])

    def test_data_in_memory(self):
        fitting = {'dataset': {'name': '1:4', 'tables': 4, 'rows': 50000}}
        found = self._caveats(('ours', fitting, {}), disclosed=sample.disclosure)
        (text,) = [each for each in found if each.startswith('Data in memory')]
        self.assertEqual(1, len(found[text]))
        self.assertIn('ours', found[text][0])

    def test_data_in_the_memory_of_one_of_several_servers(self):
        servers = {name: sample.disclosure(name)['target'] for name in ('stock', 'ours')}
        several = {'targets': servers}
        fitting = {'dataset': {'name': '1:4', 'tables': 4, 'rows': 50000}}
        found = self._caveats(
            ('ours', fitting, {}), disclosed=lambda name: several if name == 'ours' else {}
        )
        self.assertTrue(any(each.startswith('Data in memory') for each in found))

    def test_not_measured_in_turn(self):
        found = self._caveats(('ours', {}, {'session': 'a'}), ('stock', {}, {'session': 'b'}))
        self._assert_only(found, 'Not measured in turn')

    def test_failed_statements_and_events(self):
        event = {'name': 'snapshot', 'at_sec': 1.0, 'ended_sec': 2.0, 'exit_code': 2}
        self._assert_only(self._caveats(('ours', {}, {'events': [event]})), 'An event failed')
        totals = sample.load_run(sample.load_config(), random.Random(0))['totals'] | {'errors': 3}
        self._assert_only(self._caveats(('ours', {}, {'totals': totals})), 'Statements failed')

    def test_interrupted(self):
        found = self._caveats(('ours', {}, {'complete': False, 'reason': 'interrupted'}))
        texts = ' '.join(found)
        for word in ('Interrupted', 'One repeat', 'Repeats are missing'):
            self.assertIn(word, texts)

    def test_equal_warnings_of_runs_are_merged(self):
        found = self._caveats(
            ('ours', {}, {'warnings': ['the disk was full']}),
            ('stock', {}, {'warnings': ['the disk was full']}),
        )
        self._assert_only(found, 'the disk was full', ['write · stock', 'write · ours'])

    def test_warnings_that_differ_in_figures_are_merged(self):
        found = self._caveats(
            ('ours', {}, {'warnings': ['the host was 97% busy', 'the disk was full']}),
            ('stock', {}, {'warnings': ['the host was 99.5% busy']}),
        )
        where = found['the host was 99.5% busy (and 1 more with other figures)']
        self.assertEqual(['write · stock', 'write · ours'], where)
        self.assertEqual(['write · ours'], found['the disk was full'])

    def test_reason_of_an_incomplete_run_is_a_caveat(self):
        found = self._caveats(('ours', {}, {'complete': False, 'reason': 'sysbench: no memory'}))
        self.assertEqual(['write · ours'], found['sysbench: no memory'])

    def test_target_changed_between_runs(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        store = results.Store(path).create('name: x\n')
        for kind in ('a', 'b'):
            config = sample.load_config('local') | {'target': {'kind': kind}}
            store.write(0, config, {}, sample.load_run(config, random.Random(kind)))
        texts = [each['text'] for each in model.build(store)['caveats']]
        self.assertTrue(any(text.startswith('The target was changed') for text in texts))

    def test_failed_operations(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'
        store = results.Store(path).create('name: x\n')
        for iteration, code in enumerate((0, 1)):
            config = sample.operation_config()
            run = sample.operation_run(config, random.Random(iteration)) | {'exit_code': code}
            store.write(iteration, config, {}, run)
        found = model.build(store)
        texts = [each['text'] for each in found['caveats']]
        self.assertTrue(any(text.startswith('The operation failed') for text in texts))
        (variant,) = found['operations'][0]['variants']
        self.assertEqual((2, 1), (variant['repeats'], variant['counted']))
