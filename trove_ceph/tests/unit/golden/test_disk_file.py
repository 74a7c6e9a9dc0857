# SPDX-License-Identifier: Apache-2.0
import os
import pathlib

import fixtures
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.golden import disk_file
from trove_ceph.storage import image_types
from trove_ceph.storage.fake import backend, cluster

IMAGE = image_types.ImageRef('volumes', 'image')
SIZE_BYTES = 64 * units.Mi


class FakeStorage:
    def __init__(self):
        self.made = []

    def make_xfs(self, device, label, timeout_sec, prototype):
        self.made.append((device, os.path.getsize(device), label, pathlib.Path(prototype)))


class DiskFileTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'disk'
        self.storage = backend.FakeBackend(cluster.Cluster({'volumes': 1024 * units.Mi}))
        self.storage.create_image(IMAGE, SIZE_BYTES, image_types.ImageOptions())
        self.noted = []

    def make(self):
        (self.directory / 'volume').mkdir()
        (self.directory / 'volume' / 'ibdata1').write_text('x')
        storage = FakeStorage()
        disk_file.make(self.directory / 'volume', 10 * units.Gi, self.path, storage)
        return storage.made

    def test_the_file_system_of_a_guest_has_the_files(self):
        ((device, size_bytes, label, prototype),) = self.make()
        self.assertEqual((str(self.path), 10 * units.Gi, 'trove-data'), (device, size_bytes, label))
        self.assertIn('ibdata1 ---', prototype.read_text())
        self.assertIn(' 1001 1001', prototype.read_text())

    def test_the_file_is_sparse(self):
        self.make()
        self.assertEqual(0, self.path.stat().st_blocks)

    def test_an_existing_file_is_not_overwritten(self):
        self.path.write_text('x')
        self.assertRaises(exceptions.StorageCommandError, self.make)
        self.assertEqual('x', self.path.read_text())

    def write(self, note=lambda *_: None):
        with self.storage.open_writer(IMAGE) as writer:
            return disk_file.write(self.path, writer, note)

    def fill(self, *parts):
        with self.path.open('xb') as file:
            file.truncate(SIZE_BYTES)
            for offset, data in parts:
                file.seek(offset)
                file.write(data)

    def test_only_what_is_not_zero_is_written(self):
        letters = b'a' * 16384
        self.fill(
            (0, letters),
            (units.Mi, bytes(units.Mi)),
            (5 * units.Mi - 16384, letters + letters),
            (SIZE_BYTES - 16384, letters),
        )
        written = self.write(lambda *progress: self.noted.append(progress))
        self.assertEqual(4 * len(letters), written)
        self.storage.create_snapshot(IMAGE.snapshot('s'))
        with self.storage.open_reader(IMAGE.snapshot('s')) as reader:
            self.assertEqual(self.path.read_bytes(), reader.read(0, SIZE_BYTES).result())
        self.assertEqual({SIZE_BYTES}, {total for _, total in self.noted})
        self.assertEqual(sorted(self.noted), self.noted)

    def test_an_empty_file(self):
        self.fill()
        self.assertEqual(0, self.write())

    def test_stops_when_asked(self):
        self.fill((0, b'a' * 9 * units.Mi))

        def stop(done_bytes, _total_bytes):
            if done_bytes:
                raise exceptions.CanceledError('canceled')

        self.assertRaises(exceptions.CanceledError, self.write, stop)

    def test_a_file_that_cannot_be_read(self):
        self.assertRaises(exceptions.StorageCommandError, self.write)
