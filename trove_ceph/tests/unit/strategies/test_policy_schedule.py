# SPDX-License-Identifier: Apache-2.0
"""When backups are due, by right and by wrong clocks."""

import dataclasses
import datetime
import itertools

from oslotest import base

from trove_ceph.db.policy_record import BackupPolicy, PolicyRun, PolicyRunState, Retention, Scope
from trove_ceph.strategies.policies import schedule

INSTANCE = '5f0c1d2e-0000-0000-0000-000000000001'
BERLIN = 'Europe/Berlin'
NOW = datetime.datetime(2026, 3, 1, 6, 30)
MINUTE, HOUR, DAY = (datetime.timedelta(minutes=count) for count in (1, 60, 1440))


def at(text):
    return datetime.datetime.fromisoformat(text)


def policy(interval_min=60, **facts):
    created = at('2026-01-01')
    values = {'created_at': created, 'updated_at': created, 'keep': Retention(last=1)}
    return BackupPolicy('p', 'hourly', Scope.INSTANCE, INSTANCE, interval_min, **values | facts)


def done(due_at, state=PolicyRunState.DONE, **facts):
    return PolicyRun(INSTANCE, 'p', state, due_at, 'name', 'backup', **facts)


def run_through(backup_policy, begin, end, step=MINUTE, run=None, created_at=None):
    """Return the times of the backups between begin and end."""
    taken, now = [], begin
    while now < end:
        slot = schedule.due(backup_policy, INSTANCE, run, now, created_at)
        if slot is not None:
            taken.append(now)
            run = done(slot)
        now += step
    return taken


class WaitingTest(base.BaseTestCase):
    """Since when a backup waits that is due at six o'clock."""

    def since(self, run, backup_policy=None):
        return schedule.waiting_since(backup_policy or policy(), run, at('2026-03-01T06:00'), NOW)

    def test_the_first_backup_waits_since_the_policy_was_created(self):
        self.assertEqual(policy().created_at, self.since(None))
        later = policy(created_at=at('2026-03-01T06:20'))
        self.assertEqual(at('2026-03-01T06:00'), self.since(None, later))

    def test_missed_backups_count(self):
        self.assertEqual(at('2026-03-01T03:00'), self.since(done(at('2026-03-01T02:00'))))

    def test_a_request_is_due_besides_the_schedule(self):
        self.assertEqual(at('2026-03-01T06:00'), self.since(done(at('2026-03-01T05:40'))))

    def test_tolerates_a_wrong_clock(self):
        self.assertEqual(at('2026-03-01T06:00'), self.since(done(at('2027-03-01'))))

    def test_failed_backups_wait_since_their_retry_time(self):
        for retry_at, since in (
            ('2026-03-01T06:29', '2026-03-01T06:29'),
            ('2026-03-01T06:40', '2026-03-01T06:00'),
        ):
            failed = done(at('2026-03-01T06:00'), PolicyRunState.FAILED, retry_at=at(retry_at))
            self.assertEqual(at(since), self.since(failed))


