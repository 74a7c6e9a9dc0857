# SPDX-License-Identifier: Apache-2.0
"""The release of OpenStack: its versions, and what happens to a lab that has another."""

import re
import time
from unittest import mock

from driver import preflight, release, settings, up
from driver.errors import LabError

from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tests.unit.lab.lab_process import LabTestCase

_OLD, _NEW = settings.RELEASES


class ReleaseTestCase(LabTestCase):
    def _load(self, name=''):
        environ = {'ROOT': str(self.root), 'RELEASE': name}
        return settings.load(
            environ={settings.PREFIX + key: value for key, value in environ.items()}
        )


class SettingTest(ReleaseTestCase):
    def test_a_new_lab_has_the_newest(self):
        self.assertEqual(_NEW, self._load().release)

    def test_a_lab_keeps_its_own_unless_another_is_named(self):
        self.write('state/release', f'{_OLD}\n')
        self.assertEqual(_OLD, self._load().release)
        self.assertEqual(_NEW, self._load(_NEW).release)

    def test_unknown_releases(self):
        message = str(self.assertRaises(LabError, self._load, '2025.2'))
        self.assertEqual("release: one of 2026.1, 2026.2 is needed, got '2025.2'", message)
        self.write('state/release', '2027.1\n')
        message = str(self.assertRaises(LabError, self._load))
        self.assertIn("got '2027.1'", message)

    def test_decides_the_versions_of_all_packages(self):
        for name, file in settings.RELEASES.items():
            variables = self._load(name).playbook_vars()
            self.assertEqual(str(LAB / file), variables['lab_constraints'])
            self.assertEqual(name, variables['lab_release'])


class ExistingLabTest(ReleaseTestCase):
    def test_none_without_a_lab(self):
        self.assertIsNone(release.existing(self.settings))

    def test_recorded(self):
        self.root.mkdir()
        release.record(self._load(_OLD))
        self.assertEqual(_OLD, release.existing(self.settings))

    def test_of_a_lab_without_a_record(self):
        self.write('state/installed')
        self.assertEqual(_NEW, release.existing(self.settings))

    def test_is_never_lowered(self):
        self.write('state/release', f'{_NEW}\n')
        (problem,) = release.older_than_databases(self._load(_OLD))
        self.assertIn(f'{self.root} are of OpenStack {_NEW}', problem)
        self.assertIn('make lab-clean', problem)
        self.assertEqual([], list(release.older_than_databases(self._load(_NEW))))

    def test_check_of_the_machine_refuses_it(self):
        self.write('state/release', f'{_NEW}\n')
        with mock.patch('os.geteuid', return_value=0):
            error = self.assertRaises(LabError, preflight.check, self._load(_OLD))
        self.assertIn(f'are of OpenStack {_NEW}', str(error))

    def test_is_raised(self):
        self.write('state/release', f'{_OLD}\n')
        raised = self._load(_NEW)
        self.assertEqual([], list(release.older_than_databases(raised)))
        release.record(raised)
        self.assertEqual(_NEW, release.existing(self.settings))

    def test_only_make_lab_changes_it(self):
        self.write('state/release', f'{_OLD}\n')
        error = self.assertRaises(LabError, up.run_playbook, self._load(_NEW), time.monotonic())
        self.assertIn(f'has OpenStack {_OLD}, not {_NEW}', str(error))
        self.assertFalse((self.root / 'run' / 'settings.json').exists())
        release.require(self._load())


class ConstraintsTest(ReleaseTestCase):
    def _pins(self, file):
        lines = (line.split('#')[0].strip() for line in (LAB / file).read_text().splitlines())
        return {line.split('==')[0] for line in lines if line}

    def test_pin_each_package_of_the_lab(self):
        for file in settings.RELEASES.values():
            pins = self._pins(file)
            for name in ('requirements.txt', 'instruments-requirements.txt'):
                missing = {package.lower() for package in self._packages(name)} - pins
                self.assertEqual(set(), missing, (file, name))

    def _packages(self, name):
        return [line for line in (LAB / name).read_text().splitlines() if line[0] != '#']

    def test_each_release_has_its_own_trove(self):
        found = {}
        for name, file in settings.RELEASES.items():
            (version,) = re.findall(r'^trove==(\d+)', (LAB / file).read_text(), re.MULTILINE)
            found[name] = int(version)
        self.assertEqual({'2026.1': 25, '2026.2': 26}, found)

    def test_no_role_chooses_versions_by_itself(self):
        tasks = [*LAB.rglob('roles/*/tasks/*.yml'), *(LAB / 'tasks').glob('*.yml')]
        users = [path for path in tasks if 'lab_constraints' in path.read_text()]
        self.assertEqual([], [path for path in tasks if 'constraints.txt' in path.read_text()])
        self.assertEqual(
            {'python_env', 'guest_image', 'instruments', 'lab'},
            {path.parent.parent.name for path in users},
        )
