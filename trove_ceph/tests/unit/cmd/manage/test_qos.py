# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage.image_types import Qos
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.tiers import sample
from trove_ceph.tests.unit.tiers.qos import world
from trove_ceph.tiers import cinder

WITHOUT_CEPH = """
import sys
sys.modules['rados'] = None
from trove_ceph.cmd.manage import app
sys.exit(app.run(['qos', 'plan', '--file', sys.argv[1]]))
"""


class CliTestCase(base.BaseTestCase):
    """The command on systems in memory."""

    def setUp(self):
        super().setUp()
        self.world = world.World()
        self.file = Path(self.useFixture(fixtures.TempDir()).path) / 'tiers.yaml'
        self.file.write_text(yaml.safe_dump(sample.changed(world.TIERS), sort_keys=False))
        for name, replacement in (
            (
                'tiers.cinder.Cinder.of_environment',
                lambda *_: cinder.Cinder(self.world.cinder.client()),
            ),
            ('cmd.manage.qos._storage', lambda parsed_args: self.world.storage),
        ):
            self.useFixture(fixtures.MonkeyPatch(f'trove_ceph.{name}', replacement))

    def _run(self, *words, status=0):
        """Run a verb and return what it prints and complains of."""
        result = command.run('qos', *words, '--file', str(self.file))
        self.assertEqual(status, result.status, result)
        return result.out, result.err

    def test_plan_apply_check(self):
        volume, image = self.world.add()
        out, err = self._run('plan')
        (row,) = [line for line in out.splitlines() if volume['id'] in line]
        self.assertEqual(
            [volume['id'], str(image), 'fast', '200', 'no limit', '6000 IOPS, 500 MiB/s', '-'],
            [cell.strip() for cell in row.strip('|').split('|')],
        )
        self.assertEqual('Of 1 volumes, 1 would change, 0 failed.\n', err)
        self.assertEqual(Qos(), self.world.limits(image))
        out, _ = self._run('check', status=1)
        self.assertIn(f'drift: 1 of 1 volumes: volume {volume["id"]} ({image}): no limit -> ', out)

        self.assertEqual('Of 1 volumes, 1 changed, 0 failed.\n', self._run('apply')[1])
        self.assertEqual(world.LIMITS, self.world.limits(image))
        self.assertEqual(('ok: 1 volumes have the limits of their tiers\n', ''), self._run('check'))
        self.assertEqual(('\n', 'Of 1 volumes, 0 changed, 0 failed.\n'), self._run('apply'))

    def test_volume_that_cannot_be_dealt_with(self):
        _, image = self.world.add()
        lost = self.world.cinder.add_volume('fast', 10)
        rows = json.loads(self._run('plan', '-f', 'json')[0])
        (error,) = [row['error'] for row in rows if row['volume'] == lost['id']]
        self.assertTrue(error.startswith(f'volume {lost["id"]}: '), error)
        self._run('apply', status=1)
        self.assertEqual(world.LIMITS, self.world.limits(image))
        self.assertIn(lost['id'], self._run('check', status=1)[0])

    def test_json(self):
        volume, image = self.world.add(size=1)
        none = {'iops_burst': 0, 'bytes_per_sec_burst': 0}
        expected = {
            'volume': volume['id'],
            'image': str(image),
            'tier': 'fast',
            'size_gib': 1,
            'from': {'iops': 0, 'bytes_per_sec': 0} | none,
            'to': {'iops': 3000, 'bytes_per_sec': 500 * 1024**2} | none,
        }
        rows = [expected | {'error': None}]
        self.assertEqual(rows, json.loads(self._run('plan', '--format', 'json')[0]))
        checked = json.loads(self._run('check', '--format', 'json', status=1)[0])
        document = {'status': 'drift', 'volumes': 1, 'changes': [expected], 'failures': {}}
        self.assertEqual(document, checked)
        self.assertEqual(rows, json.loads(self._run('apply', '--format', 'json')[0]))
        checked = json.loads(self._run('check', '--format', 'json')[0])
        self.assertEqual('ok', checked['status'])

    def test_wrong_file(self):
        self.file.write_text('tiers: {}')
        self.assertIn('must not be empty', self._run('apply', status=2)[1])

    def test_systems_that_do_not_answer(self):
        self.world.add()
        self.world.cinder.failure = 503
        self.assertIn('Cinder failed at listing the volumes', self._run('check', status=3)[1])
        self.world.cinder.failure = None

        def unreachable(pool):
            raise exceptions.CephUnreachableError('connecting: timed out')

        self.world.storage.describe_pool = unreachable
        self.assertIn('connecting: timed out', self._run('check', status=3)[1])

    def test_missing_library_of_ceph_is_told(self):
        result = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', WITHOUT_CEPH, str(self.file)],
            capture_output=True,
            text=True,
            check=False,
            env={'OS_AUTH_URL': 'http://localhost:1', 'OS_USERNAME': 'x', 'OS_PASSWORD': 'x'}
            | {'OS_PROJECT_NAME': 'x'},
        )
        self.assertEqual(3, result.returncode, result.stderr)
        self.assertIn('module rados is missing: install python3-rbd', result.stderr)
