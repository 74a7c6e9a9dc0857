# SPDX-License-Identifier: Apache-2.0
"""What is read to verify a copy, and what is found."""

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import difference, image_types, throttle, verify
from trove_ceph.storage.fake import backend, cluster

MIB = units.Mi
SOURCE, COPY = image_types.ImageRef('volumes', 'image'), image_types.ImageRef('vault', 'copy')


class CountingReader(backend.FakeReader):
    """Counts what is read of it."""

    def __init__(self, storage, snapshot):
        image = storage.cluster.get(snapshot.of)
        super().__init__(image, image.snapshot(snapshot.name))
        self.read_bytes = 0

    def read(self, offset, length):
        self.read_bytes += length
        return super().read(offset, length)


class VerifyTest(base.BaseTestCase):
    """Two images of 32 MiB with the same data in the same places, at two snapshots."""

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
        """What differs from ``s`` to ``t``: data in two places, and zeros in another."""
        self.take('s')
        self.change(lambda writer: writer.write(MIB, b'f' * 16384))
        self.change(lambda writer: writer.write(21 * MIB, b'g' * MIB))
        self.change(lambda writer: writer.zero(4 * MIB, 4 * MIB))

    def verify(self, name, since=None, wrong_by=0):
        self.source, self.copy = (
            CountingReader(self.storage, image.snapshot(name)) for image in (SOURCE, COPY)
        )
        moved = b''.join(
            self.source.read(extent.offset, extent.length).result()
            for extent in difference.extents(self.source, since)
            if extent.exists
        )
        self.source.read_bytes = 0
        expected = verify.checksum(moved) + wrong_by
        return verify.verify(
            self.source, self.copy, since, expected, throttle.Throttle(), 'the copy'
        )

    def assert_wrong_at(self, offset, name, since=None):
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

    def test_wrong_data(self):
        self.writers[1].write(17 * MIB + 5, b'not of the source')
        self.take('s')
        self.assert_wrong_at(17 * MIB + 5, 's')

    def test_blocks_in_each_others_place(self):
        self.change(lambda writer: writer.write(0, b'1' * 16384 + b'2' * 16384))
        self.writers[1].write(0, b'2' * 16384 + b'1' * 16384)
        self.take('s')
        self.assert_wrong_at(0, 's')

    def test_something_where_the_source_has_nothing(self):
        for offset in (12 * MIB + 3, 30 * MIB):
            self.writers[1].write(offset, b'not of the source')
            self.take(f'at {offset}')
            self.assert_wrong_at(offset, f'at {offset}')
            self.writers[1].zero(offset, 100)

    def test_something_is_missing(self):
        self.writers[1].zero(16 * MIB, 4 * MIB)
        self.take('s')
        self.assert_wrong_at(16 * MIB, 's')

    def test_a_wrong_increment(self):
        self.increment()
        places = {
            'data': MIB + 5,
            'what was made zero': 6 * MIB,
            'what only the copy changed': 17 * MIB,
            'what only the copy has': 31 * MIB,
        }
        for name, offset in places.items():
            self.writers[1].write(offset, b'not of the source')
            self.take(name)
            self.assert_wrong_at(offset, name, 's')
            self.writers[1].roll_back('s')
            self.writers[0].roll_back('s')
            for snapshot in (name, 's'):
                self.change(lambda writer, gone=snapshot: writer.remove_snapshot(gone))
            self.increment()

    def test_what_only_the_copy_changed_may_be_right(self):
        self.increment()
        self.writers[1].write(17 * MIB, b'x')
        self.writers[1].write(17 * MIB, b'e')
        self.take('t')
        self.verify('t', 's')

    def test_another_checksum_of_the_same_data(self):
        """As when a difference was told in another way: comparing finds it right."""
        self.take('s')
        self.assertEqual(16 * MIB, self.verify('s', wrong_by=1))
        self.assertEqual(16 * MIB, self.source.read_bytes)

    def test_another_size(self):
        self.writers[1].resize(31 * MIB)
        self.take('s')
        error = self.assertRaises(exceptions.CorruptCopyError, self.verify, 's')
        self.assertEqual(f'the copy: has {31 * MIB} bytes, its source {32 * MIB}', str(error))


class ChecksumTest(base.BaseTestCase):
    def test_it_goes_on_from_anywhere(self):
        data = bytes(range(256)) * 100
        for cut in (0, 1, 511, len(data)):
            whole = verify.checksum(data[cut:], verify.checksum(data[:cut]))
            self.assertEqual(verify.checksum(data), whole)
