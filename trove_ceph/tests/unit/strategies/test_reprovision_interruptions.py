# SPDX-License-Identifier: Apache-2.0
"""Interrupt the re-provisioning of a replica at each request; the replica survives all."""

import functools
import itertools

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.replica_record import ReplicaState, Requester
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.strategies.replication import reprovision_rules as rules
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import reprovision_world
from trove_ceph.tests.unit.strategies.reprovision_cloud import OLD, REPLICA
from trove_ceph.tests.unit.strategies.world import Strike

SERVICES = ('agents', 'clones', 'instances', 'servers', 'volumes')
#: Longer than a claim without a heartbeat lasts.
SUSPENDED_SEC = 60
_FAILED = StartProgress(StartState.FAILED, 'InnoDB: page corrupt')


def make_world(is_returning=False, **options):
    """Return a world.

    :param is_returning: whether MySQL does not start on the clone
    """
    world = reprovision_world.World(**options)
    if is_returning:
        world.start_answers = [_FAILED] * rules.MOST_STARTS
    return world


def make_paused(**options):
    """Return a world whose server is paused until an operator repairs it."""
    world = make_world(**options)
    world.becomes, world.repair_looks = 'PAUSED', 3
    return world


WORLDS = {
    'clone': make_world,
    'lost pool': functools.partial(make_world, is_lost=True, requester=Requester.POLICY),
    'way back': functools.partial(make_world, is_returning=True, requester=Requester.POLICY),
}


class Happening(Strike):
    """Something that happens after one of the requests, before its answer is read."""

    def __init__(self, number, happen):
        super().__init__(number, after=True)
        self._happen = happen

    def _end(self, unavailable):
        self._happen()


class Case(base.BaseTestCase):
    worlds = WORLDS

    def at_each_request(self, make_strike, check):
        """Run each world once for each of its requests.

        :param make_strike: returns the strike at the request with a number, in a world
        :param check: called with the world and the strike; makes attempts until the end
        """
        for name, make in self.worlds.items():
            for number in itertools.count():
                world = make()
                strike = make_strike(number, world)
                try:
                    check(world, strike)
                except Exception as error:
                    error.add_note(f'{name}, at request {number}')
                    raise
                if not strike.struck:
                    self.assertGreater(number, 40)
                    break

    def check_ended(self, world):
        """Check that the replica serves, on the clone or with the reason on its old volume."""
        if world.record().error is None:
            world.check_completed()
        else:
            world.check_as_before()

    def finish(self, world, strike):
        # Something that is lost or killed at the last request is in order.
        world.finish(strike)
        self.check_ended(world)

    def delete(self, world):
        world.trove.set(REPLICA, task_id=world.DELETING)

    def check_deletion(self, world, strike):
        world.finish(strike)
        self.assertFalse(world.is_open())
        if strike.struck and world.record() is not None:
            # The deletion came after the last look.
            self.assertIs(ReplicaState.FOLLOWING, world.record().state)
        world.delete_instance()
        world.check_deleted()


class BlockedTest(Case):
    worlds = {
        'paused': make_paused,
        'paused with a lost pool': functools.partial(make_paused, is_lost=True),
    }

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(f'{rules.__name__}.MOST_ATTEMPTS', 2))

    def test_killed_before_each_request(self):
        self.at_each_request(lambda number, _world: Strike(number), self.finish)

    def test_killed_after_each_request(self):
        self.at_each_request(lambda number, _world: Strike(number, after=True), self.finish)

    def test_instance_is_deleted_at_each_request(self):
        self.at_each_request(
            lambda number, world: Happening(number, lambda: self.delete(world)),
            self.check_deletion,
        )


class AtEachRequestTest(Case):
    # A taskmanager dies, or an answer is lost.

    def test_killed_before_each_request(self):
        self.at_each_request(lambda number, _world: Strike(number), self.finish)

    def test_killed_after_each_request(self):
        self.at_each_request(lambda number, _world: Strike(number, after=True), self.finish)

    def test_each_answer_is_lost(self):
        self.at_each_request(
            lambda number, _world: Strike(number, after=True, lost=True), self.finish
        )

    # A taskmanager is suspended, while another one finishes.

    def test_worker_that_wakes_up_changes_nothing(self):
        def finish_meanwhile(world):
            world.pass_time(SUSPENDED_SEC)
            world.finish()
            self.check_ended(world)

        def check(world, strike):
            while world.is_open():
                try:
                    world.attempt(strike).run()
                except exceptions.TroveCephError:
                    world.pass_time(1)
            self.check_ended(world)

        self.at_each_request(
            lambda number, world: Happening(number, lambda: finish_meanwhile(world)), check
        )

    # The instance is deleted.

    def test_instance_is_deleted_at_each_request(self):
        self.at_each_request(
            lambda number, world: Happening(number, lambda: self.delete(world)),
            self.check_deletion,
        )

    def test_instance_is_deleted_at_each_request_of_a_worker_that_dies(self):
        def delete_and_die(world):
            self.delete(world)
            raise interruption.Kill

        self.at_each_request(
            lambda number, world: Happening(number, lambda: delete_and_die(world)),
            self.check_deletion,
        )

    def test_instance_is_deleted_while_something_takes_long(self):
        for name in ('attach_looks', 'detach_looks', 'start_duration', 'agent_looks'):
            world = make_world()
            setattr(world, name, 10**6)
            self.assertRaises(exceptions.InProgressError, world.attempt().run)
            self.delete(world)
            world.finish()
            self.assertIsNone(world.record())
            world.delete_instance()
            world.check_deleted()

    # A service is down.

    def test_each_service_is_down_from_each_step_on(self):
        for name, make in WORLDS.items():
            for service in SERVICES:
                for number in range(len(make().attempt().steps()) + 1):
                    try:
                        self.check_down(make(), service, number)
                    except Exception as error:
                        error.add_note(f'{name}: {service} down from step {number} on')
                        raise

    def check_down(self, world, service, number):
        try:
            for step in world.attempt().steps()[:number]:
                step.do()
        except exceptions.TroveCephError:
            world.check_always()
        world.down = {service}
        for _ in range(2):
            if world.is_open():
                try:
                    world.attempt().run()
                except exceptions.TroveCephError:
                    world.check_always()
        world.down = set()
        world.finish()
        self.check_ended(world)


class GivingUpInterruptionsTest(base.BaseTestCase):
    """The last attempt for a replica that follows on neither volume."""

    def make(self):
        world = make_world(requester=Requester.POLICY)
        for step in world.attempt().steps():
            if world.record().state is not ReplicaState.CATCHING_UP:
                step.do()
        world.volumes[OLD].is_lost = True
        world.io_error = 'error 1236'
        for _ in range(rules.MOST_ATTEMPTS - 1):
            self.assertRaises(exceptions.GuestUnavailableError, world.attempt().run)
        return world

    def test_at_each_request(self):
        for options in ({}, {'after': True}, {'lost': True}, {'after': True, 'lost': True}):
            for number in itertools.count():
                strike, world = Strike(number, **options), self.make()
                world.finish(strike)
                record = world.record()
                self.assertIs(ReplicaState.FOLLOWING, record.state)
                self.assertTrue(record.error)
                self.assertEqual((1, 'FAILED'), (record.failures, world.service_status))
                self.assertEqual({OLD}, world.discarded)
                world.check_always()
                if not strike.struck:
                    break
            self.assertGreater(number, 8)
