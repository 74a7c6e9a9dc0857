# SPDX-License-Identifier: Apache-2.0
"""The selection of scenarios, the results in Tempest's stream, and the final table."""

import contextlib
import datetime
import fcntl
import io
import json
import os
import re
import signal
import sys
import threading
import time
import types
from pathlib import Path

import fixtures
import subunit
from oslotest import base
from scenarios import __main__ as command_line
from scenarios import leftovers, report, selection, stream
from troveclient.apiclient import exceptions as trove_errors

OURS = 'trove_ceph_tempest_plugin.tests.scenario.test_database.TestDatabase_nvme.test_a'
THEIRS = 'trove_tempest_plugin.tests.scenario.test_replication.TestReplicationMySQL.test_b'
EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def at(seconds):
    return EPOCH + datetime.timedelta(seconds=seconds)


class SelectionTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.chosen = selection.load(selection.FILE)

    def _selected(self, **how):
        how = {'whose': None, 'smoke': False, 'regex': None} | how
        pattern = re.compile(selection.pattern(self.chosen, **how))
        names = (
            f'{OURS}[id-1,smoke]',
            OURS.replace('test_a', 'test_c') + '[id-2]',
            OURS.replace('TestDatabase_nvme', 'TestProvisioning_hdd') + '[id-1,smoke]',
            f'{THEIRS}[id-3]',
            THEIRS.replace('MySQL', 'PostgreSQL') + '[id-4]',
            'tempest.api.compute.test_x.TestY.test_z[id-5,smoke]',
        )
        return [number for number, name in enumerate(names) if pattern.search(name)]

    def test_ours_and_theirs(self):
        self.assertEqual([0, 1, 2, 3], self._selected())
        self.assertEqual([0, 1, 2], self._selected(whose='ours'))
        self.assertEqual([3], self._selected(whose='theirs'))

    def test_smoke_uses_one_database(self):
        self.assertEqual([0], self._selected(smoke=True))

    def test_all_conditions_hold(self):
        self.assertEqual([1], self._selected(regex='test_c$|test_c.id'))
        self.assertEqual([], self._selected(smoke=True, regex='test_c'))

    def test_each_expected_failure_has_a_reason(self):
        for pattern, reason in self.chosen.expected_failures.items():
            re.compile(pattern)
            self.assertTrue(reason.strip(), pattern)

    def test_reason_to_fail(self):
        chosen = selection.Selection([], [], [], {r'\.test_b$': 'why'})
        self.assertEqual('why', chosen.reason_to_fail(THEIRS))
        self.assertIsNone(chosen.reason_to_fail(OURS))


class StreamTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.expected = {}
        self.source = io.BytesIO()
        self.events = subunit.StreamResultToBytes(self.source)

    def event(self, name, status, seconds, **more):
        self.events.status(
            test_id=f'{name}[id-1,smoke]', test_status=status, timestamp=at(seconds), **more
        )

    def attach(self, name, file_name, text, mime='text/plain; charset=utf8'):
        self.events.status(
            test_id=f'{name}[id-1,smoke]',
            file_name=file_name,
            file_bytes=text.encode(),
            mime_type=mime,
        )

    def outcome(self, *names):
        outcome = stream.Outcome(list(names), self.expected.get, now=lambda: at(0).timestamp())
        self.source.seek(0)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            with open(self.directory / 'copy', 'wb') as copy:
                stream.follow(self.source, copy, outcome)
        self.output = output.getvalue()
        return outcome


