# SPDX-License-Identifier: Apache-2.0
import itertools
import random

from oslo_utils import units
from oslotest import base

from trove_ceph.storage import difference, image_types
from trove_ceph.storage.fake import backend, cluster

MIB = units.Mi
KIB = 1024
IMAGES = [image_types.ImageRef('volumes', name) for name in ('image', 'copy')]


def bytes_of(extents):
    """Return the numbers of the KiB that extents cover."""
    return {at for one in extents for at in range(one.offset // KIB, one.end // KIB)}


class DifferenceTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.storage = backend.FakeBackend(cluster.Cluster({'volumes': 64 * MIB}))
        self.random = random.Random(self.id())
        self.readers = [self._changed_image(image) for image in IMAGES]

    def _changed_image(self, image):
        self.storage.create_image(image, MIB, image_types.ImageOptions(object_bytes=64 * KIB))
        with self.storage.open_writer(image) as writer:
            writer.write(0, self.random.randbytes(512 * KIB))
            writer.create_snapshot('s')
            for _ in range(12):
                at = self.random.randrange(1000) * KIB
                writer.write(at, self.random.randbytes(self.random.randrange(1, 24) * KIB))
            writer.zero(192 * KIB, 128 * KIB)
            writer.create_snapshot('t')
        return self.storage.open_reader(image.snapshot('t'))

    def assert_in_order(self, extents):
        for one, next_one in itertools.pairwise(extents):
            self.assertLessEqual(one.end, next_one.offset)

    def test_extents_from_any_offset(self):
        for since in (None, 's'):
            everything = list(difference.extents(self.readers[0], since))
            self.assert_in_order(everything)
            for start in (0, KIB, 100 * KIB, 700 * KIB, MIB):
                found = list(difference.extents(self.readers[0], since, start))
                expected = {at for at in bytes_of(everything) if at >= start // KIB}
                self.assertEqual(expected, bytes_of(found))
                self.assertLessEqual(start, min((one.offset for one in found), default=MIB))

    def test_strays_are_changes_of_only_the_copy(self):
        for since in (None, 's'):
            source, copy = (list(difference.extents(one, since)) for one in self.readers)
            found = list(difference.with_strays(*self.readers, since))
            self.assert_in_order([extent for extent, _ in found])
            self.assertEqual(source, [extent for extent, is_stray in found if not is_stray])
            strays = bytes_of(extent for extent, is_stray in found if is_stray)
            self.assertEqual(bytes_of(copy) - bytes_of(source), strays)

    def test_in_either(self):
        source, copy = (list(difference.extents(one, 's')) for one in self.readers)
        found = list(difference.in_either(*self.readers, 's'))
        self.assert_in_order(found)
        self.assertEqual(bytes_of(source) | bytes_of(copy), bytes_of(found))
