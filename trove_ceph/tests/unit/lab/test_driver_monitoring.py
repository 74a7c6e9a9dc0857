# SPDX-License-Identifier: Apache-2.0
"""The check of the lab's metrics by Prometheus, whose HTTP interface is a fake here."""

import contextlib
import copy
import http.server
import json
import urllib.parse
from unittest import mock

from driver import __main__ as command_line
from driver import monitoring
from driver.errors import LabError

from trove_ceph.conf import metrics as metrics_conf
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.tests.unit.lab.lab_process import serving
from trove_ceph.tests.unit.lab.test_backup_settings import SettingsTestCase
from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase
from trove_ceph.tests.unit.monitoring import promtool

TARGETS = [('trove-taskmanager', '127.0.0.1:9751'), ('trove-ceph-storage', '127.0.0.1:9752')]
#: What Prometheus says if all is well.
GOOD = {
    '/api/v1/targets': {
        'activeTargets': [
            {'labels': {'job': job}, 'health': 'up', 'lastError': ''} for job, _ in TARGETS
        ]
    },
    '/api/v1/rules': {
        'groups': [
            {
                'rules': [
                    {'name': 'Old', 'health': 'ok', 'query': 'max(trove_ceph_age{hours="48"}) > 0'},
                    {
                        'name': 'Failing',
                        'health': 'ok',
                        'query': 'rate(trove_ceph_failures_total[1h]) / '
                        'rate(trove_ceph_operation_seconds_count[1h]) > 0.1',
                    },
                ]
            }
        ]
    },
    '/api/v1/metadata': {
        'trove_ceph_age': [{}],
        'trove_ceph_failures': [{}],
        'trove_ceph_operation_seconds': [{}],
    },
    '/api/v1/query': {
        'result': [
            {'metric': {'job': job, 'source': 'tables'}, 'value': [0, '1']} for job, _ in TARGETS
        ]
    },
    '/api/v1/alerts': {'alerts': []},
}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        data = self.server.answers.get(urllib.parse.urlparse(self.path).path)
        code = data if isinstance(data, int) else 200
        body = json.dumps({'status': 'success', 'data': data}).encode()
        self.send_response(code)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class PrometheusTestCase(InstrumentsTestCase):
    def setUp(self):
        super().setUp()
        self.server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
        self.answers = self.server.answers = copy.deepcopy(GOOD)
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(serving(self.server))
        self.api = monitoring.Api(f'http://127.0.0.1:{self.server.server_address[1]}')

    def check(self):
        return monitoring.check(self.api, TARGETS, deadline_sec=0)

    def rule(self, at=0):
        return self.answers['/api/v1/rules']['groups'][0]['rules'][at]


class CheckTest(PrometheusTestCase):
    def test_all_is_well(self):
        self.assertEqual([], self.check())

    def test_a_target_that_is_down(self):
        state = self.answers['/api/v1/targets']['activeTargets'][1]
        state.update(health='down', lastError='connection refused')
        self.assertEqual(
            ['target trove-ceph-storage at 127.0.0.1:9752 is down: connection refused'],
            self.check(),
        )
        self.answers['/api/v1/targets'] = {'activeTargets': []}
        self.assertEqual(2, sum('is unknown: not scraped yet' in line for line in self.check()))

    def test_a_rule_that_does_not_evaluate(self):
        self.rule().update(health='err', lastError='many-to-many matching not allowed')
        self.assertEqual(['rule Old is err: many-to-many matching not allowed'], self.check())
        self.rule().update(health='unknown', lastError='')
        self.assertEqual(['rule Old is unknown:'], self.check())

    def test_rules_that_are_not_loaded(self):
        self.answers['/api/v1/rules'] = {'groups': []}
        (line,) = self.check()
        self.assertIn('no rule of', line)

    def test_a_metric_that_no_target_exports(self):
        del self.answers['/api/v1/metadata']['trove_ceph_operation_seconds']
        self.assertEqual(
            [
                'rule Failing reads trove_ceph_operation_seconds_count, which no target exports',
            ],
            self.check(),
        )

    def test_figures_that_are_missing(self):
        self.answers['/api/v1/query']['result'][0]['value'][1] = '0'
        (line,) = self.check()
        self.assertIn('the figures of tables of trove-taskmanager are missing', line)
        self.answers['/api/v1/query'] = {'result': []}
        self.assertIn('no process exports figures', self.check()[0])

    def test_waits_while_prometheus_starts(self):
        # It has no targets and rules yet, and then answers.
        for path in GOOD:
            self.answers[path] = 503
        with mock.patch('time.sleep', side_effect=lambda _sec: self.answers.update(GOOD)):
            self.assertEqual([], monitoring.check(self.api, TARGETS))

    def test_a_program_that_has_ended_is_an_error(self):
        api = monitoring.Api(self.api.url, mock.Mock(returncode=2))
        error = self.assertRaises(LabError, monitoring.check, api, TARGETS)
        self.assertIn('Prometheus ended with exit code 2', str(error))

    def test_a_refused_request_is_an_error(self):
        self.answers['/api/v1/rules'] = 400
        error = self.assertRaises(LabError, self.check)
        self.assertIn('refuses /api/v1/rules', str(error))

    def test_the_summary_names_alerts(self):
        self.answers['/api/v1/alerts'] = {'alerts': [{'labels': {'alertname': 'Old'}}]}
        text = monitoring._summary(self.api)
        self.assertIn('evaluates 2 rules, and has their 3 metrics', text)
        self.assertIn('firing: Old', text)


