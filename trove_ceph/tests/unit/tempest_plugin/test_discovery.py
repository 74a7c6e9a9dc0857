# SPDX-License-Identifier: Apache-2.0
"""Tests of the scenarios that Tempest discovers for a configuration."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from oslotest import base

_PROJECT = Path(__file__).resolve().parents[4]
# Run in a separate process: Tempest reads its configuration once, when its modules are imported.
_LIST = """
import importlib, json, sys, unittest

def ids(suite):
    for one in suite:
        yield from ids(one) if isinstance(one, unittest.TestSuite) else [one.id()]

def load(name):
    module = importlib.import_module(f'trove_ceph_tempest_plugin.tests.scenario.{name}')
    return unittest.defaultTestLoader.loadTestsFromModule(module)

print(json.dumps({name: list(ids(load(name))) for name in sys.argv[1:]}))
"""
_RUN = """
import importlib, json, sys, unittest

def run(name):
    module = importlib.import_module(f'trove_ceph_tempest_plugin.tests.scenario.{name}')
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    reasons = [reason for _, reason in result.skipped]
    return [len(result.errors), len(result.failures), ' '.join(reasons)]

print(json.dumps({name: run(name) for name in sys.argv[1:]}))
"""
_LISTED = (
    *('test_automatic_failover', 'test_backups', 'test_database', 'test_ejection'),
    *('test_failover', 'test_hot_guests', 'test_move_host', 'test_replicas', 'test_semi_sync'),
    *('test_stock_agent', 'test_warm_guests'),
)
#: Modules whose tests need more than volume types.
_DEMANDING = (
    *('test_backups', 'test_ejection', 'test_failover', 'test_move_host', 'test_semi_sync'),
    *('test_stock_agent', 'test_warm_guests'),
)


@functools.cache
def _python(code, *modules, **options):
    """Run code for modules with options of the plugin, once, since Tempest's import is slow."""
    settings = ''.join(f'{name} = {value}\n' for name, value in options.items())
    with tempfile.TemporaryDirectory() as directory:
        text = f'[DEFAULT]\nlog_file = {directory}/log\n[trove_ceph]\n{settings}'
        Path(directory, 'tempest.conf').write_text(text)
        environ = {
            'TEMPEST_CONFIG_DIR': directory,
            'XDG_CACHE_HOME': f'{directory}/cache',
            'PYTHONPATH': os.pathsep.join(
                str(_PROJECT / name) for name in ('tempest_plugin', 'bench', '.')
            ),
        }
        result = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', code, *modules],
            env=dict(os.environ, **environ),
            cwd=directory,
            text=True,
            capture_output=True,
        )
    if result.returncode:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout.splitlines()[-1])


