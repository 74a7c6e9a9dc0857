# SPDX-License-Identifier: Apache-2.0
"""The environment variables for a shell that uses the cloud."""

import contextlib
import io
import json
import shlex
import types
from pathlib import Path

import fixtures
from driver import environment
from oslotest import base

from trove_ceph.cmd.manage import options
from trove_ceph.tests.unit.lab import LAB


class EnvironmentTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path) / 'a lab'
        (self.root / 'etc').mkdir(parents=True)
        identities = {one: {'OS_USERNAME': one} for one in ('admin', 'tenant')}
        (self.root / 'etc' / 'credentials.json').write_text(json.dumps(identities))

    def variables(self, identity):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            settings = types.SimpleNamespace(root=self.root)
            environment.show(settings, types.SimpleNamespace(identity=identity))
        lines = [line for line in out.getvalue().splitlines() if line.startswith('export ')]
        return dict(shlex.split(line)[1].split('=', 1) for line in lines)

    def test_administrator_has_all_variables_of_the_command(self):
        found = self.variables('admin')
        names = {
            options.CEPH_CONF,
            options.TIERS_FILE,
            options.TROVE_CONF,
            options.STORAGE_CONF,
        }
        self.assertEqual(names | {'OS_USERNAME'}, set(found))
        etc = self.root / 'etc'
        self.assertEqual(f'{etc}/ceph/tiers.yaml', found[options.TIERS_FILE])
        self.assertEqual(f'{etc}/trove/trove.conf', found[options.TROVE_CONF])

    def test_paths_match_the_playbook(self):
        found = self.variables('admin')
        etc = f'{self.root}/etc'
        variables = (LAB / 'group_vars' / 'all.yml').read_text()
        self.assertIn('ceph_conf: "{{ etc }}/ceph/ceph.conf"', variables)
        self.assertIn('tiers_file: "{{ etc }}/ceph/tiers.yaml"', variables)
        self.assertEqual(f'{etc}/ceph/ceph.conf', found[options.CEPH_CONF])
        service = (LAB / 'roles' / 'storage_service' / 'tasks' / 'main.yml').read_text()
        path = found[options.STORAGE_CONF].removeprefix(etc)
        self.assertIn(f'--config-file {{{{ etc }}}}{path}', service)

    def test_includes_the_task_managers_configuration_if_it_exists(self):
        own = self.root / 'etc' / 'trove-taskmanager.conf'
        own.touch()
        self.assertEqual(
            f'{self.root}/etc/trove/trove.conf:{own}', self.variables('admin')[options.TROVE_CONF]
        )

    def test_tenant_has_only_credentials(self):
        self.assertEqual({'OS_USERNAME': 'tenant'}, self.variables('tenant'))