class CommandTest(PrometheusTestCase):
    def run_command(self):
        arguments = command_line._parser().parse_args(['monitoring'])
        running = mock.MagicMock()
        running.return_value.__enter__.return_value = self.api
        with (
            mock.patch('driver.monitoring._running', running),
            mock.patch('shutil.which', return_value=self.installed),
            mock.patch('driver.monitoring.DEADLINE_SEC', 0),
        ):
            return arguments.run(self.settings, arguments)

    def test_prints_what_it_found(self):
        self.installed = '/usr/bin/prometheus'
        self.assertEqual(0, self.run_command())
        self.assertIn('Prometheus scrapes all targets', self.output.getvalue())
        self.assertFalse(self.playbook.exists())

    def test_installs_prometheus(self):
        self.installed = None
        self.assertEqual(0, self.run_command())
        arguments = json.loads(self.playbook.read_text())['arguments']
        self.assertIn(str(self.lab_dir / monitoring.PLAYBOOK), arguments)

    def test_fails_without_prometheus(self):
        self.installed = None
        self.program('ansible/bin/ansible-playbook', code=2)
        self.assertRaises(LabError, self.run_command)

    def test_refuses_a_stopped_lab(self):
        self.supervisord_pid.return_value = None
        arguments = command_line._parser().parse_args(['monitoring'])
        error = self.assertRaises(LabError, arguments.run, self.settings, arguments)
        self.assertIn('run make lab to start it', str(error))


class ConfigurationTest(InstrumentsTestCase):
    def test_prometheus_accepts_it(self):
        path = self.write('prometheus.yml', monitoring.configuration(self.settings))
        succeeded, printed = promtool.run('check', 'config', path)
        self.assertTrue(succeeded, printed)
        content = json.loads(path.read_text())
        self.assertEqual([str(promtool.ALERTS)], content['rule_files'])
        self.assertEqual(
            ['127.0.0.1:9751', '127.0.0.1:9752'],
            [one['static_configs'][0]['targets'][0] for one in content['scrape_configs']],
        )


class SettingsTest(SettingsTestCase):
    """The services of the lab export on the ports that Prometheus scrapes."""

    PORTS = {'metrics_taskmanager': 19751, 'metrics_storage': 19752}

    NAMES = ('enabled', 'address', 'port')

    def test_storage_service(self):
        text = self.render('storage_service/trove-ceph-storage.conf.j2', lab_ports=self.PORTS)
        options = self.read(text, metrics_conf.register_storage).trove_ceph_metrics
        self.assertEqual((True, '127.0.0.1', 19752), tuple(options[name] for name in self.NAMES))

    def test_taskmanager(self):
        text = self.render('trove/taskmanager.conf.j2', lab_ports=self.PORTS)
        options = self.read(text, taskmanager_conf.register).trove_ceph_metrics
        self.assertEqual((True, '127.0.0.1', 19751), tuple(options[name] for name in self.NAMES))
