# SPDX-License-Identifier: Apache-2.0
"""Kills of services of the lab at random moments of operations."""

import json
import pathlib
import types

import fixtures
from driver import __main__ as command_line
from driver import fault_injection
from fault_injection import __main__ as fault_rounds
from fault_injection import operations, plan, report, rounds, services
from oslotest import base
from troveclient import exceptions

from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase

_SUPERVISORCTL = """\
cinder-volume                    RUNNING   pid 11, uptime 0:02:36
cinder-volume-2                  RUNNING   pid 12, uptime 0:02:30
trove-ceph-storage               STARTING
trove-taskmanager                RUNNING   pid 13, uptime 1 day, 0:02:00
"""


class CommandTest(InstrumentsTestCase):
    def test_options_are_passed_on(self):
        record = self.program('instruments/bin/python', code=3)
        words = [
            'fault-injection',
            '--rounds=2',
            '--seed=7',
            '--operation=take',
            '--operation=copy',
        ]
        arguments = command_line._parser().parse_args(words)
        self.assertEqual(3, fault_injection.run(self.settings, arguments))
        passed = json.loads(record.read_text())['arguments']
        self.assertEqual(['-m', 'fault_injection', str(self.root)], passed[:3])
        expected = ['--rounds=2', '--limit-sec=90.0', '--seed=7', '--operation=take']
        self.assertEqual([*expected, '--operation=copy'], passed[3:])


