# SPDX-License-Identifier: Apache-2.0
"""What policies have done, by several processes, over weeks, and whatever is cut off."""

import dataclasses
import datetime
import functools
import itertools
import os
import shutil
import tempfile
import uuid

import fixtures
from oslotest import base

from trove_ceph import enums, exceptions
from trove_ceph.db import backups, claims, heartbeat, policies, transactions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.policy_record import PolicyRunState, Retention, Scope
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import backup_types, expire_unstarted
from trove_ceph.strategies.backup.options import BackupOptions
from trove_ceph.strategies.policies import dependencies, scheduler
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import database

PROJECT = 'project'
MINUTE = datetime.timedelta(minutes=1)
#: Longer than a worker is waited for that shows no life.
PATIENCE = 3 * MINUTE
WORKER = claims.Claimant('worker')


# Made once: it takes longer than most tests.
_DIRECTORY = tempfile.TemporaryDirectory(prefix='trove-ceph-test-')


@functools.cache
def template():
    path = os.path.join(_DIRECTORY.name, 'trove.sqlite')
    database.with_tables(path).writer.get_engine().dispose()
    return path


def instance(name, **facts):
    values = {'datastore': 'mysql', 'version': '9.7', 'volume_id': f'volume-{name}'}
    return backup_types.Instance(name, PROJECT, **values | facts)


class FakeTrove:
    """Trove's API and whoever takes and deletes backups, which needs a tick."""

    def __init__(self, world):
        self._world = world
        self.instances = [instance('one')]
        self.backups = {}
        self.requests = []
        # What becomes of the next requests.
        self.refusal = None
        self.loses_calls = False
        self.fails = False

    def add(self, instance_id='one', name='manual'):
        """Have a backup as tenants ask for it."""
        backup_id = str(uuid.uuid4())
        self.backups[backup_id] = {
            'instance_id': instance_id,
            'name': name,
            'created_at': self._world.now,
            'state': 'NEW',
        }
        return backup_id

    def work(self):
        """Take and delete what was asked for."""
        kept = self._world.records
        for backup_id, one in list(self.backups.items()):
            if one['state'] == 'DELETING':
                del self.backups[backup_id]
                if (claim := kept.begin_deleting(backup_id, WORKER)) is not None:
                    kept.delete(claim)
            elif one['state'] == 'NEW' and self.loses_calls:
                if self._world.now - one['created_at'] > expire_unstarted.START_TIMEOUT:
                    # As the taskmanager's other task has it.
                    kept.note_never_begun(backup_id, one['instance_id'], PROJECT, 'never begun')
                    self.fail_backup(backup_id)
            elif one['state'] == 'NEW':
                claim = kept.begin_taking(backup_id, one['instance_id'], PROJECT, WORKER)
                if self.fails:
                    one['state'] = 'FAILED'
                    kept.note_failed(claim, 'the guest agent did not answer')
                else:
                    one['state'] = 'COMPLETED'
                    kept.note_taken(claim, 's', 'c', 1.0)

    def of(self, instance_id='one'):
        return [one for one in self.backups.values() if one['instance_id'] == instance_id]

    # As the strategies have it.

    def list_instances(self):
        return list(self.instances)

    def request_backup(self, instance, name, description, asked):
        if self.refusal:
            raise self.refusal
        if any(one['state'] == 'NEW' for one in self.of(instance.id)):
            raise exceptions.ServiceUnavailableError('it is being backed up')
        self.requests.append((instance.id, asked))
        return self.add(instance.id, name)

    def request_deletion(self, backup_id, project_id, again=False):
        if backup_id in self.backups:
            self.backups[backup_id]['state'] = 'DELETING'

    def find_named(self, instance_id, name):
        found = (key for key, one in self.backups.items() if one['name'] == name)
        return next((self.find(key) for key in found), None)

    def find(self, backup_id):
        one = self.backups.get(backup_id)
        return one and dependencies.ShownBackup(
            backup_id,
            one['created_at'],
            is_running=one['state'] == 'NEW',
            is_completed=one['state'] in ('COMPLETED', 'DELETING'),
        )

    def fail_backup(self, backup_id):
        self.backups[backup_id]['state'] = 'FAILED'


#: To end before or after one of these is to end before what changes something.
_READS = ('all', 'runs', 'backups_of', 'list_instances', 'find', 'find_named', 'clock')


