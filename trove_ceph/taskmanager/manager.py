# SPDX-License-Identifier: Apache-2.0
"""Trove's taskmanager on Ceph, for ``[DEFAULT] taskmanager_manager``.

It only delegates: to :mod:`trove_ceph.strategies`, and to Trove's own manager for what is not ours,
such as a backup in Swift or a volume on no tier.
"""

import contextlib
import datetime
import functools
from typing import Any

from oslo_log import log as logging
from oslo_service import periodic_task
from trove.common import cfg, notification
from trove.taskmanager import manager

from trove_ceph import exceptions, steps
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import claims, failover_policies, replicas, work_queue
from trove_ceph.db import replacements as replacement_store
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.storage_service import transport as storage_transport
from trove_ceph.strategies.backup import (
    backup_types,
    create,
    delete,
    expire_unstarted,
    instance_deletion,
    queue_worker,
    recovery,
    tenant_errors,
    volume_cleanup,
)
from trove_ceph.strategies.policies import scheduler
from trove_ceph.strategies.restore import cloned_volume, flatten
from trove_ceph.taskmanager import (
    background,
    factory,
    failover,
    golden_volume,
    guest_factory,
    hot_guests,
    instance_operations,
    metrics_exporter,
    ownership,
    replacement_factory,
    replacement_requests,
    replication,
    replication_factory,
    replication_watch,
    restored_volume,
    source_changes_factory,
    stock_backups,
    tier_settings,
    warm_guests,
)
from trove_ceph.trove_adapter import (
    backup_api,
    instance_creation,
    limited_clients,
    notifications,
    service_context,
    trove_db,
)
from trove_ceph.trove_adapter import instance_deletion as trove_adapter_instance_deletion
from trove_ceph.trove_compat import check, hooks, strict_rpc

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

_SPACING_SEC = 300
_POLICIES_SPACING_SEC = 60
#: The interval of the thread that continues interrupted operations and starts due jobs.
_WORK_SPACING_SEC = 10
#: The interval of the threads that continue replacements of servers and re-provisionings.
_REPLACEMENTS_SPACING_SEC = 2
_PRUNING_SPACING_SEC = 3600
#: The interval of the thread that keeps the pools of warm guests.
_GUESTS_SPACING_SEC = 10
#: Recovery has its own threads, since it must not wait for a copy that takes hours.
_RECOVERIES_AT_ONCE = 4


