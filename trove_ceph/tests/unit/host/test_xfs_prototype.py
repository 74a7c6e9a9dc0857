# SPDX-License-Identifier: Apache-2.0
import os
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import xfs_prototype


class XfsPrototypeTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'volume'
        self.directory('')

    def directory(self, name, mode=0o750):
        path = self.root / name
        path.mkdir()
        path.chmod(mode)
        return path

    def file(self, name, mode=0o640):
        path = self.root / name
        path.write_text('x')
        path.chmod(mode)
        return path

    def test_the_tree_is_described_in_the_format_of_mkfs(self):
        self.root.chmod(0o755)
        self.directory('data')
        self.directory('data/#innodb_redo')
        self.file('data/#innodb_redo/#ib_redo0')
        self.file('data/mysql.ibd')
        self.assertEqual(
            [
                '/',
                '0 0',
                'd--755 1001 1001',
                'data d--750 1001 1001',
                '#innodb_redo d--750 1001 1001',
                f'#ib_redo0 ---640 1001 1001 {self.root}/data/#innodb_redo/#ib_redo0',
                '$',
                f'mysql.ibd ---640 1001 1001 {self.root}/data/mysql.ibd',
                '$',
                '$',
                '',
            ],
            xfs_prototype.describe(self.root, 1001).split('\n'),
        )

    def test_special_bits_are_dropped(self):
        self.root.chmod(0o2755)
        self.assertIn('d--755 5 5', xfs_prototype.describe(self.root, 5))

    def assert_refused(self, reason):
        error = self.assertRaises(
            exceptions.StorageCommandError, xfs_prototype.describe, self.root, 1
        )
        self.assertIn(reason, str(error))

    def test_refuses_links_and_sockets(self):
        os.symlink('/etc/passwd', self.root / 'link')
        self.assert_refused('is neither a directory nor a regular file')

    def test_refuses_names_that_the_format_cannot_express(self):
        for name in ('a b', ':comment', '$', '-'):
            path = self.file(name)
            self.assert_refused('cannot create a file of this name')
            path.unlink()

    def test_refuses_a_path_with_spaces(self):
        self.root = self.directory('my volume')
        self.file('ibdata1')
        self.assert_refused('a path with spaces')
