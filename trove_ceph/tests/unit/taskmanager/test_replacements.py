# SPDX-License-Identifier: Apache-2.0
"""Which attempts of replacements a process makes, and when."""

import datetime
import types

import fixtures

from trove_ceph import exceptions, waiting
from trove_ceph.db import claims, heartbeat
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.taskmanager import replacements
from trove_ceph.tests.unit.db import replacement_helpers

SECOND = replacement_helpers.SECOND
IN_PROGRESS = exceptions.InProgressError('Nova still deletes it')


class Threads:
    """Threads that run at once, as long as they are free."""

    def __init__(self):
        self.count = 100

    def start(self, function):
        if not self.count:
            return False
        self.count -= 1
        function()
        return True


class ReplacementsTest(replacement_helpers.ReplacementStoreTestCase):
    """The test case acts as the strategy.

    :ivar errors: of the next attempts; None: the replacement is canceled
    """

    def setUp(self):
        super().setUp()
        self.attempts, self.errors = [], []
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.strategies.replacement.replacement.Replacement', self.make_attempt
            )
        )
        self.threads = Threads()
        self.runner = self.process('one')

    def process(self, name):
        """Return the replacements of a taskmanager."""
        store = self.connect()
        deps = types.SimpleNamespace(
            store=store,
            heartbeat=heartbeat.Heartbeat(store.claims, 5, 45, self.clock),
            clock=self.clock,
        )
        return replacements.Replacements(
            deps,
            claims.Claimant(name),
            self.threads,
            lambda seconds: waiting.Deadline(seconds, self.clock, self.sleep),
        )

    def clock(self):
        return (self.now - datetime.datetime(2026, 1, 1)).total_seconds()

    def sleep(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)
        self.while_asleep()

    def while_asleep(self):
        """Do what happens beside the tested process."""

    def make_attempt(self, deps, claim, record):
        def run():
            self.attempts.append((claim.worker, record.replacement_id))
            error = self.errors.pop(0) if self.errors else None
            if error is not None:
                raise error
            return deps.store.cancel(claim)

        return types.SimpleNamespace(run=run)

    def state(self, replacement_id='r'):
        return self.store.find(replacement_id).state

    def pass_time(self, seconds):
        """Let time pass, in which the background thread looks every 2 s."""
        for _ in range(seconds // 2):
            self.now += 2 * SECOND
            self.runner.start_due()

    def test_continues_open_replacements(self):
        for name in 'rs':
            self.request(name)
        self.runner.start_due()
        self.assertEqual([('one', 'r'), ('one', 's')], self.attempts)
        self.assertEqual(ReplacementState.CANCELED, self.state())
        self.pass_time(60)
        self.assertEqual(2, len(self.attempts))

    def test_looks_again_soon_at_what_is_in_progress(self):
        self.request('r')
        self.errors = [IN_PROGRESS] * 3
        self.runner.start_due()
        self.pass_time(6)
        self.assertEqual(4, len(self.attempts))
        self.assertEqual(ReplacementState.CANCELED, self.state())

    def test_retries_a_failure_later_each_time(self):
        self.request('r')
        self.errors = [exceptions.NotFencedError('held')] * 2
        self.runner.start_due()
        self.pass_time(4)
        self.assertEqual(1, len(self.attempts))
        self.pass_time(2)
        self.assertEqual(2, len(self.attempts))

    def test_what_fails_has_no_turn_before_what_waits(self):
        for name in 'qrs':
            self.request(name)

        def fail(deps, claim, record):
            self.errors = [IN_PROGRESS]
            if record.replacement_id != 's':
                self.errors = [exceptions.NotFencedError('held')]
                deps.store.note(claim, attempts=1, retry_at=self.now + 5 * SECOND)
            return self.make_attempt(deps, claim, record)

        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.strategies.replacement.replacement.Replacement', fail)
        )
        for _ in range(6):
            self.threads.count = 1
            self.pass_time(2)
        self.assertEqual([*'qrsqsr'], [name for _worker, name in self.attempts])

    def test_leaves_what_another_process_has_just_attempted(self):
        self.request('r')
        claim_it = self.runner._deps.store.claim

        def attempt_before(replacement_id, claimant):
            claim = self.store.claim(replacement_id, claims.Claimant('two'))
            self.store.note(claim, attempts=1, retry_at=self.now + 5 * SECOND)
            self.store.claims.release(claim)
            return claim_it(replacement_id, claimant)

        self.runner._deps.store.claim = attempt_before
        self.runner.start_due()
        self.assertEqual([], self.attempts)
        self.runner._deps.store.claim = claim_it
        self.pass_time(6)
        self.assertEqual([('one', 'r')], self.attempts)

    def test_unexpected_error_does_not_stop_others(self):
        for name in 'rs':
            self.request(name)
        self.errors = [ValueError('unexpected')]
        log = self.useFixture(fixtures.FakeLogger('trove_ceph'))
        self.runner.start_due()
        self.assertEqual(['r', 's'], [name for _worker, name in self.attempts])
        self.assertIn('unexpected', log.output)

    def test_waits_for_a_free_thread(self):
        for name in 'rs':
            self.request(name)
        self.threads.count = 1
        self.runner.start_due()
        self.assertEqual([('one', 'r')], self.attempts)
        self.threads.count = 1
        self.pass_time(2)
        self.assertEqual([('one', 'r'), ('one', 's')], self.attempts)

    def test_another_process_continues(self):
        self.request('r')
        self.errors = [IN_PROGRESS]
        self.runner.start_due()
        self.process('two').start_due()
        self.assertEqual([('one', 'r'), ('two', 'r')], self.attempts)

    def test_leaves_what_another_process_has_claimed(self):
        self.request('r')
        claim = self.store.claim('r', claims.Claimant('two'))
        self.runner.start_due()
        self.assertEqual([], self.attempts)
        self.store.claims.release(claim)
        self.runner.start_due()
        self.assertEqual([('one', 'r')], self.attempts)

    def test_finds_a_request_of_which_nobody_has_told_it(self):
        self.runner.start_due()
        self.request('r')
        self.pass_time(2)
        self.assertEqual([('one', 'r')], self.attempts)

    def test_lost_claim_is_no_failure(self):
        self.request('r')
        self.errors = [exceptions.ClaimLostError('another worker continues it')]
        self.runner.start_due()
        self.runner.start_due()
        self.assertEqual(2, len(self.attempts))
        self.assertEqual(ReplacementState.CANCELED, self.state())

    # The deletion of an instance.

    def test_deletion_cancels(self):
        self.request('r')
        self.errors = [IN_PROGRESS, exceptions.ServiceUnavailableError('Nova is down')]
        self.runner.cancel('i-r')
        self.assertEqual(ReplacementState.CANCELED, self.state())
        self.assertEqual(3, len(self.attempts))

    def test_deletion_without_a_replacement(self):
        self.runner.cancel('i-r')
        self.assertEqual([], self.attempts)

    def test_deletion_waits_for_the_worker_that_continues(self):
        self.request('r')
        claim = self.store.claim('r', claims.Claimant('two'))
        looks = []

        def look():
            looks.append(self.now)
            if len(looks) == 3:
                self.store.cancel(claim)

        self.while_asleep = look
        self.runner.cancel('i-r')
        self.assertEqual(3, len(looks))
        self.assertEqual([], self.attempts)

    def test_deletion_that_must_be_repeated(self):
        self.request('r')
        self.errors = [IN_PROGRESS] * 1000
        error = self.assertRaises(exceptions.InProgressError, self.runner.cancel, 'i-r')
        self.assertIn('repeat the deletion of the instance', str(error))
        self.assertIsNone(self.store.find('r').claimed_by)

    # The end.

    def test_waits_for_the_end(self):
        self.request('r')
        self.while_asleep = self.runner.start_due
        self.assertEqual(ReplacementState.CANCELED, self.runner.wait('r', 60).state)

    def test_end_that_is_late(self):
        self.request('r')
        error = self.assertRaises(exceptions.InProgressError, self.runner.wait, 'r', 60)
        self.assertIn('did not end within 60 s; it goes on', str(error))
        self.assertRaises(exceptions.RecordNotFoundError, self.runner.wait, 'unknown', 60)

    def test_prunes_what_ended_long_ago(self):
        for name in 'rs':
            self.request(name)
        self.runner.start_due()
        self.request('t')
        self.now += datetime.timedelta(days=2)
        self.runner.prune(datetime.timedelta(days=3))
        self.assertEqual(3, len(self.store.list()))
        self.runner.prune(datetime.timedelta(days=1))
        self.assertEqual(['t'], [one.replacement_id for one in self.store.list()])
