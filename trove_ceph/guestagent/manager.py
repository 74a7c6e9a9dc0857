# SPDX-License-Identifier: Apache-2.0
"""Guest datastore manager, named by ``registry_ext`` of a datastore version.

It only delegates: to :mod:`data_volume` for the volume, :mod:`tuning` for sizes, :mod:`quiesce` for
backups, :mod:`restored_server` for the first start on a backup's data, :mod:`hot_server` for a
server that ran before the instance, :mod:`moved_server` for the first start on another server's
volume, :mod:`replication` for replicas, :mod:`accounts` for users, :mod:`volume_watch` for the end
of a server that lost its volume, and to Trove for the rest.
"""

import contextlib
import functools
import inspect
import socket
import subprocess

import docker
from oslo_log import log as logging
from oslo_service import periodic_task
from oslo_utils import units
from trove.common import cfg
from trove.guestagent.datastore.mysql import manager as mysql_manager
from trove.guestagent.datastore.mysql_common import manager as common_manager

from trove_ceph import exceptions
from trove_ceph.conf import guest as guest_conf
from trove_ceph.guestagent import (
    accounts,
    backup_lock,
    backup_settings,
    hot_server,
    instance_volume,
    interface_wait,
    machine_identity,
    machine_size,
    moved_server,
    quiesce,
    read_only,
    replication,
    replication_status,
    restored_server,
    semi_sync,
    server,
    server_config,
    server_status,
    settings_history,
    volume_freeze,
    volume_trim,
    volume_watch,
)
from trove_ceph.host import data_volume, filesystem
from trove_ceph.mysql import tuning
from trove_ceph.trove_compat import mysql_tls

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

# From the check of the settings until the snapshot exists, on a busy control plane.
_SNAPSHOT_SEC = 30
# The unmount follows at once.
_UNMOUNT_SEC = 10
# The command's time limit, and some more.
_UNMOUNT_TIMEOUT_SEC = 120
_STATUS_TIMEOUT_SEC = 10
# Docker starts a container in seconds, but where the processors are taken it takes longer than the
# minute that its client waits. The start would count as failed, although docker carries it out.
_DOCKER_TIMEOUT_SEC = 180

#: Value of ``registry_ext`` for the datastore versions of this manager.
REGISTRY_EXT = 'trove_ceph.guestagent.manager.Manager'


