# SPDX-License-Identifier: Apache-2.0
"""Which guest manager serves an instance, how it tunes MySQL, and how it holds it for backups."""

from unittest import mock

import docker
import fixtures
from oslo_config import cfg as oslo_cfg
from oslo_utils import importutils
from oslotest import base
from trove.common import cfg
from trove.guestagent import dbaas
from trove.guestagent.datastore.mysql import manager as mysql_manager
from trove.instance import models as instance_models

from trove_ceph.guestagent import manager, server
from trove_ceph.mysql import tuning
from trove_ceph.tests.unit.guestagent import manager_world


class RegistrationTestCase(base.BaseTestCase):
    def test_registry_ext_names_this_manager(self):
        instance = mock.Mock(spec=['ds_version'])
        instance.ds_version.manager = 'mysql'
        instance.ds_version.registry_ext = manager.REGISTRY_EXT
        written = instance_models.FreshInstance.datastore_registry_ext.fget(instance)
        guest_info = self.useFixture(fixtures.TempDir()).join('guest_info.conf')
        with open(guest_info, 'w') as config:
            config.write(f'[DEFAULT]\ndatastore_registry_ext={written}\n')
        conf = oslo_cfg.ConfigOpts()
        conf.register_opts([opt for opt in cfg.common_opts if opt.dest == 'datastore_registry_ext'])
        conf(['--config-file', guest_info], project='trove')

        with mock.patch.object(dbaas, 'CONF', conf):
            path = dbaas.datastore_registry()['mysql']

        self.assertIs(manager.Manager, importutils.import_class(path))
        self.assertTrue(issubclass(manager.Manager, mysql_manager.Manager))


