# SPDX-License-Identifier: Apache-2.0
"""Policies run by several processes, over weeks, and with interruptions."""

import dataclasses
import datetime
import functools
import itertools

import fixtures

from trove_ceph import exceptions
from trove_ceph.db.policy_record import PolicyRunState, Retention, Scope
from trove_ceph.db.roles import Role
from trove_ceph.strategies.policies import scheduler
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import policy_world
from trove_ceph.tests.unit.strategies.policy_world import MINUTE


class SchedulerTest(policy_world.PolicyTestCase):
    def test_does_nothing_without_policies(self):
        self.trove.instances = None
        self.world.tick()

    def test_takes_and_expires_backups(self):
        manual = self.trove.add()
        self.add(at='00:00')
        self.world.tick(7 * 4, 15 * MINUTE, managers=2)
        # From one to six o'clock; the last three stay, and so does the tenant's own backup.
        self.assertEqual(6, len(self.trove.requests))
        self.assertEqual(4, len(self.trove.backups))
        self.assertEqual('COMPLETED', self.trove.backups[manual]['state'])
        self.assertEqual(4, len(set(self.names())))
        self.assertEqual((PolicyRunState.DONE, 6), (self.run_of().state, self.run_of().count))

    def test_catches_up_once_after_missed_runs(self):
        self.add()
        self.world.tick(3)
        self.world.now += datetime.timedelta(days=3)
        self.trove.requests.clear()
        self.world.tick(3, managers=3)
        self.assertEqual(1, len(self.trove.requests))

    def test_most_specific_policy_wins(self):
        self.trove.instances = [policy_world.instance(name) for name in ('one', 'two')]
        self.trove.instances.append(policy_world.instance('three', version='8.4'))
        self.trove.instances.append(policy_world.instance('four', datastore='other'))
        self.world.tiers = dict.fromkeys(('one', 'two', 'three', 'four'), 'nvme')
        for scope, target, level in (
            (Scope.TIER, 'nvme', None),
            (Scope.DATASTORE, 'mysql', 'ddl'),
            (Scope.DATASTORE, 'mysql/8.4', 'freeze'),
            (Scope.INSTANCE, 'one', 'none'),
        ):
            self.add(scope, target, quiesce=level)
        self.world.tick()
        levels = {name: requested.quiesce for name, requested in self.trove.requests}
        self.assertEqual({'one': 'none', 'two': 'ddl', 'three': 'freeze', 'four': None}, levels)

    def test_a_disabled_policy_hides_less_specific_ones(self):
        self.add(Scope.TIER, 'nvme')
        own = self.add(enabled=False)
        self.world.tick()
        self.assertEqual([], self.trove.requests)
        self.policies.change(own.policy_id, enabled=True)
        self.world.tick()
        self.assertEqual(1, len(self.trove.requests))

    def test_copies_and_verifies_every_nth_backup(self):
        self.add(copy_every=1, verify_every=3)
        self.world.tick(7, 60 * MINUTE)
        requested = [one for _name, one in self.trove.requests][:7]
        self.assertEqual([True] * len(requested), [one.copy for one in requested])
        verified = [one.verify for one in requested]
        self.assertEqual([True, False, False, True, False, False], verified[:6])

    def test_trims_a_volume_before_its_first_copy_is_due(self):
        self.add(at='05:00', interval_min=1440, copy_every=1)
        self.world.tick(8 * 60)
        (trimmed, *others) = self.world.trimmed
        due = datetime.datetime(2026, 3, 1, 5)
        self.assertEqual(('one', due - scheduler.TRIM_AHEAD), trimmed)
        # The request is repeated until then; the guest agent skips it after a recent trim.
        self.assertTrue(all(due - scheduler.TRIM_AHEAD < at < due for _, at in others))

    def test_a_new_instance_waits_for_the_time_of_day(self):
        self.add(Scope.DATASTORE, 'mysql', at='05:00', interval_min=1440)
        self.world.tick(8, 60 * MINUTE)
        self.assertEqual(1, len(self.trove.requests))
        self.world.tiers['new'] = 'nvme'
        self.trove.instances.append(policy_world.instance('new', created_at=self.world.now))
        self.world.tick(21, 60 * MINUTE)
        self.assertEqual(1, len(self.trove.requests))
        self.world.tick()
        self.assertEqual(3, len(self.trove.requests))

    def test_does_not_trim_for_increments_and_uncopied_backups(self):
        self.add(at='05:00', interval_min=1440, copy_every=2)
        self.world.tick(8 * 12, 5 * MINUTE)
        self.world.trimmed.clear()
        # The second is not copied.
        self.world.tick(24 * 12, 5 * MINUTE)
        self.assertEqual([], self.world.trimmed)
        (first, *_) = self.trove.requests
        self.assertTrue(first[1].copy)
        for backup_id in self.trove.backups:
            self.world.note(Role.COPY, backup_id, 'record_copied', 1, 1.0)
        self.world.tick(24 * 12, 5 * MINUTE)
        self.assertEqual(3, len(self.trove.requests))
        self.assertEqual([], self.world.trimmed)

    def test_continues_if_a_guest_does_not_answer(self):
        def fail(instance_id):
            raise exceptions.GuestUnavailableError('it does not answer')

        self.add(at='05:00', interval_min=1440, copy_every=1)
        deps = self.world.deps
        self.world.deps = lambda: dataclasses.replace(deps(), trim=fail)
        self.world.tick(8 * 12, 5 * MINUTE)
        self.assertEqual(1, len(self.trove.requests))

    def test_failed_backups_do_not_accumulate(self):
        self.add()
        self.trove.fails = True
        self.world.tick(180, 2 * MINUTE)
        # After two minutes, four, and so on up to an hour, then hourly.
        self.assertIn(len(self.trove.requests), (9, 10, 11))
        # The last failed one stays, for a look at its error.
        self.assertEqual('the guest agent did not answer', self.run_of().error)
        self.assertIn(len(self.trove.backups), (1, 2))
        self.trove.fails = False
        self.world.tick(35, 2 * MINUTE)
        self.assertEqual((0, None), (self.run_of().attempts, self.run_of().error))
        self.assertNotIn('FAILED', [one['state'] for one in self.trove.of()])

    def test_the_last_good_backup_survives_failures(self):
        self.add(keep=Retention(last=1))
        self.world.tick(2)
        (good,) = self.trove.backups
        self.trove.fails = True
        self.world.tick(60, 10 * MINUTE)
        self.assertEqual('COMPLETED', self.trove.backups[good]['state'])

    def test_a_damaged_backup_is_not_deleted_early(self):
        self.add(keep=Retention(last=2))
        self.world.tick(90, 2 * MINUTE)
        older, newer = self.trove.backups
        self.world.note(Role.VERIFY, newer, 'record_damaged', {}, 1.0, 'CHECK TABLE: corrupt')
        self.world.tick(35, 2 * MINUTE)
        # It stays for its time, and does not count in place of a good one.
        self.assertLessEqual({older, newer}, set(self.trove.backups))
        self.world.tick(35, 2 * MINUTE)
        self.assertNotIn(newer, self.trove.backups)

    def test_a_suspected_backup_stays_until_it_is_decided(self):
        self.add(keep=Retention(last=1))
        self.world.tick(35, 2 * MINUTE)
        (suspected,) = self.trove.backups
        self.world.note(Role.VERIFY, suspected, 'record_suspected', {}, 1.0, 'a page, perhaps')
        self.world.tick(180, 2 * MINUTE)
        self.assertIn(suspected, self.trove.backups)
        self.assertEqual(2, len(self.trove.backups))
        self.world.note(Role.VERIFY, suspected, 'record_damaged', {}, 1.0, 'a page')
        self.world.tick(35, 2 * MINUTE)
        self.assertNotIn(suspected, self.trove.backups)

    def test_fails_a_backup_whose_request_was_not_sent(self):
        """Trove has created the row by then, and no taskmanager will take the backup."""
        self.add()
        request = self.trove.request_backup

        def fail(*arguments):
            request(*arguments)
            raise exceptions.ServiceUnavailableError('the bus on host-1 is down')

        self.trove.request_backup = fail
        log = self.useFixture(fixtures.FakeLogger())
        scheduler.run_due(self.world.deps())
        self.assertEqual(['FAILED'], [one['state'] for one in self.trove.of()])
        # Tenants see the error of a run.
        self.assertIn('a service that it needs did not answer', self.run_of().error)
        self.assertNotIn('host-1', self.run_of().error)
        self.assertIn('host-1', log.output)
        self.trove.request_backup = request
        self.world.now += 3 * MINUTE
        self.world.tick(3)
        self.assertEqual(['COMPLETED'], [one['state'] for one in self.trove.of()])

    def test_records_and_retries_refusals(self):
        self.add()
        self.trove.refusal = exceptions.QuotaExceededError('backups: 5 of 5', 'backups: 5 of 5')
        self.world.tick(30)
        run = self.run_of()
        self.assertEqual((PolicyRunState.FAILED, 'backups: 5 of 5'), (run.state, run.error))
        self.assertEqual(4, run.attempts)
        self.assertEqual({}, self.trove.backups)
        self.trove.refusal = None
        self.world.tick(60)
        self.assertEqual(PolicyRunState.DONE, self.run_of().state)

    def test_refuses_instances_on_no_tier(self):
        self.world.tiers = {}
        self.add()
        self.world.tick()
        self.assertEqual('its volume is on no tier', self.run_of().error)
        self.assertEqual([], self.trove.requests)

    def test_refuses_instances_on_another_back_end(self):
        """The volume type is that of a tier; Trove would take the backup by itself."""
        self.world.elsewhere = {'one'}
        self.add()
        self.world.tick()
        self.assertEqual('its volume is on no tier', self.run_of().error)
        self.assertEqual([], self.trove.requests)

    def test_skips_instances_of_other_guest_agents(self):
        """Their backups are Trove's own, which retention does not know."""
        other = policy_world.instance('other', has_our_guest_agent=False)
        self.trove.instances.append(other)
        self.world.tiers = dict.fromkeys(('one', 'other'), 'nvme')
        for scope, target in (
            (Scope.TIER, 'nvme'),
            (Scope.DATASTORE, 'mysql'),
            (Scope.INSTANCE, 'other'),
        ):
            self.add(scope, target, copy_every=1)
            self.world.tick(70)
        self.assertEqual({'one'}, {name for name, _options in self.trove.requests})
        self.assertEqual({'one'}, set(self.policies.runs()))
        self.assertNotIn('other', {name for name, _at in self.world.trimmed})

    def test_retries_after_a_lost_request(self):
        """A backup that never reaches a taskmanager would block all others for days."""
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

    def test_a_failing_instance_does_not_affect_others(self):
        self.trove.instances = [policy_world.instance('gone'), policy_world.instance('one')]
        self.world.tiers['gone'] = 'nvme'
        self.add(Scope.TIER, 'nvme')
        request = self.trove.request_backup

        def fail(instance, *rest):
            if instance.id == 'gone':
                raise RuntimeError('a fault')
            return request(instance, *rest)

        self.trove.request_backup = fail
        self.world.tick()
        self.assertEqual(1, len(self.trove.of()))

    def test_an_invalid_policy_does_not_affect_others(self):
        """Its values are checked by the API, but another release may have accepted them."""
        for values in ({'quiesce': 'none\n'}, {'at': '25:61'}):
            self.world = self.make_world()
            trove = self.world.trove
            trove.instances = [policy_world.instance(name) for name in ('one', 'two')]
            self.world.tiers['two'] = 'nvme'
            self.add(copy_every=1, interval_min=1440, **values)
            self.add(Scope.INSTANCE, 'two')
            self.world.tick(2)
            self.assertEqual(['two'], [name for name, _options in trove.requests], values)

    def test_shows_why_an_invalid_policy_takes_no_backup(self):
        self.add(quiesce='deep')
        self.world.tick(2)
        self.assertEqual(PolicyRunState.FAILED, self.run_of().state)
        self.assertIn("'deep' is not a quiesce level; set one of none, ddl", self.run_of().error)

    def test_begins_a_limited_number_at_once(self):
        self.trove.instances = [
            policy_world.instance(f'i{n}') for n in range(scheduler.MOST_AT_ONCE + 5)
        ]
        self.world.tiers = {one.id: 'nvme' for one in self.trove.instances}
        self.add(Scope.TIER, 'nvme', interval_min=1440)
        self.world.tick()
        self.assertEqual(scheduler.MOST_AT_ONCE, len(self.trove.backups))
        self.world.tick(2)
        self.assertEqual(len(self.trove.instances), len(self.trove.backups))

    def test_deletes_the_records_of_deleted_instances(self):
        own, tier = self.add(), self.add(Scope.TIER, 'nvme')
        self.world.tick(2)
        self.trove.instances = []
        self.world.tick()
        self.assertEqual([tier], self.policies.all())
        self.assertEqual({}, dict(self.policies.runs()))
        # The backups stay, and only the tenant deletes them.
        self.assertEqual(1, len(self.trove.backups))
        self.assertIsNone(self.policies.find(own.policy_id))

    def test_a_policy_may_be_deleted_during_a_run(self):
        policy = self.add(keep=Retention(last=1))
        scheduler.run_due(self.world.deps())
        self.policies.remove(policy.policy_id)
        self.trove.work()
        self.world.tick(10, 30 * MINUTE)
        self.assertEqual(1, len(self.trove.backups))
        self.assertFalse(self.run_of().state.is_under_way)

    def test_runs_a_too_short_interval_at_the_least_one(self):
        """The operator may have raised the limit after the policy was created."""
        self.add(interval_min=1, keep=Retention(last=100))
        least = functools.partial(dataclasses.replace, least_interval_min=15)
        for _ in range(60):
            scheduler.run_due(least(self.world.deps()))
            self.trove.work()
            self.world.now += MINUTE
        self.assertIn(len(self.trove.requests), (4, 5))

    def test_runs_a_policy_on_request(self):
        policy = self.add(interval_min=1440, at='23:00')
        self.world.tick(5)
        self.assertEqual([], self.trove.requests)
        self.policies.request_run(policy.policy_id)
        self.world.tick(5, managers=2)
        self.assertEqual(1, len(self.trove.requests))

    def test_continues_after_a_kill_at_each_request(self):
        """After a kill before or after any request there is one backup, and it is recorded."""
        for number, after in ((n, after) for n in itertools.count() for after in (False, True)):
            world = self.make_world()
            self.add(world=world, keep=Retention(last=1), at='00:00')
            world.now += 60 * MINUTE
            world.tick(2)
            (first,) = world.trove.backups
            world.now += 58 * MINUTE
            strike = policy_world.Strike(number, after)
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

    def test_knows_each_backup_of_a_suspended_worker(self):
        """A worker is suspended at each of its requests, and another one goes on meanwhile."""
        for number, after in ((n, after) for n in itertools.count() for after in (False, True)):
            world = self.make_world()
            self.add(world=world, keep=Retention(last=1))

            def go_on(world=world):
                world.tick(3)

            suspend = policy_world.Suspend(number, go_on, after)
            scheduler.run_due(world.deps(suspend))
            known = {one.backup_id for one in world.policies.backups_of('one')}
            self.assertEqual(set(world.trove.backups), known, suspend)
            world.tick(5, 60 * MINUTE)
            world.tick(2)
            self.assertEqual(PolicyRunState.DONE, world.policies.runs()['one'].state, suspend)
            self.assertEqual(1, len(world.trove.backups), suspend)
            if not suspend.struck:
                self.assertGreater(number, 2)
                return

    def test_requests_nothing_once_the_claim_is_lost(self):
        """The worker is suspended while it looks for the tier of the instance."""
        self.add()
        suspended = self.world.deps()

        def look(instances):
            self.world.tick(3)
            return suspended.tiers(instances)

        scheduler.run_due(dataclasses.replace(suspended, tiers=look))
        self.assertEqual(1, len(self.trove.requests))
        self.assertEqual(PolicyRunState.DONE, self.run_of().state)
