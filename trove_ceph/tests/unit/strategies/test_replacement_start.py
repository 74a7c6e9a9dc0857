# SPDX-License-Identifier: Apache-2.0
"""The start of MySQL on the new server: what is waited for, and what is left to the tenant."""

import datetime

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.tests.unit.db import replacement_helpers
from trove_ceph.tests.unit.strategies import replacement_world
from trove_ceph.tests.unit.strategies.replacement_cloud import INSTANCE

OTHER_HOST = ('host-2',)
SECOND = datetime.timedelta(seconds=1)


class StartTest(base.BaseTestCase):
    def make_world(self, *arguments, **named):
        self.world = replacement_world.World(*arguments, **named)
        return self.world

    def assert_failed(self, text):
        record, _error = self.world.finish()
        self.assertIs(ReplacementState.FAILED, record.state)
        self.assertIn(text, record.error)
        self.assertEqual(('FAILED', record.error), (self.world.service_status, self.world.fault))
        self.assertEqual(replacement_helpers.NONE, self.world.trove.task(INSTANCE))
        self.assertNotIn('port-management', self.world.ports)

    def test_agent_that_answers_late(self):
        world = self.make_world()
        world.agent_looks = 100
        error = self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIn('does not serve', str(error))
        self.assertIs(ReplacementState.STARTING, world.record().state)
        self.assertEqual('waits until MySQL serves on the new server', world.record().error)
        world.finish()
        world.check_completed()

    def test_failure_that_does_not_last(self):
        failed = StartProgress(StartState.FAILED, 'a file is locked')
        starting = StartProgress(StartState.STARTING)
        world = self.make_world()
        world.start_answers = [starting, failed, starting, starting, failed, starting]
        self.assertRaises(exceptions.GuestUnavailableError, world.attempt().run)
        record = world.record()
        self.assertEqual((ReplacementState.STARTING, 1), (record.state, record.failed_starts))
        self.assertIn('a file is locked', record.error)
        world.finish()
        world.check_completed()

    def test_wait_after_a_failure(self):
        """The tenant goes on reading what must be repaired."""
        world = self.make_world()
        world.start_answers = [StartProgress(StartState.FAILED, 'unknown variable x')]
        self.assertRaises(exceptions.GuestUnavailableError, world.attempt().run)
        world.agent_looks = 100
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIn('unknown variable x', world.record().error)

    def test_mysql_that_does_not_start(self):
        world = self.make_world(guest_hosts=OTHER_HOST)
        failed = StartProgress(StartState.FAILED, 'bad\n option  ' + 'x' * 500)
        # Each request after a failure starts MySQL again.
        world.start_answers = [StartProgress(StartState.STARTING), failed] * 3
        self.assert_failed('bad option xx')
        self.assertLessEqual(len(world.fault), 200)
        # The tenant can repair it: everything is on the new server.
        world.serving.add(world.shown)
        world.check_serves(world.shown)

    def test_agent_that_does_not_say_why(self):
        self.make_world().start_answers = [StartProgress(StartState.FAILED)] * 3
        self.assert_failed('did not say why')

    def test_agent_that_never_answers(self):
        world = self.make_world()
        world.agent_looks = 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.now = world.record().moved_at + rules.ANSWER_TIMEOUT - 60 * SECOND
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.now += 60 * SECOND
        self.assert_failed('does not answer')

    def test_agent_of_an_earlier_release(self):
        world = self.make_world()
        world.agent_looks, world.agent_error = 10**6, exceptions.GuestOutdatedError
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIn('must register a newer guest image', world.record().error)
        record, _error = world.finish()
        self.assertIs(ReplacementState.FAILED, record.state)
        self.assertIn('must register a newer guest image; then request', record.error)

    def test_agent_that_is_silent_for_a_while_after_hours(self):
        world = self.make_world()
        world.start_answers = [StartProgress(StartState.STARTING)] * 10**4
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.now += 2 * rules.ANSWER_TIMEOUT
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        answered_at = world.record().answered_at
        world.start_answers, world.agent_looks = [], 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertEqual(answered_at, world.record().answered_at)
        world.now = answered_at + rules.ANSWER_TIMEOUT + SECOND
        self.assert_failed('does not answer')

    def test_recovery_that_takes_hours(self):
        world = self.make_world()
        world.start_answers = [StartProgress(StartState.STARTING)] * 10**4
        world.finish(most=1000)
        self.assertGreater(world.clock(), 10**4)
        world.check_completed()

    def test_new_server_that_fails(self):
        for status in ('ERROR', 'DELETED'):
            world = self.make_world()
            world.agent_looks = 10**6
            self.assertRaises(exceptions.InProgressError, world.attempt().run)
            world.servers[world.shown].status = status
            self.assert_failed('the new server failed')

    def make_silent_world(self, **named):
        """Return a world whose new server is on a host that is down, and silent for a while."""
        world = self.make_world(**named)
        world.agent_looks = 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.down_hosts = {world.record().new_host}
        world.now = world.record().moved_at + rules.DOWN_TIMEOUT - 60 * SECOND
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        return world

    def test_new_host_that_fails(self):
        for guest_hosts in ((), OTHER_HOST):
            world = self.make_silent_world(guest_hosts=guest_hosts)
            world.now += 60 * SECOND
            self.assert_failed('the host of the new server failed')

    def test_new_host_that_fails_after_its_agent_has_answered(self):
        world = self.make_world()
        world.start_answers = [StartProgress(StartState.STARTING)] * 10**4
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.now += rules.DOWN_TIMEOUT
        world.down_hosts = {'host-3'}
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.start_answers, world.agent_looks = [], 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.now += rules.DOWN_TIMEOUT
        self.assert_failed('the host of the new server failed')

    def test_host_that_does_not_report_while_the_agent_answers(self):
        world = self.make_silent_world()
        world.now += 60 * SECOND
        world.agent_looks = 0
        world.finish()
        world.check_completed()

    def test_server_that_nova_rebuilds_on_another_host(self):
        world = self.make_silent_world()
        world.servers[world.shown].task = 'rebuilding'
        world.now += 60 * SECOND
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIs(ReplacementState.STARTING, world.record().state)

    def test_operator_gives_up(self):
        world = self.make_world(has_database=True)
        world.agent_looks = 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.store.give_up(world.record().replacement_id, 'restore a backup')
        self.assert_failed('restore a backup')