class Struck:
    """What is asked of somebody, until the process ends at a request that changes something."""

    def __init__(self, asked, strike):
        self._asked, self._strike = asked, strike

    def __getattr__(self, verb):
        found = getattr(self._asked, verb)
        if verb in _READS:
            return found
        return lambda *arguments, **named: self._strike(lambda: found(*arguments, **named))


class World:
    def __init__(self, path):
        self.now = datetime.datetime(2026, 3, 1)
        facade = database.facade(shutil.copy(template(), path))
        self.records = backups.BackupStore(facade, lambda: self.now)
        self.policies = policies.PolicyStore(transactions.Transactions(facade, lambda: self.now))
        self.trove = FakeTrove(self)
        self.tiers = {'one': 'nvme'}
        self._numbers = itertools.count()
        self.trimmed = []

    def note(self, role, backup_id, verb, *found):
        """Write down the result of a worker."""
        claim = self.records.claims.claim(role, backup_id, WORKER)
        getattr(self.records.results, verb)(claim, *found)
        self.records.claims.release(claim)

    def worker(self):
        """Return a new process of a taskmanager on another host than all others."""
        return claims.Claimant(f'host-{next(self._numbers)}')

    def deps(self, strike=None):
        found = dependencies.PolicyDependencies(
            self.policies,
            self.records,
            self.trove,
            lambda instances: {i.id: self.tiers[i.id] for i in instances if i.id in self.tiers},
            lambda instance_id: self.trimmed.append((instance_id, self.now)),
            self.worker(),
            heartbeat.Heartbeat(self.records.claims, 5, 45),
        )
        if strike is None:
            return found
        return dataclasses.replace(
            found, policies=Struck(self.policies, strike), trove=Struck(self.trove, strike)
        )

    def tick(self, count=1, step=MINUTE, managers=1):
        for _ in range(count):
            for _ in range(managers):
                scheduler.run_due(self.deps())
            self.trove.work()
            self.now += step


class PolicyTest(base.BaseTestCase):
    """Has a world with one instance."""

    def setUp(self):
        super().setUp()
        self.world = self.make_world()
        self.trove, self.policies = self.world.trove, self.world.policies

    def make_world(self):
        return World(self.useFixture(fixtures.TempDir()).join('trove.sqlite'))

    def add(self, scope=Scope.INSTANCE, target='one', world=None, **values):
        facts = {'interval_min': 60, 'keep': Retention(last=3)}
        where = (world or self.world).policies
        return where.add(f'of {target}', scope, target, **facts | values)

    def run_of(self, name='one'):
        return self.policies.runs()[name]

    def names(self, of='one'):
        return [one['name'] for one in self.trove.of(of)]


