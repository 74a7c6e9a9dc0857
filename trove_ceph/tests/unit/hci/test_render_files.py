# SPDX-License-Identifier: Apache-2.0
"""Writing: all files or none, and none of another origin."""

import os
import shutil
from pathlib import Path, PurePosixPath

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.hci.render import files


def file(path, text='a = 1', is_executable=False):
    """Return a file with a header."""
    return files.File(PurePosixPath(path), f'# {files.MARK}\n{text}\n', is_executable)


class WriteTestCase(base.BaseTestCase):
    """A directory with and without files."""

    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path) / 'new'

    def _content(self):
        found = [path for path in self.directory.rglob('*') if path.is_file()]
        return {str(path.relative_to(self.directory)): path.read_text() for path in found}

    def test_writes_and_does_not_write_again(self):
        made = [file('a/b.conf'), file('run.sh', is_executable=True)]
        result = files.write(self.directory, made)
        self.assertEqual(('a/b.conf', 'run.sh'), result.changed)
        self.assertEqual({str(one.path): one.text for one in made}, self._content())
        self.assertEqual(0o755, (self.directory / 'run.sh').stat().st_mode & 0o777)
        self.assertEqual(0o644, (self.directory / 'a/b.conf').stat().st_mode & 0o777)
        before = os.stat(self.directory / 'run.sh')
        again = files.write(self.directory, made)
        self.assertEqual(((), ('a/b.conf', 'run.sh')), (again.changed, again.unchanged))
        self.assertEqual(before.st_ino, os.stat(self.directory / 'run.sh').st_ino)

    def test_replaces_its_own(self):
        files.write(self.directory, [file('a'), file('b')])
        result = files.write(self.directory, [file('a', 'a = 2'), file('b')])
        self.assertEqual((('a',), ('b',)), (result.changed, result.unchanged))
        self.assertIn('a = 2', self._content()['a'])

    def test_keeps_a_file_of_another_origin(self):
        self.directory.mkdir()
        (self.directory / 'b').write_text('mine\n')
        error = self.assertRaises(
            exceptions.OutputRefusedError, files.write, self.directory, [file('a'), file('b')]
        )
        self.assertIn(': b were not written by this command', str(error))
        self.assertEqual({'b': 'mine\n'}, self._content())
        files.write(self.directory, [file('a'), file('b')], force=True)
        self.assertIn(files.MARK, self._content()['b'])

    def test_keeps_a_link(self):
        target = self.directory.parent / 'target'
        files.write(self.directory, [file('a')])
        shutil.move(self.directory / 'a', target)
        (self.directory / 'a').symlink_to(target)
        self.assertRaises(
            exceptions.OutputRefusedError, files.write, self.directory, [file('a', 'new')]
        )
        self.assertNotIn('new', target.read_text())

    def test_names_what_is_left_over(self):
        files.write(self.directory, [file('hosts/gone/a'), file('hosts/here/a'), file('b')])
        (self.directory / 'hosts/notes').write_text('mine\n')
        result = files.write(self.directory, [file('hosts/here/a')])
        self.assertEqual(('hosts/gone/a',), result.left)
        self.assertIn('hosts/gone/a', self._content())

    def test_changes_nothing_if_one_file_cannot_be_written(self):
        files.write(self.directory, [file('a')])
        (self.directory / 'c').mkdir()
        before = self._content()
        made = [file('a', 'a = 2'), file('b'), file('c')]
        error = self.assertRaises(
            exceptions.OutputRefusedError, files.write, self.directory, made, force=True
        )
        self.assertIn(f'{self.directory}/c: cannot be written', str(error))
        self.assertEqual(before, self._content())


class HeaderTestCase(base.BaseTestCase):
    """What the first lines say."""

    def test_names_source_and_options(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'hci.yaml'
        path.write_text('one')
        first = files.header(path)
        self.assertIn(files.MARK, first[0])
        self.assertIn('from hci.yaml, SHA-256 7692c3ad3540', first[1])
        path.write_text('two')
        self.assertNotEqual(first, files.header(path))
        replaced = files.header(path, ['--osds-per-device 4'])
        self.assertIn('hci.yaml with --osds-per-device 4,', replaced[1])

    def test_source_that_cannot_be_read(self):
        self.assertRaises(exceptions.InvalidHostsError, files.header, Path('/missing'))