class ScheduleTest(base.BaseTestCase):
    def test_interval_in_minutes(self):
        begin = at('2026-03-01')
        for minutes in (1, 7, 60, 90, 1440, 10080):
            backup_policy = policy(minutes)
            first, *others = run_through(backup_policy, begin, begin + 3 * backup_policy.interval)
            # The first one is due at once, the others by the schedule.
            self.assertEqual(begin, first)
            self.assertIn(len(others), (2, 3))
            self.assertEqual(
                {backup_policy.interval},
                {later - one for one, later in itertools.pairwise(others)},
                minutes,
            )

    def test_instances_are_due_at_different_minutes(self):
        """Each instance of a policy has its own minute."""
        now = at('2026-03-01')
        slots = {schedule.due(policy(), f'instance-{n}', None, now) for n in range(100)}
        self.assertGreater(len(slots), 50)
        self.assertEqual(slots, {one for one in slots if now - HOUR < one <= now})

    def test_one_backup_is_due_after_several_were_missed(self):
        backup_policy = policy()
        begin = at('2026-03-01')
        (last,) = run_through(backup_policy, begin, begin + MINUTE)
        # No taskmanager ran for ten days.
        again = run_through(
            backup_policy, begin + 10 * DAY, begin + 10 * DAY + 3 * HOUR, run=done(last)
        )
        self.assertEqual(begin + 10 * DAY, again[0])
        self.assertIn(len(again), (3, 4))

    def test_time_of_day(self):
        backup_policy = policy(1440, at='02:30')
        taken = run_through(backup_policy, at('2026-03-01T12:00'), at('2026-03-04T12:00'))
        # The backup of the night before was missed.
        self.assertEqual(
            ['2026-03-01 12:00', '2026-03-02 02:30', '2026-03-03 02:30', '2026-03-04 02:30'],
            [f'{one:%Y-%m-%d %H:%M}' for one in taken],
        )

    def test_a_new_policy_waits_for_its_time_of_day(self):
        created = at('2026-03-01T12:00')
        backup_policy = policy(1440, at='02:30', created_at=created)
        self.assertEqual(
            [at('2026-03-02T02:30')], run_through(backup_policy, created, created + DAY)
        )

    def test_a_new_policy_can_be_run_at_once(self):
        """The request has the time of its creation: both are of the same second."""
        created = at('2026-03-01T12:00')
        backup_policy = policy(1440, at='02:30', created_at=created, run_wanted_at=created)
        now = created + MINUTE
        self.assertEqual(created, schedule.due(backup_policy, INSTANCE, None, now))
        self.assertIsNone(schedule.due(backup_policy, INSTANCE, done(created), now))

    def test_another_policy_waits_for_its_time_of_day(self):
        created = at('2026-03-01T12:00')
        backup_policy = policy(1440, at='02:30', created_at=created)
        run = done(created - 2 * DAY)
        self.assertEqual(
            [at('2026-03-02T02:30')], run_through(backup_policy, created, created + DAY, run=run)
        )

    def test_a_new_instance_waits_for_its_time_of_day(self):
        backup_policy, created = policy(1440, at='02:30'), at('2026-03-01T12:00')
        self.assertEqual(
            [at('2026-03-02T02:30')],
            run_through(backup_policy, created, created + DAY, created_at=created),
        )
        # Unless a run is requested.
        requested = dataclasses.replace(backup_policy, run_wanted_at=created + HOUR)
        self.assertEqual(
            [created + HOUR, at('2026-03-02T02:30')],
            run_through(requested, created, created + DAY, created_at=created),
        )
        # And not after a clock that was far ahead.
        taken = run_through(backup_policy, created, created + HOUR, created_at=created + 99 * DAY)
        self.assertEqual([created], taken)

    def test_a_new_instance_is_backed_up_at_once_without_a_time_of_day(self):
        created = at('2026-03-01T12:00')
        taken = run_through(policy(1440), created, created + HOUR, created_at=created)
        self.assertEqual([created], taken)

    def test_several_backups_a_day_from_a_time_of_day(self):
        backup_policy = policy(360, at='05:00')
        taken = run_through(backup_policy, at('2026-03-01T05:00'), at('2026-03-02T05:01'))
        self.assertEqual([5, 11, 17, 23, 5], [one.hour for one in taken])

    def test_weekly_backups_are_due_on_sundays(self):
        backup_policy = policy(7 * 1440, at='01:00')
        taken = run_through(backup_policy, at('2026-03-01'), at('2026-04-01'), 15 * MINUTE)[1:]
        self.assertEqual({7}, {one.isoweekday() for one in taken})
        self.assertEqual(5, len(taken))

    def test_keeps_the_local_time_when_clocks_change(self):
        backup_policy = policy(1440, at='03:30', timezone=BERLIN)
        run = done(at('2026-03-27T02:30'))
        spring = run_through(backup_policy, at('2026-03-28'), at('2026-03-31'), run=run)
        self.assertEqual(['02:30', '01:30', '01:30'], [f'{one:%H:%M}' for one in spring])
        run = done(at('2026-10-23T01:30'))
        autumn = run_through(backup_policy, at('2026-10-24'), at('2026-10-27'), run=run)
        self.assertEqual(['01:30', '02:30', '02:30'], [f'{one:%H:%M}' for one in autumn])

    def test_local_times_that_occur_twice_or_never(self):
        backup_policy = policy(1440, at='02:30', timezone=BERLIN)
        for begin, hours in (('2026-03-28', [1, 1, 0]), ('2026-10-24', [0, 0, 1])):
            run = done(at(begin) - DAY + 2 * HOUR)
            taken = run_through(backup_policy, at(begin), at(begin) + 3 * DAY, run=run)
            self.assertEqual(hours, [one.hour for one in taken])
            self.assertEqual({30}, {one.minute for one in taken})

    def test_hourly_backups_of_days_with_25_and_23_hours(self):
        backup_policy = policy(60, at='00:00', timezone=BERLIN)
        for day, begin, count in (
            ('2026-03-29', '2026-03-28T23:00', 23),
            ('2026-10-25', '2026-10-24T22:00', 25),
        ):
            run = done(at(begin) - HOUR)
            taken = run_through(backup_policy, at(begin), at(begin) + count * HOUR, run=run)
            self.assertEqual(count, len(taken), day)

    def test_tolerates_a_clock_that_is_set_back(self):
        backup_policy = policy()
        begin = at('2026-03-01')
        taken = run_through(backup_policy, begin, begin + 5 * HOUR)
        last = schedule.due(backup_policy, INSTANCE, None, taken[-1])
        # By an hour: no backup is taken twice, and the schedule continues at that time.
        again = run_through(backup_policy, taken[-1] - HOUR, taken[-1] + 2 * HOUR, run=done(last))
        self.assertEqual([taken[-1] + HOUR], again[:1])
        # By years, after it was years ahead: the schedule continues at once.
        ahead = done(at('2031-01-01'))
        self.assertEqual([begin], run_through(backup_policy, begin, begin + MINUTE, run=ahead))

    def test_no_backup_is_due_while_one_is_under_way(self):
        for state in (PolicyRunState.BEGUN, PolicyRunState.REQUESTED):
            run = done(at('2026-03-01'), state)
            self.assertIsNone(schedule.due(policy(), INSTANCE, run, at('2026-04-01')))

    def test_retries_failures_with_growing_delays(self):
        now, slot = at('2026-03-01T10:00'), at('2026-03-01T09:30')
        waits = [schedule.retry_at(attempts, now) - now for attempts in range(1, 200)]
        self.assertEqual([2, 4, 8, 16, 32, 60, 60], [wait // MINUTE for wait in waits[:7]])
        self.assertEqual(schedule.LAST_RETRY, max(waits))
        backup_policy = policy(15)
        failed = done(slot, PolicyRunState.FAILED, attempts=6, retry_at=now + HOUR)
        # Not even a backup that becomes due meanwhile, since it would fail too.
        self.assertIsNone(schedule.due(backup_policy, INSTANCE, failed, now + 59 * MINUTE))
        self.assertIsNotNone(schedule.due(backup_policy, INSTANCE, failed, now + HOUR))
        # A clock that was years ahead at the failure does not delay the retry.
        ahead = dataclasses.replace(failed, retry_at=now + 1000 * DAY)
        self.assertIsNotNone(schedule.due(backup_policy, INSTANCE, ahead, now))

    def test_a_request_is_due_besides_the_schedule(self):
        now = at('2026-03-01T10:00')
        backup_policy = policy(1440, at='02:30', run_wanted_at=now)
        last = done(at('2026-03-01T02:30'))
        self.assertEqual(now, schedule.due(backup_policy, INSTANCE, last, now))
        self.assertEqual(now, schedule.due(backup_policy, INSTANCE, last, now + HOUR))
        # Once; the schedule continues.
        taken = run_through(backup_policy, now + HOUR, now + DAY, run=done(now))
        self.assertEqual([at('2026-03-02T02:30')], taken)
        failed = done(last.due_at, PolicyRunState.FAILED, attempts=9, retry_at=now + HOUR)
        self.assertEqual(now, schedule.due(backup_policy, INSTANCE, failed, now))
        again = dataclasses.replace(failed, due_at=now)
        self.assertIsNone(schedule.due(backup_policy, INSTANCE, again, now))

    def test_time_zones(self):
        self.assertEqual(datetime.UTC, schedule.zone('UTC'))
        for name in ('Berlin', '../etc/passwd', ''):
            self.assertRaises(ValueError, schedule.zone, name)
