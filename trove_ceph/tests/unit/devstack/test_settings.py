# SPDX-License-Identifier: Apache-2.0
"""The settings, their table, the samples, and what the plugin calls of DevStack."""

import re
import socket
import subprocess
import sys

from trove_ceph.tests.unit.devstack import CHECKOUT, HERE, PLUGIN, DevStackTestCase

_SETTING = re.compile(r'^(TROVE_CEPH_\w+)=(?:\$\{\1:-(.*)\}|\$\(trueorfalse (\w+) \1\))$', re.M)


def _settings():
    """Return the default of each setting that can be overridden."""
    text = (PLUGIN / 'settings').read_text()
    return {name: default or boolean for name, default, boolean in _SETTING.findall(text)}


def _sources():
    return [PLUGIN / 'plugin.sh', PLUGIN / 'settings', PLUGIN / 'override-defaults'] + [
        path for path in sorted((PLUGIN / 'lib').iterdir()) if path.suffix == ''
    ]


class SettingsTest(DevStackTestCase):
    def test_table_agrees(self):
        text = (PLUGIN / 'README.rst').read_text()
        rows = re.findall(r'\* - ``(TROVE_CEPH_\w+)``\n     - (.*)\n', text)
        self.assertEqual(
            _settings(),
            {name: '' if default == 'empty' else default.strip('`') for name, default in rows},
        )

    def test_each_is_explained(self):
        lines = (PLUGIN / 'settings').read_text().splitlines()
        for name in _settings():
            (at,) = [number for number, line in enumerate(lines) if line.startswith(f'{name}=')]
            above = lines[at - 1]
            self.assertTrue(above.startswith(('# ', 'TROVE_CEPH_')), name)

    def test_each_is_used(self):
        text = _SETTING.sub('', ''.join(path.read_text() for path in _sources()))
        for name in _settings():
            self.assertRegex(text, rf'\${{?{name}\b')

    def test_samples_set_what_exists(self):
        for sample in (PLUGIN / 'samples').iterdir():
            named = set(re.findall(r'\bTROVE_CEPH_\w+', sample.read_text()))
            self.assertEqual(set(), named - set(_settings()), sample.name)

    def test_samples_pass_the_checks(self):
        for name in ('all-in-one', 'two-nodes-controller', 'hci'):
            text = (PLUGIN / 'samples' / f'{name}.conf').read_text()
            plugins = re.findall(r'^enable_plugin (\S+)', text, re.M)
            self.local_conf['DEVSTACK_PLUGINS'] = ',' + ','.join(plugins)
            self.local_conf |= dict(re.findall(r'^(TROVE_CEPH_\w+)="?([^"\n]*)', text, re.M))
            ended = self.run_phases('pre-install')
            self.assertEqual(0, ended.returncode, ended.stderr)

    def test_plugins_of_tempest_are_named_once(self):
        ended = self.run_phases('source', before='echo "$TEMPEST_PLUGINS"')
        self.assertEqual(1, ended.stdout.split().count(f'{CHECKOUT}[bench,server]'))


class CallsTest(DevStackTestCase):
    def test_table_lists_what_is_called(self):
        listed = set(re.findall(r'^(\w+) \d', (HERE / 'functions.txt').read_text(), re.M))
        text = '\n'.join(path.read_text() for path in _sources())
        for name in listed:
            self.assertRegex(text, rf'(?m)(^|[\s(!]){name}\b', name)

    def test_wrong_number_of_arguments_is_noticed(self):
        ended = self.run_phases('source', before='iniset a b')
        self.assertEqual(97, ended.returncode)
        self.assertIn('iniset takes no 2 arguments', ended.stderr)

    def test_wheel_excludes_the_plugin(self):
        found = (CHECKOUT / 'pyproject.toml').read_text()
        self.assertIn('include = ["trove_ceph*"]', found)
        self.assertNotIn('devstack', found + (CHECKOUT / 'setup.cfg').read_text())


class ScriptsTest(DevStackTestCase):
    """The two programs in lib/, which other tests replace."""

    def _run(self, name, *arguments):
        return subprocess.run(
            [sys.executable, '-W', 'ignore', str(PLUGIN / 'lib' / name), *arguments],
            capture_output=True,
            text=True,
        )

    def test_version_in_the_window(self):
        ended = self._run('installed_version.py', 'oslo.config>=1,<10000')
        self.assertEqual(0, ended.returncode, ended.stderr)
        self.assertRegex(ended.stdout, r'^\d+\.\d+')

    def test_version_outside(self):
        ended = self._run('installed_version.py', 'oslo.config<1')
        self.assertEqual(1, ended.returncode)
        self.assertRegex(ended.stdout, r'^\d+\.\d+')

    def test_not_installed(self):
        self.assertEqual(2, self._run('installed_version.py', 'no-such-package>1').returncode)

    def test_login_to_nothing(self):
        with socket.socket() as unused:
            # Bound and not listening: connections are refused.
            unused.bind(('127.0.0.1', 0))
            port = unused.getsockname()[1]
            ended = self._run('check_login.py', f'rabbit://u:secret@127.0.0.1:{port}/v')
        self.assertEqual(1, ended.returncode)
        self.assertIn('OperationalError', ended.stderr)
        self.assertNotIn('secret', ended.stderr)
