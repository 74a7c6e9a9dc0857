# SPDX-License-Identifier: Apache-2.0
"""Where packages come from: mirror, snapshot, lock."""

import json
import os
from unittest import mock

import fixtures

from trove_ceph.imagebuild import debian, sources
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.tests.unit.imagebuild.case import ImagesTestCase

LOCK = {'guest': {'bash': '5.2-1'}, 'loaders': {}, 'mysql': {}, 'python': {'trove': '26.0.0'}}


class SourcesTest(ImagesTestCase):
    def refused(self, function, *arguments, **keywords):
        return str(self.assertRaises(BuildError, function, *arguments, **keywords))

    def test_lines_of_a_mirror(self):
        origin = sources.Sources(mirror='http://m/debian/', security_mirror='http://m/s')
        self.assertEqual(['deb http://m/debian trixie main'], origin.lines('trixie'))
        self.assertEqual(
            [
                'deb http://m/debian trixie main',
                'deb http://m/debian trixie-updates main',
                'deb http://m/s trixie-security main',
            ],
            origin.lines('trixie', updates=True),
        )

    def test_mirror_without_security_updates(self):
        origin = sources.Sources(mirror='http://m/debian')
        message = self.refused(origin.lines, 'trixie', updates=True)
        self.assertIn('needs --security-mirror', message)

    def test_machine_without_archives_of_debian(self):
        done = mock.Mock(stdout='Packages|Ubuntu|Ubuntu|http://u\n')
        with mock.patch.object(sources.subprocess, 'run', return_value=done):
            message = self.refused(sources.Sources().lines, 'trixie')
        self.assertIn('--mirror URL', message)

    def test_machine_without_apt(self):
        with mock.patch.object(sources.subprocess, 'run', side_effect=FileNotFoundError):
            self.assertIn('--mirror URL', self.refused(sources.Sources().lines, 'trixie'))

    def test_snapshot(self):
        origin = sources.snapshot('20261101T000000Z', 'https://s/archive/', {})
        self.assertEqual(
            [
                'deb https://s/archive/debian/20261101T000000Z trixie main',
                'deb https://s/archive/debian/20261101T000000Z trixie-updates main',
                'deb https://s/archive/debian-security/20261101T000000Z trixie-security main',
            ],
            origin.lines('trixie', updates=True),
        )
        self.assertEqual(1793491200, sources.moment('20261101T000000Z'))

    def test_moment_that_does_not_exist(self):
        for text in ('yesterday', '20261101', '20261301T000000Z', '20260230T000000Z'):
            self.assertIn(text, self.refused(sources.snapshot, text, 'https://s', {}))

    def test_day_and_lock_decide_what_is_cached(self):
        """Without them, the day of a build does, and a cached image stays."""
        self.assertEqual([], sources.Sources(mirror='http://m').key())
        one = sources.snapshot('20261101T000000Z', 'https://s', {}).key()
        self.assertEqual(one, sources.snapshot('20261101T000000Z', 'https://t', {}).key())
        self.assertNotEqual(one, sources.snapshot('20261102T000000Z', 'https://s', {}).key())
        self.assertNotEqual([], sources.Sources(lock=LOCK).key())

    def test_lock_is_read_back(self):
        path = self.make_file('lock.json', sources.lock_content(LOCK, snapshot=None))
        self.assertEqual(LOCK, sources.read_lock(path))

    def test_files_that_are_no_lock(self):
        for text in (
            'text',
            '[]',
            '{"format": 2}',
            '{"format": 1, "versions": {}}',
            json.dumps({'format': 1, 'versions': LOCK | {'guest': ['bash']}}),
            json.dumps({'format': 1, 'versions': LOCK | {'guest': {'bash': 5}}}),
        ):
            path = self.make_file('lock.json', text)
            self.assertIn('--lock', self.refused(sources.read_lock, path), text)
        self.assertIn('--lock', self.refused(sources.read_lock, self.directory / 'missing'))

    def test_versions_that_differ_from_the_lock(self):
        origin = sources.Sources(lock=LOCK)
        origin.check_versions(LOCK['guest'], {'bash': '5.2-1'})
        message = self.refused(
            origin.check_versions, {'a': '1', 'bash': '5.2-1'}, {'b': '2', 'bash': '5.3-1'}
        )
        self.assertIn('3 packages', message)
        self.assertIn('a is not installed, locked 1', message)
        self.assertIn('b 2, locked not', message)
        self.assertIn('bash 5.3-1, locked 5.2-1', message)
        self.assertIn('--snapshot', message)

    def test_preferences_pin_each_package(self):
        text = debian.preferences({'b': '2', 'a': '1'})
        self.assertEqual(
            ['a', 'b'], [line[9:] for line in text.splitlines() if line.startswith('Package: ')]
        )
        self.assertIn('Pin: version 2\n', text)

    def test_mirror_that_cannot_be_read(self):
        """No build begins with it, and the message names the address and the options."""
        helper = self.make_file('apt-helper', '#!/bin/sh\necho "Could not connect"\nexit 100\n')
        os.chmod(helper, 0o755)
        self.useFixture(fixtures.MonkeyPatch(f'{sources.__name__}._APT_HELPER', str(helper)))
        runner = self.useFixture(fixtures.MockPatchObject(sources.commands, 'contained')).mock
        runner.side_effect = lambda argv, root=None: argv
        origin = sources.Sources(mirror='http://m/debian')
        log = self.directory / 'build.log'
        message = self.refused(origin.check, 'trixie', updates=False, log=log)
        self.assertIn('http://m/debian/dists/trixie/InRelease', message)
        self.assertIn('--mirror', message)
        self.assertIn('Could not connect', log.read_text())


class ToolsTest(ImagesTestCase):
    def test_names_the_packages_of_missing_tools(self):
        with mock.patch.object(debian.shutil, 'which', return_value=None):
            found = debian.missing_tools(uefi=True)
            self.assertEqual('mtools', found['mformat'])
            self.assertEqual('mmdebstrap', found['mmdebstrap'])
            self.assertNotIn('mformat', debian.missing_tools())
            error = self.assertRaises(
                BuildError, debian.ensure_host_packages, mock.Mock(), self.directory / 'log'
            )
        for word in ('mke2fs', 'e2fsprogs', 'extlinux', 'qemu-utils'):
            self.assertIn(word, str(error))
