# SPDX-License-Identifier: Apache-2.0
"""The new server of a replacement: a warm guest, or a server that Nova boots."""

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.strategies.replacement import rules
from trove_ceph.tests.unit.db import replacement_helpers
from trove_ceph.tests.unit.strategies import replacement_cloud, test_replacement
from trove_ceph.tests.unit.strategies.replacement_cloud import INSTANCE, OLD
from trove_ceph.tests.unit.strategies.test_replacement import OTHER_HOST


class NewServerTest(test_replacement.ReplacementTestCase):
    def test_guest_that_cannot_be_bound(self):
        world = self.make_world(guest_hosts=OTHER_HOST * 2)
        world.bind_errors = 1
        record, error = world.finish()
        world.check_completed()
        # The same attempt boots a server.
        self.assertIsNone(error)
        self.assertIsNone(record.guest_id)

    def test_guests_and_servers_that_fail(self):
        world = self.make_world(guest_hosts=OTHER_HOST * 8)
        world.bind_errors = world.boot_errors = 6
        record, error = world.finish()
        self.assertIsInstance(error, exceptions.ServiceUnavailableError)
        self.assertIn('No valid host', str(error))
        world.check_completed()
        self.assertIsNone(record.error)
        # After some failures no further guest is used up.
        self.assertEqual(8 - rules.MOST_GUESTS, len(world.guests))

    def test_a_guest_where_nova_accepts_no_server(self):
        """Such as with a quota that the guests have used up; one gets ready meanwhile."""
        world = self.make_world()
        world.boot_refusals = 100
        for _ in range(5):
            self.assertRaises(exceptions.ServiceUnavailableError, world.attempt().run)
        world.add_guest('host-2')
        record, error = world.finish()
        self.assertIn('quota exceeded', str(error))
        world.check_completed()
        self.assertIsNotNone(record.guest_id)

    def test_ports_of_a_discarded_server_that_nova_does_not_unbind(self):
        world = self.make_world(is_host_down=True)
        world.boot_errors = 2
        world.finish()
        world.check_completed()

    def test_management_port_that_a_guest_does_not_need(self):
        world = self.make_world()
        for step in world.attempt().steps()[:7]:
            step.do()
        # The worker died after its request for the port, and a guest became ready.
        replacement_cloud.Network(world).create_management_port(world.record())
        world.add_guest('host-2')
        record, _error = world.finish()
        self.assertIsNotNone(record.guest_id)
        world.check_completed()

    def test_request_to_boot_that_comes_true_late(self):
        world = self.make_world(guest_hosts=OTHER_HOST)
        for step in world.attempt().steps()[:9]:
            step.do()
        late = replacement_cloud.Server('late', 'host-3', 'ERROR')
        late.replacement_id = world.record().replacement_id
        world.servers['late'] = late
        world.finish()
        world.check_completed()

    def test_server_that_boots_for_long(self):
        world = self.make_world()
        world.boot_looks = 100
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertEqual((ReplacementState.MOVING, 0), (world.record().state, 0))
        world.finish()
        world.check_completed()
        self.assertEqual(1, sum(one.startswith('server-booted') for one in world.servers))

    def test_server_that_never_boots_is_replaced(self):
        world = self.make_world()
        world.boot_looks = 10**6
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        (stuck,) = world.servers
        world.boot_looks = 0
        world.now += rules.BOOT_TIMEOUT
        world.finish()
        world.check_completed()
        self.assertNotIn(stuck, world.servers)

    def test_booted_server_that_somebody_deletes(self):
        world = self.make_world()
        world.boot_looks = 100
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        (booted,) = world.servers.values()
        booted.deletes_volume = False
        world.finish_deletion(booted)
        world.boot_looks = 0
        world.finish()
        world.check_completed()

    def test_two_servers_that_were_booted_for_one_request(self):
        world = self.make_world()
        world.boot_looks = 100
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        for number in range(2):
            # They failed, because the first one has the volume.
            spare = replacement_cloud.Server(f's{number}', 'host-3', 'ERROR')
            spare.replacement_id = world.record().replacement_id
            world.servers[spare.server_id] = spare
        world.boot_looks = 0
        world.finish()
        world.check_completed()

    def test_port_that_the_tenant_deletes_meanwhile(self):
        world = self.make_world(guest_hosts=OTHER_HOST)
        world.ports['port-2'] = replacement_cloud.Port('instance', OLD)
        for step in world.attempt().steps()[:6]:
            step.do()
        del world.ports['port-2']
        record, error = world.finish()
        world.check_completed()
        self.assertIsNone(error)
        self.assertEqual(('port-instance',), record.port_ids)
        self.assertIn('port port-2 was deleted', record.reason)

    def test_last_port_that_the_tenant_deletes_meanwhile(self):
        """The tenant can still back it up, and reads that this is what is left to do."""
        for guest_hosts in ((), OTHER_HOST):
            world = self.make_world(guest_hosts=guest_hosts)
            for step in world.attempt().steps()[:6]:
                step.do()
            del world.ports['port-instance']
            record, error = world.finish()
            self.assertIsNone(error)
            self.assertEqual((ReplacementState.FAILED, ()), (record.state, record.port_ids))
            self.assertIn('port port-instance was deleted', record.reason)
            self.assertIn('create a backup', record.error)
            self.assertLessEqual(len(record.error), 255)
            self.assertEqual(('HEALTHY', record.error), (world.service_status, world.fault))
            self.assertEqual(replacement_helpers.NONE, world.trove.task(INSTANCE))
            self.assertNotIn('port-management', world.ports)
            # But for the port, the server is that of a failover that completed.
            world.ports['port-another'] = replacement_cloud.Port('instance', world.shown)
            world.check_serves(world.shown)

    def test_bound_guest_whose_server_dies_before_it_is_shown(self):
        world = self.make_world(guest_hosts=OTHER_HOST)
        for step in world.attempt().steps()[:8]:
            step.do()
        world.servers[world.record().new_server_id].status = 'ERROR'
        record, _error = world.finish()
        world.check_completed()
        self.assertIsNone(record.guest_id)