class ManagerTest(manager_world.ManagerTestCase):
    def test_application_is_ours_and_the_admin_uses_it(self):
        self.assertIsInstance(self.manager.app, server.MySqlServer)
        self.assertIs(self.manager.app, self.manager.adm.mysql_app)
        self.assertEqual('mysql', self.manager.manager)

    def test_docker_gets_more_than_its_usual_minute(self):
        self.assertIs(self.manager.app.docker_client, self.manager.docker_client)
        docker.from_env.assert_called_once_with(timeout=180)

    def test_machine_is_measured_with_the_flavor_the_volume_and_the_tier(self):
        self.option('volume_iops_per_gib', 100.0)
        self.option('volume_iops_cap', 9000)

        self.assertEqual(
            tuning.Machine(4096, 2, 100 * manager_world.GIB_MIB, 9000),
            self.manager.app._measure(4096, 2, None),
        )

    def test_stored_tier_overrides_the_options(self):
        self.option('volume_iops_per_gib', 100.0)
        measured = self.manager.app._measure(4096, 2, tuning.Tier(1.0, 60, 1000))

        self.assertEqual(100, measured.volume_iops)

    def test_new_tier_is_stored_and_applied_to_the_running_server(self):
        done = self.manager.app = mock.Mock()
        done.configuration_manager.stored_tier.return_value = None

        given = {'iops_per_gib': 1.0, 'iops_floor': 60, 'iops_cap': 1000}
        self.assertTrue(self.manager.apply_tier(None, given))

        tier = tuning.Tier(1.0, 60, 1000)
        computed = done.configuration_manager.retune_for.return_value
        self.assertEqual(
            [
                mock.call.configuration_manager.stored_tier(),
                mock.call.configuration_manager.retune_for(tier),
                mock.call.apply_volume_settings(computed),
                mock.call.configuration_manager.store_tier(tier),
            ],
            done.mock_calls,
        )

    def test_tier_that_cannot_be_applied_is_not_stored(self):
        """A repetition would change nothing."""
        done = self.manager.app = mock.Mock()
        given = {'iops_per_gib': 1.0, 'iops_floor': 60, 'iops_cap': 1000}
        for step in (done.configuration_manager.retune_for, done.apply_volume_settings):
            step.side_effect = RuntimeError
            self.assertRaises(RuntimeError, self.manager.apply_tier, None, given)
            step.side_effect = None
            done.configuration_manager.store_tier.assert_not_called()

    def test_known_tier_changes_nothing(self):
        done = self.manager.app = mock.Mock()
        done.configuration_manager.stored_tier.return_value = None

        self.assertFalse(self.manager.apply_tier(None, None))

        self.assertEqual([mock.call.configuration_manager.stored_tier()], done.mock_calls)

    def test_machine_without_a_flavor_is_read_from_the_kernel(self):
        measured = self.manager.app._measure(None, None, None)

        self.assertGreater(measured.ram_mib, 100)
        self.assertGreaterEqual(measured.vcpus, 1)

    def test_backup_settings_use_the_volume_and_a_separate_connection(self):
        check = self.useFixture(
            fixtures.MockPatch('trove_ceph.guestagent.backup_settings.check')
        ).mock
        self.volume.mount_point = '/var/lib/mysql'

        answer = self.manager.check_backup_settings(None)

        self.assertIs(check.return_value, answer)
        check.assert_called_once_with(
            self.manager.app.open_connection,
            self.manager._storage,
            '/var/lib/mysql',
            history=self.manager._settings_history,
        )

    def test_status_is_reported_without_the_pool(self):
        """Its connections have no time limit: a server that hangs would end all reports."""
        self.manager.app = mock.Mock()
        self.manager.status = mock.Mock(is_installed=True)
        self.manager.update_status(None)
        found = self.manager.status.get_reported_status.return_value
        self.manager.status.set_status.assert_called_once_with(found)
        self.assertEqual([], self.manager.app.mock_calls)

    def test_upgrade(self):
        done = mock.Mock(of_upgrade=mock.MagicMock())
        self.manager.app, self.manager.status = done.app, done
        done.of_upgrade.return_value.__exit__.return_value = False
        self.manager.upgrade(None, {'datastore_version': '9.8.1'})
        done.of_upgrade.return_value.__enter__.assert_called_once_with()
        done.app.upgrade.assert_called_once_with({'datastore_version': '9.8.1'})

    def test_backup_settings_are_observed_while_the_server_runs(self):
        observe = self.useFixture(
            fixtures.MockPatch('trove_ceph.guestagent.backup_settings.observe')
        ).mock
        self.assertIn(
            'observe_backup_settings', [name for name, _ in manager.Manager._periodic_tasks]
        )
        for is_installed, is_running in ((False, False), (True, False)):
            self.manager.status = mock.Mock(is_installed=is_installed, is_running=is_running)
            self.manager.observe_backup_settings(None)
        observe.assert_not_called()

        self.manager.status = mock.Mock(is_installed=True, is_running=True)
        self.manager.observe_backup_settings(None)

        observe.assert_called_once_with(
            self.manager.app.open_connection, self.manager._settings_history
        )

    def test_holding_and_releasing(self):
        self.option('quiesce_wait_sec', 3)
        lock = self.useFixture(
            fixtures.MockPatch('trove_ceph.guestagent.backup_lock.BackupLock')
        ).mock
        lock.return_value.lock_non_transactional_tables.return_value = 0
        lock.return_value.unlock.return_value = ''
        freeze = self.useFixture(
            fixtures.MockPatch('trove_ceph.guestagent.volume_freeze.VolumeFreeze')
        ).mock
        freeze.return_value.freeze.return_value = 0.1
        freeze.return_value.thaw.return_value = ''
        self.manager._storage = mock.Mock()
        self.manager._storage.start_freeze_process.return_value = (process, channel) = (
            mock.Mock(),
            mock.Mock(),
        )
        self.volume.mount_point = '/var/lib/mysql'

        held = self.manager.quiesce_for_backup(None, 'a-backup', 'a-token', 'freeze', 1000)
        released = self.manager.release_after_backup(None, backup_id='a-backup', token='a-token')

        self.assertEqual('freeze', held['level'])
        self.assertTrue(released['held'])
        # Not longer than configured.
        lock.assert_called_once_with(self.manager.app.open_connection, 3, 65)
        self.manager._storage.start_freeze_process.assert_called_once_with('/var/lib/mysql', 60)
        freeze.assert_called_once_with(process, channel, 60)
