# SPDX-License-Identifier: Apache-2.0
"""The whole main job: first run, repeated run, and resumption after an interruption."""

import contextlib
import copy
import importlib
import io
import json
from pathlib import Path
from unittest import mock

import fixtures
from main_job import report
from main_job.errors import JobError
from oslotest import base

# Imported first: it installs a fake of Ceph's bindings, which the job imports too.
from trove_ceph.tests.unit.lab.test_main_job_placement import placement
from trove_ceph.tests.unit.lab.test_main_job_report import REPORT

main_job = importlib.import_module('main_job.__main__')


class FakeClient:
    """The tenant's instances by name, and the recorded requests."""

    def __init__(self):
        self.instances = {}
        self.calls = []
        self.healthy = True

    def find_instance(self, name):
        return self.instances.get(name)

    def network_id(self, name):
        return f'id-of-{name}'

    def flavor_name(self, flavor_id):
        return {'f-small': 'db.small', 'f-large': 'db.large'}[flavor_id]

    def create_instance(self, name, **options):
        self.calls.append(('create', name))
        self.options = options
        self.instances[name] = {
            'id': f'u-{len(self.calls)}',
            'name': name,
            'status': 'BUILD',
            'datastore_version': '9.7.4',
            'flavor': 'f-small',
            'volume': options.get('size'),
            'addresses': [
                {'address': '10.22.0.5', 'type': 'private'},
                {'address': '10.21.0.9', 'type': 'public'},
            ],
        }
        return self.instances[name]

    def wait_healthy(self, instance_id, note):
        (instance,) = (one for one in self.instances.values() if one['id'] == instance_id)
        if not self.healthy:
            instance['status'] = 'ERROR'
            raise JobError(f'instance {instance_id} is ERROR')
        instance['status'] = 'ACTIVE'
        return instance

    def delete_instance(self, instance_id):
        self.calls.append(('delete', instance_id))
        self.instances = {n: i for n, i in self.instances.items() if i['id'] != instance_id}

    def ensure_database(self, instance_id, name):
        self.calls.append(('database', name))

    def ensure_user(self, instance_id, user, password, database):
        self.calls.append(('user', password))


class MainJobTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('etc/secrets', 'state'):
            (self.root / name).mkdir(parents=True)
        (self.root / 'state/virt-type').write_text('qemu\n')
        (self.root / 'etc/credentials.json').write_text('{"tenant": {}, "admin": {}}')
        self.settings = {
            'lab_root': str(self.root),
            'lab_volume_gib': 2,
            'lab_sysbench_seconds': 30,
        }
        self.client = FakeClient()
        self.database = mock.Mock()
        self.database.return_value.configure_mock(password='pw')
        self.database.return_value.settings.return_value = REPORT['mysql']
        self.database.return_value.load.return_value = REPORT['sysbench']
        self.place = mock.Mock(return_value=REPORT['placement'])
        for name, value in (
            ('main_job.client.Client', lambda venv, credentials: self.client),
            ('main_job.database.Database', self.database),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))

    def _run(self):
        job = main_job.MainJob(self.settings)
        job._placement = self.place
        with contextlib.redirect_stdout(io.StringIO()) as out:
            job.run()
        return out.getvalue()

    def _report(self):
        return report.load(self.root / 'report.json')

    def _verbs(self):
        return [verb for verb, _ in self.client.calls]


