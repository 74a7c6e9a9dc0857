# SPDX-License-Identifier: Apache-2.0
"""A resize that does not succeed after the fence gives the instance its former flavor back."""

from unittest import mock

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementKind, ReplacementState
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.tests.unit.strategies import replacement_cloud, replacement_world
from trove_ceph.tests.unit.strategies.replacement_cloud import INSTANCE, VOLUME

OTHER_HOST = ('host-2',)


def raise_unavailable():
    raise exceptions.ServiceUnavailableError('the database is down')


class ReturnTest(base.BaseTestCase):
    def make_world(self, guest_hosts=OTHER_HOST, **named):
        self.world = replacement_world.World(
            ReplacementKind.RESIZE, guest_hosts=guest_hosts, **named
        )
        return self.world

    def assert_returned(self, text):
        record, _error = self.world.finish()
        self.world.check_returned()
        self.assertIn(f'serves with its former flavor again: {text}', record.error)

    def test_resize_that_succeeds(self):
        world = self.make_world()
        world.finish()
        world.check_completed()
        self.assertEqual(('large', None), (world.flavor, world.record().returned_because))

    def test_cloud_without_room_for_the_flavor(self):
        world = self.make_world()
        world.full_hosts, world.bind_errors = {'large'}, 1
        self.assert_returned('the cloud started no server of the new flavor')
        self.assertIsNone(world.record().guest_id)

    def test_cloud_without_room_that_deletes_slowly(self):
        """What Nova showed is not forgotten while the failed server is deleted."""
        world = self.make_world()
        world.full_hosts, world.bind_errors, world.deletion_looks = {'large'}, 1, 40
        self.assert_returned('the cloud started no server of the new flavor')
        self.assertEqual(2, len(world.requested_hosts))

    def test_server_that_boots_for_too_long(self):
        world = self.make_world()
        world.bind_errors, world.boot_looks = 1, 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.now += 2 * rules.BOOT_TIMEOUT
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIs(ReplacementState.RETURNING, world.record().state)
        world.boot_looks = 0
        self.assert_returned('the cloud started no server of the new flavor')

    def test_service_that_is_down_for_a_moment(self):
        world = self.make_world()
        world.bind_errors, world.at_bind = 1, lambda place: self.take_down(place == 2)
        for _ in range(rules.MOST_ATTEMPTS_OF_FLAVOR - 1):
            self.assertRaises(exceptions.ServiceUnavailableError, world.attempt().run)
        self.assertIs(ReplacementState.MOVING, world.record().state)
        world.down.clear()
        world.finish()
        world.check_completed()

    def test_nova_is_down_while_a_guest_is_bound(self):
        """A server that was chosen is not given up."""
        world = self.make_world()
        attempt = world.attempt()
        attempt._new.show = raise_unavailable
        self.assertRaises(exceptions.ServiceUnavailableError, attempt.run)
        world.down = {'servers'}
        for _ in range(2 * rules.MOST_ATTEMPTS_OF_FLAVOR):
            self.assertRaises(exceptions.ServiceUnavailableError, world.attempt().run)
            world.pass_time(60)
        self.assertIs(ReplacementState.MOVING, world.record().state)
        world.down.clear()
        world.finish()
        world.check_completed()
        self.assertEqual([], world.requested_hosts)

    def test_boots_that_fail_for_another_reason(self):
        """They are repeated, as in a failover, but not for ever."""
        for failures, is_enough in ((2, False), (10**6, True)):
            world = self.make_world()
            world.bind_errors, boot = 1, replacement_cloud.Servers.boot

            def break_server(servers, record, host, failures=failures, boot=boot):
                server_id = boot(servers, record, host)
                requested = len(servers._world.requested_hosts)
                if record.flavor_id == 'large' and requested <= failures:
                    server = servers._world.servers[server_id]
                    server.status, server.fault = 'ERROR', 'the port was not bound'
                return server_id

            with mock.patch.object(replacement_cloud.Servers, 'boot', break_server):
                if is_enough:
                    self.assert_returned('no server of the new flavor was provided')
                else:
                    world.finish()
                    world.check_completed()

    def take_down(self, is_down):
        if is_down:
            self.world.down = {'network'}

    def test_service_that_is_down_for_long(self):
        world = self.make_world()
        # What fails is the request for a boot of the new flavor.
        world.bind_errors, world.gone_flavors = 1, {'large'}
        self.assert_returned('no server of the new flavor was provided')

    def test_cloud_without_a_guest_image(self):
        """There is no server of the former flavor either."""
        world = self.make_world()
        world.bind_errors = 1
        world.at_bind = lambda _place: setattr(world, 'image', None)
        for _ in range(2 * rules.MOST_ATTEMPTS_OF_FLAVOR):
            error = self.assertRaises(exceptions.ServiceUnavailableError, world.attempt().run)
            world.pass_time(5)
        self.assertIsInstance(error, exceptions.OperatorNeededError)
        self.assertIs(ReplacementState.MOVING, world.record().state)
        self.assertIsNone(world.record().returned_because)

    def test_mysql_that_does_not_start(self):
        world = self.make_world()
        world.unfit_flavors = {'large'}
        world.add_guest('host-2')
        self.assert_returned('MySQL did not start on the new server: cannot allocate memory')

    def test_server_that_fails_while_mysql_starts(self):
        world = self.make_world()
        world.agent_looks = 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.servers[world.shown].status = 'ERROR'
        error = self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIn('returns to the former flavor', error.shown)
        world.agent_looks = 0
        self.assert_returned('MySQL did not start on the new server: the new server failed')
        # It is no advice to a tenant whose database serves.
        self.assertNotIn('request another failover', world.record().error)

    def test_agent_of_an_earlier_release(self):
        """A server of the former flavor has the same guest image."""
        world = self.make_world()
        world.agent_looks, world.agent_error = 10**6, exceptions.GuestOutdatedError
        record, _error = world.finish()
        self.assertIs(ReplacementState.FAILED, record.state)
        self.assertIsNone(record.returned_because)

    def test_host_that_fails_with_the_new_server(self):
        """It is deleted only when Nova knows whether its host works."""
        world = self.make_world()
        world.agent_looks = 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.servers[world.shown].status = 'ERROR'
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        returned_at = world.record().returned_at
        world.pass_time(1)
        world.agent_looks = 0
        self.assert_returned('MySQL did not start on the new server: the new server failed')
        self.assertEqual(returned_at, world.reported_since)

    def test_operator_gives_up(self):
        world = self.make_world(has_database=True)
        world.agent_looks = 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.store.give_up(world.record().replacement_id, 'it takes too long')
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIsNone(world.record().given_up_because)
        world.agent_looks = 0
        self.assert_returned('MySQL did not start on the new server: it takes too long')

    def test_mysql_that_starts_with_neither_flavor(self):
        world = self.make_world()
        world.unfit_flavors = {'large', 'small'}
        record, _error = world.finish()
        self.assertIs(ReplacementState.FAILED, record.state)
        given_up = 'MySQL did not start on the new server: cannot allocate memory'
        expected = ('FAILED', f'{given_up}; cannot allocate memory')
        self.assertEqual(expected, (world.service_status, world.fault))
        self.assertEqual('small', world.flavor)
        world.serving.add(world.shown)
        world.check_serves(world.shown)

    def test_cloud_without_room_for_either_flavor(self):
        """There is no further way back: it waits until there is room."""
        world = self.make_world()
        world.full_hosts, world.bind_errors = {'large', 'small'}, 1
        self.assertRaises(AssertionError, world.finish, most=10)
        self.assertIs(ReplacementState.MOVING, world.record().state)
        self.assertEqual('small', world.record().flavor_id)
        world.full_hosts = set()
        self.assert_returned('the cloud started no server of the new flavor')

    def test_late_server_of_the_new_flavor(self):
        """A boot whose answer was lost comes true when the instance returns."""
        world = self.make_world()
        world.full_hosts, world.bind_errors = {'large', 'small'}, 1
        self.assertRaises(AssertionError, world.finish, most=10)
        late = replacement_cloud.Server('server-late', 'host-3', flavor='large')
        late.replacement_id = world.record().replacement_id
        world.servers['server-late'] = late
        world.attached.add('server-late')
        world.ceph.open('server-late')
        world.full_hosts = set()
        self.assert_returned('the cloud started no server of the new flavor')
        self.assertNotIn('server-late', world.servers)

    def test_instance_that_is_deleted_while_it_returns(self):
        world = self.make_world()
        world.unfit_flavors = {'large'}
        while world.record().state is not ReplacementState.RETURNING:
            self.assertRaises(exceptions.TroveCephError, world.attempt().run)
        world.trove.set(INSTANCE, task_id=world.DELETING)
        record, _error = world.finish()
        self.assertIs(ReplacementState.CANCELED, record.state)
        world.delete_instance()
        world.check_deleted()

    def test_failover_and_rebuild_never_return(self):
        for kind in (ReplacementKind.FAILOVER, ReplacementKind.REBUILD):
            world = replacement_world.World(kind, guest_hosts=OTHER_HOST)
            world.start_answers = [StartProgress(StartState.FAILED, f'{VOLUME} is bad')] * 3
            record, _error = world.finish()
            self.assertIs(ReplacementState.FAILED, record.state)
            self.assertIsNone(record.returned_because)
            self.assertEqual('FAILED', world.service_status)
