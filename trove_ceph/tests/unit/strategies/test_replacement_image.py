# SPDX-License-Identifier: Apache-2.0
"""The guest image and the flavor of the new server, which may change until that is chosen."""

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.strategies.replacement import rules
from trove_ceph.tests.unit.strategies import replacement_world


class ImageTest(base.BaseTestCase):
    def make_moving(self, **named):
        """Return a world in which the old server is deleted, and no new one is chosen."""
        world = replacement_world.World(**named)
        for step in world.attempt().steps()[:7]:
            step.do()
        self.assertIs(ReplacementState.MOVING, world.record().state)
        return world

    def assert_moved_to(self, world, image):
        record, _error = world.finish()
        world.check_completed()
        self.assertEqual(image, record.image_id)

    def test_image_that_is_replaced(self):
        world = self.make_moving(has_database=True)
        world.image = 'new'
        self.assert_moved_to(world, 'new')

    def test_guests_of_the_new_image_fit(self):
        """Also after many attempts, with which no guest of the old image would be used up."""
        world = self.make_moving()
        world.full_hosts = {'host-3'}
        for _ in range(rules.MOST_GUESTS + 1):
            self.assertRaises(exceptions.ServiceUnavailableError, world.attempt().run)
        world.image = 'new'
        world.add_guest('host-4')
        self.assert_moved_to(world, 'new')
        self.assertEqual('host-4', world.record().new_host)

    def test_image_that_is_deleted_before_another_one_is_registered(self):
        world = self.make_moving()
        world.image = None
        for attempts in (1, 2):
            self.assertRaises(exceptions.OperatorNeededError, world.attempt().run)
            record = world.record()
            self.assertEqual('there is no guest image', record.error)
            self.assertEqual((ReplacementState.MOVING, attempts), (record.state, record.attempts))
        world.image = 'new'
        self.assert_moved_to(world, 'new')

    def test_flavor_that_is_deleted(self):
        world = self.make_moving(has_database=True)
        world.gone_flavors = {world.record().flavor_id}
        for attempts in (1, 2):
            self.assertRaises(exceptions.OperatorNeededError, world.attempt().run)
            record = world.record()
            self.assertEqual('the flavor is gone', record.error)
            self.assertEqual((ReplacementState.MOVING, attempts), (record.state, record.attempts))
        world.gone_flavors.clear()
        self.assert_moved_to(world, 'image')

    def test_image_of_a_server_that_was_chosen_stays(self):
        world = self.make_moving()
        world.boot_looks = 100
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        world.image = 'new'
        self.assert_moved_to(world, 'image')
