# SPDX-License-Identifier: Apache-2.0
"""The table of the lab's state, and the exports for a shell."""

import argparse
import contextlib
import http.server
import io
import json
import subprocess
from pathlib import Path
from unittest import mock

import fixtures
from driver import environment, status
from driver.errors import LabError

from cephcluster import layout, state
from trove_ceph.tests.unit.lab.lab_process import LabTestCase, serving

_CREDENTIALS = {
    'tenant': {'OS_USERNAME': 'tenant', 'OS_PASSWORD': "it's $HOME"},
    'admin': {'OS_USERNAME': 'admin', 'OS_PASSWORD': 'x'},
}
_INSTANCE = {
    'ID': 'u-1',
    'Name': 'first-database',
    'Datastore': 'mysql',
    'Datastore Version': '9.7.4',
    'Status': 'ACTIVE',
    'Operating Status': 'HEALTHY',
    'Size': 2,
}


class StatusTestCase(LabTestCase):
    """A lab whose programs return the outputs that a test sets."""

    def setUp(self):
        super().setUp()
        self.answers = {
            'supervisorctl': 'nova-api   RUNNING   pid 1, uptime 0:01:02\n',
            'ceph-cluster': json.dumps({'health': 'HEALTH_OK', 'checks': [], 'pools': []}),
            'tenant': json.dumps([_INSTANCE]),
            'admin': '[]',
        }
        self.useFixture(fixtures.MonkeyPatch('subprocess.run', self._run))

    def _run(self, command, env, **_options):
        name = Path(command[0]).name
        answer = self.answers[env['OS_USERNAME'] if name == 'openstack' else name]
        if isinstance(answer, Exception):
            raise answer
        return mock.Mock(stdout=answer, stderr='it failed')

    def _rows(self, part):
        return list(part(self.settings))

    def _credentials(self):
        self.write('etc/credentials.json', json.dumps(_CREDENTIALS))


class ProcessesTest(StatusTestCase):
    def test_reports_a_stopped_lab(self):
        (row,) = self._rows(status._processes)
        self.assertEqual(('supervisord', 'STOPPED', False), (row.name, row.state, row.ok))

    def test_memory_of_a_service_includes_its_workers(self):
        self.answers['supervisorctl'] = (
            'nova-api     RUNNING   pid 70, uptime 0:01:02\n'
            'trove-api    BACKOFF   Exited too quickly\n'
            'glance-api   STARTING\n\n'
        )
        groups, sizes = {70: 70, 71: 70, 72: 72}, {70: 40.0, 71: 60.0, 72: 9.0}
        with (
            mock.patch('driver.processes.supervisord_pid', return_value=5),
            mock.patch('driver.processes.lab_pids', return_value=list(groups)),
            mock.patch('os.getpgid', side_effect=groups.get),
            mock.patch('driver.processes.rss_mib', side_effect=sizes.get),
        ):
            rows = self._rows(status._processes)
        self.assertEqual(
            [
                ('nova-api', 'RUNNING', True, '100 MiB, up 0:01:02'),
                ('trove-api', 'BACKOFF', False, 'Exited too quickly'),
                ('glance-api', 'STARTING', False, ''),
            ],
            [(row.name, row.state, row.ok, row.detail) for row in rows],
        )

    def test_processes_of_the_second_compute_host(self):
        self.answers['supervisorctl'] = (
            'nova-compute   RUNNING   pid 9, uptime 0:01:02\novsdb   FATAL   Exited too quickly\n'
        )
        with (
            mock.patch('driver.processes.supervisord_pid', return_value=5),
            mock.patch('driver.processes.of_second_host', return_value=[7]),
        ):
            rows = self._rows(status._processes)[2:]
        self.assertEqual(
            [
                ('compute-2 nova-compute', True, 'up 0:01:02'),
                ('compute-2 ovsdb', False, 'Exited too quickly'),
            ],
            [(row.name, row.ok, row.detail) for row in rows],
        )


