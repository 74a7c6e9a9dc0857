# SPDX-License-Identifier: Apache-2.0
"""Limits as librbd options, even if a change of them is interrupted."""

import itertools

from oslo_utils import units
from oslotest import base

from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import limits

TICK = 'conf_rbd_qos_schedule_tick_min'
STATES = (
    image_types.Qos(),
    image_types.Qos(iops=300),
    image_types.Qos(iops=300, iops_burst=600, bytes_per_sec=5, bytes_per_sec_burst=7),
    image_types.Qos(bytes_per_sec=units.Mi),
)


def apply(entries, changes):
    for option, value in changes:
        if value is None:
            entries.pop(f'conf_{option}', None)
        else:
            entries[f'conf_{option}'] = value


class LimitsTest(base.BaseTestCase):
    def test_reads_the_changed_limits(self):
        for before, after in itertools.product(STATES, repeat=2):
            entries = {'a': 'not of librbd'}
            for qos in (before, after):
                apply(entries, limits.changes(qos))
                self.assertEqual((qos, True), (limits.read(entries), limits.is_whole(entries)))
            self.assertEqual({'a': 'not of librbd'}, limits.without_options(entries))
            self.assertEqual(after == image_types.Qos(), len(entries) == 1)

    def test_a_change_interrupted_anywhere(self):
        """No limit ever lacks the tick, and a tick without limits is detected."""
        for before, after in itertools.product(STATES, repeat=2):
            changes = limits.changes(after)
            for done in range(len(changes) + 1):
                entries = {}
                apply(entries, limits.changes(before))
                apply(entries, changes[:done])
                has_limits = limits.read(entries) != image_types.Qos()
                self.assertEqual(has_limits, limits.is_whole(entries) and bool(entries))
                self.assertTrue(TICK in entries or not entries)

    def test_a_missing_or_different_tick(self):
        entries = {'conf_rbd_qos_iops_limit': '300'}
        self.assertFalse(limits.is_whole(entries))
        self.assertFalse(limits.is_whole(entries | {TICK: '50'}))
        self.assertTrue(limits.is_whole(entries | {TICK: '10'}))
        self.assertFalse(limits.is_whole({TICK: '10'}))
        self.assertTrue(limits.is_whole({}))

    def test_parses_numbers_as_librbd_does(self):
        entries = {'conf_rbd_qos_iops_limit': '4K', 'conf_rbd_qos_iops_burst': '10'}
        entries['conf_rbd_qos_bps_limit'] = 'much'
        self.assertEqual(image_types.Qos(iops=4096), limits.read(entries))
