# SPDX-License-Identifier: Apache-2.0
"""Installation of the tools, the playbook and the main job."""

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import time
from unittest import mock

import fixtures
from driver import __main__ as command_line
from driver import preflight, release, up
from driver.errors import LabError

from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tests.unit.lab.lab_process import LabTestCase

_check = preflight.check
_SCRIPT = """#!{python}
import json, os, sys
with open({record!r}, 'w') as f:
    json.dump({{'arguments': sys.argv[1:], 'environment': dict(os.environ)}}, f)
sys.exit({code})
"""


class UpTestCase(LabTestCase):
    def setUp(self):
        super().setUp()
        self.lab_dir = self.directory / 'checkout'
        self.lab_dir.mkdir()
        for name in ('tools-requirements.txt', 'constraints.txt'):
            (self.lab_dir / name).write_text('ansible-core\n')
        for name, value in (
            ('driver.up.LAB_DIR', self.lab_dir),
            ('driver.up.LOCK', str(self.directory / 'lock')),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))
        self.output = io.StringIO()
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(contextlib.redirect_stdout(self.output))
        stack.enter_context(contextlib.redirect_stderr(self.output))

    def program(self, name, code=0):
        """Add a program to the lab that records its call; return the path of the record."""
        record = self.directory / f'{name.replace("/", "-")}.json'
        script = _SCRIPT.format(python=sys.executable, record=str(record), code=code)
        self.write(name, script).chmod(0o755)
        return record


class ToolsTest(UpTestCase):
    def setUp(self):
        super().setUp()
        self.commands = []
        self.failing = {}
        self.useFixture(fixtures.MonkeyPatch('subprocess.run', self._run))

    def _run(self, command, stdout=None, **_options):
        text = ' '.join(command)
        self.commands.append(text)
        for fragment, times in self.failing.items():
            if fragment in text and times > 0:
                self.failing[fragment] -= 1
                if stdout:
                    stdout.write(b'no route to host\n')
                return mock.Mock(returncode=100)
        return mock.Mock(returncode=0)

    def _ran(self, fragment):
        return sum(fragment in text for text in self.commands)

    def _ensure(self):
        # The faked command does not create the environment.
        (self.root / 'ansible').mkdir(parents=True, exist_ok=True)
        with mock.patch('shutil.rmtree') as remove:
            up.ensure_tools(self.settings)
        return remove

    def test_installs_once(self):
        self._ensure().assert_called_once_with(self.root / 'ansible', ignore_errors=True)
        self.assertEqual(1, self._ran('pip install'))
        self.commands.clear()
        self._ensure().assert_not_called()
        self.assertEqual([], self.commands)

    def test_reinstalls_after_a_change_of_versions(self):
        self._ensure()
        for name in ('constraints.txt', 'tools-requirements.txt'):
            (self.lab_dir / name).write_text(f'another {name}\n')
            self.commands.clear()
            self._ensure()
            self.assertEqual(1, self._ran('pip install'), name)

    def test_failure_shows_the_log_and_is_repeated(self):
        self.failing['pip install'] = 1
        error = self.assertRaises(LabError, self._ensure)
        self.assertIn('pip failed with exit code 100', str(error))
        self.assertIn(f'{self.root}/log/tools.log', str(error))
        self.assertIn('  | no route to host', self.output.getvalue())
        self._ensure()
        self.assertEqual(2, self._ran('pip install'))

    def test_installs_a_package_only_if_it_is_missing(self):
        self._ensure()
        self.assertEqual(0, self._ran('apt-get'))

    def test_updates_package_lists_before_each_attempt(self):
        self.failing = {'import ensurepip': 1, 'install -y': 2}
        self._ensure()
        self.assertEqual(3, self._ran('apt-get update'))
        self.assertEqual(3, self._ran('python3-venv'))

    def test_fails_if_a_package_is_unavailable(self):
        self.failing = {'import ensurepip': 1, 'apt-get update': up.APT_ATTEMPTS}
        self.assertIn('apt-get failed', str(self.assertRaises(LabError, self._ensure)))
        self.assertEqual(0, self._ran('pip install'))


