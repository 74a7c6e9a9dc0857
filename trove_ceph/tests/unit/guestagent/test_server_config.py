# SPDX-License-Identifier: Apache-2.0
import os
import shutil
from unittest import mock

import fixtures
from oslo_utils import units
from oslotest import base
from trove.guestagent.common import operating_system
from trove.guestagent.datastore import service as base_service

from trove_ceph import exceptions
from trove_ceph.guestagent import option_files, server_config
from trove_ceph.mysql import tuning

BASE_FILE = """\
[mysqld]
port = 3306
max_allowed_packet = 67108864

[trove_ceph]
flavor_ram_mib = {ram}
flavor_vcpus = 2

!includedir /etc/mysql/conf.d/
"""

DISKS = tuning.Tier(1.0, 150, 1000)


def run_unprivileged(command, options, *arguments, **_kwargs):
    """Stand in for the shell; ignore ownership."""
    if command == 'mkdir':
        os.makedirs(arguments[-1], exist_ok=True)
    elif command == 'rm':
        if os.path.isdir(arguments[-1]):
            shutil.rmtree(arguments[-1])
        elif os.path.exists(arguments[-1]):
            os.unlink(arguments[-1])
    elif command not in ('chown', 'chmod'):
        raise AssertionError(f'unexpected command {command}')


class TunedConfigurationManagerTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.common.operating_system.execute_shell_cmd', run_unprivileged
            )
        )
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.base_path = os.path.join(self.directory, 'my.cnf')
        self.include = os.path.join(self.directory, 'conf.d')
        self.volume_mib = 10240
        self.measured, self.measured_error = [], None
        self.manager = self.make_manager()

    def make_manager(self):
        return server_config.TunedConfigurationManager(
            self.base_path,
            os.getuid(),
            os.getgid(),
            base_service.BaseDbApp.CFG_CODEC,
            override_strategy=option_files.OptionFiles(self.include, 'cnf'),
            measure=self.measure,
            server_id=77,
        )

    def measure(self, ram_mib, vcpus, tier):
        if self.measured_error:
            raise self.measured_error
        self.measured.append((ram_mib, vcpus))
        rate = tier.volume_iops(self.volume_mib) if tier else 3000
        return tuning.Machine(ram_mib or 1024, vcpus or 1, self.volume_mib, rate)

    def reset(self, ram):
        self.manager.reset_configuration(BASE_FILE.format(ram=ram))

    def computed_files(self):
        return [name for name in sorted(os.listdir(self.include)) if 'trove-ceph' in name]

    def test_computed_settings_follow_the_flavor_in_the_base_file(self):
        self.reset(4096)

        self.assertEqual([(4096, 2)], self.measured)
        expected = tuning.tune(tuning.Machine(4096, 2, 10240, 3000)).mysqld_options()
        for name, value in expected.items():
            self.assertEqual(value, self.manager.effective(name), name)
        self.assertEqual(77, self.manager.effective('server_id'))

    def test_computed_settings_precede_the_configuration_group(self):
        self.reset(4096)
        self.manager.apply_user_override({'mysqld': {'max_connections': 33}})

        self.assertEqual(['10-system-001-trove-ceph.cnf'], self.computed_files())
        self.assertEqual(33, self.manager.effective('max_connections'))
        self.assertEqual(
            ['10-system-001-trove-ceph.cnf', '20-user-001-common.cnf'],
            sorted(os.listdir(self.include)),
        )

    def test_configuration_group_survives_a_flavor_resize(self):
        self.reset(4096)
        self.manager.apply_user_override({'mysqld': {'max_connections': 33}})

        self.reset(8192)

        self.assertEqual(33, self.manager.effective('max_connections'))
        self.assertEqual(
            tuning.tune(tuning.Machine(8192, 2, 10240, 3000)).buffer_pool_mib * units.Mi,
            self.manager.effective('innodb_buffer_pool_size'),
        )
        self.assertEqual(1, len(self.computed_files()))

    def test_settings_of_a_small_flavor_are_removed_with_it(self):
        self.reset(1024)
        self.assertIsNotNone(self.manager.effective('performance_schema_accounts_size'))

        self.reset(8192)

        self.assertIsNone(self.manager.effective('performance_schema_accounts_size'))

    def test_size_of_the_volume_is_kept_with_the_settings(self):
        self.manager.reset_configuration('[mysqld]\nport = 3306\n')
        self.assertEqual(10240, self.manager.tuned_volume_mib())
        self.volume_mib = 20480
        self.assertEqual(10240, self.make_manager().tuned_volume_mib())
        self.manager.retune()
        self.assertEqual(20480, self.make_manager().tuned_volume_mib())
        (name,) = self.computed_files()
        with open(os.path.join(self.include, name), 'w') as file:
            file.write('[mysqld]\nserver_id = 77\n')
        self.assertIsNone(self.make_manager().tuned_volume_mib())

    def test_retune_after_a_volume_resize(self):
        self.reset(4096)
        before = self.manager.effective('innodb_redo_log_capacity')
        self.volume_mib = 2048

        computed = self.manager.retune()

        self.assertEqual((4096, 2), self.measured[-1])
        self.assertLess(computed.redo_log_mib * units.Mi, before)
        self.assertEqual(
            computed.redo_log_mib * units.Mi, self.manager.effective('innodb_redo_log_capacity')
        )

    def test_stored_tier_is_used(self):
        self.reset(4096)
        self.assertEqual(3000, self.manager.effective('innodb_io_capacity_max'))
        self.manager.store_tier(DISKS)
        self.assertEqual(DISKS, self.manager.stored_tier())

        self.manager.retune()

        self.assertEqual(150, self.manager.effective('innodb_io_capacity_max'))
        self.assertEqual(100, self.manager.effective('innodb_io_capacity'))

    def test_tier_outlives_a_flavor_resize_and_the_agent(self):
        self.reset(4096)
        self.manager.store_tier(DISKS)
        self.reset(8192)
        self.assertEqual(150, self.manager.effective('innodb_io_capacity_max'))

        self.manager = self.make_manager()

        self.assertEqual(DISKS, self.manager.stored_tier())
        self.volume_mib = 300 * 1024
        self.manager.retune()
        self.assertEqual(300, self.manager.effective('innodb_io_capacity_max'))

    def test_tier_is_replaced_and_removed(self):
        self.reset(4096)
        self.manager.store_tier(DISKS)
        self.manager.store_tier(tuning.Tier(30.0, 5000, 20000))
        self.manager.retune()
        self.assertEqual(5000, self.manager.effective('innodb_io_capacity_max'))
        for _ in range(2):
            self.manager.store_tier(None)
            self.assertIsNone(self.manager.stored_tier())
        self.manager.retune()
        self.assertEqual(3000, self.manager.effective('innodb_io_capacity_max'))

    def test_settings_for_a_tier_before_it_is_stored(self):
        self.reset(4096)
        self.manager.retune_for(DISKS)
        self.assertEqual(150, self.manager.effective('innodb_io_capacity_max'))
        self.assertIsNone(self.manager.stored_tier())

    def test_base_file_without_the_flavor(self):
        self.manager.reset_configuration('[mysqld]\nport = 3306\n')
        self.assertEqual([(None, None)], self.measured)

        self.manager.retune()

        self.assertEqual((None, None), self.measured[-1])

    def test_options_outlive_a_crash(self):
        """Each change is on the disk, with the removal of a name, before it takes effect."""
        self.reset(4096)
        flushed = []
        fsync = os.fsync

        def flush(descriptor):
            flushed.append(os.readlink(f'/proc/self/fd/{descriptor}'))
            fsync(descriptor)

        self.useFixture(fixtures.MonkeyPatch('os.fsync', flush))
        options = {'mysqld': {'super_read_only': 'ON'}}
        self.manager.apply_system_override(options, 'read-only')
        (path,) = [one for one in flushed if 'read-only' in one]
        self.assertEqual(
            {'my.cnf', '10-system-001-trove-ceph.cnf', '50-system-001-read-only.cnf'},
            {name for _, _, names in os.walk(self.directory) for name in names},
        )
        self.assertEqual(self.include, flushed[-1])
        flushed.clear()
        self.manager.remove_system_override('read-only')
        self.assertNotIn(path, flushed)
        self.assertEqual(self.include, flushed[-1])
        flushed.clear()
        self.reset(2048)
        self.assertIn(os.path.join(self.directory, '.my.cnf.replacement'), flushed)

    def contents(self):
        paths = [os.path.join(at, one) for at, _, names in os.walk(self.directory) for one in names]
        return {path: open(path).read() for path in paths}

    def test_a_failure_leaves_the_old_options(self):
        """As a crash does: MySQL would start without what is missing."""
        self.reset(4096)
        self.manager.store_tier(DISKS)
        self.manager.apply_system_override({'mysqld': {'read_only': 'ON'}}, 'replica')
        before = self.contents()
        other = {'mysqld': {'read_only': 'OFF'}}
        for change in (
            lambda: self.reset(8192),
            self.manager.retune,
            lambda: self.manager.store_tier(tuning.Tier(30.0, 5000, 20000)),
            lambda: self.manager.apply_system_override(other, 'replica'),
            lambda: self.manager.replace_system_override(other, 'replica'),
        ):
            for step in ('fsync', 'rename'):
                with mock.patch(f'os.{step}', side_effect=OSError(28, 'full')):
                    self.assertRaises(exceptions.StorageCommandError, change)
                self.assertEqual(before, self.contents())

    def test_replaced_options_are_not_merged(self):
        for options in ({'read_only': 'ON', 'super_read_only': 'ON'}, {'read_only': 'OFF'}):
            self.manager.replace_system_override({'mysqld': options}, 'replica')
        path = os.path.join(self.include, '50-system-001-replica.cnf')
        self.assertEqual('[mysqld]\nread_only = OFF\n\n', open(path).read())
        self.assertEqual(0o644, os.stat(path).st_mode & 0o777)

    def test_lost_settings_are_computed_again(self):
        self.manager.restore()
        self.assertFalse(os.path.exists(self.include) and self.computed_files())
        self.reset(4096)
        (name,) = self.computed_files()
        expected = self.contents()
        measured = len(self.measured)
        self.manager.restore()
        self.assertEqual(measured, len(self.measured))
        os.unlink(os.path.join(self.include, name))
        self.measured_error = exceptions.VolumeNotReadyError('not mounted')
        self.manager.restore()
        self.assertEqual([], self.computed_files())
        self.measured_error = None
        self.manager.restore()
        self.assertEqual(expected, self.contents())

    def test_tier_that_a_crash_has_emptied(self):
        self.reset(4096)
        self.manager.store_tier(DISKS)
        (name,) = [one for one in os.listdir(self.include) if 'storage-tier' in one]
        open(os.path.join(self.include, name), 'w').close()
        self.reset(4096)
        self.assertIsNone(self.manager.stored_tier())

    def test_dictionary_as_base_file(self):
        self.manager.reset_configuration({'mysqld': {'port': 3306}})

        self.assertEqual(1, len(self.computed_files()))

    def test_too_small_flavor_changes_nothing(self):
        self.reset(4096)
        before = operating_system.read_file(self.base_path)

        self.assertRaises(exceptions.FlavorTooSmallError, self.reset, 512)

        self.assertEqual(before, operating_system.read_file(self.base_path))
        self.assertEqual(
            tuning.tune(tuning.Machine(4096, 2, 10240, 3000)).buffer_pool_mib * units.Mi,
            self.manager.effective('innodb_buffer_pool_size'),
        )


class ServerIdTestCase(base.BaseTestCase):
    def test_stable_and_in_range(self):
        ids = {server_config.server_id_of(f'instance-{number}') for number in range(1000)}

        self.assertEqual(1000, len(ids))
        self.assertTrue(all(1 <= number < 2**32 for number in ids))
        # The same in each process, unlike hash().
        self.assertEqual(3398926611, server_config.server_id_of('a'))
