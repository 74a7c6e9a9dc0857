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

    def targets(self, option):
        """Return the sources of one bubblewrap option, by their targets."""
        words = self.view.words()
        return {
            words[at + 2]: words[at + 1]
            for at, word in enumerate(words)
            if word == option and not words[at + 2].startswith('/proc/')
        }

    def test_nothing_of_the_root_can_be_written(self):
        self.assertEqual(
            {'/usr': f'{self.root}/usr', '/inspector': '/program'}, self.targets('--ro-bind')
        )
        self.assertEqual({'/bin': 'usr/bin'}, self.targets('--symlink'))
        self.assertEqual({'/var/lib/mysql': '/volume'}, self.targets('--bind'))
        self.assertEqual(['--remount-ro', '/'], self.view.words()[-2:])

    def test_hides_entries_of_proc_that_describe_the_host(self):
        words = ' '.join(self.view.words())
        self.assertIn('--ro-bind /dev/null /proc/cmdline', words)
        self.assertIn('--tmpfs /proc/fs', words)

    def test_every_tmpfs_has_a_size(self):
        words = self.view.words()
        for at, word in enumerate(words):
            if word == '--tmpfs':
                self.assertEqual('--size', words[at - 2])


class SpawnTest(base.BaseTestCase):
    def test_refuses_without_bubblewrap(self):
        self.useFixture(fixtures.EnvironmentVariable('PATH', '/nowhere'))
        limits = confinement.Confinement(5, 5, 2**30, 60, 2**30)
        view = bubblewrap.View(pathlib.Path('/nowhere'), {}, {})
        error = self.assertRaises(
            exceptions.NotInspectableError, bubblewrap.spawn, [], view, limits, None, {}, {}, None
        )
        self.assertIn('is not installed: install the package bubblewrap', str(error))


class FindErrorTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.errors = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'errors'

    def test_ignores_output_of_the_program(self):
        self.assertEqual('', bubblewrap.find_error(self.errors))
        self.errors.write_text('Traceback\nsecret\n')
        self.assertEqual('', bubblewrap.find_error(self.errors))

    def test_returns_the_last_error_of_bubblewrap(self):
        self.errors.write_text("bwrap: Can't find source path /x: Permission denied\nsecret\n")
        self.assertEqual(
            "bwrap: Can't find source path /x: Permission denied",
            bubblewrap.find_error(self.errors),
        )


class FilterTest(base.BaseTestCase):
    def test_the_filter_is_a_bpf_program(self):
        descriptor = syscall_filter.make()
        self.addCleanup(os.close, descriptor)
        program = os.read(descriptor, 1 << 16)
        # BPF instructions have eight bytes.
        self.assertEqual(0, len(program) % 8)
        self.assertGreater(len(program), 8 * len(syscall_filter.REFUSED))

    def test_each_call_is_refused_once(self):
        self.assertEqual(len(set(syscall_filter.REFUSED)), len(syscall_filter.REFUSED))
