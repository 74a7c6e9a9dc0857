# SPDX-License-Identifier: Apache-2.0
"""What policies do where there is not room for all, or somebody does not carry on."""

import fixtures

from trove_ceph import exceptions
from trove_ceph.db.policy_record import Retention, Scope
from trove_ceph.db.roles import Role
from trove_ceph.strategies.policies import scheduler
from trove_ceph.tests.unit.strategies import test_policy_scheduler

MINUTE, PATIENCE = test_policy_scheduler.MINUTE, test_policy_scheduler.PATIENCE


class RoomTest(test_policy_scheduler.PolicyTest):
    def states(self):
        return [one['state'] for one in self.trove.of()]

    def test_quota_that_is_used_up(self):
        """What is kept no longer goes, though nothing can be taken."""
        made = self.add(keep=Retention(last=3))
        self.world.tick(5, 60 * MINUTE)
        # The last one is known to be there, so that nothing but a refusal comes next.
        self.world.tick(2)
        self.assertEqual(3, len(self.trove.backups))
        latest = list(self.trove.backups)[-1]
        self.trove.refusal = exceptions.QuotaExceededError('backups: 3 of 3')
        self.policies.change(made.policy_id, keep=Retention(last=1))
        self.world.tick(10, 60 * MINUTE)
        self.assertEqual([latest], list(self.trove.backups))
        self.assertEqual('COMPLETED', self.trove.backups[latest]['state'])

    def test_failed_one_uses_up_no_quota(self):
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

    def test_one_that_is_not_deleted_is_in_no_others_way(self):
        made = self.add(keep=Retention(last=3))
        self.world.tick(5, 60 * MINUTE)
        first, *_others, latest = self.trove.backups
        ask = self.trove.request_deletion

        def fail(backup_id, *rest, **named):
            if backup_id == first:
                raise exceptions.ServiceUnavailableError('it is being restored')
            ask(backup_id, *rest, **named)

        self.trove.request_deletion = fail
        self.trove.refusal = exceptions.QuotaExceededError('backups: 3 of 3')
        self.policies.change(made.policy_id, keep=Retention(last=1))
        self.world.tick(3, 60 * MINUTE)
        self.assertEqual([first, latest], list(self.trove.backups))

    def test_worker_that_died(self):
        """What was worked on when its worker ended is not kept for ever."""
        self.add(keep=Retention(last=1))
        self.world.tick(2)
        (first,) = self.trove.backups
        dying = self.world.worker()
        claim = self.world.records.claims.claim(Role.COPY, first, dying)
        self.world.now += 57 * MINUTE
        for _minute in range(5):
            # Its heartbeat, and what becomes due meanwhile.
            self.assertTrue(self.world.records.claims.heartbeat(claim))
            self.world.tick(1)
        self.assertEqual(2, len(self.trove.backups))
        self.world.tick(3, 60 * MINUTE)
        self.assertNotIn(first, self.trove.backups)

    def test_those_that_wait_longest_are_first(self):
        self.useFixture(fixtures.MonkeyPatch(f'{scheduler.__name__}.MOST_AT_ONCE', 2))
        self.trove.instances = [test_policy_scheduler.instance(name) for name in 'abc']
        self.world.tiers = dict.fromkeys('abc', 'nvme')
        self.add(Scope.TIER, 'nvme', interval_min=1)
        self.world.tick(6)
        asked = [name for name, _asked in self.trove.requests]
        self.assertEqual(12, len(asked))
        # More is due than can be begun, of which everybody gets a part.
        self.assertGreaterEqual(min(asked.count(name) for name in 'abc'), 3)
