# SPDX-License-Identifier: Apache-2.0
"""Running the benchmark and the scenarios on a lab that is up."""

import argparse
import json
from unittest import mock

from driver import bench, instruments
from driver.errors import LabError

from trove_ceph.tests.unit.lab.test_driver_up import UpTestCase


class InstrumentsTestCase(UpTestCase):
    def setUp(self):
        super().setUp()
        (self.root / 'state').mkdir(parents=True, exist_ok=True)
        (self.root / 'state' / 'installed').touch()
        patch = mock.patch('driver.processes.supervisord_pid', return_value=1)
        self.supervisord_pid = patch.start()
        self.addCleanup(patch.stop)
        self.playbook = self.program('ansible/bin/ansible-playbook')


class InstallTest(InstrumentsTestCase):
    def test_playbook_of_the_instruments_runs(self):
        self.assertEqual(self.root / 'instruments' / 'bin', instruments.install(self.settings))
        arguments = json.loads(self.playbook.read_text())['arguments']
        self.assertIn(str(self.lab_dir / instruments.PLAYBOOK), arguments)

    def test_failed_playbook_is_an_error(self):
        self.program('ansible/bin/ansible-playbook', code=2)
        error = self.assertRaises(LabError, instruments.install, self.settings)
        self.assertIn(f'All logs: {self.root}/log', str(error))

    def test_lab_must_be_complete_and_running(self):
        self.supervisord_pid.return_value = None
        error = self.assertRaises(LabError, instruments.install, self.settings)
        self.assertIn('run make lab to start it', str(error))
        (self.root / 'state' / 'installed').unlink()
        error = self.assertRaises(LabError, instruments.install, self.settings)
        self.assertIn('no cloud yet', str(error))
        self.assertFalse(self.playbook.exists())


class BenchTest(InstrumentsTestCase):
    def setUp(self):
        super().setUp()
        self.record = self.program('instruments/bin/trove-ceph-bench', code=3)
        identities = {'admin': {'OS_USERNAME': 'admin'}, 'tenant': {'OS_USERNAME': 'tenant'}}
        self.write('etc/credentials.json', json.dumps(identities))

    def run_bench(self, plan=bench.QUICK, results=None, identity='admin'):
        arguments = argparse.Namespace(plan=plan, results=results, identity=identity)
        code = bench.run(self.settings, arguments)
        return code, json.loads(self.record.read_text())

    def test_plan_runs_as_administrator_in_a_new_folder(self):
        code, run = self.run_bench()
        self.assertEqual(3, code)
        verb, plan, _, results = run['arguments']
        self.assertEqual(('run', 'quick'), (verb, plan))
        self.assertTrue(results.startswith(f'{self.root}/bench/quick-'), results)
        self.assertEqual('admin', run['environment']['OS_USERNAME'])
        self.assertEqual(f'{self.root}/etc/ceph/ceph.conf', run['environment']['BENCH_CEPH_CONF'])
        self.assertTrue(run['environment']['BENCH_BACKUPS'].endswith('/bin/lab backups'))

    def test_plan_is_about_the_first_database(self):
        report = {'instance': {'id': 'i-1'}, 'placement': {'pool': 'p', 'image': 'volume-1'}}
        self.write('report.json', json.dumps(report))
        _, run = self.run_bench(identity='tenant')
        self.assertEqual('tenant', run['environment']['OS_USERNAME'])
        self.assertEqual('i-1', run['environment']['BENCH_INSTANCE'])
        self.assertEqual('p/volume-1', run['environment']['BENCH_INSTANCE_IMAGE'])

    def test_files_are_found_from_where_the_user_is(self):
        plan = self.directory / 'mine.yaml'
        plan.touch()
        _, run = self.run_bench(str(plan), results=str(self.directory / 'results'))
        self.assertEqual(['run', str(plan), '-d', f'{self.directory}/results'], run['arguments'])
