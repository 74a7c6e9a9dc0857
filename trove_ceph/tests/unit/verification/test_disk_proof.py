# SPDX-License-Identifier: Apache-2.0
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import disk_proof


class DiskProofTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.place = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def test_blocks_from_all_parts(self):
        blocks = disk_proof.choose_blocks(disk_proof.BLOCK_BYTES * 1600)
        self.assertEqual([0, 100, 200], blocks[:3])
        self.assertEqual(1599, blocks[-1])
        self.assertEqual(17, len(blocks))

    def test_a_small_disk(self):
        self.assertEqual([0], disk_proof.choose_blocks(disk_proof.BLOCK_BYTES))
        self.assertEqual([], disk_proof.choose_blocks(5))

    def test_no_disk(self):
        self.assertRaises(
            exceptions.InspectionFaultError, disk_proof.read_disk, str(self.place / 'none')
        )

    def test_a_write_leaves_nothing(self):
        disk_proof.write_file(self.place)
        self.assertEqual([], list(self.place.iterdir()))

    def test_a_file_system_that_is_not_there(self):
        self.assertRaises(
            exceptions.InspectionFaultError, disk_proof.write_file, self.place / 'none'
        )
