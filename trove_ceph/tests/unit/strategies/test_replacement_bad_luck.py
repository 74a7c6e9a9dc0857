# SPDX-License-Identifier: Apache-2.0
"""Two workers at once, a service that is down, a deletion at any moment, and no port left."""

import contextlib
import functools
import itertools
import math

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import FailoverCause, ReplacementKind, ReplacementState
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import replacement_cloud, replacement_world
from trove_ceph.tests.unit.strategies.replacement_cloud import INSTANCE, OLD
from trove_ceph.tests.unit.strategies.world import Strike

HOSTS = ('host-2',) * 3
SERVICES = ('agents', 'guests', 'instances', 'network', 'servers', 'volumes')
#: Longer than a claim without a heartbeat lasts.
SUSPENDED_SEC = 60


def make_worlds():
    """Return functions that make the worlds, by name."""
    world = replacement_world.World
    return {
        'failover to a guest': functools.partial(world, guest_hosts=HOSTS),
        'failover to a booted server': functools.partial(world, is_host_down=True),
        'move of a database that serves': functools.partial(
            world, guest_hosts=HOSTS, cause=FailoverCause.MAINTENANCE, is_healthy=True
        ),
        'failover of a replica': functools.partial(world, guest_hosts=HOSTS, source_id='a-source'),
        'resize': functools.partial(world, ReplacementKind.RESIZE, guest_hosts=HOSTS),
    }


class Happening(Strike):
    """Something that happens after one of the requests, before its answer is read."""

    def __init__(self, number, happen):
        super().__init__(number, after=True)
        self._happen = happen

    def _end(self, unavailable):
        self._happen()


class AtEachRequestCase(base.BaseTestCase):
    def at_each_request(self, happen, check, least=50):
        """Run each world once for each of its requests.

        :param happen: called with the world after the request
        :param check: called with the world afterwards; makes attempts until the end
        """
        for name, make in make_worlds().items():
            for number in itertools.count():
                world = make()
                strike = Happening(number, lambda world=world: happen(world))
                try:
                    check(world, strike)
                except Exception as error:
                    error.add_note(f'{name}, at request {number}')
                    raise
                if not strike.struck:
                    self.assertGreater(number, least)
                    break


class TwoWorkersTest(AtEachRequestCase):
    """One worker is suspended at each request, while another one finishes the replacement."""

    def test_worker_that_wakes_up_changes_nothing(self):
        self.at_each_request(self.finish_meanwhile, self.check)

    def finish_meanwhile(self, world):
        world.pass_time(SUSPENDED_SEC)
        world.finish()
        world.check_completed()

    def check(self, world, strike):
        try:
            world.attempt(strike).run()
        except exceptions.ClaimLostError:
            pass
        else:
            # The last write had come through already.
            self.assertFalse(world.record().state.is_open)
        world.check_completed()

    def test_worker_that_is_suspended_inside_a_binding(self):
        for place in range(4):
            world = make_worlds()['failover to a guest']()
            happened = []

            def suspend(found, world=world, place=place, happened=happened):
                if found == place and not happened:
                    happened.append(found)
                    self.finish_meanwhile(world)

            world.at_bind = suspend
            self.assertRaises(exceptions.ClaimLostError, world.attempt().run)
            self.assertEqual([place], happened)
            world.check_completed()

    def test_worker_that_is_suspended_after_its_claim_was_confirmed(self):
        """Its late request reaches Ceph, Nova and the records, and harms nothing."""
        reached = set()
        for name, make in make_worlds().items():
            for number in itertools.count():
                world, places = make(), []

                def suspend(place, world=world, places=places, number=number):
                    places.append(place)
                    if len(places) == number + 1:
                        world.at = lambda _place: None
                        self.finish_meanwhile(world)

                world.at = suspend
                with self.annotated(f'{name}, at {number}', places):
                    try:
                        world.attempt().run()
                    except exceptions.ClaimLostError:
                        pass
                    else:
                        self.assertLess(len(places), number + 1)
                    world.check_completed()
                reached |= set(places)
                if len(places) <= number:
                    break
        self.assertEqual(
            {
                'listed the clients',
                'is about to fence',
                'is about to attach the volume',
                'is about to attach a port',
                'is about to record the binding',
                'is about to boot',
            },
            reached,
        )

    @staticmethod
    @contextlib.contextmanager
    def annotated(text, places):
        try:
            yield
        except Exception as error:
            error.add_note(f'{text}: {places}')
            raise


class KilledInsideABindingTest(base.BaseTestCase):
    def test_guest_is_deleted_or_bound(self):
        for place in range(4):
            world = make_worlds()['failover to a guest']()

            def kill(found, world=world, place=place):
                if found == place:
                    world.at_bind = lambda _place: None
                    raise interruption.Kill

            world.at_bind = kill
            world.finish()
            self.assertNotEqual(kill, world.at_bind)
            world.check_completed()
            # A guest that was bound already is used, another one is deleted.
            self.assertEqual(3 if place == 3 else 2, len(world.guests))


