# SPDX-License-Identifier: Apache-2.0
"""The host of the server that Nova boots for a failover."""

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import FailoverCause, ReplacementKind, ReplacementState
from trove_ceph.tests.unit.strategies import replacement_world
from trove_ceph.tests.unit.strategies.replacement_cloud import OLD


class HostTest(base.BaseTestCase):
    """Nova's own choice is the old host, where the deletion of the old server has made room."""

    def make_world(self, other_hosts, full_hosts=(), **named):
        world = replacement_world.World(**named)
        world.chosen_host, world.other_hosts = 'host-1', other_hosts
        world.full_hosts = set(full_hosts)
        return world

    def check_hosts(self, world, *expected):
        """Check on which hosts servers were requested; None: Nova chose."""
        world.finish()
        world.check_completed()
        self.assertEqual(list(expected), world.requested_hosts)

    def test_another_host_is_requested_at_once(self):
        world = self.make_world(['host-4', 'host-5'])
        self.check_hosts(world, 'host-4')
        self.assertEqual(('host-4', 0), (world.record().new_host, world.record().attempts))

    def test_nova_chooses_if_no_other_host_works(self):
        world = self.make_world([])
        self.check_hosts(world, None)
        self.assertEqual('host-1', world.record().new_host)

    def test_old_host_is_used_if_no_other_takes_the_server(self):
        world = self.make_world(['host-4', 'host-5'], full_hosts=['host-4', 'host-5'])
        self.check_hosts(world, 'host-4', 'host-5', None)
        self.assertEqual('host-1', world.record().new_host)

    def test_nova_chooses_before_all_of_many_hosts_are_requested(self):
        """It knows which of them take such a server."""
        hosts = [f'host-{number}' for number in range(2, 100)]
        world = self.make_world(hosts, full_hosts=set(hosts) - {'host-42'})
        world.chosen_host = 'host-42'
        self.check_hosts(world, 'host-2', 'host-3', None)

    def test_remaining_hosts_are_requested_if_nova_chooses_the_old_one(self):
        hosts = ['host-2', 'host-3', 'host-4', 'host-5']
        world = self.make_world(hosts, full_hosts=['host-2', 'host-3', 'host-4'])
        self.check_hosts(world, 'host-2', 'host-3', None, 'host-4', 'host-5')
        world = self.make_world(hosts, full_hosts=hosts)
        self.check_hosts(world, 'host-2', 'host-3', None, 'host-4', 'host-5', None)
        self.assertEqual('host-1', world.record().new_host)

    def test_dead_host_is_left_before_the_server_is_active(self):
        """Nova may believe for a minute that it works."""
        world = self.make_world(['host-2', 'host-3', 'host-4'], full_hosts=['host-2', 'host-3'])
        world.boot_looks = 10**6
        for _ in range(2):
            self.assertRaises(exceptions.ServiceUnavailableError, world.attempt().run)
        error = self.assertRaises(exceptions.ServiceUnavailableError, world.attempt().run)
        self.assertIn('on host-1, as the old server', str(error))
        world.boot_looks = 0
        self.check_hosts(world, 'host-2', 'host-3', None, 'host-4')

    def test_failed_server_takes_a_guest_also_if_it_is_in_a_group(self):
        world = self.make_world(['host-4'], guest_hosts=['host-2'])
        world.is_in_group = True
        self.check_hosts(world)

    def test_rebuild_does_not_look_for_another_host(self):
        world = self.make_world(
            ['host-4'], kind=ReplacementKind.REBUILD, guest_hosts=['host-1'], is_healthy=True
        )
        world.bind_errors = 1
        self.check_hosts(world, None)


class MoveTest(base.BaseTestCase):
    """A failover for the maintenance of a host."""

    def make_world(self, other_hosts, guest_hosts=()):
        world = replacement_world.World(
            cause=FailoverCause.MAINTENANCE, is_healthy=True, guest_hosts=guest_hosts
        )
        world.chosen_host, world.other_hosts = 'host-1', other_hosts
        return world

    def test_another_host_is_requested_at_once(self):
        world = self.make_world(['host-4'], guest_hosts=['host-1'])
        world.finish()
        world.check_completed()
        self.assertEqual(('host-4', ['host-4']), (world.record().new_host, world.requested_hosts))

    def test_server_group_is_worth_more_than_a_guest(self):
        """A guest is in no group; the database serves until its server is replaced."""
        world = self.make_world(['host-4'], guest_hosts=['host-2'])
        world.is_in_group = True
        world.finish()
        world.check_completed()
        self.assertEqual(['host-4'], world.requested_hosts)

    def test_database_that_cannot_leave_its_host_is_not_stopped(self):
        world = self.make_world([], guest_hosts=['host-1'])
        record, _error = world.finish()
        self.assertIs(ReplacementState.FAILED, record.state)
        self.assertIn('no other host of zone zone is up', record.error)
        # Tenants learn the names of hosts nowhere.
        self.assertNotIn('host-1', record.error)
        self.assertIsNone(record.stop_requested_at)
        world.check_serves(OLD)
