# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import shutil
from pathlib import Path
from unittest import mock

import fixtures
import yaml
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench import sample
from trove_ceph_bench import results

PLAN = 'name: tuning\n'


class StoreTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'results'
        self.config = sample.load_config()
        self.run_json = sample.load_run(self.config, random.Random(1))

    def _stored(self):
        store = results.Store(self.path).create(PLAN)
        store.write(0, self.config, sample.disclosure('ours'), self.run_json)
        return store

    def _file(self, name):
        return self.path / '00000000' / f'id-{results.config_hash(self.config)}' / name

    def _refused(self, *words, path=None):
        error = self.assertRaises(
            exceptions.ResultsFormatError, results.Store(path or self.path).runs
        )
        for word in words:
            self.assertIn(word, str(error))

    def test_reads_what_it_writes(self):
        self._stored()
        (run,) = results.Store(self.path).open().runs()
        self.assertEqual(0, run.iteration)
        self.assertEqual(self.config, run.config)
        self.assertEqual(self.run_json, run.run)
        self.assertEqual(sample.disclosure('ours'), run.disclosure)
        self.assertEqual(self._file(''), run.path)
        self.assertEqual({'name': 'tuning'}, results.Store(self.path).plan())

    def test_layout(self):
        self._stored()
        self.assertEqual('trove-ceph-bench 1\n', (self.path / 'format').read_text())
        self.assertEqual(PLAN, (self.path / 'plan.yaml').read_text())
        self.assertEqual(
            {'benchmark_config.yaml', 'disclosure.json', 'run.json', 'raw'},
            set(os.listdir(self._file(''))),
        )

    def test_runs_are_sorted_by_repeat_and_time(self):
        sample.load_store(self.path, repeats=2, workloads=['write'])
        found = results.Store(self.path).runs()
        self.assertEqual([0] * 6 + [1] * 6, [run.iteration for run in found])
        self.assertEqual([4, 4, 4, 16, 16, 16], [run.config['threads'] for run in found[:6]])

    def test_hash_ignores_the_order_of_keys_and_nothing_else(self):
        reordered = dict(reversed(self.config.items()))
        self.assertEqual(results.config_hash(self.config), results.config_hash(reordered))
        other = self.config | {'threads': 17}
        self.assertNotEqual(results.config_hash(self.config), results.config_hash(other))
        self.assertRegex(results.config_hash(self.config), '^[0-9a-f]{12}$')

    def test_hash_survives_yaml(self):
        config = self.config | {'ratio': '1:25', 'sizes': (1, 2.5), 'nothing': None, 'on': 'on'}
        directory = results.Store(self.path).create(PLAN).run_directory(0, config)
        read = yaml.safe_load((directory / 'benchmark_config.yaml').read_text())
        self.assertEqual(results.config_hash(config), results.config_hash(read))

    def test_is_complete(self):
        store = results.Store(self.path).create(PLAN)
        self.assertFalse(store.is_complete(0, self.config))
        store.run_directory(0, self.config)
        self.assertFalse(store.is_complete(0, self.config))
        store.write(0, self.config, {}, self.run_json | {'complete': False})
        self.assertFalse(store.is_complete(0, self.config))
        store.write(0, self.config, {}, self.run_json)
        self.assertTrue(store.is_complete(0, self.config))
        self.assertFalse(store.is_complete(1, self.config))

    def test_keeps_attempts_that_failed(self):
        store = self._stored()
        for number in (1, 2):
            self._file('raw').joinpath('run.log').write_text(f'{number}')
            failed = self.run_json | {'complete': False, 'reason': f'failed {number}'}
            store.write(0, self.config, {}, failed)
            store.put_attempt_aside(0, self.config)
            self.assertFalse(self._file('run.json').exists())
            store.run_directory(0, self.config)
        store.write(0, self.config, {}, self.run_json)
        (run,) = store.runs()
        self.assertIsNone(run.run['reason'])
        self.assertEqual(['failed 1', 'failed 2'], [each['reason'] for each in run.failed_attempts])
        self.assertEqual('2', self._file('attempt-2/raw/run.log').read_text())

    def test_keeps_no_attempt_without_a_result_or_with_an_interruption(self):
        store = results.Store(self.path).create(PLAN)
        store.put_attempt_aside(0, self.config)
        for outcome in (None, {'complete': False, 'reason': 'interrupted'}):
            self._directory_of_an_attempt(store, outcome)
            store.put_attempt_aside(0, self.config)
            self.assertEqual([], os.listdir(self._file('')))

    def _directory_of_an_attempt(self, store, outcome):
        store.run_directory(0, self.config)
        self._file('raw').joinpath('run.log').write_text('')
        if outcome:
            store.write(0, self.config, {}, self.run_json | outcome)

    def test_refuses_a_run_of_an_unknown_environment(self):
        self._stored()
        results.Store(self.path).create(PLAN)
        for environment in ({}, {'BENCH_POOL': 'fast'}):
            self._refused_environment(environment, 'does not tell the values of the variables')

    def _refused_environment(self, environment, words):
        error = self.assertRaises(
            exceptions.ResultsFormatError,
            results.Store(self.path).create,
            'name: tuning\nmore: 1\n',
            environment,
        )
        self.assertIn(words, str(error))
        self.assertEqual(PLAN, (self.path / 'plan.yaml').read_text())

    def test_resumes_in_the_same_environment(self):
        fast = {'BENCH_POOL': 'fast'}
        self.config |= {'environment': fast}
        self._stored()
        results.Store(self.path).create(PLAN, fast)
        self._refused_environment({'BENCH_POOL': 'slow'}, 'BENCH_POOL fast, which is now slow')
        self._refused_environment({}, 'BENCH_POOL fast, which is now unset')

    def test_a_run_without_outcome_is_not_listed(self):
        store = self._stored()
        store.run_directory(1, self.config)
        self.assertEqual([0], [run.iteration for run in store.runs()])

    def test_a_failed_write_leaves_the_old_file_and_no_other(self):
        self._stored()
        before = self._file('run.json').read_text()
        with mock.patch('os.fsync', side_effect=OSError(28, 'No space left on device')):
            self.assertRaises(OSError, results.write_text, self._file('run.json'), 'something else')
        self.assertEqual(before, self._file('run.json').read_text())
        self.assertEqual([], [name for name in os.listdir(self._file('')) if name[0] == '.'])

    def test_the_outcome_is_written_last(self):
        written = []
        original = results.write_text

        def record(path, text):
            written.append(path.name)
            original(path, text)

        with mock.patch.object(results, 'write_text', record):
            self._stored()
        self.assertEqual('run.json', written[-1])
        self.assertEqual(1, written.count('run.json'))

    def test_a_folder_of_the_same_plan_is_continued(self):
        self._stored()
        store = results.Store(self.path).create(PLAN + 'repeats: 5\n')
        self.assertEqual({'name': 'tuning', 'repeats': 5}, store.plan())
        self.assertEqual(1, len(store.runs()))

    def test_a_folder_of_another_plan_is_refused(self):
        self._stored()
        error = self.assertRaises(
            exceptions.ResultsFormatError, results.Store(self.path).create, 'name: tiers\n'
        )
        self.assertIn('"tuning", not of "tiers"', str(error))
        self.assertEqual(PLAN, (self.path / 'plan.yaml').read_text())

    def test_an_incompletely_created_folder_is_continued(self):
        self._stored()
        (self.path / 'plan.yaml').unlink()
        results.Store(self.path).create(PLAN)
        self.assertEqual({'name': 'tuning'}, results.Store(self.path).plan())

    def test_missing_folder(self):
        self._refused('no such results folder', str(self.path))

    def test_refuses_a_foreign_folder(self):
        self.path.mkdir()
        (self.path / 'thesis.odt').write_text('all I have')
        self._refused('not a results folder', 'name another folder')
        error = self.assertRaises(
            exceptions.ResultsFormatError, results.Store(self.path).create, PLAN
        )
        self.assertIn(str(self.path), str(error))
        self.assertEqual(['thesis.odt'], os.listdir(self.path))

    def test_refuses_a_file(self):
        self.path.write_text('x')
        self._refused('no such results folder')
        self.assertRaises(exceptions.ResultsFormatError, results.Store(self.path).create, PLAN)

    def test_folder_of_another_version(self):
        self._stored()
        (self.path / 'format').write_text('trove-ceph-bench 2\n')
        self._refused('format 2', 'reads format 1', 'new folder')

    def test_unreadable_version(self):
        self._stored()
        (self.path / 'format').write_text('cbt\n')
        self._refused('"cbt"', str(self.path / 'format'))

    def test_run_of_another_version(self):
        self._stored()
        self._file('run.json').write_text(json.dumps(self.run_json | {'format': 7}))
        self._refused('format 7', str(self._file('run.json')))

    def test_damaged_files(self):
        damages = {
            'run.json': ('{"format": 1,', 'remove'),
            'disclosure.json': ('[1, 2]', 'expected a mapping'),
            'benchmark_config.yaml': ('a: [', 'remove'),
        }
        for name, (text, word) in damages.items():
            with self.subTest(name):
                shutil.rmtree(self.path, ignore_errors=True)
                self._stored()
                self._file(name).write_text(text)
                self._refused('damaged', word, str(self._file(name)))

    def test_missing_configuration(self):
        self._stored()
        self._file('benchmark_config.yaml').unlink()
        self._refused('the file is missing')

    def test_result_without_a_kind(self):
        self._stored()
        self._file('run.json').write_text('{"format": 1, "complete": true}')
        self._refused('keys are missing: kind')

    def test_configuration_changed_by_hand(self):
        self._stored()
        path = self._file('benchmark_config.yaml')
        path.write_text(path.read_text().replace('threads: 16', 'threads: 32'))
        self._refused('was changed after the measurement')


class SecretsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'results'
        self.config = sample.load_config()
        self.run_json = sample.load_run(self.config, random.Random(1))

    def test_refuses_passwords_in_all_files(self):
        store = results.Store(self.path).create(PLAN)
        bad = (
            (self.config | {'target': {'password': 'hunter2'}}, {}, self.run_json),
            (self.config | {'target': {'dsn': 'mysql://root:hunter2@db/x'}}, {}, self.run_json),
            (self.config, {'targets': [{'root_password': 'hunter2'}]}, self.run_json),
            (self.config, {}, self.run_json | {'MYSQL_PASSWORD': 'hunter2'}),
        )
        for config, disclosure, run in bad:
            self.assertRaises(
                exceptions.ResultsFormatError, store.write, 0, config, disclosure, run
            )
        self.assertEqual([], store.runs())
        stored = ''.join(path.read_text() for path in self.path.rglob('*') if path.is_file())
        self.assertNotIn('hunter2', stored)

    def test_accepts_values_that_are_not_passwords(self):
        variables = {
            'default_password_lifetime': 90,
            'validate_password.policy': 'MEDIUM',
            'disconnect_on_expired_password': 'ON',
            'report_password': '',
            'url': 'https://ceph.io/docs:8443/a@b',
            'dsn': 'mysql://root@db/x',
        }
        store = results.Store(self.path).create(PLAN)
        store.write(0, self.config, {'variables': variables}, self.run_json)
        self.assertEqual(variables, store.runs()[0].disclosure['variables'])

    def test_refuses_a_plan_with_a_password_before_creating_the_folder(self):
        text = 'name: x\nvariants: [{name: a, target: {password: hunter2}}]\n'
        error = self.assertRaises(
            exceptions.InvalidPlanError, results.Store(self.path).create, text
        )
        self.assertIn('variants[0].target.password', str(error))
        self.assertNotIn('hunter2', str(error))
        self.assertFalse(self.path.exists())
