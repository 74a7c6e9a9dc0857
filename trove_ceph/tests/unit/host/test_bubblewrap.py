# SPDX-License-Identifier: Apache-2.0
import os
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import bubblewrap, confinement, syscall_filter


class ViewTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('usr', 'dev', 'proc', 'run', 'sys', 'tmp'):
            (self.root / name).mkdir()
        (self.root / 'bin').symlink_to('usr/bin')
        (self.root / 'notes').write_text('')
        self.view = bubblewrap.View(
            self.root,
            {'/inspector': pathlib.Path('/program')},
            {'/var/lib/mysql': pathlib.Path('/volume')},
        )

    def places(self, option):
        """Return what is shown where, of one kind."""
        words = self.view.words()
        return {
            words[at + 2]: words[at + 1]
            for at, word in enumerate(words)
            if word == option and not words[at + 2].startswith('/proc/')
        }

    def test_nothing_of_the_root_can_be_written(self):
        self.assertEqual(
            {'/usr': f'{self.root}/usr', '/inspector': '/program'}, self.places('--ro-bind')
        )
        self.assertEqual({'/bin': 'usr/bin'}, self.places('--symlink'))
        self.assertEqual({'/var/lib/mysql': '/volume'}, self.places('--bind'))
        self.assertEqual(['--remount-ro', '/'], self.view.words()[-2:])

    def test_what_tells_of_the_host_is_hidden(self):
        words = ' '.join(self.view.words())
        self.assertIn('--ro-bind /dev/null /proc/cmdline', words)
        self.assertIn('--tmpfs /proc/fs', words)

    def test_every_tmpfs_has_a_size(self):
        words = self.view.words()
        for at, word in enumerate(words):
            if word == '--tmpfs':
                self.assertEqual('--size', words[at - 2])


class SpawnTest(base.BaseTestCase):
    def test_where_there_is_no_bubblewrap(self):
        self.useFixture(fixtures.EnvironmentVariable('PATH', '/nowhere'))
        limits = confinement.Confinement(5, 5, 2**30, 60, 2**30)
        view = bubblewrap.View(pathlib.Path('/nowhere'), {}, {})
        error = self.assertRaises(
            exceptions.NotInspectableError, bubblewrap.spawn, [], view, limits, None, {}, {}, None
        )
        self.assertIn('bwrap is not installed', str(error))


class ComplaintTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.errors = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'errors'

    def test_nothing_of_what_the_program_says(self):
        self.assertEqual('', bubblewrap.find_complaint(self.errors))
        self.errors.write_text('Traceback\nsecret\n')
        self.assertEqual('', bubblewrap.find_complaint(self.errors))

    def test_the_last_words_of_bubblewrap(self):
        self.errors.write_text("bwrap: Can't find source path /x: Permission denied\nsecret\n")
        self.assertEqual(
            "bwrap: Can't find source path /x: Permission denied",
            bubblewrap.find_complaint(self.errors),
        )


class FilterTest(base.BaseTestCase):
    def test_a_program_for_the_kernel(self):
        descriptor = syscall_filter.make()
        self.addCleanup(os.close, descriptor)
        program = os.read(descriptor, 1 << 16)
        # Of instructions of eight bytes each.
        self.assertEqual(0, len(program) % 8)
        self.assertGreater(len(program), 8 * len(syscall_filter.REFUSED))

    def test_each_call_is_refused_once(self):
        self.assertEqual(len(set(syscall_filter.REFUSED)), len(syscall_filter.REFUSED))
