# SPDX-License-Identifier: Apache-2.0
import os
import pathlib

import fixtures
from oslotest import base

from trove_ceph.host import bounded_files


class BoundedFilesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.directory / 'file'

    def readers(self):
        return (
            lambda path: bounded_files.read_head(path, 4),
            lambda path: bounded_files.read_tail(path, 4),
            bounded_files.size,
        )

    def test_both_ends_of_a_file(self):
        self.file.write_bytes(b'0123456789')
        self.assertEqual(b'0123', bounded_files.read_head(self.file, 4))
        self.assertEqual((b'6789', False), bounded_files.read_tail(self.file, 4))
        self.assertEqual((b'0123456789', True), bounded_files.read_tail(self.file, 10))
        self.assertEqual(10, bounded_files.size(self.file))

    def test_a_sparse_file_larger_than_memory(self):
        self.file.touch()
        os.truncate(self.file, 2**40)
        self.assertEqual(bytes(4), bounded_files.read_head(self.file, 4))
        self.assertEqual((bytes(4), False), bounded_files.read_tail(self.file, 4))

    def test_refuses_a_file_that_is_not_regular(self):
        pipe, link, device = (self.directory / name for name in ('pipe', 'link', 'device'))
        os.mkfifo(pipe)
        self.file.write_bytes(b'secret')
        link.symlink_to(self.file)
        device.symlink_to('/dev/zero')
        for path in (pipe, link, device, self.directory, pathlib.Path('/dev/zero')):
            for read in self.readers():
                error = self.assertRaises(OSError, read, path)
                self.assertIn('is not a regular file', str(error))

    def test_a_missing_file(self):
        for read in self.readers():
            self.assertRaises(FileNotFoundError, read, self.file)

    def test_names_of_a_directory(self):
        for name in 'abc':
            (self.directory / name).touch()
        self.assertEqual(['a', 'b', 'c'], sorted(bounded_files.names(self.directory, 3)))
        names = bounded_files.names(self.directory, 2)
        error = self.assertRaises(OSError, list, names)
        self.assertIn('has more than 2 entries', str(error))
