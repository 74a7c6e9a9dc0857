# SPDX-License-Identifier: Apache-2.0
"""Files are replaced by the program, or none of them; crashes: see test_guest_identity."""

import json
import os
import subprocess
import sys
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph.host import file_replacement

SECRET = 'a-secret-of-the-tenant'


class ProgramTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.marker = self.write('waiting', 'old')
        self.info = self.write('info', 'old')

    def write(self, name, content):
        path = self.path(name)
        with open(path, 'w') as file:
            file.write(content)
        return path

    def path(self, name):
        return os.path.join(self.directory, name)

    def contents(self):
        return {
            name: open(self.path(name)).read()
            for name in sorted(os.listdir(self.directory))
            if os.path.isfile(self.path(name))
        }

    def replacement(self, *paths, commands=()):
        files = [file_replacement.File(path, SECRET) for path in (self.info, *paths)]
        return file_replacement.Replacement(self.marker, 'marker', tuple(files), commands)

    def run_program(self, text):
        program = [sys.executable, '-I', '-S', file_replacement.__file__]
        done = subprocess.run(program, input=text, capture_output=True, text=True, timeout=60)
        self.assertEqual('', done.stderr)
        return done.stdout and json.loads(done.stdout)

    def test_files_are_replaced(self):
        new = self.path('new/directory/file')
        touched = self.path('touched')
        replacement = self.replacement(new, commands=(('touch', touched),))

        self.assertIsNone(self.run_program(file_replacement.encode(replacement)))

        self.assertEqual({'info': SECRET, 'touched': ''}, self.contents())
        self.assertEqual(SECRET, open(new).read())

    def test_nothing_changes_if_a_file_cannot_be_written(self):
        before = self.contents()
        replacement = self.replacement(f'{self.info}/below')

        reason = self.run_program(file_replacement.encode(replacement))

        self.assertIn(self.info, reason)
        self.assertNotIn(SECRET, reason)
        self.assertEqual(before, self.contents())

    def test_nothing_changes_if_the_disk_is_full(self):
        before = self.contents()
        for call in range(2):
            with mock.patch('os.fsync', side_effect=[None] * call + [OSError(28, 'full')]):
                self.assertRaises(OSError, file_replacement.replace, self.replacement())
            self.assertEqual(before, self.contents())

    def test_the_marker_stays_if_a_file_cannot_be_renamed(self):
        os.mkdir(self.path('directory'))

        reason = self.run_program(file_replacement.encode(self.replacement(self.path('directory'))))

        self.assertIn('directory', reason)
        self.assertEqual('marker', self.contents()['waiting'])

    def test_the_marker_stays_if_a_command_fails(self):
        for command in (('sh', '-c', 'echo no bus >&2; false'), ('/does-not-exist',)):
            self.write('waiting', 'old')
            replacement = self.replacement(commands=(command,))

            reason = self.run_program(file_replacement.encode(replacement))

            self.assertIn(command[-1], reason)
            self.assertEqual('marker', self.contents()['waiting'])

    def test_a_caller_that_ends_changes_nothing(self):
        before = self.contents()
        text = file_replacement.encode(self.replacement())
        for part in ('', text[:10], text[:-1]):
            self.assertEqual('', self.run_program(part))
            self.assertEqual(before, self.contents())
