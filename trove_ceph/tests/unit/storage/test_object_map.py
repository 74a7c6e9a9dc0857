# SPDX-License-Identifier: Apache-2.0
"""The encoding of object maps, as in Ceph's source."""

from oslotest import base

from trove_ceph.storage.ceph import object_map

HEADER = '0e0000000101080000000'
# Of 14 MiB in 4 objects: the first and the third exist, the fourth is as in a snapshot.
FOUR = bytes.fromhex(HEADER + '40000000000000047' + '0c00000000000000010000000000000000')
# Of 6 objects: the fifth is being removed, and the sixth exists.
SIX = bytes.fromhex(HEADER + '6000000000000000090')


class ObjectMapTest(base.BaseTestCase):
    def test_lists_marked_objects(self):
        self.assertEqual([0, 2, 3], list(object_map.marked(FOUR)))
        self.assertEqual([5], list(object_map.marked(SIX)))

    def test_a_truncated_map(self):
        self.assertEqual([], list(object_map.marked(b'')))
        self.assertEqual([], list(object_map.marked(FOUR[:17])))
        self.assertEqual([], list(object_map.marked(SIX[:-1])))

    def test_the_name_of_the_object(self):
        self.assertEqual('rbd_object_map.1f9a', object_map.object_name('1f9a'))
        name = 'rbd_object_map.1f9a.000000000000001c'
        self.assertEqual(name, object_map.object_name('1f9a', 28))
