# SPDX-License-Identifier: Apache-2.0
import itertools

from oslotest import base

from trove_ceph.hci import capacity


class UsableTest(base.BaseTestCase):
    def test_equal_hosts(self):
        self.assertEqual(100, capacity.usable_bytes([60] * 5, 3))
        self.assertEqual(60, capacity.usable_bytes([60] * 3, 3))

    def test_a_host_has_one_copy_at_most(self):
        self.assertEqual(2, capacity.usable_bytes([2, 10, 2], 3))
        self.assertEqual(3, capacity.usable_bytes([2, 10, 9, 2, 2], 4))

    def test_fewer_hosts_than_copies(self):
        self.assertEqual(0, capacity.usable_bytes([10, 10], 3))
        self.assertEqual(0, capacity.usable_bytes([10], 2))

    def test_no_more_fits_and_no_less(self):
        """All that fits has its copies on different hosts, and a little more has not."""
        for hosts in itertools.combinations_with_replacement((1, 3, 4, 9), 5):
            for copies in (1, 2, 3, 5):
                usable = capacity.usable_bytes(hosts, copies)
                for size, fits in ((usable, True), (usable + 0.01, False)):
                    places = sum(min(one, size) for one in hosts)
                    self.assertIs(fits, places >= copies * size - 1e-9, (hosts, copies))


class MostTest(base.BaseTestCase):
    def test_many_hosts(self):
        self.assertAlmostEqual(0.8 * 1000, capacity.most_bytes([100] * 30, 3))

    def test_few_hosts_keep_room_for_one_that_is_lost(self):
        for hosts in (4, 5, 10):
            most = capacity.most_bytes([100] * hosts, 3)
            self.assertAlmostEqual(0.85, most * 3 / (100 * (hosts - 1)))

    def test_the_largest_host_is_the_one_that_is_lost(self):
        self.assertAlmostEqual(0.85 * 100, capacity.most_bytes([100, 100, 100, 200], 3))

    def test_hosts_that_cannot_heal(self):
        self.assertAlmostEqual(0.8 * 100, capacity.most_bytes([100] * 3, 3))
