# SPDX-License-Identifier: Apache-2.0
"""What the guest manager does with the data volume."""

from unittest import mock

import fixtures
from oslo_utils import units
from trove.instance import service_status

from trove_ceph import exceptions
from trove_ceph.guestagent import manager, read_only, volume_trim
from trove_ceph.host import data_volume
from trove_ceph.tests.unit.guestagent import manager_world


class ManagerVolumeTest(manager_world.ManagerTestCase):
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
        self.configuration.tuned_volume_mib.return_value = 10240
        self.manager.app.apply_volume_settings = mock.Mock()

        self.manager.resize_fs(None, '/dev/vdb', '/var/lib/mysql', online=True)

        self.volume.grow.assert_called_once_with(17, 10240)
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

    def test_a_restart_mounts_what_a_refused_rebuild_has_unmounted(self):
        done = mock.Mock()
        self.volume.ensure_mounted = done.mount
        self.manager.app = done.app
        self.manager.restart(None)
        self.manager.start_db_with_conf_changes(None, '[mysqld]', '9.7.4')
        self.assertEqual(
            [
                mock.call.mount(),
                mock.call.app.restart(),
                mock.call.mount(),
                mock.call.app.start_db_with_conf_changes('[mysqld]', '9.7.4'),
            ],
            done.mock_calls,
        )

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
            15 * manager_world.GIB_MIB * units.Mi
        )

    def test_no_purging_without_a_running_server(self):
        self.bound(False, service_status.ServiceStatuses.HEALTHY).assert_not_called()
        self.bound(True, service_status.ServiceStatuses.SHUTDOWN).assert_not_called()

    def test_purging_is_a_periodic_task(self):
        self.assertIn('bound_binary_logs', [name for name, _ in manager.Manager._periodic_tasks])

    def _trimmer(self):
        self.volume.is_clone.return_value = False
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

    def test_a_clone_is_trimmed_once_it_is_flattened(self):
        trimmer = self._trimmer()
        self.manager.status = mock.Mock(is_installed=True)
        self.configuration.has_system_override.return_value = False
        self.volume.is_clone.return_value = True
        self.volume.unmark_clone = lambda: self.volume.is_clone.configure_mock(return_value=False)
        self.manager.trim_data_volume(None)
        self.assertFalse(self.manager.trim_volume(None, max_age_sec=900))
        trimmer.trim_if_due.assert_not_called()
        trimmer.trim_unless_recent.assert_not_called()
        self.manager.record_flattened(None)
        self.manager.trim_data_volume(None)
        trimmer.trim_if_due.assert_called_once_with()

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