class RunningTest(PolicyTest):
    def test_nothing_without_policies(self):
        self.trove.instances = None
        self.world.tick()

    def test_backups_come_and_go(self):
        manual = self.trove.add()
        self.add(at='00:00')
        self.world.tick(7 * 4, 15 * MINUTE, managers=2)
        # From one to six o'clock, of which the last three stay; so does what tenants took.
        self.assertEqual(6, len(self.trove.requests))
        self.assertEqual(4, len(self.trove.backups))
        self.assertEqual('COMPLETED', self.trove.backups[manual]['state'])
        self.assertEqual(4, len(set(self.names())))
        self.assertEqual((PolicyRunState.DONE, 6), (self.run_of().state, self.run_of().count))

    def test_missed_runs_are_caught_up_once(self):
        self.add()
        self.world.tick(3)
        self.world.now += datetime.timedelta(days=3)
        self.trove.requests.clear()
        self.world.tick(3, managers=3)
        self.assertEqual(1, len(self.trove.requests))

    def test_most_specific_policy_wins(self):
        self.trove.instances = [instance(name) for name in ('one', 'two')]
        self.trove.instances.append(instance('three', version='8.4'))
        self.trove.instances.append(instance('four', datastore='other'))
        self.world.tiers = dict.fromkeys(('one', 'two', 'three', 'four'), 'nvme')
        for scope, target, level in (
            (Scope.TIER, 'nvme', None),
            (Scope.DATASTORE, 'mysql', 'ddl'),
            (Scope.DATASTORE, 'mysql/8.4', 'freeze'),
            (Scope.INSTANCE, 'one', 'none'),
        ):
            self.add(scope, target, quiesce=level)
        self.world.tick()
        levels = {name: asked.quiesce for name, asked in self.trove.requests}
        self.assertEqual({'one': 'none', 'two': 'ddl', 'three': 'freeze', 'four': None}, levels)

    def test_disabled_policy_hides_the_ones_below(self):
        self.add(Scope.TIER, 'nvme')
        own = self.add(enabled=False)
        self.world.tick()
        self.assertEqual([], self.trove.requests)
        self.policies.change(own.policy_id, enabled=True)
        self.world.tick()
        self.assertEqual(1, len(self.trove.requests))

    def test_each_nth_is_copied_and_verified(self):
        self.add(copy_every=1, verify_every=3)
        self.world.tick(7, 60 * MINUTE)
        asked = [one for _name, one in self.trove.requests][:7]
        self.assertEqual([True] * len(asked), [one.copy for one in asked])
        verified = [one.verify for one in asked]
        self.assertEqual([True, False, False, True, False, False], verified[:6])

    def test_volume_is_trimmed_before_its_first_copy_is_due(self):
        self.add(at='05:00', interval_min=1440, copy_every=1)
        self.world.tick(8 * 60)
        (trimmed, *others) = self.world.trimmed
        due = datetime.datetime(2026, 3, 1, 5)
        self.assertEqual(('one', due - scheduler.TRIM_AHEAD), trimmed)
        # The guest agent is asked again until then, and has trimmed lately.
        self.assertTrue(all(due - scheduler.TRIM_AHEAD < at < due for _, at in others))

    def test_volume_is_not_trimmed_for_copies_upon_others_or_backups_without(self):
        self.add(at='05:00', interval_min=1440, copy_every=2)
        self.world.tick(8 * 12, 5 * MINUTE)
        self.world.trimmed.clear()
        # The second is not copied.
        self.world.tick(24 * 12, 5 * MINUTE)
        self.assertEqual([], self.world.trimmed)
        (first, *_) = self.trove.requests
        self.assertTrue(first[1].copy)
        for backup_id in self.trove.backups:
            self.world.note(Role.COPY, backup_id, 'note_copied', 1, 1.0)
        self.world.tick(24 * 12, 5 * MINUTE)
        self.assertEqual(3, len(self.trove.requests))
        self.assertEqual([], self.world.trimmed)

    def test_guest_that_does_not_answer_is_in_the_way_of_nothing(self):
        def fail(instance_id):
            raise exceptions.GuestUnavailableError('it does not answer')

        self.add(at='05:00', interval_min=1440, copy_every=1)
        deps = self.world.deps
        self.world.deps = lambda: dataclasses.replace(deps(), trim=fail)
        self.world.tick(8 * 12, 5 * MINUTE)
        self.assertEqual(1, len(self.trove.requests))

    def test_failures_do_not_pile_up(self):
        self.add()
        self.trove.fails = True
        self.world.tick(180, 2 * MINUTE)
        # After two minutes, four, ... an hour, and hourly from then on.
        self.assertIn(len(self.trove.requests), (9, 10, 11))
        # The last one that failed is there to be looked at.
        self.assertEqual('the guest agent did not answer', self.run_of().error)
        self.assertIn(len(self.trove.backups), (1, 2))
        self.trove.fails = False
        self.world.tick(35, 2 * MINUTE)
        self.assertEqual((0, None), (self.run_of().attempts, self.run_of().error))
        self.assertNotIn('FAILED', [one['state'] for one in self.trove.of()])

    def test_last_good_one_survives_failures(self):
        self.add(keep=Retention(last=1))
        self.world.tick(2)
        (good,) = self.trove.backups
        self.trove.fails = True
        self.world.tick(60, 10 * MINUTE)
        self.assertEqual('COMPLETED', self.trove.backups[good]['state'])

    def test_nothing_is_deleted_because_it_is_damaged(self):
        self.add(keep=Retention(last=2))
        self.world.tick(90, 2 * MINUTE)
        older, newer = self.trove.backups
        self.world.note(Role.VERIFY, newer, 'note_damaged', {}, 1.0, 'CHECK TABLE: corrupt')
        self.world.tick(35, 2 * MINUTE)
        # It has its time, and takes no place of a good one.
        self.assertLessEqual({older, newer}, set(self.trove.backups))
        self.world.tick(35, 2 * MINUTE)
        self.assertNotIn(newer, self.trove.backups)

    def test_what_is_suspected_stays_until_that_is_settled(self):
        self.add(keep=Retention(last=1))
        self.world.tick(35, 2 * MINUTE)
        (suspected,) = self.trove.backups
        self.world.note(Role.VERIFY, suspected, 'note_suspected', {}, 1.0, 'a page, perhaps')
        self.world.tick(180, 2 * MINUTE)
        self.assertIn(suspected, self.trove.backups)
        self.assertEqual(2, len(self.trove.backups))
        self.world.note(Role.VERIFY, suspected, 'note_damaged', {}, 1.0, 'a page')
        self.world.tick(35, 2 * MINUTE)
        self.assertNotIn(suspected, self.trove.backups)

    def test_bus_that_fails(self):
        """Trove has a row by then, and nobody will take it."""
        self.add()
        ask = self.trove.request_backup

        def fail(*arguments):
            ask(*arguments)
            raise exceptions.ServiceUnavailableError('the bus is down')

        self.trove.request_backup = fail
        scheduler.run_due(self.world.deps())
        self.assertEqual(['FAILED'], [one['state'] for one in self.trove.of()])
        self.assertEqual('the bus is down', self.run_of().error)
        self.trove.request_backup = ask
        self.world.now += 3 * MINUTE
        self.world.tick(3)
        self.assertEqual(['COMPLETED'], [one['state'] for one in self.trove.of()])

    def test_refusals_are_shown_and_tried_again(self):
        self.add()
        self.trove.refusal = exceptions.QuotaExceededError('backups: 5 of 5')
        self.world.tick(30)
        run = self.run_of()
        self.assertEqual((PolicyRunState.FAILED, 'backups: 5 of 5'), (run.state, run.error))
        self.assertEqual(4, run.attempts)
        self.assertEqual({}, self.trove.backups)
        self.trove.refusal = None
        self.world.tick(60)
        self.assertEqual(PolicyRunState.DONE, self.run_of().state)

    def test_instances_outside_of_the_tiers(self):
        self.world.tiers = {}
        self.add()
        self.world.tick()
        self.assertEqual('its volume is on no tier', self.run_of().error)
        self.assertEqual([], self.trove.requests)

    def test_calls_that_are_lost(self):
        """The taskmanager never hears of a backup, which would block all others for days."""
        self.add()
        self.trove.loses_calls = True
        self.world.tick(8)
        self.assertEqual(['NEW'], [one['state'] for one in self.trove.of()])
        self.world.tick(5)
        self.assertIn('FAILED', [one['state'] for one in self.trove.of()])
        self.assertEqual(
            (PolicyRunState.FAILED, 'never begun'), (self.run_of().state, self.run_of().error)
        )
        self.trove.loses_calls = False
        self.world.tick(45, 2 * MINUTE)
        self.assertEqual(PolicyRunState.DONE, self.run_of().state)

    def test_one_failing_instance_is_in_nobodys_way(self):
        self.trove.instances = [instance('gone'), instance('one')]
        self.world.tiers['gone'] = 'nvme'
        self.add(Scope.TIER, 'nvme')
        ask = self.trove.request_backup

        def fail(asked_for, *rest):
            if asked_for.id == 'gone':
                raise RuntimeError('a fault')
            return ask(asked_for, *rest)

        self.trove.request_backup = fail
        self.world.tick()
        self.assertEqual(1, len(self.trove.of()))

    def test_many_are_begun_one_after_the_other(self):
        self.trove.instances = [instance(f'i{n}') for n in range(scheduler.MOST_AT_ONCE + 5)]
        self.world.tiers = {one.id: 'nvme' for one in self.trove.instances}
        self.add(Scope.TIER, 'nvme', interval_min=1440)
        self.world.tick()
        self.assertEqual(scheduler.MOST_AT_ONCE, len(self.trove.backups))
        self.world.tick(2)
        self.assertEqual(len(self.trove.instances), len(self.trove.backups))

    def test_what_is_gone_is_forgotten(self):
        own, tier = self.add(), self.add(Scope.TIER, 'nvme')
        self.world.tick(2)
        self.trove.instances = []
        self.world.tick()
        self.assertEqual([tier], self.policies.all())
        self.assertEqual({}, dict(self.policies.runs()))
        # The backups are the tenant's now.
        self.assertEqual(1, len(self.trove.backups))
        self.assertIsNone(self.policies.find(own.policy_id))

    def test_policy_that_is_deleted_meanwhile(self):
        made = self.add(keep=Retention(last=1))
        scheduler.run_due(self.world.deps())
        self.policies.remove(made.policy_id)
        self.trove.work()
        self.world.tick(10, 30 * MINUTE)
        self.assertEqual(1, len(self.trove.backups))
        self.assertFalse(self.run_of().state.is_under_way)

    def test_interval_that_is_too_short_by_now(self):
        """A policy of a time when the operator allowed it, or of before there was a limit."""
        self.add(interval_min=1, keep=Retention(last=100))
        least = functools.partial(dataclasses.replace, least_interval_min=15)
        for _ in range(60):
            scheduler.run_due(least(self.world.deps()))
            self.trove.work()
            self.world.now += MINUTE
        self.assertIn(len(self.trove.requests), (4, 5))

    def test_asked_for_now(self):
        made = self.add(interval_min=1440, at='23:00')
        self.world.tick(5)
        self.assertEqual([], self.trove.requests)
        self.policies.request_run(made.policy_id)
        self.world.tick(5, managers=2)
        self.assertEqual(1, len(self.trove.requests))

    def test_whatever_is_cut_off(self):
        """Kill before and after each request; there is one backup afterwards, and it is known."""
        for number, after in ((n, after) for n in itertools.count() for after in (False, True)):
            world = self.make_world()
            self.add(world=world, keep=Retention(last=1), at='00:00')
            world.now += 60 * MINUTE
            world.tick(2)
            (first,) = world.trove.backups
            world.now += 58 * MINUTE
            strike = Strike(number, after)
            try:
                for _ in range(3):
                    scheduler.run_due(world.deps(strike))
                    world.trove.work()
                    world.now += MINUTE
            except interruption.Kill:
                world.trove.work()
            world.now += MINUTE
            world.tick(5, 20 * MINUTE)
            self.assertEqual(PolicyRunState.DONE, world.policies.runs()['one'].state, strike)
            self.assertEqual(1, len(world.trove.backups), strike)
            (backup_id,) = world.trove.backups
            self.assertNotEqual(first, backup_id)
            known = [one.backup_id for one in world.policies.backups_of('one')]
            self.assertIn(backup_id, known, strike)
            if not strike.struck:
                self.assertGreater(number, 6)
                return


