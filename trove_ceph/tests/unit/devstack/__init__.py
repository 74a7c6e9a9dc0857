# SPDX-License-Identifier: Apache-2.0
"""Runs the DevStack plugin in bash, with DevStack's functions and all commands replaced.

``stub.sh`` has the functions, of which ``functions.txt`` lists the number of arguments that
DevStack's own take; ``command`` has the commands. Both record their calls.
"""

import os
import subprocess
import sys
from pathlib import Path

import fixtures
from oslotest import base

import trove_ceph

CHECKOUT = Path(trove_ceph.__file__).parent.parent
PLUGIN = CHECKOUT / 'devstack'
HERE = Path(__file__).parent
COMMANDS = (
    'ceph',
    'openstack',
    'python',
    'rabbitmqctl',
    'sudo',
    'systemctl',
    'trove-ceph-manage',
    'trove-ceph-storage',
)
SERVICES = 'key,rabbit,g-api,n-api,c-api,c-sch,c-vol,tr-api,tr-tmgr,tr-cond,tempest'
PLUGINS = 'devstack-plugin-ceph,trove,trove-tempest-plugin,trove-ceph'
STACK = ('pre-install', 'install', 'post-config', 'extra', 'test-config')
TIERS = 'nvme:data:nvme:2 hdd:data:hdd:2 copy:replica:nvme:1 vault:vault:hdd:2'


class DevStackTestCase(base.BaseTestCase):
    """A host with DevStack, below a temporary directory."""

    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        below = ('bin', 'state', 'etc/ceph', 'etc/trove', 'etc/cinder', 'systemd')
        for name in (*below, 'opt/trove-tempest-plugin'):
            (self.root / name).mkdir(parents=True)
        for name in COMMANDS:
            (self.root / 'bin' / name).symlink_to(HERE / 'command')
        self.conf = self.root / 'etc' / 'trove-ceph'
        for name in ('ceph.conf', 'ceph.client.admin.keyring'):
            (self.root / 'etc/ceph' / name).touch()
        self.local_conf = {
            'ENABLED_SERVICES': SERVICES,
            'DEVSTACK_PLUGINS': f',{PLUGINS}',
            'TROVE_CEPH_CONF_DIR': str(self.conf),
        }

    def run_phases(self, *phases, mode='stack', before='', fails=()):
        """Run phases as one run of ``stack.sh`` does, and return the completed process.

        :param before: shell text that runs after ``settings``
        :param fails: names of commands, or of scripts of python, that exit with 1
        """
        script = ['set -o errexit', f'source {HERE}/stub.sh', f'source {PLUGIN}/override-defaults']
        script += [f'source {PLUGIN}/settings', before]
        for phase in phases:
            if phase == 'post-config':
                script += ['devstack_configures_services']
            script += [f'source {PLUGIN}/plugin.sh {mode} {phase}']
        return subprocess.run(
            ['bash', '-c', '\n'.join(script)],
            env=self._environment(fails),
            capture_output=True,
            text=True,
            timeout=300,
        )

    def stack(self, **arguments):
        """Run ``stack.sh``; it must succeed. Return the recorded calls."""
        self.forget()
        ended = self.run_phases(*STACK, **arguments)
        self.assertEqual(0, ended.returncode, ended.stderr)
        return self.calls()

    def refused(self, *phases, **arguments):
        """Run phases that must fail; return the message."""
        ended = self.run_phases(*phases, **arguments)
        self.assertEqual(1, ended.returncode, ended.stderr)
        return ended.stderr

    def calls(self):
        record = self.root / 'state' / 'record'
        return record.read_text().splitlines() if record.exists() else []

    def forget(self):
        (self.root / 'state' / 'record').unlink(missing_ok=True)

    def files(self):
        """Return the contents of all files that the plugin may write, by path."""
        return {
            str(path.relative_to(self.root)): path.read_text()
            for path in sorted(self.root.rglob('*'))
            if path.is_file() and not path.is_relative_to(self.root / 'state')
        }

    def _environment(self, fails):
        # DevStack runs without the variables of a test.
        kept = {name: os.environ[name] for name in ('LANG', 'HOME') if name in os.environ}
        return {
            **kept,
            'PATH': f'{self.root}/bin:/usr/bin:/bin:/usr/sbin:/sbin',
            'PYTHONPATH': str(CHECKOUT),
            'NO_EVENTLET_MONKEYPATCH': '1',
            'ROOT': str(self.root),
            'HERE': str(HERE),
            'REAL_PYTHON': sys.executable,
            'FAILS': f' {" ".join(fails)} ',
            **self.local_conf,
        }
