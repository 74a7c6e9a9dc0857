# SPDX-License-Identifier: Apache-2.0
"""What a verification reads, and which differences it detects."""

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import difference, image_types, throttle, verify
from trove_ceph.storage.fake import backend, cluster

MIB = units.Mi
SOURCE, COPY = image_types.ImageRef('volumes', 'image'), image_types.ImageRef('vault', 'copy')


class CountingReader(backend.FakeReader):
    """Counts the bytes read."""

    def __init__(self, storage, snapshot):
        image = storage.cluster.get(snapshot.of)
        super().__init__(image, image.snapshot(snapshot.name))
        self.read_bytes = 0

    def read(self, offset, length):
        self.read_bytes += length
        return super().read(offset, length)


class VerifyTest(base.BaseTestCase):
    """Two images of 32 MiB with the same data and the same snapshots."""

    def setUp(self):
        super().setUp()
        self.storage = backend.FakeBackend(
            cluster.Cluster({'volumes': 256 * MIB, 'vault': 256 * MIB})
        )
        self.writers = []
        for image in (SOURCE, COPY):
            self.storage.create_image(image, 32 * MIB, image_types.ImageOptions())
            self.writers.append(self.storage.open_writer(image))
        self.change(lambda writer: writer.write(0, b'd' * 9 * MIB))
        self.change(lambda writer: writer.write(16 * MIB, b'e' * 4 * MIB))

    def change(self, how):
        for writer in self.writers:
            how(writer)

    def take(self, name):
        self.change(lambda writer: writer.create_snapshot(name))

    def increment(self):
        """Write data at two offsets, and zeros at a third, between ``s`` and ``t``."""
        self.take('s')
        self.change(lambda writer: writer.write(MIB, b'f' * 16384))
        self.change(lambda writer: writer.write(21 * MIB, b'g' * MIB))
        self.change(lambda writer: writer.zero(4 * MIB, 4 * MIB))

    def verify(self, name, since=None, checksum_error=0):
        self.source, self.copy = (
            CountingReader(self.storage, image.snapshot(name)) for image in (SOURCE, COPY)
        )
        moved = b''.join(
            self.source.read(extent.offset, extent.length).result()
            for extent in difference.extents(self.source, since)
            if extent.exists
        )
        self.source.read_bytes = 0
        expected = verify.checksum(moved) + checksum_error
        return verify.verify(
            self.source, self.copy, since, expected, throttle.Throttle(), 'the copy'
        )

    def assert_corrupt_at(self, offset, name, since=None):
        error = self.assertRaises(exceptions.CorruptCopyError, self.verify, name, since)
        self.assertIn(f'the copy: differs from its source at byte {offset};', str(error))

    def test_the_source_is_not_read_again(self):
        self.take('s')
        self.assertEqual(16 * MIB, self.verify('s'))
        self.assertEqual((0, 16 * MIB), (self.source.read_bytes, self.copy.read_bytes))

    def test_an_increment_reads_what_changed(self):
        self.increment()
        self.take('t')
        self.assertEqual(5 * MIB + 16384, self.verify('t', 's'))
        self.assertEqual((0, 5 * MIB + 16384), (self.source.read_bytes, self.copy.read_bytes))

    def test_detects_wrong_data(self):
        self.writers[1].write(17 * MIB + 5, b'not of the source')
        self.take('s')
        self.assert_corrupt_at(17 * MIB + 5, 's')

    def test_detects_swapped_blocks(self):
        self.change(lambda writer: writer.write(0, b'1' * 16384 + b'2' * 16384))
        self.writers[1].write(0, b'2' * 16384 + b'1' * 16384)
        self.take('s')
        self.assert_corrupt_at(0, 's')

    def test_detects_data_that_the_source_does_not_have(self):
        for offset in (12 * MIB + 3, 30 * MIB):
            self.writers[1].write(offset, b'not of the source')
            self.take(f'at {offset}')
            self.assert_corrupt_at(offset, f'at {offset}')
            self.writers[1].zero(offset, 100)

    def test_detects_missing_data(self):
        self.writers[1].zero(16 * MIB, 4 * MIB)
        self.take('s')
        self.assert_corrupt_at(16 * MIB, 's')

    def test_detects_a_wrong_increment(self):
        self.increment()
        offsets = {
            'data': MIB + 5,
            'zeros': 6 * MIB,
            'changed only in the copy': 17 * MIB,
            'exists only in the copy': 31 * MIB,
        }
        for name, offset in offsets.items():
            self.writers[1].write(offset, b'not of the source')
            self.take(name)
            self.assert_corrupt_at(offset, name, 's')
            self.writers[1].roll_back('s')
            self.writers[0].roll_back('s')
            for snapshot in (name, 's'):
                self.change(lambda writer, gone=snapshot: writer.remove_snapshot(gone))
            self.increment()

    def test_accepts_equal_data_that_changed_only_in_the_copy(self):
        self.increment()
        self.writers[1].write(17 * MIB, b'x')
        self.writers[1].write(17 * MIB, b'e')
        self.take('t')
        self.verify('t', 's')

    def test_compares_both_if_the_checksum_differs(self):
        """Such as when Ceph reported the difference in other extents before."""
        self.take('s')
        self.assertEqual(16 * MIB, self.verify('s', checksum_error=1))
        self.assertEqual(16 * MIB, self.source.read_bytes)

    def test_detects_another_size(self):
        self.writers[1].resize(31 * MIB)
        self.take('s')
        error = self.assertRaises(exceptions.CorruptCopyError, self.verify, 's')
        self.assertEqual(
            f'the copy: has {31 * MIB} bytes, expected {32 * MIB} as its source', str(error)
        )


class ChecksumTest(base.BaseTestCase):
    def test_continues_from_any_position(self):
        data = bytes(range(256)) * 100
        for cut in (0, 1, 511, len(data)):
            whole = verify.checksum(data[cut:], verify.checksum(data[:cut]))
            self.assertEqual(verify.checksum(data), whole)