class DeletionTest(AtEachRequestCase):
    """The instance is deleted while its server is replaced."""

    def test_deleted_at_each_request(self):
        self.at_each_request(self.delete, self.check)

    def test_deleted_at_each_request_of_a_worker_that_dies(self):
        def delete_and_die(world):
            self.delete(world)
            raise interruption.Kill

        self.at_each_request(delete_and_die, self.check)

    def delete(self, world):
        world.trove.set(INSTANCE, task_id=world.DELETING)

    def check(self, world, strike):
        record, _error = world.finish(strike)
        if strike.struck:
            # The deletion may have come after the last look.
            ended = (ReplacementState.CANCELED, ReplacementState.COMPLETED)
            self.assertIn(record.state, ended)
            self.assertEqual(world.DELETING, world.trove.task(INSTANCE))
        else:
            self.assertIs(ReplacementState.COMPLETED, record.state)
        world.delete_instance()
        world.check_deleted()

    def test_row_that_is_deleted(self):
        world = make_worlds()['failover to a guest']()
        for step in world.attempt().steps()[:8]:
            step.do()
        world.trove.set(INSTANCE, deleted=True)
        record, _error = world.finish()
        self.assertIs(ReplacementState.CANCELED, record.state)

    def test_deletion_while_waiting(self):
        for number, what in ((0, 'boot_looks'), (1, 'deletion_looks'), (2, 'agent_looks')):
            world = make_worlds()['failover to a booted server']()
            setattr(world, what, 10**6)
            self.assertRaises(exceptions.InProgressError, world.attempt().run)
            self.delete(world)
            if number == 1:
                world.servers[OLD].deletion_looks = 1
            record, _error = world.finish()
            self.assertIs(ReplacementState.CANCELED, record.state)
            world.delete_instance()
            world.check_deleted()


class PortDeletionTest(AtEachRequestCase):
    """The tenant deletes a port of the instance at any moment."""

    def test_one_of_two_deleted_at_each_request(self):
        self.at_each_request(lambda world: world.ports.pop('port-2'), self.check)

    def check(self, world, strike):
        world.ports['port-2'] = replacement_cloud.Port('instance', OLD)
        record, _error = world.finish(strike)
        if not strike.struck:
            self.assertEqual(('port-instance', 'port-2'), record.port_ids)
            del world.ports['port-2']
        world.check_completed()


class ImageTest(AtEachRequestCase):
    """The guest image is replaced at any moment."""

    def test_replaced_at_each_request(self):
        self.at_each_request(lambda world: setattr(world, 'image', 'new'), self.check)

    def check(self, world, strike):
        record, _error = world.finish(strike)
        if record.state is ReplacementState.FAILED:
            # A resize whose claimed guest has the former image.
            self.assertIs(ReplacementKind.RESIZE, record.kind)
            world.check_serves(OLD)
        else:
            world.check_completed()


class PromotionTest(AtEachRequestCase):
    """A promotion of another replica of the same source is requested at any moment."""

    def test_requested_at_each_request(self):
        self.at_each_request(lambda world: world.request_promotion(), self.check)

    def check(self, world, strike):
        world.finish(strike)
        world.pass_time(60)
        world.check_completed()


class ServiceDownTest(base.BaseTestCase):
    """A service is down from each step on, for two attempts."""

    def test_each_service_at_each_step(self):
        for name, make in make_worlds().items():
            for service in SERVICES:
                for number in range(len(make().attempt().steps()) + 1):
                    try:
                        self.check(make(), service, number)
                    except Exception as error:
                        error.add_note(f'{name}: {service} down from step {number} on')
                        raise

    def check(self, world, service, number):
        for step in world.attempt().steps()[:number]:
            step.do()
        world.down = {service}
        for _ in range(2):
            if world.record().state.is_open:
                try:
                    world.attempt().run()
                except exceptions.TroveCephError:
                    world.check_always()
        world.down = set()
        record, _error = world.finish()
        if record.state is ReplacementState.FAILED:
            # Each attempt of a resize that fails before the fence uses up a guest.
            self.assertIs(ReplacementKind.RESIZE, record.kind)
            world.check_serves(OLD)
        else:
            world.check_completed()


class NoPortTest(base.BaseTestCase):
    """Neutron has no other port for the server that Nova is to boot."""

    def test_no_port_is_left_but_that_of_the_old_server(self):
        world = replacement_world.World()
        world.most_ports = len(world.ports)
        _record, error = world.finish()
        self.assertIsNone(error)
        world.check_completed()

    def test_no_port_is_left(self):
        world = replacement_world.World()
        world.most_ports = 0
        for _ in range(5):
            try:
                world.attempt().run()
            except exceptions.TroveCephError:
                world.check_always()
        self.assertIs(ReplacementState.MOVING, world.record().state)
        self.assertIn('has no room for its server', world.record().error)
        world.most_ports = math.inf
        world.finish()
        world.check_completed()
