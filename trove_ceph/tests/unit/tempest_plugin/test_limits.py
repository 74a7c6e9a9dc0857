# SPDX-License-Identifier: Apache-2.0
"""Tests of the option ``promises``."""

from oslotest import base
from tempest.lib import exceptions

from trove_ceph_tempest_plugin import limits


class ParseTest(base.BaseTestCase):
    def test_promises_by_volume_type(self):
        found = limits.parse(['nvme:30:60:120', 'hdd:0.5:10:40'])
        self.assertEqual([60, 90, 120], [found['nvme'].volume_iops(g * 1024) for g in (1, 3, 9)])
        self.assertEqual(10, found['hdd'].volume_iops(1024))

    def test_refuses_malformed_items(self):
        for item in ('nvme', 'nvme:30', 'nvme:30:60', 'nvme:a:60:120', 'nvme:3:6:12:x'):
            error = self.assertRaises(exceptions.InvalidConfiguration, limits.parse, [item])
            self.assertIn(item, str(error))