class Strike:
    """Ends the process at one of its requests, before it or after it."""

    def __init__(self, number, after):
        self._numbers = itertools.count()
        self._number, self._after = number, after
        self.struck = False

    def __call__(self, request):
        is_it = next(self._numbers) == self._number
        self.struck = self.struck or is_it
        if is_it and not self._after:
            raise interruption.Kill
        answer = request()
        if is_it:
            raise interruption.Kill
        return answer

    def __str__(self):
        return f'at request {self._number}, after={self._after}'


class RequestTest(base.BaseTestCase):
    def test_crosses_the_bus(self):
        for one in (
            BackupOptions(),
            BackupOptions(enums.QuiesceLevel.FREEZE, copy=True, verify=True),
        ):
            self.assertEqual(one, BackupOptions.of_document(one.as_document()))
        self.assertEqual(BackupOptions(), BackupOptions.of_document({}))

    def test_written_down_with_its_backup(self):
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        kept = backups.BackupStore(database.with_tables(path))
        begin = functools.partial(kept.begin_taking, 'b', 'one', PROJECT, WORKER)
        kept.claims.release(begin(**dataclasses.asdict(BackupOptions())))
        plain = kept.get('b')
        self.assertEqual(
            (None, None, None),
            (plain.quiesce_wanted, plain.copy_wanted_at, plain.verify_wanted_at),
        )
        begin(**dataclasses.asdict(BackupOptions(enums.QuiesceLevel.DDL, copy=True, verify=True)))
        found = kept.get('b')
        self.assertEqual('ddl', found.quiesce_wanted)
        self.assertIsNotNone(found.copy_wanted_at)
        self.assertIsNotNone(found.verify_wanted_at)
        self.assertEqual(RecordState.TAKING, found.state)
