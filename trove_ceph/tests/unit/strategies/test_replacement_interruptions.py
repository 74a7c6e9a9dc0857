# SPDX-License-Identifier: Apache-2.0
"""Interrupt the replacement of a server at each step and request; the database survives all."""

import itertools

from oslotest import base

from trove_ceph.db.replacement_record import FailoverCause, ReplacementKind, ReplacementState
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import replacement_world
from trove_ceph.tests.unit.strategies.replacement_cloud import OLD
from trove_ceph.tests.unit.strategies.world import Strike

OTHER_HOST = ('host-2',)


class RequestInterruptions:
    """A replacement of a server that is interrupted at each request."""

    #: How many requests it makes at least.
    least = 50

    def check_done(self, world):
        world.check_completed()

    def test_killed_before_each_request(self):
        self.strike_each(after=False)

    def test_killed_after_each_request(self):
        self.strike_each(after=True)

    def test_each_answer_is_lost(self):
        self.strike_each(after=True, lost=True)

    def strike_each(self, **how):
        for number in itertools.count():
            world = self.make_world()
            strike = Strike(number, **how)
            with interruption.annotated(f'{how} at request {number}'):
                world.finish(strike)
                if world.record().fenced_at is None and not world.record().state.is_open:
                    # A resize whose guest was retired by an undo.
                    self.assertTrue(strike.struck)
                    world.check_serves(OLD)
                else:
                    self.check_done(world)
            if not strike.struck:
                self.assertGreater(number, self.least)
                return


class ReplacementInterruptions(RequestInterruptions, interruption.InterruptionTests):
    """The replacement of a server with each of the ways to a new one."""

    def make_operation(self, world):
        return world.attempt().steps()

    def check_undone(self, world):
        self.assertIs(ReplacementState.REQUESTED, world.record().state)
        world.check_serves(OLD)


class FailoverToGuestTest(ReplacementInterruptions, base.BaseTestCase):
    def make_world(self):
        return replacement_world.World(guest_hosts=OTHER_HOST * 2)


class FailoverFromDeadHostTest(ReplacementInterruptions, base.BaseTestCase):
    """Nova boots the new server; the process of the old one outlives its deletion."""

    def make_world(self):
        world = replacement_world.World(is_host_down=True, guest_hosts=('host-1',))
        world.boot_looks = world.deletion_looks = 1
        return world


class RebuildTest(ReplacementInterruptions, base.BaseTestCase):
    def make_world(self):
        return replacement_world.World(ReplacementKind.REBUILD, guest_hosts=OTHER_HOST * 3)


class ResizeTest(ReplacementInterruptions, base.BaseTestCase):
    def make_world(self):
        return replacement_world.World(ReplacementKind.RESIZE, guest_hosts=OTHER_HOST * 3)


class ResizeWithoutServerTest(RequestInterruptions, base.BaseTestCase):
    """No guest of the new flavor can be bound, and Nova has no room for one."""

    def make_world(self):
        world = replacement_world.World(ReplacementKind.RESIZE, guest_hosts=OTHER_HOST * 3)
        world.full_hosts, world.bind_errors = {'large'}, 10
        return world

    def check_done(self, world):
        world.check_returned()


class ResizeWithoutStartTest(RequestInterruptions, base.BaseTestCase):
    """MySQL does not start with the new flavor; a guest of the former one waits."""

    def make_world(self):
        world = replacement_world.World(ReplacementKind.RESIZE, guest_hosts=OTHER_HOST * 3)
        world.unfit_flavors = {'large'}
        world.add_guest('host-2')
        return world

    def check_done(self, world):
        world.check_returned()


class TakeOverTest(ReplacementInterruptions, base.BaseTestCase):
    """A replica takes over, so that nothing moves."""

    least = 20

    def make_world(self):
        return replacement_world.World(is_host_down=True, prefers_replica=True)

    def check_done(self, world):
        world.check_taken_over()


class FailoverWithoutFitReplicaTest(ReplacementInterruptions, base.BaseTestCase):
    """No replica takes over, so that the volume moves."""

    def make_world(self):
        world = replacement_world.World(prefers_replica=True, guest_hosts=OTHER_HOST * 2)
        world.is_replica_fit = False
        return world

    def check_done(self, world):
        super().check_done(world)
        self.assertTrue(world.has_followed_again)
        self.assertIn('no replica took over', world.record().reason)
        self.assertIsNone(world.record().promoted_id)


class FailoverAfterTakeOverTest(FailoverWithoutFitReplicaTest):
    """The replica disappears when the source is fenced already."""

    def make_world(self):
        world = super().make_world()
        world.is_replica_fit = world.is_replica_lost = True
        return world


class MoveOfServingDatabaseTest(ReplacementInterruptions, base.BaseTestCase):
    """For the maintenance of a host: MySQL stops before the fence."""

    source_id: str | None = None

    def make_world(self):
        return replacement_world.World(
            guest_hosts=OTHER_HOST * 3,
            cause=FailoverCause.MAINTENANCE,
            is_healthy=True,
            source_id=self.source_id,
        )

    def check_done(self, world):
        super().check_done(world)
        self.assertFalse(world.is_crashed)


class MoveOfServingReplicaTest(MoveOfServingDatabaseTest):
    source_id = 'a-source'
