# SPDX-License-Identifier: Apache-2.0
"""The encoding of object maps, as Ceph's source has it."""

from oslotest import base

from trove_ceph.storage.ceph import object_map

HEADER = '0e0000000101080000000'
# Of 14 MiB in 4 objects; the first one and the third are there, the fourth as in a snapshot.
FOUR = bytes.fromhex(HEADER + '40000000000000047' + '0c00000000000000010000000000000000')
# Of 6 objects; the fifth is being removed, and the sixth is there.
SIX = bytes.fromhex(HEADER + '6000000000000000090')


class ObjectMapTest(base.BaseTestCase):
    def test_what_is_marked(self):
        self.assertEqual([0, 2, 3], list(object_map.marked(FOUR)))
        self.assertEqual([5], list(object_map.marked(SIX)))

    def test_cut_short(self):
        self.assertEqual([], list(object_map.marked(b'')))
        self.assertEqual([], list(object_map.marked(FOUR[:17])))
        self.assertEqual([], list(object_map.marked(SIX[:-1])))

    def test_its_name(self):
        self.assertEqual('rbd_object_map.1f9a', object_map.object_name('1f9a'))
