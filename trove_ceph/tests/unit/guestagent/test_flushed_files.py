# SPDX-License-Identifier: Apache-2.0
import os
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import flushed_files, replacement_process

SECRET = 'a-secret-of-the-tenant'


class FlushedFilesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.path = os.path.join(self.directory, 'file')
        self.owner = (os.getuid(), os.getgid())

    def replace(self, *arguments, content=SECRET, **named):
        flushed_files.replace(self.path, content, *arguments, **named)
        self.assertEqual(['file'], os.listdir(self.directory))
        self.assertEqual(content, open(self.path).read())
        return os.stat(self.path).st_mode & 0o777

    def test_mode(self):
        self.assertEqual(0o600, self.replace(needs_root=False))
        os.chmod(self.path, 0o604)
        self.assertEqual(0o604, self.replace(content='new', needs_root=False))
        self.assertEqual(0o640, self.replace(self.owner, 0o640, needs_root=False))

    def test_agent_that_needs_sudo(self):
        made = replacement_process.ReplacementProcess(root_helper='env')
        self.addCleanup(made.close)
        with (
            mock.patch.object(replacement_process, 'ReplacementProcess', return_value=made),
            mock.patch('os.geteuid', return_value=1001),
        ):
            self.assertEqual(0o640, self.replace(self.owner, 0o640))

    def test_failure(self):
        self.replace(needs_root=False)
        with mock.patch('os.fsync', side_effect=OSError(28, 'No space left on device')):
            error = self.assertRaises(
                exceptions.StorageCommandError,
                lambda: flushed_files.replace(self.path, 'new', needs_root=False),
            )
        self.assertIn('No space left', str(error))
        self.assertEqual(SECRET, open(self.path).read())
        self.assertEqual(['file'], os.listdir(self.directory))

    def test_directory_that_is_missing(self):
        flushed_files.flush_directory(os.path.join(self.directory, 'missing'))
