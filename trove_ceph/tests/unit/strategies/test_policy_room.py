# SPDX-License-Identifier: Apache-2.0
"""Policies at the limits of quotas, and after the death of a worker."""

import datetime

import fixtures

from trove_ceph import exceptions
from trove_ceph.db.policy_record import Retention, Scope
from trove_ceph.db.roles import Role
from trove_ceph.strategies.policies import scheduler
from trove_ceph.tests.unit.strategies import policy_world

MINUTE = policy_world.MINUTE


class LimitsTest(policy_world.PolicyTestCase):
    def states(self):
        return [one['state'] for one in self.trove.of()]

    def test_expires_backups_if_the_quota_is_used_up(self):
        """Expired backups are deleted although no new one can be taken."""
        policy = self.add(keep=Retention(last=3))
        self.world.tick(5, 60 * MINUTE)
        # The last backup is recorded as done, so the next event is the refusal.
        self.world.tick(2)
        self.assertEqual(3, len(self.trove.backups))
        latest = list(self.trove.backups)[-1]
        self.trove.refusal = exceptions.QuotaExceededError('backups: 3 of 3')
        self.policies.change(policy.policy_id, keep=Retention(last=1))
        self.world.tick(10, 60 * MINUTE)
        self.assertEqual([latest], list(self.trove.backups))
        self.assertEqual('COMPLETED', self.trove.backups[latest]['state'])

    def test_a_failed_backup_does_not_use_up_the_quota(self):
        self.add(keep=Retention(last=1))
        self.world.tick(2)
        self.trove.fails = True
        self.world.tick(3, 60 * MINUTE)
        self.assertEqual(['COMPLETED', 'FAILED'], self.states())
        self.trove.refusal = exceptions.ServiceUnavailableError('the instance is stopped')
        self.world.tick(3, 60 * MINUTE)
        self.assertEqual(['COMPLETED', 'FAILED'], self.states())
        self.trove.refusal = exceptions.QuotaExceededError('backups: 2 of 2')
        self.world.tick(3, 60 * MINUTE)
        self.assertEqual(['COMPLETED'], self.states())

    def test_continues_if_a_backup_cannot_be_deleted(self):
        policy = self.add(keep=Retention(last=3))
        self.world.tick(5, 60 * MINUTE)
        first, *_others, latest = self.trove.backups
        request = self.trove.request_deletion

        def fail(backup_id, *rest, **named):
            if backup_id == first:
                raise exceptions.ServiceUnavailableError('it is being restored')
            request(backup_id, *rest, **named)

        self.trove.request_deletion = fail
        self.trove.refusal = exceptions.QuotaExceededError('backups: 3 of 3')
        self.policies.change(policy.policy_id, keep=Retention(last=1))
        self.world.tick(3, 60 * MINUTE)
        self.assertEqual([first, latest], list(self.trove.backups))

    def test_expires_the_backup_of_a_dead_worker(self):
        """A backup whose worker died is not kept for ever."""
        self.add(keep=Retention(last=1))
        self.world.tick(2)
        (first,) = self.trove.backups
        dying = self.world.worker()
        claim = self.world.records.claims.claim(Role.COPY, first, dying)
        self.world.now += 57 * MINUTE
        for _minute in range(5):
            # The worker is still alive, and renews its claim.
            self.assertTrue(self.world.records.claims.heartbeat(claim))
            self.world.tick(1)
        self.assertEqual(2, len(self.trove.backups))
        self.world.tick(3, 60 * MINUTE)
        self.assertNotIn(first, self.trove.backups)

    def test_a_wrong_clock_of_a_taskmanager_expires_nothing_early(self):
        """The taskmanager that follows a run may be another one than that which took backups."""
        day = datetime.timedelta(days=1)
        self.add(interval_min=1440, keep=Retention(daily=14))
        for ahead in (0 * day, 20 * day, -3 * day, -30 * day, 3 * day, 400 * day):
            self.world.tick(2 * 20, 12 * 60 * MINUTE)
            self.world.ahead = 0 * day
            self.world.now += day
            scheduler.run_due(self.world.deps())
            self.trove.work()
            self.world.ahead = ahead
            scheduler.run_due(self.world.deps())
            self.world.ahead = 0 * day
            dates = {
                one['created_at'].date() for one in self.trove.of() if one['state'] != 'DELETING'
            }
            self.assertEqual(14, len(dates), ahead)

    def test_serves_the_longest_wait_first(self):
        self.useFixture(fixtures.MonkeyPatch(f'{scheduler.__name__}.MOST_AT_ONCE', 2))
        self.trove.instances = [policy_world.instance(name) for name in 'abc']
        self.world.tiers = dict.fromkeys('abc', 'nvme')
        self.add(Scope.TIER, 'nvme', interval_min=1)
        self.world.tick(6)
        requested = [name for name, _options in self.trove.requests]
        self.assertEqual(12, len(requested))
        # More is due than can begin, and each instance gets a share.
        self.assertGreaterEqual(min(requested.count(name) for name in 'abc'), 3)