class PlaybookTest(UpTestCase):
    def test_settings_and_environment(self):
        record = self.program('ansible/bin/ansible-playbook', code=4)
        self.useFixture(fixtures.EnvironmentVariable('PYTHONDONTWRITEBYTECODE', '1'))
        self.assertEqual(4, up.run_playbook(self.settings, time.monotonic() - 100))
        run = json.loads(record.read_text())
        variables = run['arguments'][-1]
        self.assertEqual(f'@{self.root}/run/settings.json', variables)
        self.assertEqual(
            self.settings.playbook_vars(), json.loads((self.root / 'run/settings.json').read_text())
        )
        self.assertNotIn('PYTHONDONTWRITEBYTECODE', run['environment'])
        elapsed = time.time() - float(run['environment']['LAB_STARTED'])
        self.assertTrue(100 <= elapsed < 160, elapsed)


class UpTest(UpTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch('driver.preflight.check', lambda settings: None))
        self.useFixture(fixtures.MonkeyPatch('driver.up.ensure_tools', lambda settings: None))
        self.job = self.program('venv/bin/python', code=3)
        (self.root / 'state').mkdir()
        self.settings.mark.unlink()

    def _up(self, cloud_only=False):
        return up.up(self.settings, argparse.Namespace(cloud_only=cloud_only))

    def test_returns_the_exit_code_of_the_main_job(self):
        self.program('ansible/bin/ansible-playbook')
        self.assertEqual(3, self._up())
        run = json.loads(self.job.read_text())
        self.assertEqual(['-m', 'main_job', f'{self.root}/run/settings.json'], run['arguments'])
        self.assertEqual(str(self.lab_dir), run['environment']['PYTHONPATH'])
        self.assertTrue((self.root / 'state/installed').exists())

    def test_cloud_only(self):
        self.program('ansible/bin/ansible-playbook')
        self.assertEqual(0, self._up(cloud_only=True))
        self.assertEqual(self.settings.release, release.existing(self.settings))
        self.assertFalse(self.job.exists())
        self.assertTrue((self.root / 'state/installed').exists())

    def test_warm_guests_are_booted_after_the_main_job(self):
        playbook = self.program('ansible/bin/ansible-playbook')
        self._job_succeeds()
        self.settings.values['warm_guests'] = 1
        self.assertEqual(0, self._up())
        last = json.loads(playbook.read_text())['arguments']
        self.assertIn(str(self.lab_dir / up.WARM_GUESTS_PLAYBOOK), last)
        self.assertTrue((LAB / up.WARM_GUESTS_PLAYBOOK).exists())

    def test_warm_guests_are_removed_when_they_are_switched_off(self):
        playbook = self.program('ansible/bin/ansible-playbook')
        self._job_succeeds()
        self.write(f'etc/{up.WARM_GUESTS_CONF}')
        self.assertEqual(0, self._up())
        last = json.loads(playbook.read_text())['arguments']
        self.assertIn(str(self.lab_dir / up.WARM_GUESTS_PLAYBOOK), last)

    def test_without_warm_guests_the_main_job_is_the_last(self):
        playbook = self.program('ansible/bin/ansible-playbook')
        self._job_succeeds()
        self.assertEqual(0, self._up())
        self.assertIn(str(self.lab_dir / 'site.yml'), json.loads(playbook.read_text())['arguments'])

    def test_the_task_manager_of_trove_keeps_no_warm_guests(self):
        playbook = self.program('ansible/bin/ansible-playbook')
        self._job_succeeds()
        self.settings.values.update(warm_guests=1, backups='stock')
        self.assertEqual(0, self._up())
        self.assertIn(str(self.lab_dir / 'site.yml'), json.loads(playbook.read_text())['arguments'])

    def _job_succeeds(self):
        self.program('venv/bin/python')
        self.settings.values['warm_guests'] = 0

    def test_creates_no_database_on_an_incomplete_cloud(self):
        self.program('ansible/bin/ansible-playbook', code=2)
        error = self.assertRaises(LabError, self._up)
        self.assertIn(f'All logs: {self.root}/log', str(error))
        self.assertFalse(self.job.exists())
        self.assertFalse((self.root / 'state/installed').exists())

    def test_one_run_at_a_time(self):
        self.program('ansible/bin/ansible-playbook')
        with up.exclusive():
            self.assertIn('another run', str(self.assertRaises(LabError, self._up)))
        self.assertEqual(3, self._up())

    def test_playbook_holds_the_lock_even_if_the_driver_is_gone(self):
        open_files = self.directory / 'open-files'
        with up.exclusive():
            up.call(['sh', '-c', f'ls -l /proc/$$/fd >{open_files}'], os.environ)
        self.assertIn(str(self.directory / 'lock'), open_files.read_text())

    def test_changes_nothing_on_an_unsuitable_machine(self):
        record = self.program('ansible/bin/ansible-playbook')
        self.settings.mark.unlink()
        orphan = self.sleep(root=self.root)
        with mock.patch('driver.preflight.check', side_effect=LabError('unsuitable')):
            self.assertRaises(LabError, self._up)
        self.assertFalse(record.exists())
        self.assertFalse(self.settings.mark.exists())
        self.assertIsNone(orphan.poll())

    def test_creates_the_mark_first(self):
        # Otherwise an interrupted first run could neither be repeated nor cleaned.
        shutil.rmtree(self.root)
        with mock.patch('driver.up.ensure_tools', side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, self._up)
        self.assertEqual([self.settings.mark], list(self.root.iterdir()))

    def test_leaves_a_directory_with_other_files_alone(self):
        record = self.program('ansible/bin/ansible-playbook')
        self.settings.mark.unlink()
        before = sorted(self.root.rglob('*'))
        self.useFixture(fixtures.MonkeyPatch('driver.preflight.check', _check))
        self.assertIn('contains other files', str(self.assertRaises(LabError, self._up)))
        self.assertEqual(before, sorted(self.root.rglob('*')))
        self.assertFalse(record.exists())

    def test_stops_orphans_of_supervisord_first(self):
        orphan, other = self.sleep(root=self.root), self.sleep(root='/opt/another')
        with mock.patch('driver.up.run_playbook', side_effect=lambda *_: -orphan.poll()) as run:
            self.assertRaises(LabError, self._up)
        run.assert_called_once()
        self.assertEqual(-15, orphan.poll())
        self.assertIsNone(other.poll())

    def test_keeps_processes_of_a_live_supervisord(self):
        self.program('ansible/bin/ansible-playbook')
        supervisord = self.sleep('supervisord', '-c', f'{self.root}/etc/supervisord.conf')
        self.write('run/supervisord.pid', str(supervisord.pid))
        service = self.sleep(root=self.root)
        self.assertEqual(3, self._up())
        self.assertEqual((None, None), (supervisord.poll(), service.poll()))


class CommandLineTest(UpTestCase):
    def _main(self, *arguments, **patches):
        with mock.patch.multiple('driver.settings', load=mock.Mock(return_value=self.settings)):
            with mock.patch.multiple('driver.up', **patches):
                return command_line.main(arguments)

    def test_prints_errors_as_one_message(self):
        self.assertEqual(1, self._main('up', up=mock.Mock(side_effect=LabError('do this'))))
        self.assertEqual('lab: do this\n', self.output.getvalue())

    def test_interruption(self):
        self.assertEqual(130, self._main('up', up=mock.Mock(side_effect=KeyboardInterrupt)))
        self.assertIn('run it again to continue', self.output.getvalue())

    def test_passes_exit_code_and_options_on(self):
        run = mock.Mock(return_value=5)
        self.assertEqual(5, self._main('up', '--cloud-only', up=run))
        settings, args = run.call_args.args
        self.assertEqual((self.settings, True), (settings, args.cloud_only))

    def test_wrong_settings(self):
        with mock.patch('driver.settings.load', side_effect=LabError('no such setting')):
            self.assertEqual(1, command_line.main(['check']))
        self.assertEqual('lab: no such setting\n', self.output.getvalue())