class CephTest(StatusTestCase):
    """The state as reported by the cluster's own tool."""

    def setUp(self):
        super().setUp()
        paths = layout.Layout(self.root / 'state/ceph')
        settings = layout.Settings(
            fsid='f',
            mon_addr='127.0.0.1',
            mon_port_v2=1,
            mon_port_v1=2,
            osd_classes=('nvme',),
            osd_gib=3,
            conf_dir=str(self.root / 'etc/ceph'),
            log_dir=str(self.root / 'log'),
        )
        self.document = state.describe(paths, settings)

    def _describe(self, status_of_health):
        replies = {
            'status': {'health': status_of_health},
            'osd df': {'nodes': []},
            'osd crush rule dump': [{'rule_id': 1, 'rule_name': 'on-nvme'}],
            'osd dump': {
                'pools': [
                    {
                        'pool_name': 'volumes-nvme',
                        'crush_rule': 1,
                        'size': 3,
                        'min_size': 2,
                        'pg_num': 32,
                        'erasure_code_profile': '',
                        'application_metadata': {'rbd': {}},
                    }
                ]
            },
        }
        state._describe_from_monitor(mock.Mock(command=replies.get), self.document)
        self.answers['ceph-cluster'] = json.dumps(self.document)
        return self._rows(status._ceph)

    def test_reports_a_healthy_cluster(self):
        cluster, pool = self._describe({'status': 'HEALTH_OK'})
        self.assertEqual(('HEALTH_OK', True, ''), (cluster.state, cluster.ok, cluster.detail))
        self.assertEqual('pool volumes-nvme', pool.name)
        # Only what the tool reports is shown.
        self.assertEqual('rule on-nvme, size 3, 32 PGs', pool.detail)

    def test_shows_the_reason(self):
        check = {'summary': {'message': '1 osds down'}}
        cluster, _pool = self._describe({'status': 'HEALTH_WARN', 'checks': {'OSD_DOWN': check}})
        self.assertEqual(('HEALTH_WARN', False), (cluster.state, cluster.ok))
        self.assertEqual('1 osds down', cluster.detail)

    def test_reports_a_stopped_cluster(self):
        self.answers['ceph-cluster'] = json.dumps(self.document)
        (row,) = self._rows(status._ceph)
        self.assertEqual(('DOWN', False), (row.state, row.ok))
        self.assertEqual('the monitor does not run', row.detail)

    def test_reports_a_failure_of_the_tool(self):
        for answer in ('', subprocess.TimeoutExpired('ceph-cluster', 60), FileNotFoundError()):
            self.answers['ceph-cluster'] = answer
            (row,) = self._rows(status._ceph)
            self.assertEqual(('UNREACHABLE', False), (row.state, row.ok))


