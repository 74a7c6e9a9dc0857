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


class FakeReplicas:
    """A cloud in which a replica gets its server after 5 s, and follows after 10 s.

    A replica that is deleted is gone after 3 s, and one that is re-provisioned has a fresh clone
    after 20 s.
    """

    def __init__(self, now):
        self._now = now
        self.found, self.shown, self.requests = {}, {}, []
        self.is_failing = False
        self.source = types.SimpleNamespace(
            id='source', name='db', addresses=[{'network': 'n'}, {'network': 'n'}, {}]
        )
        self.instances = types.SimpleNamespace(
            create=self.create,
            delete=self.delete,
            get=lambda _id: self.source,
            list=lambda: [one for one in self.found.values() if one.gone_at > now()],
            reset_status=lambda instance_id: self.requests.append('reset'),
        )
        self.client = types.SimpleNamespace(get=self.get, post=self.post)

    def create(self, name, **request):
        self.requests.append(request)
        self.found['r'] = types.SimpleNamespace(
            id='r', name=name, status='BUILD', gone_at=float('inf'), at=self._now()
        )
        self.shown['r'] = {'state': 'creating', 'reprovisioned_at': None, 'error': None}
        return self.found['r']

    def delete(self, instance_id):
        self.requests.append('delete')
        self.found[instance_id].status = 'SHUTDOWN'
        self.found[instance_id].gone_at = self._now() + 3

    def servers(self, all_projects, name):
        return [one for one in self.found.values() if one.name == name and self._age(one) >= 5]

    def get(self, path):
        replica, shown = self.found['r'], self.shown['r']
        if shown['state'] == 'creating' and self._age(replica) >= 10:
            shown['state'], replica.status = 'following', 'ACTIVE'
        if shown['state'] == 'cloning' and self._age(replica) >= 20:
            shown['state'] = 'following'
            if self.is_failing:
                shown['error'] = 'the pool is full'
            else:
                shown['reprovisioned_at'] = 'now'
        return None, {'replication': dict(shown)}

    def post(self, path, body):
        self.requests.append(path)
        self.found['r'].at = self._now()
        self.shown['r']['state'] = 'cloning'

    def _age(self, replica):
        return self._now() - replica.at


class ReplicasTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.trove = FakeReplicas(lambda: self.now)
        self.cloud = operations.Cloud(self.trove, self.trove, self.trove, 'source')

    def sleep(self, seconds):
        self.now += seconds

    def run_round(self, operation, delay_sec=2.0, kill=lambda _service: None):
        made = rounds.Rounds(self.cloud, kill, lambda: self.now, self.sleep)
        (result,) = made.run([plan.Plan(1, operation, 'cinder-volume', delay_sec)])
        return result

    def test_each_operation_has_a_verb(self):
        self.assertEqual(set(plan.TYPICAL_SEC), set(operations.VERBS))

    def test_creation_ends_with_a_server(self):
        result = self.run_round('create-replica')
        self.assertEqual((3.0, True), (result.settled_sec, result.good))
        expected = {'replica_of': 'source', 'replica_count': 1, 'nics': [{'net-id': 'n'}]}
        # It is still in BUILD.
        self.assertEqual([expected, 'reset', 'delete'], self.trove.requests)

    def test_creation_that_fails(self):
        def kill(_service):
            self.trove.found['r'].status = 'ERROR'

        result = self.run_round('create-replica', kill=kill)
        self.assertEqual((0.0, False), (result.settled_sec, result.good))
        self.assertEqual('ERROR, no server', result.text)

    def test_deletion_of_a_replica_that_follows(self):
        result = self.run_round('delete-replica')
        self.assertEqual((1.0, True, 'gone'), (result.settled_sec, result.good, result.text))
        self.assertEqual(['delete'], self.trove.requests[1:])

    def test_reprovisioning(self):
        result = self.run_round('reprovision')
        self.assertEqual((18.0, True), (result.settled_sec, result.good))
        self.assertEqual(['/replication/r/reprovision', 'delete'], self.trove.requests[1:3])

    def test_reprovisioning_that_keeps_the_old_volume(self):
        self.trove.is_failing = True
        result = self.run_round('reprovision')
        self.assertEqual((18.0, False), (result.settled_sec, result.good))
        self.assertEqual('following: the pool is full', result.text)

    def test_replica_that_cannot_be_prepared(self):
        def sleep(seconds):
            self.sleep(seconds)
            self.trove.found['r'].status = 'ERROR'

        made = rounds.Rounds(self.cloud, None, lambda: self.now, sleep)
        plans = [plan.Plan(1, 'reprovision', 'cinder-volume', 2.0)]
        error = self.assertRaises(RuntimeError, lambda: list(made.run(plans)))
        self.assertIn('ERROR, creating', str(error))


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