class Manager(manager.Manager):
    """Trove's manager; its backups outlive instances, at a cost independent of their size."""

    def __init__(self):
        taskmanager_conf.register(CONF)
        check.check(hooks.TASKMANAGER)
        strict_rpc.use_in_taskmanager(CONF)
        limited_clients.use(CONF)
        # Fail at the start if a quiesce level is unknown, a pool of warm guests is written wrongly,
        # or guests can reach the storage service.
        factory.backup_settings(CONF)
        guest_factory.pools(CONF)
        guest_factory.hot_volume(CONF)
        storage_transport.check(CONF)
        self._metrics = metrics_exporter.MetricsExporter(CONF)
        self._notifications = notifications.Notifications(CONF)
        super().__init__()
        # Created at first use, since the services need not be up when this process starts. Not
        # properties, since Trove's profiler reads all properties at the start.
        self._deps = functools.cache(
            functools.partial(factory.make_dependencies, CONF, self.admin_context)
        )
        self._ownership = ownership.Ownership(self._deps)
        self._tier_settings = functools.cache(
            functools.partial(factory.make_tier_settings, CONF, self._deps)
        )
        self._operations = functools.cache(lambda: factory.make_instance_operations(self._deps()))
        self._claims = instance_operations.OptionalClaims(self._operations)
        self._source_requests = source_changes_factory.make_source_requests(
            CONF, self.admin_context, self._deps, self._operations, self._ownership.backs_up
        )
        self._unchecked_requests = source_changes_factory.make_unchecked_requests(self._operations)
        self._policy_deps = functools.cache(
            lambda: factory.make_policy_dependencies(CONF, self._deps())
        )
        self._unstarted = expire_unstarted.UnstartedBackups()
        # Long jobs have threads of their own, so that they do not delay the policies.
        options = CONF.trove_ceph_backup
        self._recovery_threads = queue_worker.WorkerThreads(_RECOVERIES_AT_ONCE)
        self._queue_threads = {
            Role.COPY: queue_worker.WorkerThreads(options.copies_at_once),
            Role.VERIFY: queue_worker.WorkerThreads(options.verifications_at_once),
        }
        self._limits = {
            Role.COPY: work_queue.QueueLimits(options.copies_per_hour),
            Role.VERIFY: work_queue.QueueLimits(options.verifications_per_hour),
        }
        # Trove's own loop runs every report_interval seconds (30), and waits for long tasks.
        self._background = background.Background(
            _WORK_SPACING_SEC, (self._recover, self._recover_instances, self._start_due_jobs)
        )
        self._tier_thread = queue_worker.WorkerThreads(1)
        self._guest_keeper = functools.cache(
            lambda: guest_factory.make_keeper(CONF, self.admin_context, self._deps())
        )
        self._warm_guests = functools.cache(
            lambda: guest_factory.make_warm_guests(CONF, self.admin_context, self._deps())
        )
        # A thread of its own: an agent that does not answer holds up a round.
        self._guest_background = background.Background(
            _GUESTS_SPACING_SEC, (lambda: self._guest_keeper().keep(),)
        )
        self._replacement_store = replacement_store.ReplacementStore()
        self._replacement_deps = functools.cache(
            lambda: replacement_factory.make_dependencies(
                CONF, self.admin_context, self._deps(), self._operations
            )
        )
        self._replacements = functools.cache(
            lambda: replacement_factory.make_replacements(
                CONF, self._replacement_deps(), self._deps()
            )
        )
        self._replacement_requests = replacement_requests.ReplacementRequests(
            CONF, self._replacement_deps, self._replacements, self._ownership.backs_up
        )
        self._replacement_background = background.Background(
            _REPLACEMENTS_SPACING_SEC, (lambda: self._replacements().start_due(),)
        )
        self._replication_deps = functools.cache(
            lambda: replication_factory.make_dependencies(CONF, self.admin_context, self._deps())
        )
        self._reprovisionings = functools.cache(
            lambda: replication_factory.make_reprovisionings(
                CONF, self.admin_context, self._replication_deps()
            )
        )
        self._replica_store = replicas.ReplicaStore()
        self._replication = replication.Replication(
            self._replication_deps,
            self._find_warm_guests,
            self._reprovisionings,
            lambda source_id: self._operations().await_changes(source_id),
        )
        # A thread of its own: the replacements must not wait for the clients of this one.
        self._replication_background = background.Background(
            _REPLACEMENTS_SPACING_SEC, (self._replication.reprovision_due,)
        )
        self._failover_thread = failover.FailoverThread(CONF, self._deps)
        self._replication_watch = replication_watch.ReplicationWatchThread(
            CONF,
            self._deps,
            lambda: replication_factory.make_agents(CONF, self.admin_context),
            self._source_requests.resume_replicas,
        )

    def create_instance(self, context, instance_id, **arguments):
        """Create an instance; a restore of our backup takes a time independent of its size."""
        with self._claims.claimed(Role.CREATE_INSTANCE, instance_id) as end_claim:
            self._create(
                *(context, instance_id, arguments),
                functools.partial(self._unchecked_requests.end_creation, end_claim),
            )
        tier_settings.send_to(self._tier_settings, trove_db.TroveDatabase(), instance_id)

    def _create(self, context, instance_id, arguments, end_creation):
        # Trove creates several replicas with one call.
        ids = instance_id if isinstance(instance_id, list) else [instance_id]
        source_id = arguments['slave_of_id']
        if source_id and self._ownership.backs_up(source_id):
            self._replication.create(context, ids, arguments, end_creation)
            return
        if source_id or len(ids) > 1:
            super().create_instance(context, instance_id, **arguments)
            return
        with notification.EndNotification(context, instance_id=instance_id):
            restore = None
            if arguments['backup_id']:
                restore = restored_volume.restore(CONF, self._deps, instance_id, arguments)
            guests, hot, is_golden = self._find_warm_guests(), None, False
            if not arguments['backup_id']:
                make_golden = functools.partial(
                    golden_volume.create, CONF, self._deps, context, instance_id, arguments
                )
                hot, is_golden = hot_guests.Creation(
                    CONF, self._deps, guests, context, instance_id, arguments
                ).claim(make_golden)
            with restore.ending() if restore else contextlib.nullcontext():
                is_shown = instance_creation.create(
                    context, instance_id, arguments, guests, is_golden, hot
                )
            if is_shown:
                end_creation(instance_id)
            if restore or is_golden or hot:
                flatten.flatten_volume(self._deps(), instance_id)

    def _find_warm_guests(self) -> warm_guests.WarmGuests | None:
        if not guest_factory.pools(CONF):
            return None
        try:
            return self._warm_guests()
        except Exception as error:
            # Whatever it is, an instance can be created without a warm guest.
            LOG.warning('Warm guests are not used: %s', error)
            return None

    def create_backup(self, context, backup_info, instance_id):
        """Take a backup."""
        if backup_info.get('storage_driver') != 'cinder' or not self._ownership.backs_up(
            instance_id
        ):
            stock_backups.check_options(self._deps, context, backup_info['id'], instance_id)
            super().create_backup(context, backup_info, instance_id)
            return
        backup_id = backup_info['id']
        with (
            notification.EndNotification(context, backup_id=backup_id),
            tenant_errors.translated_errors(f'backup {backup_id}'),
        ):
            try:
                deps = self._deps()
            except exceptions.TroveCephError:
                trove_db.TroveDatabase().fail_backup(backup_id)
                raise
            create.create_backup(deps, backup_id, backup_api.request_of(context))

    def delete_backup(self, context, backup_id):
        """Delete a backup, but not its children, which are complete without it."""
        record = self._deps().records.find(backup_id)
        if record is None:
            super().delete_backup(context, backup_id)
            return
        with (
            notification.EndNotification(context),
            tenant_errors.translated_errors(f'backup {backup_id}'),
        ):
            if record.state is RecordState.DELETING:
                # The first request has already taken the backup off the used quota.
                self._deps().trove.count_backup(record.project_id)
            delete.delete_backup(self._deps(), backup_id)

    def delete_instance(self, context, instance_id):
        """Delete an instance; keep its backups, and its volume as long as they need it."""
        try:
            self._cancel_replacement(instance_id)
        except exceptions.TroveCephError:
            with (
                notification.EndNotification(context),
                tenant_errors.translated_errors(f'instance {instance_id}'),
            ):
                raise
        instance = trove_db.TroveDatabase().find_instance(instance_id)
        if (
            instance is None
            or instance.volume_id is None
            or not self._ownership.is_on_tier(instance_id)
        ):
            if instance is not None and instance.volume_id is None:
                self._clean_up_creation(instance)
            super().delete_instance(context, instance_id)
            return
        with (
            notification.EndNotification(context),
            tenant_errors.translated_errors(f'instance {instance_id}'),
            self._claims.deleting(instance_id),
        ):
            self._delete_instance(context, instance)

    def resize_flavor(self, context, instance_id, old_flavor, new_flavor):
        """Change the flavor of an instance, on a warm guest if one fits."""
        growth_mib = new_flavor['ram'] - old_flavor['ram']
        with notifications.errors_notified(context):
            self._unchecked_requests.check_resize(
                instance_id, 'the change of the flavor', ram_growth_mib=growth_mib
            )
        if not self._replacement_requests.resize(context, instance_id, old_flavor, new_flavor):
            super().resize_flavor(context, instance_id, old_flavor, new_flavor)

    def resize_volume(self, context, instance_id, new_size):
        """Extend the volume of an instance, unless its server or volume is being replaced."""
        with notifications.errors_notified(context):
            self._unchecked_requests.check_resize(
                instance_id, 'the resize of the volume', size_gib=int(new_size)
            )
        super().resize_volume(context, instance_id, new_size)

    def rebuild(self, context, instance_id, image_id):
        """Give an instance a server of another guest image, on a warm guest if one fits."""
        requests = self._unchecked_requests
        may_rebuild = requests.may_rebuild(instance_id)
        if not may_rebuild or self._replacement_requests.rebuild(instance_id, image_id):
            return
        with requests.rebuilding(instance_id) as is_begun:
            if is_begun:
                super().rebuild(context, instance_id, image_id)
        # At once, so that the server accepts writes.
        self._recover_instances()

    def update_access(self, context, instance_id, access):
        """Change who can reach an instance, unless its server or volume is being replaced."""
        if self._unchecked_requests.refuse(
            instance_id, 'UPDATING', 'the change of the access rules'
        ):
            return
        with self._unchecked_requests.updating_access(instance_id):
            super().update_access(context, instance_id, access)

    def promote_to_replica_source(self, context, instance_id):
        """Make a replica the source, and the source its replica; nothing restarts."""
        if not self._source_requests.promote(context, instance_id):
            super().promote_to_replica_source(context, instance_id)

    def eject_replica_source(self, context, instance_id):
        """Give up a dead source, fenced, for one of its replicas."""
        if not self._source_requests.eject(context, instance_id):
            super().eject_replica_source(context, instance_id)

    def detach_replica(self, context, instance_id):
        """Make a replica an instance of its own."""
        if not self._source_requests.detach(context, instance_id):
            super().detach_replica(context, instance_id)

    def _delete_instance(self, context: Any, instance: backup_types.Instance) -> None:
        self._source_requests.forget(instance.id)
        self._replication.remove_snapshots(instance)
        if instance.volume_id is not None:
            flatten.stop_flattening(self._deps(), instance.volume_id)
        deletion = instance_deletion.InstanceDeletion(
            self._deps(),
            instance,
            functools.partial(
                trove_adapter_instance_deletion.delete_but_volume, context, instance.id
            ),
        )
        steps.run(f'deletion of instance {instance.id}', deletion.steps())

    def run_periodic_tasks(self, context, raise_on_error=False):
        """Run the tasks that are due; the first call starts the threads of this process."""
        self._start_threads()
        return super().run_periodic_tasks(context, raise_on_error)

    @periodic_task.periodic_task(spacing=_POLICIES_SPACING_SEC)
    def expire_unstarted_backups(self, context):
        """Show as failed the backups whose request was lost, and those that had failed unseen."""
        self._unstarted.expire(self._deps())
        expire_unstarted.show_failures(self._deps())

    @periodic_task.periodic_task(spacing=_PRUNING_SPACING_SEC)
    def prune_records(self, context):
        """Delete records of replacements that ended long ago, and policies of deleted instances."""
        self._replacements().prune(datetime.timedelta(days=CONF.trove_ceph_replacement.keep_days))
        failover_policies.FailoverPolicyStore().prune()

    # The API calls this when it has recorded a failover (notify.py).
    def replace_servers(self, context):
        """Continue the replacements of servers that are due."""
        self._start_threads()
        self._replacements().start_due()

    # The API calls this when it has recorded a re-provisioning (notify.py).
    def reprovision_replicas(self, context):
        """Continue the re-provisionings of replicas that are due."""
        self._start_threads()
        self._replication.reprovision_due()

    # The API calls this and run_backup_policies when it has recorded a request (notify.py).
    def copy_and_verify_backups(self, context):
        """Start the copies and verifications that are due."""
        self._start_threads()
        self._start_due_jobs()

    @periodic_task.periodic_task(spacing=_SPACING_SEC)
    def flatten_volumes(self, context):
        """Flatten the volumes that must not keep their parent, such as one in the vault."""
        flatten.flatten_dependents(self._deps())

    @periodic_task.periodic_task(spacing=_SPACING_SEC)
    def reclaim_space(self, context):
        """Delete the volumes and images of deleted instances and backups."""
        volume_cleanup.reclaim(self._deps())

    @periodic_task.periodic_task(spacing=_SPACING_SEC)
    def remove_old_replica_snapshots(self, context):
        """Remove the snapshots of sources that interrupted creations of replicas have left."""
        self._replication.remove_old_snapshots()

    @periodic_task.periodic_task(spacing=_SPACING_SEC)
    def end_lost_changes_of_sources(self, context):
        """End the tasks of promotions, ejections and detachments whose request was lost."""
        self._source_requests.end_lost()

    @periodic_task.periodic_task(spacing=_SPACING_SEC)
    def send_tier_rates(self, context):
        """Send guests the I/O rates of their tiers, which a retype or the tiers file may change."""
        trove = trove_db.TroveDatabase()
        self._tier_thread.start(lambda: tier_settings.send_all(self._tier_settings, trove))

    @periodic_task.periodic_task(spacing=_POLICIES_SPACING_SEC)
    def run_backup_policies(self, context):
        """Take the backups that are due by policy, and delete those that have expired."""
        scheduler.run_due(self._policy_deps())

    def _start_threads(self) -> None:
        self._metrics.start()
        self._notifications.start()
        self._deps().heartbeat.start()
        self._background.start()
        self._guest_background.start()
        self._replacement_background.start()
        self._replication_background.start()
        self._failover_thread.start()
        self._replication_watch.start()

    def _cancel_replacement(self, instance_id: str) -> None:
        """Return when no server or volume of an instance that is being deleted is replaced."""
        # Without a replacement, a deletion needs none of the clients that these use.
        if self._replacement_store.find_open(instance_id) is not None:
            # This may take minutes, and another taskmanager resumes a deletion only by its claim.
            with self._claims.claimed(Role.DELETE_INSTANCE, instance_id):
                self._replacements().cancel(instance_id)
        replica = self._replica_store.find(instance_id)
        if replica is not None and replica.state.is_reprovisioning:
            with self._claims.claimed(Role.DELETE_INSTANCE, instance_id):
                self._replication.cancel_reprovisioning(instance_id)

    def _recover(self) -> None:
        recovery.recover(self._deps(), self._recovery_threads)

    def _recover_instances(self) -> None:
        self._operations().recover(
            {
                Role.DELETE_INSTANCE: self._resume_deletion,
                Role.REBUILD_SERVER: self._unchecked_requests.end_interrupted_rebuild,
                **self._source_requests.resumptions,
            },
            self._recovery_threads,
        )
        self._source_requests.handle_marks(self._recovery_threads)

    def _resume_deletion(self, claim: claims.Claim) -> None:
        instance_id = claim.resource_id
        instance = trove_db.TroveDatabase().find_instance(instance_id)
        if instance is None or instance.is_deleted or not instance.is_deleting:
            return
        self._cancel_replacement(instance_id)
        context = service_context.of_project(instance.project_id)
        self._delete_instance(context, instance)

    def _start_due_jobs(self) -> None:
        for role, threads in self._queue_threads.items():
            queue_worker.start_due_jobs(self._deps(), role, threads, self._limits[role])

    def _clean_up_creation(self, instance: backup_types.Instance) -> None:
        self._replication.remove_snapshots(instance)
        try:
            if instance.source_id is not None and self._ownership.backs_up(instance.source_id):
                # Its source has kept the accounts of other replicas as long as this one existed.
                self._source_requests.forget(instance.id)
            cloned_volume.remove(self._deps(), instance.id, instance.id, instance.project_id)
        except exceptions.TroveCephError as error:
            LOG.warning(
                'Instance %s: the leftovers of its volume could not be removed now; '
                'trove-ceph-manage gc lists those that stay: %s',
                *(instance.id, error),
            )