class _Api(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(self.server.code)
        self.end_headers()

    def log_message(self, *_arguments):
        pass


class EndpointsTest(StatusTestCase):
    def setUp(self):
        super().setUp()
        self.settings.values['management_cidr'] = '127.0.0.0/24'
        self.api = http.server.HTTPServer(('127.0.0.1', 0), _Api)
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(serving(self.api))
        self.useFixture(fixtures.MonkeyPatch('driver.status.API_SERVICES', ('nova',)))
        self.settings.ports['nova'] = self.api.server_port

    def _state(self):
        (row,) = self._rows(status._endpoints)
        return row.state, row.ok

    def test_judges_http_status_codes(self):
        # A refused request shows a live service; a server error does not.
        for code, is_healthy in ((200, True), (401, True), (500, False), (503, False)):
            self.api.code = code
            self.assertEqual((str(code), is_healthy), self._state())

    def test_uses_no_proxy_for_this_machine(self):
        self.api.code = 200
        self.useFixture(fixtures.EnvironmentVariable('http_proxy', 'http://127.0.0.1:1'))
        self.assertEqual(('200', True), self._state())

    def test_reports_a_silent_endpoint(self):
        self.settings.ports['nova'] = 1
        self.assertEqual(('no answer', False), self._state())


class DatabasesTest(StatusTestCase):
    def test_reports_healthy_and_unhealthy_databases(self):
        self._credentials()
        self.answers['admin'] = json.dumps(
            [_INSTANCE | {'Name': 'other', 'Status': 'BUILD', 'Operating Status': None}]
        )
        first, other = self._rows(status._databases)
        self.assertEqual(
            ('first-database', 'ACTIVE HEALTHY', True, 'mysql 9.7.4, 2 GiB, u-1'),
            (first.name, first.state, first.ok, first.detail),
        )
        self.assertEqual(('other', 'BUILD', False), (other.name, other.state, other.ok))

    def test_active_without_health_is_unhealthy(self):
        self._credentials()
        self.answers['tenant'] = json.dumps([_INSTANCE | {'Operating Status': 'FAILED'}])
        (row,) = self._rows(status._databases)
        self.assertEqual(('ACTIVE FAILED', False), (row.state, row.ok))

    def test_reports_a_failure_of_one_identity(self):
        self._credentials()
        self.answers['tenant'] = ''
        (row,) = self._rows(status._databases)
        self.assertEqual(('of tenant', 'UNREACHABLE'), (row.name, row.state))
        self.assertEqual('it failed', row.detail)

    def test_reports_an_incomplete_cloud(self):
        (row,) = self._rows(status._databases)
        self.assertEqual(('UNREACHABLE', False), (row.state, row.ok))
        self.assertIn('run make lab first', row.detail)


class ShowTest(StatusTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch('driver.status._endpoints', lambda settings: []))
        self.useFixture(fixtures.MonkeyPatch('driver.status._guests', lambda settings: []))
        self._supervisord = mock.patch('driver.processes.supervisord_pid', return_value=5)

    def _show(self, form='table'):
        out = io.StringIO()
        with self._supervisord, contextlib.redirect_stdout(out):
            code = status.show(self.settings, argparse.Namespace(format=form))
        return code, out.getvalue()

    def test_without_a_lab(self):
        self.assertRaises(LabError, self._show)

    def test_exits_with_zero_if_all_are_healthy(self):
        self.write('etc/supervisord.conf')
        self._credentials()
        code, text = self._show()
        self.assertEqual(0, code)
        self.assertEqual('3 parts, all healthy', text.splitlines()[-1])

    def test_exits_with_one_if_a_part_is_unhealthy(self):
        self.write('etc/supervisord.conf')
        self._credentials()
        self.answers['supervisorctl'] = 'trove-api FATAL gave up\n'
        code, text = self._show()
        self.assertEqual(1, code)
        self.assertEqual('3 parts, 1 unhealthy (marked !)', text.splitlines()[-1])
        marked = [line.split() for line in text.splitlines() if line.startswith('!')]
        self.assertEqual([['!', 'process', 'trove-api', 'FATAL', 'gave', 'up']], marked)

    def test_shows_the_parts_of_an_incomplete_lab(self):
        self.write('etc/supervisord.conf')
        code, text = self._show()
        self.assertEqual(1, code)
        self.assertIn('nova-api', text)

    def test_json(self):
        self.write('etc/supervisord.conf')
        self._credentials()
        code, text = self._show('json')
        self.assertEqual(0, code)
        self.assertEqual(['process', 'ceph', 'database'], [row['kind'] for row in json.loads(text)])


class GuestTest(LabTestCase):
    def test_lists_only_guests_of_this_lab(self):
        guest = self.guest('instance-0000000a', self.root)
        self.guest('instance-0000000b', '/var/lib')
        (row,) = status._guests(self.settings)
        self.assertEqual(('guest', 'instance-0000000a', True), (row.kind, row.name, row.ok))
        self.assertRegex(row.detail, rf'^[1-9]\d* MiB, pid {guest.pid}$')


class EnvironmentTest(LabTestCase):
    def _show(self, identity):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            environment.show(self.settings, argparse.Namespace(identity=identity))
        return out.getvalue()

    def test_refuses_before_the_first_cloud(self):
        self.assertIn('run make lab first', str(self.assertRaises(LabError, self._show, 'tenant')))

    def test_output_is_valid_shell(self):
        self.settings.values['root'] = str(self.directory / 'a lab')
        path = self.settings.root / 'etc/credentials.json'
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(_CREDENTIALS))
        # Evaluated twice: the path must not grow.
        script = self._show('tenant') * 2 + 'printf "%s\\n" "$OS_USERNAME" "$OS_PASSWORD" "$PATH"'
        done = subprocess.run(
            ['/bin/sh', '-eu'], input=script, env={'PATH': '/bin'}, text=True, capture_output=True
        )
        self.assertEqual(
            ['tenant', "it's $HOME", f'{self.settings.root}/venv/bin:/bin'],
            done.stdout.splitlines(),
        )
        self.assertIn('export OS_USERNAME=admin\n', self._show('admin'))
