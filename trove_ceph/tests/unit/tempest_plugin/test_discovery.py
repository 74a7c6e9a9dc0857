# SPDX-License-Identifier: Apache-2.0
"""Which scenarios there are under a configuration, as Tempest finds them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fixtures
from oslotest import base

# In a process of its own: Tempest reads its configuration once, when its modules are imported.
_LIST = """
import json, unittest
from trove_ceph_tempest_plugin.tests.scenario import test_database

def ids(suite):
    for one in suite:
        yield from ids(one) if isinstance(one, unittest.TestSuite) else [one.id()]

print(json.dumps(list(ids(unittest.defaultTestLoader.loadTestsFromModule(test_database)))))
"""
_RUN = """
import unittest
from trove_ceph_tempest_plugin.tests.scenario import test_database

suite = unittest.defaultTestLoader.loadTestsFromModule(test_database)
result = unittest.TestResult()
suite.run(result)
print(len(result.errors), len(result.failures), *[reason for _, reason in result.skipped])
"""


class DiscoveryTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def _python(self, code, options):
        settings = ''.join(f'{name} = {value}\n' for name, value in options.items())
        text = f'[DEFAULT]\nlog_file = {self.directory}/log\n[trove_ceph]\n{settings}'
        (self.directory / 'tempest.conf').write_text(text)
        environ = {
            'TEMPEST_CONFIG_DIR': str(self.directory),
            'XDG_CACHE_HOME': str(self.directory / 'cache'),
            'PYTHONPATH': str(Path(__file__).resolve().parents[4] / 'tempest_plugin'),
        }
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', code],
            env=dict(os.environ, **environ),
            cwd=self.directory,
            text=True,
            capture_output=True,
        )
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.splitlines()[-1]

    def _classes(self, volume_types):
        found = {}
        for test_id in json.loads(self._python(_LIST, {'volume_types': volume_types})):
            class_name, _, name = test_id.partition('[')[0].rpartition('.')
            found.setdefault(class_name.rpartition('.')[2], []).append(name)
        return found

    def test_first_volume_type_has_all_scenarios_and_deletion_comes_last(self):
        found = self._classes('nvme,hdd-2')
        self.assertEqual(['TestDatabase_nvme', 'TestProvisioning_hdd_2'], list(found))
        everywhere = set(found['TestProvisioning_hdd_2'])
        self.assertIn('test_placement', everywhere)
        self.assertLess(everywhere, set(found['TestDatabase_nvme']))
        for names in found.values():
            self.assertEqual('test_vanishes_when_deleted', names[-1])

    def test_without_volume_types_all_are_skipped_with_the_reason(self):
        errors, failures, *reason = self._python(_RUN, {}).split(maxsplit=2)
        self.assertEqual(('0', '0'), (errors, failures))
        self.assertIn('[trove_ceph] volume_types names none to test', reason[0])