class PlanTest(base.BaseTestCase):
    def test_seed_decides(self):
        drawn = [plan.draw(seed, 9, ['take', 'copy'], ['a', 'b']) for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        self.assertEqual(list(range(1, 10)), [one.number for one in drawn[0]])

    def test_each_operation_meets_each_service_equally_often(self):
        drawn = plan.draw(1, 8, ['take', 'copy'], ['a', 'b'])
        pairs = [(one.operation, one.service) for one in drawn]
        self.assertEqual({2}, {pairs.count(pair) for pair in pairs})
        self.assertEqual(4, len(set(pairs)))
        for one in drawn:
            self.assertTrue(0 <= one.delay_sec <= plan.TYPICAL_SEC[one.operation])


class SupervisorTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        root = self.useFixture(fixtures.TempDir()).path
        self.killed = []
        self.useFixture(
            fixtures.MonkeyPatch('os.killpg', lambda group, number: self.killed.append(group))
        )
        self.useFixture(
            fixtures.MonkeyPatch(
                'subprocess.run', lambda *_, **__: types.SimpleNamespace(stdout=_SUPERVISORCTL)
            )
        )
        self.supervisor = services.Supervisor(pathlib.Path(root))

    def test_all_copies_of_a_service(self):
        self.assertEqual(
            ['cinder-volume', 'cinder-volume-2'], self.supervisor.kill('cinder-volume')
        )
        self.assertEqual([11, 12], self.killed)

    def test_service_that_is_not_running(self):
        self.assertEqual([], self.supervisor.kill('trove-ceph-storage'))
        self.assertEqual([], self.killed)


class FakeTrove:
    """A cloud in which a backup is complete some seconds after it is requested."""

    def __init__(self, now):
        self._now = now
        self.found = {}
        self.is_down = False
        self.backups = types.SimpleNamespace(
            create=self.create,
            get=self.get,
            list=lambda: list(self.found.values()),
            delete=self.end,
        )
        instance = types.SimpleNamespace(status='ACTIVE')
        self.instances = types.SimpleNamespace(get=lambda _id: instance, list=list)

    def create(self, name, _instance_id):
        number = str(len(self.found))
        self.found[number] = types.SimpleNamespace(
            id=number, name=name, status='BUILDING', at=self._now() + 5
        )
        return self.found[number]

    def get(self, backup_id):
        if self.is_down:
            raise exceptions.ClientException(503)
        if backup_id not in self.found:
            raise exceptions.NotFound(404)
        backup = self.found[backup_id]
        if self._now() >= backup.at:
            backup.status = 'COMPLETED'
        return backup

    def end(self, backup_id):
        del self.found[backup_id]


class RoundsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.trove = FakeTrove(lambda: self.now)
        self.cloud = operations.Cloud(self.trove, self.trove, None, 'instance')
        self.killed = []

    def sleep(self, seconds):
        self.now += seconds

    def kill(self, service):
        self.killed.append((service, self.now))
        for backup in self.trove.found.values():
            if backup.status == 'BUILDING':
                backup.at += 30

    def run_round(self, operation='take', delay_sec=2.0):
        made = rounds.Rounds(self.cloud, self.kill, lambda: self.now, self.sleep)
        (result,) = made.run([plan.Plan(1, operation, 'cinder-volume', delay_sec)])
        return result

    def test_time_from_the_kill_to_the_result(self):
        result = self.run_round()
        self.assertEqual([('cinder-volume', 2.0)], self.killed)
        self.assertEqual((33.0, True, False), (result.settled_sec, result.good, result.was_settled))
        self.assertEqual({}, self.trove.found)

    def test_operation_that_is_over_before_the_kill(self):
        result = self.run_round(delay_sec=6.0)
        self.assertEqual((0.0, True), (result.settled_sec, result.was_settled))

    def test_operation_on_a_backup_gets_one_first(self):
        result = self.run_round('delete')
        self.assertEqual((0.0, 'deleted'), (result.settled_sec, result.text))
        self.assertEqual([('cinder-volume', 7.0)], self.killed)

    def test_operation_that_never_settles(self):
        def kill(_service):
            for backup in self.trove.found.values():
                backup.at = float('inf')

        made = rounds.Rounds(self.cloud, kill, lambda: self.now, self.sleep)
        (result,) = made.run([plan.Plan(1, 'take', 'cinder-volume', 2.0)])
        self.assertEqual((None, False), (result.settled_sec, result.good))
        self.assertEqual({}, self.trove.found)

    def test_cloud_that_does_not_answer_for_a_while(self):
        def kill(service):
            self.kill(service)
            self.trove.is_down = True

        def sleep(seconds):
            self.sleep(seconds)
            self.trove.is_down = self.trove.is_down and self.now < 20

        made = rounds.Rounds(self.cloud, kill, lambda: self.now, sleep)
        (result,) = made.run([plan.Plan(1, 'take', 'cinder-volume', 2.0)])
        self.assertEqual((33.0, True), (result.settled_sec, result.good))


class LeftoversTest(base.BaseTestCase):
    def test_waits_for_the_last_deletions(self):
        listed = [['x DELETING'], ['x DELETING'], []]
        cloud = types.SimpleNamespace(list_leftovers=lambda: listed.pop(0))
        waits = []
        self.assertEqual([], fault_rounds._wait_until_gone(cloud, waits.append))
        self.assertEqual(2, len(waits))

    def test_reports_what_stays(self):
        cloud = types.SimpleNamespace(list_leftovers=lambda: ['x ERROR'])
        self.assertEqual(['x ERROR'], fault_rounds._wait_until_gone(cloud, lambda _sec: None))


class ReportTest(base.BaseTestCase):
    def result(self, number, settled_sec, good=True, was_settled=False):
        made = plan.Plan(number, 'take', 'cinder-volume', 1.0)
        return rounds.Result(made, was_settled, settled_sec, 'COMPLETED', good)

    def test_summary_leaves_out_kills_that_hit_nothing(self):
        results = [
            self.result(1, 10.0),
            self.result(2, 30.0, good=False),
            self.result(3, 0.0, was_settled=True),
        ]
        self.assertEqual(
            ['take: 2 kills, settled after 20.0 s (median), 30.0 s (most); 1 succeeded'],
            report.summary(results, 90),
        )

    def test_rounds_over_the_limit(self):
        results = [self.result(1, 91.0), self.result(2, None), self.result(3, 90.0)]
        self.assertEqual(results[:2], report.over(results, 90))
        self.assertEqual('not settled within 90 s: rounds 1, 2', report.summary(results, 90)[-1])

    def test_line_of_a_round(self):
        cells = report.row(self.result(1, None, good=False))
        self.assertEqual(('never', 'FAILED: COMPLETED'), cells[-2:])
        self.assertIn('never      FAILED: COMPLETED', report.line(cells))

    def test_everything_is_saved(self):
        path = self.useFixture(fixtures.TempDir()).join('rounds.json')
        report.save(pathlib.Path(path), 7, [self.result(1, 2.0)], ['x'])
        with open(path) as saved:
            found = json.load(saved)
        self.assertEqual(
            (7, ['x'], 2.0), (found['seed'], found['left'], found['rounds'][0]['settled_sec'])
        )
