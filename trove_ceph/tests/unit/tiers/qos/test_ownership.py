# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.storage.image_types import Qos
from trove_ceph.tiers.qos import ownership


class LimitOwnerTestCase(base.BaseTestCase):
    def test_round_trip(self):
        for written in (
            ownership.LimitOwner(Qos(iops=5), Qos(iops=3, bytes_per_sec=7)),
            ownership.LimitOwner(Qos()),
            ownership.LimitOwner(Qos(iops=1, iops_burst=2, bytes_per_sec=3, bytes_per_sec_burst=4)),
        ):
            self.assertEqual(written, ownership.read({ownership.KEY: written.text(), 'other': '{'}))

    def test_unreadable_entry_is_none(self):
        for text in ('', '[]', '{}', '{"limits": 1, "before": {}}', '{"limits": {"x": 1}}', 'null'):
            self.assertIsNone(ownership.read({ownership.KEY: text}), text)
        self.assertIsNone(
            ownership.read({ownership.KEY: '{"limits": {"iops": "a"}, "before": {}}'})
        )
        self.assertIsNone(ownership.read({}))

    def test_each_limit_is_ours_or_foreign(self):
        one = ownership.LimitOwner(Qos(iops=500, bytes_per_sec=7), before=Qos(iops=300))
        for found, ours in (
            (Qos(iops=500, bytes_per_sec=7), Qos(iops=500, bytes_per_sec=7)),
            # During a change, some limits are still old or missing.
            (Qos(iops=300, bytes_per_sec=7), Qos(iops=300, bytes_per_sec=7)),
            (Qos(iops=300), Qos(iops=300)),
            # Others have overwritten or added limits.
            (Qos(iops=100, bytes_per_sec=7), Qos(bytes_per_sec=7)),
            (Qos(iops=500, iops_burst=900), Qos(iops=500)),
            (Qos(), Qos()),
        ):
            self.assertEqual(ours, one.ours(found))
        self.assertEqual(Qos(iops=100), one.foreign(Qos(iops=100, bytes_per_sec=7)))
        self.assertEqual(Qos(iops_burst=900), one.foreign(Qos(iops=500, iops_burst=900)))