class StreamTest(StreamTestCase):
    def test_pass_with_figures(self):
        self.event(OURS, 'inprogress', 100)
        self.attach(OURS, 'figures', '{"read": {"tps": 12.5}}', 'application/json')
        self.event(OURS, 'success', 130.5)
        outcome = self.outcome(OURS)
        (row,) = outcome.rows
        self.assertEqual(
            (OURS, 'passed', 30.5, 100.0), (row.name, row.result, row.seconds, row.prepared_sec)
        )
        self.assertEqual({'read': {'tps': 12.5}}, row.figures)
        self.assertTrue(outcome.successful())
        self.assertIn('test_database.TestDatabase_nvme.test_a …', self.output)
        self.assertIn('passed              30.5 s', self.output)

    def test_preparation_counts_from_the_test_before(self):
        for name, began, ended in ((OURS, 10, 20), (THEIRS, 50, 60)):
            self.event(name, 'inprogress', began)
            self.event(name, 'success', ended)
        self.assertEqual([10, 30], [row.prepared_sec for row in self.outcome(OURS, THEIRS).rows])

    def test_failure(self):
        self.event(OURS, 'inprogress', 1)
        self.attach(OURS, 'traceback', 'Traceback:\n  File x\nAssertionError: 2 != 3\n\n')
        self.event(OURS, 'fail', 2)
        outcome = self.outcome(OURS)
        self.assertEqual('failed', outcome.rows[0].result)
        self.assertEqual('AssertionError: 2 != 3', outcome.rows[0].reason)
        self.assertFalse(outcome.successful())

    def test_expected_failure_counts_as_success(self):
        self.expected[OURS] = 'a defect of Trove'
        self.event(OURS, 'fail', 2)
        outcome = self.outcome(OURS)
        self.assertEqual('expected failure', outcome.rows[0].result)
        self.assertEqual('a defect of Trove', outcome.rows[0].reason)
        self.assertTrue(outcome.successful())

    def test_reports_an_unexpected_pass(self):
        self.expected[OURS] = 'a defect of Trove'
        self.event(OURS, 'success', 2)
        outcome = self.outcome(OURS)
        self.assertEqual('UNEXPECTED PASS', outcome.rows[0].result)
        self.assertTrue(outcome.successful())

    def test_skip(self):
        self.attach(OURS, 'reason', 'no Ceph')
        self.event(OURS, 'skip', 2)
        outcome = self.outcome(OURS)
        self.assertEqual(('skipped', 'no Ceph'), (outcome.rows[0].result, outcome.rows[0].reason))
        self.assertTrue(outcome.successful())

    def test_class_that_cannot_be_set_up(self):
        whole = f'setUpClass ({OURS.rpartition(".")[0]})'
        self.events.status(test_id=whole, test_status='fail', timestamp=at(9))
        outcome = self.outcome(OURS)
        self.assertEqual([whole], [row.name for row in outcome.rows])
        self.assertEqual([], outcome.missing())
        self.assertFalse(outcome.successful())

    def test_interrupted_run_is_no_success(self):
        self.event(OURS, 'inprogress', 1)
        self.event(OURS, 'success', 2)
        outcome = self.outcome(OURS, THEIRS)
        self.assertEqual([THEIRS], outcome.missing())
        self.assertFalse(outcome.successful())

    def test_activity_follows_the_order_of_the_run(self):
        for name in (THEIRS, OURS):
            self.event(name, 'exists', 0)
        outcome = self.outcome(OURS, THEIRS)
        self.assertIn('preparing test_replication.', outcome.activity())
        self.source.seek(0)
        self.source.truncate()
        self.event(THEIRS, 'success', 1)
        with contextlib.redirect_stdout(io.StringIO()):
            stream.follow(io.BytesIO(self.source.getvalue()), io.BytesIO(), outcome)
        self.assertIn('preparing test_database.', outcome.activity())

    def test_saves_the_stream(self):
        self.event(OURS, 'success', 2)
        self.outcome(OURS)
        self.assertEqual(self.source.getvalue(), (self.directory / 'copy').read_bytes())


class ReportTest(StreamTestCase):
    def test_table_and_files(self):
        self.event(OURS, 'inprogress', 100)
        self.attach(OURS, 'figures', '{"read": {"tps": 12.5, "by": {"osd.0": 3}}}')
        self.event(OURS, 'success', 101)
        self.attach(THEIRS, 'traceback', 'Error: lost\n')
        self.event(THEIRS, 'fail', 102)
        third = THEIRS + 'c'
        outcome = self.outcome(OURS, THEIRS, third)
        report.save(self.directory, outcome)
        text = report.render(outcome, self.directory)
        self.assertIn(f'passed              100.0      1.0  {OURS}', text)
        self.assertIn('read: tps 12.5, by osd.0=3', text)
        self.assertIn('Error: lost', text)
        self.assertIn(f'not run                             {third}', text)
        self.assertIn('1 passed, 1 failed', text)
        kept = json.loads((self.directory / 'scenario.json').read_text())
        self.assertFalse(kept['good'])
        self.assertEqual(['passed', 'failed'], [row['result'] for row in kept['tests']])
        self.assertEqual(12.5, kept['tests'][0]['figures']['read']['tps'])
        self.assertEqual([third], kept['not_run'])
        self.assertIn('Error: lost', (self.directory / 'scenario.log').read_text())


class FakeTrove:
    """Trove with backups and instances by name; a source with replicas cannot be deleted."""

    def __init__(self, backups, instances):
        self._backups = {f'id-{name}': name for name in backups}
        self._instances = {f'id-{name}': (name, source) for name, source in instances.items()}
        self.order = []
        self.backups = types.SimpleNamespace(list=self._list_backups, delete=self._delete_backup)
        self.mgmt_instances = types.SimpleNamespace(list=self._list_instances)
        self.instances = types.SimpleNamespace(force_delete=self._delete_instance)

    def _list_backups(self, all_projects):
        assert all_projects
        return [types.SimpleNamespace(id=key, name=name) for key, name in self._backups.items()]

    def _list_instances(self):
        return [
            types.SimpleNamespace(id=key, name=name, replica_of={'id': source} if source else None)
            for key, (name, source) in self._instances.items()
        ]

    def _delete_backup(self, key):
        self.order.append(self._backups.pop(key))

    def _delete_instance(self, key):
        name, _ = self._instances[key]
        assert not any(source == name for _, source in self._instances.values())
        del self._instances[key]
        self.order.append(name)


