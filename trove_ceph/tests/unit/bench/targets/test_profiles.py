# SPDX-License-Identifier: Apache-2.0

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.mysql import tuning
from trove_ceph_bench.targets import profiles

MACHINE = tuning.Machine(2048, 2, 10240, 3000)


class MachineTest(base.BaseTestCase):
    def machine(self, **more):
        return profiles.machine(
            {'flavor': {'ram_mib': 1024, 'vcpus': 2}, 'on': {'local': '/srv'}, **more}
        )

    def test_default_volume_size_is_that_of_the_image(self):
        found = self.machine(on={'rbd': {'pool': 'p', 'size_gib': 200}})

        self.assertEqual(tuning.Machine(1024, 2, 200 * 1024, 6000), found)

    def test_volume_of_a_local_disk_has_a_default(self):
        self.assertEqual(tuning.Machine(1024, 2, 10 * 1024, 3000), self.machine())

    def test_specified_volume(self):
        # So that a control on a local disk gets the settings of the volume it replaces.
        found = self.machine(volume={'size_gib': 5, 'iops': 150})

        self.assertEqual(tuning.Machine(1024, 2, 5 * 1024, 150), found)


class OursTest(base.BaseTestCase):
    def test_template_and_computed_settings(self):
        found = profiles.trove_ceph_options(MACHINE)

        computed = tuning.tune(MACHINE).mysqld_options()
        self.assertEqual(computed, {name: found[name] for name in computed})
        self.assertEqual('O_DIRECT', found['innodb_flush_method'])
        self.assertNotIn('datadir', found)

    def test_refuses_a_machine_that_is_too_small(self):
        tiny = tuning.Machine(64, 1, 10240, 3000)

        error = self.assertRaises(exceptions.InvalidPlanError, profiles.trove_ceph_options, tiny)

        self.assertIn('64 MiB', str(error))

    def test_missing_templates(self):
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.targets.profiles._DIRECTORIES', ()))

        self.assertRaises(exceptions.InvalidPlanError, profiles.trove_ceph_options, MACHINE)


class StockTest(base.BaseTestCase):
    def test_trove_s_own_sizes(self):
        found = profiles.stock_options(MACHINE, 'mysqld  Ver 9.7.4-2 for Linux')

        self.assertEqual('600M', found['innodb_buffer_pool_size'])
        self.assertEqual('400', found['max_connections'])
        self.assertNotIn('default_authentication_plugin', found)
        self.assertNotIn('pid_file', found)

    def test_depends_on_the_version(self):
        found = profiles.stock_options(MACHINE, 'Ver 8.0.36')

        self.assertEqual('mysql_native_password', found['default_authentication_plugin'])

    def test_refuses_an_unreadable_version(self):
        self.assertRaises(exceptions.InvalidPlanError, profiles.stock_options, MACHINE, 'mysqld')

    def test_without_trove(self):
        self.useFixture(fixtures.MonkeyPatch('importlib.util.find_spec', lambda name: None))

        error = self.assertRaises(
            exceptions.InvalidPlanError, profiles.stock_options, MACHINE, '9.7.4'
        )

        self.assertIn('not installed', str(error))
