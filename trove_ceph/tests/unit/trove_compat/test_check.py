# SPDX-License-Identifier: Apache-2.0
"""The check at the start of a service, on the installed Trove and on changed ones."""

import importlib.metadata
import re
from pathlib import Path
from unittest import mock

import fixtures
from oslotest import base
from trove.taskmanager import models as taskmanager_models

import trove_ceph
from trove_ceph import exceptions
from trove_ceph.trove_compat import check, hooks, window

PACKAGE = Path(trove_ceph.__file__).parent


class WindowTest(base.BaseTestCase):
    def test_versions(self):
        for version, expected in (
            ('24.1.0', False),
            ('25.0.0', True),
            ('25.1.0.dev12', True),
            ('26.0.0', True),
            ('27.0.0.0rc1', False),
            ('2.6', False),
            ('unknown', False),
        ):
            self.assertEqual(expected, window.includes(version), version)

    def test_requirement(self):
        self.assertEqual('trove>=25,<27', window.REQUIREMENT)


class CheckTest(base.BaseTestCase):
    def set_version(self, version):
        real = importlib.metadata.version

        def find(name):
            return version if name == 'trove' else real(name)

        self.useFixture(fixtures.MonkeyPatch('importlib.metadata.version', find))

    def refusal(self, service=hooks.TASKMANAGER):
        return str(self.assertRaises(exceptions.UnsupportedTroveError, check.check, service))

    def test_installed_trove_fits_every_service(self):
        for service in hooks.SERVICES:
            check.check(service)

    def test_other_version(self):
        self.set_version('24.1.0')
        for service, remedy in zip(
            hooks.SERVICES,
            (
                '[DEFAULT] taskmanager_manager',
                'uninstall trove-ceph',
                '[DEFAULT] conductor_manager',
                '--registry-ext',
            ),
            strict=True,
        ):
            text = self.refusal(service)
            self.assertIn(f'{service.name}: Trove 24.1.0 does not fit: expected version 25', text)
            self.assertIn("Install 'trove>=25,<27'", text)
            self.assertIn(remedy, text)

    def test_function_that_is_gone(self):
        tasks = taskmanager_models.FreshInstanceTasks
        self.addCleanup(setattr, tasks, '_create_port', tasks._create_port)
        del tasks._create_port
        self.assertIn("FreshInstanceTasks' has no attribute '_create_port'", self.refusal())

    def test_parameter_that_is_gone(self):
        tasks = taskmanager_models.FreshInstanceTasks

        def other(self, flavor_id, availability_zone, nics, scheduler_hints):
            pass

        with mock.patch.object(tasks, '_create_server', other):
            text = self.refusal()
        self.assertIn(
            'trove.taskmanager.models.FreshInstanceTasks._create_server has no parameter '
            'block_device_mapping_v2, files',
            text,
        )

    def test_names_all_problems(self):
        service = hooks.Service(
            'a-service',
            'do without',
            (hooks.Hook('trove.no_such:thing'), hooks.Hook('trove.common.wsgi:NoSuch')),
        )
        text = self.refusal(service)
        self.assertIn("No module named 'trove.no_such'", text)
        self.assertIn('NoSuch', text)

    def test_without_trove(self):
        def find(name):
            raise importlib.metadata.PackageNotFoundError(name)

        self.useFixture(fixtures.MonkeyPatch('importlib.metadata.version', find))
        self.assertIn("install 'trove>=25,<27'", self.refusal())

    def test_additional_parameters_do_no_harm(self):
        self.assertIsNone(hooks.Hook('trove.common.wsgi:Result.__init__', ('data',)).find_problem())


class HooksTest(base.BaseTestCase):
    def test_each_is_still_used(self):
        """What the package does not use any more must not keep a service from starting."""
        sources = '\n'.join(
            path.read_text()
            for path in PACKAGE.rglob('*.py')
            if 'tests' not in path.parts and path.name != 'hooks.py'
        )
        for service in hooks.SERVICES:
            for hook in service.hooks:
                name = hook.path.rpartition('.')[2].rpartition(':')[2]
                if name == '__init__':
                    name = hook.path.rpartition('.')[0].rpartition(':')[2]
                self.assertTrue(re.search(rf'\b{name}\b', sources), hook.path)
