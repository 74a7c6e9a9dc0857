# SPDX-License-Identifier: Apache-2.0
"""The benchmark and the scenarios on a running lab."""

import argparse
import json
import subprocess
import tomllib
from unittest import mock

import jinja2
import yaml
from driver import bench, instruments
from driver.errors import LabError
from oslotest import base

from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tests.unit.lab.test_driver_up import UpTestCase
from trove_ceph_bench import arguments as bench_arguments


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
    def test_runs_the_playbook_of_the_instruments(self):
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


class WheelTest(base.BaseTestCase):
    def test_a_change_of_any_package_builds_it_anew(self):
        tasks = yaml.safe_load((LAB / 'tasks/wheel.yml').read_text())
        (paths,) = [
            one['ansible.builtin.find']['paths'] for one in tasks if 'ansible.builtin.find' in one
        ]
        project = LAB.parent
        watched = {
            jinja2.Template(path).render(project_dir=str(project)).removeprefix(f'{project}/')
            for path in paths
        }
        settings = tomllib.loads((project / 'pyproject.toml').read_text())['tool']['setuptools']
        found = settings['packages']['find']
        packages = {
            str(path.relative_to(project))
            for where in found['where']
            for pattern in found['include']
            for path in (project / where).glob(pattern)
            if (path / '__init__.py').is_file()
        }
        self.assertIn('bench/trove_ceph_bench', packages)
        for package in packages:
            self.assertTrue(
                any(package == one or package.startswith(f'{one}/') for one in watched), package
            )


class BindingsTest(UpTestCase):
    """Plans about storage reach Ceph through the distribution's modules."""

    def environment_after(self, role):
        """Run the linking commands of a role's first task; return the directory of packages."""
        directory = self.root / role
        (directory / 'lib/python3.11/site-packages').mkdir(parents=True)
        task = yaml.safe_load((LAB / f'roles/{role}/tasks/main.yml').read_text())[0]
        text = yaml.safe_load((LAB / 'group_vars/all.yml').read_text())['link_bindings']
        names = {'venv': str(directory), 'instruments': str(directory)}
        names['linked_into'] = self.render(task.get('vars', {}).get('linked_into', ''), names)
        names['link_bindings'] = self.render(text, names)
        for command in task['once']['commands']:
            if command[0] == '/bin/sh':
                subprocess.run([self.render(each, names) for each in command], check=True)
        return directory / 'lib/python3.11/site-packages'

    def render(self, text, names):
        return jinja2.Template(text).render(names)

    def test_ceph_can_be_imported_in_every_environment(self):
        for role in ('python_env', 'instruments'):
            linked = {
                link.name.partition('.')[0] for link in self.environment_after(role).iterdir()
            }
            self.assertLessEqual({'rados', 'rbd'}, linked, role)


class BenchTest(InstrumentsTestCase):
    def setUp(self):
        super().setUp()
        self.record = self.program('instruments/bin/trove-ceph-bench', code=3)
        identities = {'admin': {'OS_USERNAME': 'admin'}, 'tenant': {'OS_USERNAME': 'tenant'}}
        self.write('etc/credentials.json', json.dumps(identities))

    def run_bench(self, *options):
        parser = argparse.ArgumentParser()
        bench.add_arguments(parser)
        code = bench.run(self.settings, parser.parse_args(options))
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
        self.assertTrue(run['environment']['BENCH_KILL_SERVER'].endswith('/bin/lab kill-server'))

    def test_plan_has_the_commands_of_the_cloud(self):
        _, run = self.run_bench('create-latency')
        programs = run['environment']['PATH'].split(':')
        self.assertEqual([f'{self.root}/instruments/bin', f'{self.root}/venv/bin'], programs[:2])
        self.assertEqual(
            f'{self.root}/etc/trove/trove.conf', run['environment']['TROVE_CEPH_TROVE_CONF']
        )

    def test_plan_measures_the_first_database(self):
        report = {
            'instance': {'id': 'i-1', 'name': 'first-database'},
            'placement': {'pool': 'p', 'image': 'volume-1'},
        }
        self.write('report.json', json.dumps(report))
        # An administrator does not find the instance of a tenant by its name. The id is another one
        # in each lab, and a run could not be resumed there.
        for identity, instance in (('tenant', 'first-database'), ('admin', 'i-1')):
            _, run = self.run_bench('--as', identity)
            self.assertEqual(identity, run['environment']['OS_USERNAME'])
            self.assertEqual(instance, run['environment']['BENCH_INSTANCE'])
            self.assertEqual('p/volume-1', run['environment']['BENCH_INSTANCE_IMAGE'])

    def test_finds_files_from_the_users_directory(self):
        plan = self.directory / 'mine.yaml'
        plan.touch()
        _, run = self.run_bench(str(plan), '--results', str(self.directory / 'results'))
        self.assertEqual(['run', str(plan), '-d', f'{self.directory}/results'], run['arguments'])

    def test_passes_changes_of_the_plan_on(self):
        options = ['--set', 'operations.repeats=5', '--set', 'operations.sizes_mib=[64, 256]']
        options += ['--only-variant', 'ours', '--only-variant', 'rbd', '--dry-run']
        _, run = self.run_bench('storage-copy', *options)
        parsed = bench_arguments.parse(run['arguments'])
        self.assertEqual(['operations.repeats=5', 'operations.sizes_mib=[64, 256]'], parsed.set)
        self.assertEqual(['ours', 'rbd'], parsed.only_variant)
        self.assertTrue(parsed.dry_run)