class MainJobTest(MainJobTestCase):
    def test_first_run_creates_and_reports(self):
        self.assertIn('10.21.0.9:3306', self._run())
        self.assertEqual(['create', 'database', 'user'], self._verbs())
        made = self._report()
        self.assertEqual('10.21.0.9', made['instance']['address'])
        self.assertEqual('software emulation', made['virt_type'])
        self.assertEqual(
            {
                'request',
                'build',
                'create_to_healthy',
                'database_and_user',
                'connect',
                'sysbench_prepare',
                'sysbench_run',
                'placement',
            },
            set(made['seconds']) - {'everything_since_make_lab'},
        )
        self.assertEqual(('db.small', 2), self._flavor_and_size(made))
        self.assertEqual('net-id=id-of-tenant-net', self.client.options['nic'])

    def test_second_run_changes_nothing(self):
        self._run()
        first = copy.deepcopy(self._report())
        self.client.calls.clear()
        self._run()
        self.assertEqual([], self.client.calls)
        self.assertEqual(first, self._report())
        self.database.return_value.load.assert_called_once()
        self.assertEqual(2, self.place.call_count)

    def _flavor_and_size(self, made):
        return made['instance']['flavor'], made['instance']['size_gib']

    def test_reports_the_present_size(self):
        self._run()
        (instance,) = self.client.instances.values()
        instance |= {'flavor': 'f-large', 'volume': 5}
        self._run()
        made = self._report()
        self.assertEqual(('db.large', 5), self._flavor_and_size(made))
        self.assertIn('resize volume first-database 6', ' '.join(made['try_next']))
        self.assertEqual(1, self._verbs().count('create'))

    def test_unknown_flavor(self):
        job = main_job.MainJob(self.settings)
        instance = self.client.create_instance('x', size=3)
        del instance['flavor']
        self.assertEqual('db.small', job._instance_facts(instance)['flavor'])

    def test_replaces_a_failed_instance(self):
        self.client.healthy = False
        self.assertRaises(JobError, self._run)
        self.assertEqual({}, self._report())
        self.client.healthy = True
        self._run()
        self.assertEqual(['create', 'delete', 'create', 'database', 'user'], self._verbs())
        self.assertNotIn('remove_failed', self._report()['seconds'])

    def test_resumes_after_an_interruption_at_each_step(self):
        reached = self.database.return_value
        for target, name in (
            (self.client, 'wait_healthy'),
            (self.client, 'ensure_database'),
            (self.client, 'ensure_user'),
            (reached, 'wait_reachable'),
            (reached, 'prepare'),
            (reached, 'load'),
            (self, 'place'),
            (reached, 'settings'),
        ):
            self.client.instances.clear()
            self.client.calls.clear()
            (self.root / 'report.json').unlink(missing_ok=True)
            with mock.patch.object(target, name, side_effect=KeyboardInterrupt):
                self.assertRaises(KeyboardInterrupt, self._run)
            self.assertEqual({}, self._report(), name)
            self._run()
            self.assertEqual(1, self._verbs().count('create'), name)
            self.assertEqual(REPORT['placement'], self._report()['placement'], name)

    def test_ignores_the_report_of_another_instance(self):
        report.save(self.root / 'report.json', REPORT | {'instance': {'id': 'u-other'}})
        self._run()
        self.assertEqual('u-1', self._report()['instance']['id'])
        self.database.return_value.load.assert_called_once()

    def test_instance_without_a_floating_ip(self):
        job = main_job.MainJob(self.settings)
        instance = self.client.create_instance('x')
        instance['addresses'].pop()
        error = self.assertRaises(JobError, job._instance_facts, instance)
        self.assertIn('u-1 has no floating IP', str(error))

    def test_refuses_another_number_of_volumes(self):
        job = main_job.MainJob(self.settings)
        cloud = mock.Mock()
        with (
            mock.patch('cloud.connect', return_value=cloud),
            mock.patch.object(placement, 'prove', return_value={'objects': 3}) as prove,
        ):
            for count in (0, 2):
                cloud.block_storage.volumes.return_value = [mock.Mock()] * count
                error = self.assertRaises(JobError, job._placement, 'u-1')
                self.assertIn(f'{count} volumes are named trove-u-1', str(error))
            prove.assert_not_called()
            cloud.block_storage.volumes.return_value = [mock.Mock(id='v-7')]
            self.assertEqual({'objects': 3}, job._placement('u-1'))
        self.assertEqual('volume-v-7', prove.call_args.args[2])


class PasswordTest(MainJobTestCase):
    def test_keeps_a_password_for_each_instance(self):
        first = main_job.MainJob(self.settings)._password('u-1')
        self.assertGreaterEqual(len(first), 16)
        # An option's value must not look like an option.
        self.assertNotIn('-', first)
        self.assertEqual(first, main_job.MainJob(self.settings)._password('u-1'))
        self.assertNotEqual(first, main_job.MainJob(self.settings)._password('u-2'))
        path = self.root / 'etc/secrets/shop-u-1'
        self.assertEqual(0o600, path.stat().st_mode & 0o777)

    def test_replaces_the_empty_file_of_an_interrupted_run(self):
        (self.root / 'etc/secrets/shop-u-1').touch()
        self.assertGreaterEqual(len(main_job.MainJob(self.settings)._password('u-1')), 16)


class MainTest(MainJobTestCase):
    def _main(self, outcome):
        path = self.root / 'settings.json'
        path.write_text(json.dumps(self.settings))
        with (
            mock.patch('sys.argv', ['main_job', str(path)]),
            mock.patch.object(main_job.MainJob, 'run', side_effect=outcome),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()) as errors,
        ):
            return main_job.main(), errors.getvalue()

    def test_exit_codes(self):
        self.assertEqual((0, ''), self._main([None]))
        code, text = self._main(JobError('the volume is elsewhere'))
        self.assertEqual(1, code)
        self.assertEqual('\nlab: the main job failed: the volume is elsewhere\n', text)
        self.assertEqual(130, self._main(KeyboardInterrupt)[0])
