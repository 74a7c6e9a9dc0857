# SPDX-License-Identifier: Apache-2.0
import functools
from unittest import mock

import fixtures
from oslo_config import cfg as oslo_cfg
from oslo_utils import importutils, units
from oslotest import base

# Registers the option ssl_mode.
from trove.cmd import guest as _trove_guest  # noqa: F401
from trove.common import cfg
from trove.guestagent import dbaas
from trove.guestagent.datastore.mysql import manager as mysql_manager
from trove.guestagent.datastore.mysql_common import manager as common_manager
from trove.instance import models as instance_models
from trove.instance import service_status

from trove_ceph import exceptions
from trove_ceph.conf import guest as guest_conf
from trove_ceph.guestagent import manager, read_only, server, volume_trim
from trove_ceph.host import data_volume
from trove_ceph.mysql import tuning

CONF = cfg.CONF
GIB_MIB = 1024


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


def stock_do_prepare(done):
    """Return a function with the signature of Trove's method."""
    own = common_manager.MySqlManager.do_prepare

    @functools.wraps(own)
    def prepare(_self, *arguments, **options):
        done(*arguments, **options)

    return prepare


class ManagerTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        guest_conf.register(CONF)
        for name, value in {
            'datastore_manager': 'mysql',
            'datastore_version': '9.7.4',
        }.items():
            CONF.set_override(name, value)
            self.addCleanup(CONF.clear_override, name)
        CONF.set_override('guest_id', 'an-instance')
        self.addCleanup(CONF.clear_override, 'guest_id')
        self.useFixture(fixtures.MonkeyPatch('docker.from_env', mock.Mock()))
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.host.data_volume.DataVolume', mock.Mock(name='DataVolume')
            )
        )
        self.volume = data_volume.DataVolume.return_value
        self.volume.size_mib.return_value = 100 * GIB_MIB
        self.manager = manager.Manager()
        self.manager.app._configuration_manager = self.configuration = mock.Mock()

    def option(self, name, value):
        CONF.set_override(name, value, 'trove_ceph')
        self.addCleanup(CONF.clear_override, name, 'trove_ceph')

    def test_application_is_ours_and_the_admin_uses_it(self):
        self.assertIsInstance(self.manager.app, server.MySqlServer)
        self.assertIs(self.manager.app, self.manager.adm.mysql_app)
        self.assertEqual('mysql', self.manager.manager)

    def test_machine_is_measured_with_the_flavor_the_volume_and_the_tier(self):
        self.option('volume_iops_per_gib', 100.0)
        self.option('volume_iops_cap', 9000)

        self.assertEqual(
            tuning.Machine(4096, 2, 100 * GIB_MIB, 9000), self.manager.app._measure(4096, 2, None)
        )

    def test_stored_tier_overrides_the_options(self):
        self.option('volume_iops_per_gib', 100.0)
        measured = self.manager.app._measure(4096, 2, tuning.Tier(1.0, 60, 1000))

        self.assertEqual(100, measured.volume_iops)

    def test_new_tier_is_stored_and_applied_to_the_running_server(self):
        done = self.manager.app = mock.Mock()
        done.configuration_manager.set_tier.return_value = True

        given = {'iops_per_gib': 1.0, 'iops_floor': 60, 'iops_cap': 1000}
        self.assertTrue(self.manager.apply_tier(None, given))

        kept = mock.call.configuration_manager.set_tier(tuning.Tier(1.0, 60, 1000))
        computed = done.configuration_manager.retune.return_value
        self.assertEqual(
            [
                kept,
                mock.call.configuration_manager.retune(),
                mock.call.apply_volume_settings(computed),
            ],
            done.mock_calls,
        )

    def test_known_tier_changes_nothing(self):
        done = self.manager.app = mock.Mock()
        done.configuration_manager.set_tier.return_value = False

        self.assertFalse(self.manager.apply_tier(None, None))

        self.assertEqual([mock.call.configuration_manager.set_tier(None)], done.mock_calls)

    def test_machine_without_a_flavor_is_read_from_the_kernel(self):
        measured = self.manager.app._measure(None, None, None)

        self.assertGreater(measured.ram_mib, 100)
        self.assertGreaterEqual(measured.vcpus, 1)

    def prepare(self, **facts):
        """Prepare as Trove's base class does, and return the actions in order."""
        values = {
            'packages': None,
            'databases': None,
            'memory_mb': 1024,
            'users': None,
            'device_path': '/dev/vdb',
            'mount_point': '/var/lib/mysql',
            'backup_info': {'id': 'b', 'storage_driver': 'cinder'},
            'config_contents': '[mysqld]',
            'root_password': None,
            'overrides': {'max_connections': 7},
            'cluster_config': None,
            'snapshot': None,
        }
        done = mock.Mock()
        self.manager.app = self.manager.adm.mysql_app = done.app
        self.manager.status = done.status
        self.manager._replication = done.replication
        self.manager.adm.is_root_enabled = lambda: facts.pop('root', False)
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.guestagent.restored_server.RestoredServer',
                lambda _app, data_dir, not_persisted: mock.Mock(
                    start=lambda *given: done.start(data_dir, *given, *not_persisted)
                ),
            )
        )
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.datastore.mysql_common.manager.MySqlManager.do_prepare',
                stock_do_prepare(done.stock),
            )
        )
        given = {name: facts.get(name, value) for name, value in values.items()}
        self.manager.do_prepare('context', *given.values(), ds_version='9.7.4')
        return done.mock_calls

    def test_restored_server_is_started_once(self):
        self.assertEqual(
            [
                mock.call.app.stop_db(),
                mock.call.app.set_data_dir('/var/lib/mysql/data'),
                mock.call.app.configuration_manager.reset_configuration('[mysqld]'),
                mock.call.app.update_overrides({'max_connections': 7}),
                mock.call.start('/var/lib/mysql/data', '9.7.4', '--datadir=/var/lib/mysql/data'),
            ],
            self.prepare(),
        )

    def test_restored_server_whose_tenant_had_root(self):
        self.assertEqual(mock.call.status.report_root('context'), self.prepare(root=True)[-1])

    def test_other_instances_are_prepared_by_trove(self):
        for backup_info in (None, {'id': 'b', 'storage_driver': 'swift'}):
            ((name, arguments, options),) = self.prepare(backup_info=backup_info)
            self.assertEqual(('stock', 'context'), (name, arguments[0]))
            self.assertEqual(13, len(arguments))
            self.assertEqual({'ds_version': '9.7.4'}, options)

    def start_on_volume(self, method, *arguments, error=None, is_running_there=False):
        """Start on a moved volume; return the answer, and the actions in order."""
        done = mock.Mock()
        self.volume.mount_point = '/var/lib/mysql'
        self.manager.app = done.app
        self.manager.status = done.status
        self.manager.status.is_installed = is_running_there
        done.app.accepts_clients.return_value = is_running_there
        done.app.find_error.return_value = '[ERROR] unknown variable x'
        done.start.side_effect = error
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.guestagent.moved_server.MovedServer',
                lambda _app, data_dir: mock.Mock(start=lambda *given: done.start(data_dir, *given)),
            )
        )
        self.manager._replication = done.replication
        pending = []
        self.manager._background_start._run_in_background = pending.append
        try:
            answer = getattr(self.manager, method)('context', *arguments)
        except RuntimeError as raised:
            return raised, done.mock_calls
        for function in pending:
            function()
        return answer, done.mock_calls

    STARTED = (
        mock.call.status.begin_install(),
        mock.call.app.set_data_dir('/var/lib/mysql/data'),
        mock.call.app.configuration_manager.reset_configuration('[mysqld]'),
        mock.call.app.update_overrides({'max_connections': 7}),
        mock.call.start('/var/lib/mysql/data', '9.7.4', '--datadir=/var/lib/mysql/data'),
    )
    FOLLOWS = mock.call.replication.follow_under_own_identity(mock.ANY)
    OF_THE_SERVER = ('9.7.4', '[mysqld]', {'max_connections': 7})

    #: Until it is known whether the instance is a replica.
    REFUSES_WRITES = mock.call.app.configuration_manager.apply_system_override(
        {'mysqld': read_only.REPLICA_OPTIONS}, read_only.REPLICA_CHANGE_ID
    )

    def test_rebuilt_server(self):
        _answer, done = self.start_on_volume('rebuild', *self.OF_THE_SERVER)
        ended = mock.call.status.end_install(error_occurred=False)
        known = mock.call.replication.accept_writes_without_source(self.manager.app)
        self.assertEqual([self.REFUSES_WRITES, *self.STARTED, self.FOLLOWS, ended, known], done)

    def test_rebuilt_server_that_does_not_start(self):
        error, done = self.start_on_volume('rebuild', *self.OF_THE_SERVER, error=RuntimeError())
        self.assertIsInstance(error, RuntimeError)
        ended = mock.call.status.end_install(error_occurred=True)
        self.assertEqual([self.REFUSES_WRITES, *self.STARTED, ended], done)

    def start_moved(self, **options):
        arguments = ('a-replacement', *self.OF_THE_SERVER)
        return self.start_on_volume('start_moved_server', *arguments, **options)

    def test_moved_server(self):
        answer, done = self.start_moved()
        self.assertEqual({'state': 'starting', 'error': ''}, answer)
        ended = mock.call.status.end_install(error_occurred=False)
        self.assertEqual([*self.STARTED, self.FOLLOWS, ended], done)
        answer, done = self.start_moved()
        self.assertEqual(({'state': 'serving', 'error': ''}, []), (answer, done))

    def test_moved_server_that_does_not_start(self):
        """From then on, the agent reports its status, which the tenant may repair."""
        _answer, done = self.start_moved(error=RuntimeError('Failed to start mysql'))
        self.assertEqual(
            [
                *self.STARTED,
                mock.call.status.end_install(error_occurred=True),
                mock.call.status.set_ready(),
                mock.call.app.find_error(),
            ],
            done,
        )
        answer, done = self.start_moved()
        error = 'Failed to start mysql: [ERROR] unknown variable x'
        self.assertEqual(({'state': 'failed', 'error': error}, []), (answer, done))
        _answer, done = self.start_moved()
        self.assertEqual(mock.call.status.end_install(error_occurred=False), done[-1])

    def test_moved_server_after_a_restart_of_the_agent(self):
        answer, done = self.start_moved(is_running_there=True)
        self.assertEqual({'state': 'serving', 'error': ''}, answer)
        self.assertEqual([mock.call.app.accepts_clients()], done)

    def test_certificates_of_a_moved_server(self):
        CONF.set_override('ssl_mode', 'basic')
        self.addCleanup(CONF.clear_override, 'ssl_mode')
        enabled = mock.Mock()
        self.manager._read_ssl_files = lambda: 'the files'
        self.manager.enable_ssl_certificate = enabled
        self.start_on_volume('rebuild', *self.OF_THE_SERVER)
        enabled.assert_called_once_with(
            'basic', 'the files', apply_overrides=False, is_startup=True
        )

    def watch(self, is_installed=True, mount=('/dev/vdb', 'xfs')):
        self.manager.status = mock.Mock(is_installed=is_installed)
        self.manager._storage = storage = mock.Mock()
        storage.find_mount.return_value = mount
        storage.start_volume_watch.return_value = (mock.Mock(), mock.Mock())
        self.volume.mount_point = '/var/lib/mysql'
        self.manager.watch_data_volume(None)
        return storage.start_volume_watch

    def test_the_volume_of_an_installed_server_is_watched(self):
        self.assertIn('watch_data_volume', [name for name, _ in manager.Manager._periodic_tasks])
        self.watch(is_installed=False).assert_not_called()
        self.watch(mount=None).assert_not_called()
        self.watch().assert_called_once_with('/var/lib/mysql', 90)

    def test_the_watch_is_off(self):
        self.option('cut_off_sec', 0)
        self.watch().assert_not_called()

    def test_the_watch_is_paused_for_an_unmount(self):
        events = mock.Mock()
        self.manager._watch = events.watch
        self.volume.ensure_unmounted = events.unmount
        self.manager.unmount_volume(None)
        paused = mock.call.watch.pause(manager._UNMOUNT_TIMEOUT_SEC)
        self.assertEqual([paused, mock.call.unmount()], events.mock_calls)

    def test_online_resize_grows_and_retunes_the_running_server(self):
        self.option('volume_grow_timeout_sec', 17)
        self.manager.app.apply_volume_settings = mock.Mock()

        self.manager.resize_fs(None, '/dev/vdb', '/var/lib/mysql', online=True)

        self.volume.grow.assert_called_once_with(17)
        self.manager.app.apply_volume_settings.assert_called_once_with(
            self.configuration.retune.return_value
        )

    def test_offline_resize_leaves_the_stopped_server_alone(self):
        self.manager.app.apply_volume_settings = mock.Mock()

        self.manager.resize_fs(None, '/dev/vdb', '/var/lib/mysql', online=False)

        self.configuration.retune.assert_called_once_with()
        self.manager.app.apply_volume_settings.assert_not_called()

    def test_failed_resize_changes_no_setting(self):
        self.volume.grow.side_effect = exceptions.VolumeNotReadyError('still 10 GiB')

        self.assertRaises(
            exceptions.VolumeNotReadyError,
            self.manager.resize_fs,
            None,
            '/dev/vdb',
            '/var/lib/mysql',
            online=True,
        )

        self.configuration.retune.assert_not_called()

    def test_mounting_as_trove_requests_it(self):
        self.manager.mount_volume(None, '/dev/vdc', '/mnt', write_to_fstab=False)

        data_volume.DataVolume.assert_called_with('/dev/vdc', '/mnt', self.manager._storage)
        self.volume.ensure_mounted.assert_called_once_with(at_boot=False)
        self.volume.configure_queue.assert_called_once_with(4096)

    def test_unmounting(self):
        self.manager.unmount_volume(None, '/dev/vdb', '/var/lib/mysql')

        self.volume.ensure_unmounted.assert_called_once_with()

    def bound(self, installed, state):
        self.manager.status = mock.Mock(is_installed=installed)
        self.manager.status.is_running = state == service_status.ServiceStatuses.HEALTHY
        self.manager.app.purge_binary_logs = purge = mock.Mock()
        self.manager.bound_binary_logs(None)
        return purge

    def test_binary_logs_are_bounded_by_the_volume(self):
        self.bound(True, service_status.ServiceStatuses.HEALTHY).assert_called_once_with(
            15 * GIB_MIB * units.Mi
        )

    def test_no_purging_without_a_running_server(self):
        self.bound(False, service_status.ServiceStatuses.HEALTHY).assert_not_called()
        self.bound(True, service_status.ServiceStatuses.SHUTDOWN).assert_not_called()

    def test_purging_is_a_periodic_task(self):
        self.assertIn('bound_binary_logs', [name for name, _ in manager.Manager._periodic_tasks])

    def _trimmer(self):
        self.manager._trimmer = mock.create_autospec(volume_trim.VolumeTrimmer, instance=True)
        return self.manager._trimmer

    def test_trimming_is_a_periodic_task_of_an_installed_database(self):
        self.assertIn('trim_data_volume', [name for name, _ in manager.Manager._periodic_tasks])
        trimmer = self._trimmer()
        self.configuration.has_system_override.return_value = False
        self.manager.status = mock.Mock(is_installed=False)
        self.manager.trim_data_volume(None)
        trimmer.trim_if_due.assert_not_called()
        self.manager.status.is_installed = True
        self.manager.trim_data_volume(None)
        trimmer.trim_if_due.assert_called_once_with()

    def test_trimming_on_request(self):
        trimmer = self._trimmer()
        self.configuration.has_system_override.return_value = False
        self.assertIs(
            trimmer.trim_unless_recent.return_value,
            self.manager.trim_volume(None, max_age_sec=900),
        )
        trimmer.trim_unless_recent.assert_called_once_with(900)

    def test_a_replica_is_not_trimmed(self):
        """Its volume is a clone, where a discard creates objects instead of deleting them."""
        trimmer = self._trimmer()
        self.manager.status = mock.Mock(is_installed=True)
        self.configuration.has_system_override = read_only.REPLICA_CHANGE_ID.__eq__
        self.manager.trim_data_volume(None)
        self.assertFalse(self.manager.trim_volume(None, max_age_sec=900))
        trimmer.trim_if_due.assert_not_called()
        trimmer.trim_unless_recent.assert_not_called()

    def test_trimming_pauses_for_backups(self):
        events = mock.Mock()
        self.manager._trimmer = events.trimmer
        self.manager._quiescer = events.quiescer
        events.quiescer.release.return_value = {'level': 'freeze'}
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.guestagent.backup_settings.check', events.check)
        )
        self.manager.check_backup_settings(None)
        self.manager.quiesce_for_backup(None, 'a', 'a-token', 'freeze', 20)
        self.manager.release_after_backup(None, 'a', 'a-token')
        self.manager.unmount_volume(None)
        self.assertEqual(
            [
                *('trimmer.pause', 'check'),
                *('trimmer.pause', 'quiescer.quiesce'),
                *('quiescer.release', 'trimmer.resume'),
                'trimmer.pause',
            ],
            [name for name, _, _ in events.method_calls],
        )

    def test_release_without_a_hold_does_not_resume_trims(self):
        trimmer = self._trimmer()
        self.manager.release_after_backup(None, 'another', 'a-token')
        trimmer.resume.assert_not_called()

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