class Manager(mysql_manager.Manager):
    """Trove's MySQL manager on a Ceph volume.

    :raises InterfaceNotReadyError: an interface of the new instance was not ready in time
    """

    def __init__(self):
        guest_conf.register(CONF)
        self._storage = filesystem.HostStorage()
        status = server_status.ServerStatus(
            self.docker_client, lambda if_refused: self.app.accepts_clients(if_refused)
        )
        app = server.MySqlServer(
            status,
            self.docker_client,
            measure=functools.partial(machine_size.measure, self._volume),
            server_id=server_config.server_id_of(CONF.guest_id or ''),
        )
        # Trove's MySQL manager takes no application object, its base class does.
        common_manager.MySqlManager.__init__(self, app, status, accounts.Accounts(app))
        self._quiescer = quiesce.Quiescer(
            self._open_lock, self._open_freeze, CONF.trove_ceph.quiesce_max_sec
        )
        self._trimmer = volume_trim.VolumeTrimmer(self._volume, CONF.trove_ceph.trim_interval_sec)
        self._watch = volume_watch.VolumeWatch(self._start_watch)
        self._settings_history = settings_history.SettingsHistory()
        self._background_start = moved_server.BackgroundStart(self._is_serving)
        self._replication = replication.CloneReplication()
        if status.is_installed:
            app.configuration_manager.restore()
        # Trove listens once it has the manager.
        interface_wait.finish()

    @functools.cached_property
    def docker_client(self):
        """Docker on this machine, which gets more time than Trove gives it."""
        return docker.from_env(timeout=_DOCKER_TIMEOUT_SEC)

    @property
    def replication(self):
        """The strategy of replicas, also of instances that were created with another one."""
        return self._replication

    def get_service_status(self):
        """Return the status of the server.

        Trove asks it by its pool first, without a time limit: a server that accepts connections but
        never answers would end the reports of the agent, and its other periodic tasks.
        """
        return self.status.get_reported_status()

    def upgrade(self, context, upgrade_info):
        """Upgrade MySQL in place; until the end it is not reported as healthy."""
        with self.status.of_upgrade():
            super().upgrade(context, upgrade_info)

    def do_prepare(self, context, *arguments, **options):
        """Prepare the instance as Trove does, unless its volume has a backup's data.

        For a restore, Trove would start the server three times, and its statements about its own
        accounts would become errant transactions.
        """
        # The first start frees many blocks that it has written.
        self._trimmer.schedule_soon()
        given = inspect.signature(super().do_prepare).bind(context, *arguments, **options).arguments
        backup_info, snapshot = given['backup_info'], given['snapshot']
        if not backup_info or backup_info.get('storage_driver') != 'cinder':
            super().do_prepare(context, *arguments, **options)
            return
        data_dir = f'{given["mount_point"]}/data'

        def configure():
            self._configure(data_dir, given['config_contents'])
            self.app.update_overrides(given['overrides'])

        server_id = server_config.server_id_of(CONF.guest_id)
        if backup_info.get('is_hot'):
            # First, since the settings depend on the size, of which a taskmanager of an earlier
            # release does not tell.
            self._volume().ensure_size(
                backup_info.get('volume_gib', 0) * units.Gi,
                CONF.trove_ceph.volume_ready_timeout_sec,
            )
            if hot_server.adopt(self.app, server_id, configure):
                return
        self.app.stop_db()
        configure()
        self._start_clone(given.get('ds_version'), data_dir, snapshot)
        # The taskmanager records that of a replica, as that of its source.
        if not snapshot and self.adm.is_root_enabled():
            self.status.report_root(context)

    def start_without_instance(self, load):
        """Mount a clone of a golden volume and start the server, before there is an instance."""
        instance_volume.prepare(self._storage, load.volume_id)
        data_dir = f'{self._volume().mount_point}/data'
        self._configure(data_dir, load.contents)
        self._start_clone(load.version, data_dir, None)

    def is_serving_without_instance(self):
        """Return whether the server accepts clients; nothing is reported to Trove."""
        return self.app.accepts_clients()

    def _configure(self, data_dir, contents):
        # This creates the directory for the rest of the configuration.
        self.app.set_data_dir(data_dir)
        self.app.configuration_manager.reset_configuration(contents)

    def _start_clone(self, ds_version, data_dir, replica_info):
        """Start the server with a new identity; one that becomes a replica follows its source."""
        self._volume().mark_clone()
        if replica_info:
            mysql_tls.enable_of_source(self, replica_info)
            # It must refuse writes before the first client comes.
            read_only.configure_replica(self.app)
        restored_server.RestoredServer(self.app, data_dir, is_replica=bool(replica_info)).start(
            ds_version, self.get_start_db_params(data_dir)
        )
        if replica_info:
            self.replication.connect_to_master(self.app, replica_info)

    def rebuild(self, context, ds_version, config_contents=None, config_overrides=None):
        """Start the server on the volume of this instance, whose root disk is new.

        It refuses writes until the taskmanager has it accept them (:meth:`make_read_only`). Only
        that one knows whether it is a source: a former source may have no channel yet.
        """
        # The old root disk had the options of a replica, if it is one.
        read_only.configure_replica(self.app)
        try:
            self._start_on_volume(ds_version, config_contents, config_overrides)
        except Exception:
            # It may serve later, such as after a long recovery, and is reported then.
            self.status.set_ready()
            raise

    def restart(self, context):
        """Restart the server; mount its volume, which a rebuild that Nova refused has unmounted."""
        self._volume().ensure_mounted()
        super().restart(context)

    def start_db_with_conf_changes(self, context, config_contents, ds_version):
        """Start the server with another base file, as :meth:`restart`."""
        self._volume().ensure_mounted()
        super().start_db_with_conf_changes(context, config_contents, ds_version)

    def start_moved_server(
        self,
        context,
        replacement_id,
        ds_version,
        config_contents,
        config_overrides,
        server_id=None,
        is_replica=False,
        semi_sync_options=None,
    ):
        """Start the server on the volume of this instance, which another one had before.

        Does not wait for it. A request with the same id starts it again only if it failed.

        :param server_id: of the server in Nova that is meant; None: the instance has only one
        :param is_replica: it refuses writes from the first moment on, and follows its source
        :param semi_sync_options: the arguments of :func:`.semi_sync.configure`; None: both sides
            stay as they are configured
        :returns: ``state``, one of ``starting``, ``serving`` and ``failed``; ``error``: why it does
            not start; ``server_id``: of this server, if it was given
        :raises GuestUnavailableError: this is another server; nothing is started
        """
        own = {} if server_id is None else {'server_id': machine_identity.check(server_id)}
        answer = self._background_start.request(
            replacement_id,
            lambda: self._start_in_background(
                *(ds_version, config_contents, config_overrides),
                before=lambda: replication.configure(self.app, is_replica, semi_sync_options),
            ),
        )
        return answer | own

    def start_replica(
        self,
        context,
        request_id,
        ds_version,
        config_contents,
        config_overrides,
        replica_info,
    ):
        """Start the server on a fresh clone of its source, and follow; as start_moved_server."""
        return self._background_start.request(
            f'replica-{request_id}',
            lambda: self._start_replica(
                request_id, ds_version, config_contents, config_overrides, replica_info
            ),
            lambda: self.replication.is_done(self.app, request_id) and self._is_serving(),
        )

    def _start_replica(self, request_id, ds_version, contents, overrides, replica_info):
        # Docker may have started it, with the identity of the server that was cloned.
        self.app.stop_db()
        self._start_in_background(ds_version, contents, overrides, replica_info)
        self.replication.set_request(self.app, request_id)

    def _start_in_background(self, ds_version, contents, overrides, replica_info=None, before=None):
        try:
            self._volume().prepare_replacement(
                CONF.trove_ceph.volume_ready_timeout_sec, CONF.trove_ceph.read_ahead_kib
            )
            if before is not None:
                before()
            self._start_on_volume(ds_version, contents, overrides, replica_info)
        except Exception as error:
            # From now on, the agent reports the status of a server that the tenant repairs.
            self.status.set_ready()
            reason = self.app.find_error()
            message = f'{error}: {reason}' if reason else str(error)
            raise exceptions.ServerFailedError(message) from error

    def _start_on_volume(self, ds_version, config_contents, config_overrides, replica_info=None):
        """Configure and start the server as Trove does, but also if its passwords do not work.

        :param replica_info: of the volume that is a fresh clone; None: it is the instance's own
        """
        self.status.begin_install()
        self.prepare_error = True
        data_dir = f'{self._volume().mount_point}/data'
        try:
            self._configure(data_dir, config_contents)
            self.app.update_overrides(config_overrides)
            mysql_tls.enable_own(self, CONF)
            if replica_info:
                self._start_clone(ds_version, data_dir, replica_info)
            else:
                self.replication.prepare_start(self.app, data_dir)
                moved_server.MovedServer(self.app, data_dir).start(
                    ds_version, self.get_start_db_params(data_dir)
                )
                self.replication.follow_under_own_identity(self.app)
            self.prepare_error = False
        finally:
            self.status.end_install(error_occurred=self.prepare_error)

    def release_volume(self, context):
        """Stop the server and unmount the data volume, for another one; idempotent."""
        self.app.stop_db()
        self.unmount_volume(context)
        self._background_start.forget()

    def attach_replica(self, context, replica_info, slave_config, **kwargs):
        """Have the running server follow a source; Trove's method logs the password."""
        self.replication.enable_as_slave(self.app, replica_info, slave_config)

    def get_replica_context(self, context, replica_id=None):
        """Create or renew the user of a replica; return how to follow this server."""
        answer = self.replication.get_replica_context(self.app, self.adm, replica_id)
        return answer | mysql_tls.own_certificates(self, CONF)

    def drop_replication_users(self, context, keep_replica_ids):
        """Drop the replication users of all replicas except of those."""
        self.replication.drop_users(self.app, keep_replica_ids)

    def get_replication_status(self, context):
        """Return positions, threads, errors and lag of the server."""
        with contextlib.closing(self.app.open_connection(_STATUS_TIMEOUT_SEC)) as connection:
            return replication_status.read(connection)

    def make_read_only(self, context, read_only):
        """Have the running server refuse or accept writes, also after a restart; idempotent."""
        self.replication.make_read_only(self.app, read_only)

    def wait_for_gtid(self, context, gtid_set, wait_sec):
        """Return whether the server executes a GTID set within the time, at most 30 s."""
        return self.replication.wait_for_gtid(self.app, gtid_set, wait_sec)

    def stop_receiving(self, context):
        """Have a replica receive no more transactions; it applies what it has received."""
        self.replication.stop_receiving(self.app)

    def set_semi_sync(self, context, as_source, as_replica, timeout_ms):
        """Switch semi-synchronous replication on or off, without a restart; idempotent."""
        semi_sync.switch(self.app, as_source, as_replica, timeout_ms)

    @periodic_task.periodic_task(spacing=10)
    def resume_replication(self, context):
        """Start replication that a restart of the server has ended."""
        if self.status.is_installed and self.status.is_running:
            self.replication.resume(self.app)

    def apply_overrides(self, context, overrides):
        """Apply options to the running server, but those with which a replica refuses writes."""
        super().apply_overrides(context, read_only.allowed(self.app, overrides))

    def mount_volume(self, context, device_path=None, mount_point=None, write_to_fstab=False):
        """Mount the data volume; idempotent."""
        volume = self._volume(device_path, mount_point)
        volume.configure_queue(CONF.trove_ceph.read_ahead_kib)
        volume.ensure_mounted(at_boot=write_to_fstab)

    def unmount_volume(self, context, device_path=None, mount_point=None):
        """Unmount the data volume; idempotent."""
        self._trimmer.pause(_UNMOUNT_SEC)
        self._watch.pause(_UNMOUNT_TIMEOUT_SEC)
        self._volume(device_path, mount_point).ensure_unmounted()

    def resize_fs(self, context, device_path=None, mount_point=None, online=False):
        """Grow the file system to the volume's new size, and adapt MySQL's logs and I/O to it.

        The file system is always grown while it is mounted. After an offline resize it stays
        mounted, so Trove's following call of :meth:`mount_volume` changes nothing.
        """
        configured = self.app.configuration_manager
        volume = self._volume(device_path, mount_point)
        volume.grow(CONF.trove_ceph.volume_grow_timeout_sec, configured.tuned_volume_mib())
        computed = configured.retune()
        if online:
            self.app.apply_volume_settings(computed)

    def apply_tier(self, context, tier):
        """Store the I/O rate of the storage tier and adapt the settings to it without a restart.

        :param tier: the fields of tuning.Tier; None: the tier promises no rate
        :returns: whether the rate differs from the stored one
        """
        rate = None if tier is None else tuning.Tier(**tier)
        configured = self.app.configuration_manager
        if rate == configured.stored_tier():
            return False
        self.app.apply_volume_settings(configured.retune_for(rate))
        # Last: a repetition completes what has failed.
        configured.store_tier(rate)
        return True

    def check_backup_settings(self, context):
        """Return the reasons why a snapshot of the running instance would not be a backup."""
        self._trimmer.pause(_SNAPSHOT_SEC)
        return backup_settings.check(
            self.app.open_connection,
            self._storage,
            self._volume().mount_point,
            history=self._settings_history,
        )

    def trim_volume(self, context, max_age_sec):
        """Start a trim of the volume unless one ended less than ``max_age_sec`` ago.

        :returns: whether a trim was started; it continues after the answer
        """
        return self._can_trim() and self._trimmer.trim_unless_recent(max_age_sec)

    @periodic_task.periodic_task(spacing=60)
    def trim_data_volume(self, context):
        """Start a trim of the volume if one is due."""
        if self.status.is_installed and self._can_trim():
            self._trimmer.trim_if_due()

    def record_flattened(self, context):
        """Record that the volume has all its data, and trim it from now on; idempotent."""
        self._volume().unmark_clone()

    def _can_trim(self) -> bool:
        """Return whether a trim frees space.

        A discard of what a clone reads from its parent frees nothing: librbd creates an empty
        object for it, which hides the data of the parent and counts as space of the clone. A
        replica of an agent of an earlier release has no mark.
        """
        return not read_only.is_configured_replica(self.app) and not self._volume().is_clone()

    @periodic_task.periodic_task(spacing=20)
    def watch_data_volume(self, context):
        """Have a server end that is cut off from its mounted volume."""
        if not CONF.trove_ceph.cut_off_sec or not self.status.is_installed:
            return
        if self._storage.find_mount(self._volume().mount_point):
            self._watch.ensure_running()

    def quiesce_for_backup(self, context, backup_id, token, level, limit_sec):
        """Quiesce the instance for one attempt at a backup, for at most ``limit_sec``."""
        # The time until the instance is quiesced, and then that of the hold.
        waits_sec = CONF.trove_ceph.quiesce_wait_sec + volume_freeze.START_TIMEOUT_SEC
        self._trimmer.pause(waits_sec + CONF.trove_ceph.quiesce_max_sec)
        return self._quiescer.quiesce(backup_id, token, level, limit_sec)

    def release_after_backup(self, context, backup_id, token):
        """Release the instance; return whether this attempt held it until now."""
        answer = self._quiescer.release(backup_id, token)
        # Without a level another attempt may hold the instance.
        if answer['level'] is not None:
            self._trimmer.resume()
        return answer

    @periodic_task.periodic_task(spacing=60)
    def observe_backup_settings(self, context):
        """Record the settings on which backups depend, so that a later check can prove them."""
        if self.status.is_installed and self.status.is_running:
            backup_settings.observe(self.app.open_connection, self._settings_history)

    @periodic_task.periodic_task(spacing=60)
    def bound_binary_logs(self, context):
        """Purge binary logs that exceed their share of the volume."""
        if not self.status.is_installed or not self.status.is_running:
            return
        size_mib = self._volume().size_mib()
        self.app.purge_binary_logs(tuning.binlog_budget_mib(size_mib) * units.Mi)

    def _is_serving(self) -> bool:
        return bool(self.status.is_installed) and self.app.accepts_clients()

    def _volume(
        self, device_path: str | None = None, mount_point: str | None = None
    ) -> data_volume.DataVolume:
        return instance_volume.configured(self._storage, device_path, mount_point)

    def _open_lock(self, hold_sec: int) -> backup_lock.BackupLock:
        wait_sec = CONF.trove_ceph.quiesce_wait_sec
        return backup_lock.BackupLock(self.app.open_connection, wait_sec, hold_sec)

    def _open_freeze(self, limit_sec: float) -> volume_freeze.VolumeFreeze:
        process, channel = self._storage.start_freeze_process(self._volume().mount_point, limit_sec)
        return volume_freeze.VolumeFreeze(process, channel, limit_sec)

    def _start_watch(self) -> tuple[subprocess.Popen, socket.socket]:
        return self._storage.start_volume_watch(
            self._volume().mount_point, CONF.trove_ceph.cut_off_sec
        )