class DiscoveryTest(base.BaseTestCase):
    def _classes(self, volume_types, module='test_database'):
        found = {}
        for test_id in _python(_LIST, *_LISTED, volume_types=volume_types)[module]:
            class_name, _, name = test_id.partition('[')[0].rpartition('.')
            found.setdefault(class_name.rpartition('.')[2], []).append(name)
        return found

    def _run(self, module, *modules, **options):
        """Run the tests of a module, all of which are skipped, and return the reasons.

        :param modules: those that other tests run with the same options, and the module
        """
        errors, failures, reasons = _python(_RUN, *(modules or [module]), **options)[module]
        self.assertEqual((0, 0), (errors, failures))
        return reasons

    def _run_demanding(self, module):
        return self._run(module, *_DEMANDING, volume_types='nvme')

    def test_first_volume_type_has_all_scenarios_and_deletion_runs_last(self):
        found = self._classes('nvme,hdd-2')
        self.assertEqual(['TestDatabase_nvme', 'TestProvisioning_hdd_2'], list(found))
        everywhere = set(found['TestProvisioning_hdd_2'])
        self.assertIn('test_placement', everywhere)
        self.assertLess(everywhere, set(found['TestDatabase_nvme']))
        for names in found.values():
            self.assertEqual('test_vanishes_when_deleted', names[-1])

    def test_a_database_is_rebuilt_where_no_guest_waits_and_where_one_does(self):
        found = self._classes('nvme,hdd')
        self.assertIn('test_rebuild_on_an_image', found['TestDatabase_nvme'])
        self.assertNotIn('test_rebuild_on_an_image', found['TestProvisioning_hdd'])
        (names,) = self._classes('nvme', 'test_warm_guests').values()
        self.assertNotIn('test_rebuild_on_an_image', names)
        self.assertIn('test_rebuilt_warm', names)

    def test_without_volume_types_all_are_skipped_with_the_reason(self):
        self.assertIn('[trove_ceph] volume_types is empty', self._run('test_database'))

    def test_warm_guests_are_tested_with_the_operations_of_any_database(self):
        found = self._classes('nvme,hdd', 'test_warm_guests')
        self.assertEqual(['TestWarmGuests_nvme'], list(found))
        names = found['TestWarmGuests_nvme']
        self.assertLessEqual(
            {
                *('test_created_warm', 'test_restored_warm', 'test_resized_warm', 'test_reboot'),
                *('test_schemas_and_accounts', 'test_root', 'test_access_rules'),
            },
            set(names),
        )
        # The class's database is the created one only until a test deletes it.
        self.assertEqual('test_vanishes_when_deleted', names[-1])

    def test_warm_guests_are_skipped_without_their_command(self):
        reasons = self._run_demanding('test_warm_guests')
        self.assertIn('[trove_ceph] guests_command is not set', reasons)

    def test_hot_guests_are_tested_with_a_database_of_their_own(self):
        found = self._classes('nvme,hdd', 'test_hot_guests')
        self.assertEqual(['TestHotGuests_nvme'], list(found))
        names = found['TestHotGuests_nvme']
        own = {'test_created_hot', 'test_larger_created_hot', 'test_backed_up_hot'}
        self.assertLessEqual(own, set(names))
        self.assertEqual('test_vanishes_when_deleted', names[-1])

    def test_hot_guests_are_skipped_without_their_option(self):
        reasons = self._run('test_hot_guests', volume_types='nvme', guests_command='true')
        self.assertIn('[trove_ceph] hot_guests and guests_command are not set', reasons)

    def test_backup_scenarios_run_on_the_first_volume_type_only(self):
        found = self._classes('nvme,hdd', 'test_backups')
        self.assertEqual(['TestBackups_nvme'], list(found))
        # This scenario deletes the database of the class.
        self.assertEqual('test_survives_its_instance', found['TestBackups_nvme'][-1])

    def test_backup_scenarios_are_skipped_without_backups_of_this_project(self):
        reasons = self._run_demanding('test_backups')
        self.assertIn('[trove_ceph] backups is not set', reasons)

    def test_troves_own_agent_is_tested_with_a_database_of_its_own(self):
        found = self._classes('nvme,hdd', 'test_stock_agent')
        names = ['test_backup_by_troves_agent', 'test_vanishes_when_deleted']
        self.assertEqual({'TestStockAgent_nvme': names}, found)

    def test_troves_own_agent_is_not_tested_without_a_datastore(self):
        reasons = self._run_demanding('test_stock_agent')
        self.assertIn('[trove_ceph] stock_datastore is empty', reasons)

    def test_failover_scenarios_have_databases_of_their_own(self):
        found = self._classes('nvme,hdd', 'test_failover')
        kinds = ('Failover', 'ReplicatedFailover', 'RepeatedFailover', 'KilledHost', 'FrozenHost')
        self.assertEqual({f'Test{kind}_nvme' for kind in kinds}, set(found))

    def test_failover_scenarios_are_skipped_where_nothing_can_fail(self):
        reasons = self._run_demanding('test_failover')
        self.assertEqual(5, reasons.count('[trove_ceph] server_command is not set'))

    def test_automatic_failovers_have_databases_of_their_own(self):
        found = self._classes('nvme,hdd', 'test_automatic_failover')
        expected = {
            'TestAutomaticFailover_nvme': ['test_killed_server_after_maintenance'],
            'TestAutomaticFailoverOfHost_nvme': ['test_killed_host'],
            'TestTakeOver_nvme': ['test_replica_takes_over'],
        }
        self.assertEqual(expected, found)

    def test_automatic_failovers_are_skipped_without_what_they_need(self):
        options = {
            'volume_types': 'nvme',
            'server_command': 'false',
            'host_command': 'false',
            'failing_host': 'compute-2',
        }
        reasons = self._run('test_automatic_failover', **options)
        self.assertEqual(3, reasons.count('[trove_ceph] manage_command is not set'))

    def test_scenarios_that_let_a_server_fail_have_databases_of_their_own(self):
        for module, name in (
            ('test_move_host', 'TestMoveHost'),
            ('test_ejection', 'TestEjection'),
            ('test_semi_sync', 'TestSemiSync'),
        ):
            (tests,) = self._classes('nvme,hdd', module).items()
            self.assertEqual((f'{name}_nvme', 1), (tests[0], len(tests[1])))
            reasons = self._run_demanding(module)
            self.assertIn('[trove_ceph] server_command is not set', reasons)

    def test_replica_scenarios_run_on_the_first_volume_type_only(self):
        found = self._classes('nvme,hdd', 'test_replicas')
        self.assertEqual(['TestReplicas_nvme'], list(found))
        # This scenario deletes the database of the class.
        self.assertEqual('test_survives_its_source', found['TestReplicas_nvme'][-1])
