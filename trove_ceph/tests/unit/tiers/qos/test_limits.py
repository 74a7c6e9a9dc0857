# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.storage.image_types import MIB, Qos
from trove_ceph.tests.unit.tiers import sample
from trove_ceph.tiers.qos import limits


class LimitsTestCase(base.BaseTestCase):
    def _limits(self, size_gib, **changes):
        tier = sample.read({f'tiers/fast/{key}': value for key, value in changes.items()})
        return limits.of_volume(tier.tiers['fast'], size_gib)

    def test_rate_by_size_between_floor_and_cap(self):
        for size_gib, iops in ((1, 3000), (100, 3000), (101, 3030), (666, 19980), (2000, 20000)):
            self.assertEqual(Qos(iops=iops, bytes_per_sec=500 * MIB), self._limits(size_gib))

    def test_fractional_rate_per_gib(self):
        iops = {'per_gib': 0.25, 'floor': 10, 'cap': 100}
        found = [self._limits(size, qos='image', iops=iops).iops for size in (8, 41, 43, 4000)]
        self.assertEqual([10, 10, 10, 100], found)
        self.assertEqual(25, self._limits(101, qos='image', iops=iops).iops)

    def test_no_limit_without_a_promise(self):
        self.assertEqual(Qos(bytes_per_sec=500 * MIB), self._limits(10, iops=None))
        self.assertEqual(Qos(iops=3000), self._limits(10, throughput_mib_per_sec=None))

    def test_least_limit_is_one(self):
        iops = {'per_gib': 0.1, 'floor': 0, 'cap': 100}
        self.assertEqual(1, self._limits(1, qos='image', iops=iops).iops)
