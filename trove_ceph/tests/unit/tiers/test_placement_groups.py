# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.tiers import placement_groups, tier_types

COUNT = tier_types.PlacementGroups(count=64)
SHARE = tier_types.PlacementGroups(share=0.5)
AUTOSCALE = tier_types.PlacementGroups(autoscale=0.5)


class PlacementGroupsTestCase(base.BaseTestCase):
    def test_power_of_two_is_below_unless_far_off(self):
        for target, expected in ((1, 1), (63, 64), (64, 64), (85, 64), (86, 128), (100, 128)):
            self.assertEqual(expected, placement_groups.power_of_two(target), target)

    def test_share_of_100_on_each_osd(self):
        self.assertEqual(1024, placement_groups.choose_pg_num(SHARE, 60, 3))
        self.assertEqual(16, placement_groups.choose_pg_num(SHARE, 1, 3))
        self.assertEqual(1, placement_groups.choose_pg_num(SHARE, 0, 3))

    def test_share_of_another_number_on_each_osd(self):
        policy = tier_types.PlacementGroups(share=0.5, per_osd=200)
        self.assertEqual(2048, placement_groups.choose_pg_num(policy, 60, 3))
        self.assertEqual(2048, placement_groups.choose_pg_num(policy, 60, 3, present=2048))
        self.assertEqual(2048, placement_groups.choose_pg_num(policy, 60, 3, present=512))

    def test_pool_keeps_its_number_within_a_factor_of_two(self):
        for present, expected in (
            (512, 512),
            (1024, 1024),
            (2048, 2048),
            (256, 1024),
            (4096, 1024),
        ):
            self.assertEqual(expected, placement_groups.choose_pg_num(SHARE, 60, 3, present))

    def test_count_is_exact(self):
        self.assertEqual(64, placement_groups.choose_pg_num(COUNT, 60, 3, present=128))

    def test_autoscaler_chooses(self):
        self.assertIsNone(placement_groups.choose_pg_num(AUTOSCALE, 60, 3, present=128))