class LeftoversTest(base.BaseTestCase):
    def test_removes_only_leftovers_in_a_valid_order(self):
        source, replica = 'trove-tempest-X-instance-1', 'trove-tempest-X-replica-2'
        trove = FakeTrove(
            ['nightly', 'trove-tempest-X-backup-3'],
            {'first-database': None, source: None, replica: source},
        )
        expected = ['trove-tempest-X-backup-3', replica, source]
        self.assertEqual(expected, leftovers.remove(trove))
        self.assertEqual(expected, trove.order)
        self.assertEqual([], leftovers.remove(trove))

    def test_an_instance_that_disappears_meanwhile(self):
        name = 'trove-tempest-X-instance-1'
        trove = FakeTrove([], {name: None})
        delete = trove.instances.force_delete

        def find_nothing(key):
            delete(key)
            raise trove_errors.NotFound

        trove.instances.force_delete = find_nothing
        self.assertEqual([name], leftovers.remove(trove))

    def test_limits_the_wait_for_a_deletion(self):
        trove = FakeTrove([], {'trove-tempest-X-instance-1': None})
        trove.instances.force_delete = lambda key: None
        slept = []
        leftovers.remove(trove, slept.append)
        self.assertEqual(leftovers.TIMEOUT_SEC, sum(slept))


_TEMPEST = """#!{python}
import os, subprocess, sys, time
import subunit
if '--list-tests' in sys.argv:
    print('{ours}[id-1]')
    sys.exit()
assert sys.argv[1:3] == ['run', '--regex'] and '--serial' in sys.argv, sys.argv
events = subunit.StreamResultToBytes(sys.stdout.buffer)
events.status(test_id='{ours}[id-1]', test_status='{status}')
sys.stdout.flush()
if {sleep}:
    worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
    with open({pid!r} + '.new', 'w') as file:
        file.write(str(worker.pid))
    os.rename({pid!r} + '.new', {pid!r})
    time.sleep(60)
"""


def _is_running(status):
    try:
        # A zombie remains until its new parent reaps it.
        return 'State:\tZ' not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class RunTestCase(base.BaseTestCase):
    """The whole command, with a Tempest that only prints."""

    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        for folder in ('run', 'log', 'etc', 'instruments/bin', 'instruments/tempest'):
            (self.root / folder).mkdir(parents=True)
        (self.root / 'etc' / 'credentials.json').write_text('{"admin": {}}')
        self.useFixture(fixtures.MonkeyPatch('scenarios.leftovers.connect', lambda given: None))
        self.useFixture(fixtures.MonkeyPatch('scenarios.leftovers.remove', lambda trove: ['old']))
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))

    def tempest(self, status, sleep=False):
        program = self.root / 'instruments' / 'bin' / 'tempest'
        pid = str(self.root / 'pid')
        text = _TEMPEST.format(
            python=sys.executable, ours=OURS, status=status, sleep=sleep, pid=pid
        )
        program.write_text(text)
        program.chmod(0o755)

    def run_scenarios(self, *words, output=None):
        output = output or io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = command_line.main([str(self.root), *words])
        return code, output.getvalue()


class RunTest(RunTestCase):
    def test_all_passed(self):
        self.tempest('success')
        code, output = self.run_scenarios('--ours')
        self.assertEqual(0, code, output)
        self.assertIn('removed old of an earlier run', output)
        self.assertIn('1 passed', output)
        self.assertTrue(json.loads((self.root / 'log/scenario.json').read_text())['good'])

    def test_failure(self):
        self.tempest('fail')
        self.assertEqual(1, self.run_scenarios()[0])

    def test_refuses_a_second_run(self):
        self.tempest('success')
        with open(self.root / 'run' / 'scenario.lock', 'a') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            code, output = self.run_scenarios()
        self.assertEqual(1, code)
        self.assertIn('another run is in progress', output)

    def test_time_limit_during_a_run_leaves_results_and_no_process(self):
        self.tempest('success', sleep=True)
        so_far = io.StringIO()

        def end_in_mid_run():
            while 'test_a\n' not in so_far.getvalue() or not (self.root / 'pid').exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=end_in_mid_run, daemon=True).start()
        code, output = self.run_scenarios(output=so_far)
        self.assertEqual(1, code)
        self.assertIn('interrupted', output)
        self.assertIn('1 passed', output)
        worker = Path('/proc', (self.root / 'pid').read_text(), 'status')
        deadline = time.monotonic() + 60
        while _is_running(worker) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(_is_running(worker))
