# SPDX-License-Identifier: Apache-2.0
"""The process that replaces files, and its end at a wrong time."""

import os
import subprocess
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import replacement_process
from trove_ceph.host import file_replacement

SECRET = 'a-secret-of-the-tenant'


class ReplacementProcessTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.marker, self.path = (os.path.join(self.directory, name) for name in ('a', 'b'))
        with open(self.marker, 'w') as file:
            file.write('old')
        self.process = replacement_process.ReplacementProcess(root_helper='env')
        self.addCleanup(self.process.close)

    def replacement(self):
        files = (file_replacement.File(self.path, SECRET, owner_of=self.marker),)
        return file_replacement.Replacement(self.marker, 'marker', files)

    def error(self):
        error = self.assertRaises(
            exceptions.StorageCommandError, self.process.replace, self.replacement()
        )
        self.assertNotIn(SECRET, str(error))
        return str(error)

    def test_files_are_replaced_once(self):
        self.assertTrue(self.process.is_running())

        self.process.replace(self.replacement())

        self.assertEqual([os.path.basename(self.path)], os.listdir(self.directory))
        self.assertEqual(SECRET, open(self.path).read())
        self.assertFalse(self.process.is_running())

    def test_a_failure_has_its_reason(self):
        os.mkdir(self.path)

        self.assertIn('Is a directory', self.error())

    def test_the_process_was_killed(self):
        self.process._process.kill()
        self.process._process.wait()

        self.assertFalse(self.process.is_running())
        self.assertIn('The files were not replaced', self.error())
        self.assertEqual(['a'], os.listdir(self.directory))

    def test_the_process_hangs(self):
        expired = subprocess.TimeoutExpired(['x'], 60)
        with mock.patch.object(self.process._process, 'communicate', side_effect=expired):
            self.assertIn('TimeoutExpired', self.error())
        self.process._process.wait()
        self.assertFalse(self.process.is_running())

    def test_an_unused_process_ends_with_its_caller(self):
        self.process.close()

        self.assertFalse(self.process.is_running())
        self.assertEqual(['a'], os.listdir(self.directory))

    def test_a_program_that_is_missing(self):
        with (
            mock.patch('os.geteuid', return_value=1000),
            mock.patch('subprocess.Popen', side_effect=FileNotFoundError('sudo')) as popen,
        ):
            error = self.assertRaises(
                exceptions.StorageCommandError, replacement_process.ReplacementProcess
            )
        self.assertIn('sudo cannot be run', str(error))
        self.assertEqual('sudo', popen.call_args.args[0][0])
