# SPDX-License-Identifier: Apache-2.0
"""Trove's task manager on Ceph, named by ``[DEFAULT] taskmanager_manager``.

Delegation only: what is done is in :mod:`trove_ceph.strategies`, and what is not ours, such as a
backup in Swift or a volume elsewhere, is Trove's.
"""

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

from oslo_log import log as logging
from oslo_service import periodic_task
from trove.common import cfg, notification
from trove.taskmanager import manager

from trove_ceph import exceptions, steps
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import work_queue
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
from trove_ceph.strategies.restore import clone_volume, flatten, planning, restore_types
from trove_ceph.taskmanager import background, factory
from trove_ceph.trove_adapter import backup_api, instance_restore, trove_db
from trove_ceph.trove_adapter import instance_deletion as trove_adapter_instance_deletion

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

_SPACING_SEC = 300
_POLICIES_SPACING_SEC = 60
#: Of the thread that carries on with what was interrupted, and begins what is due.
_WORK_SPACING_SEC = 10
#: Apart from those of the queues: recovery must not wait for a copy of hours.
_RECOVERIES_AT_ONCE = 4


class Manager(manager.Manager):
    """Trove's manager, whose backups cost the same at any size and survive their instances."""

    def __init__(self):
        taskmanager_conf.register(CONF)
        # Wrong levels are to be seen at the start.
        factory.backup_settings(CONF)
        # So is a storage service that guests can reach.
        storage_transport.check(CONF)
        super().__init__()
        # At first use, since none of those who are asked need be up when this starts; and no
        # property, since Trove's profiler reads all of those at the start.
        self._deps = functools.cache(
            functools.partial(factory.make_dependencies, CONF, self.admin_context)
        )
        self._tier_settings = functools.cache(
            functools.partial(factory.make_tier_settings, CONF, self._deps)
        )
        self._creations = functools.cache(lambda: factory.make_instance_creations(self._deps()))
        self._policy_deps = functools.cache(
            lambda: factory.make_policy_dependencies(CONF, self._deps())
        )
        # Nothing that takes long may keep policies waiting, which are next in the same loop.
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
        # Trove's own loop runs every report_interval seconds (30), and waits for what takes long.
        self._background = background.Background(
            _WORK_SPACING_SEC, (self._recover, self._fail_creations, self._start_due_jobs)
        )
        self._telling = queue_worker.WorkerThreads(1)

    def create_instance(self, context, instance_id, **asked):
        """Make an instance; from a backup of ours in a time that does not depend on its size."""
        with self._claimed(instance_id):
            self._create(context, instance_id, asked)
        self._tell_tiers(instance_id)

    def _create(self, context, instance_id, asked):
        if not asked['backup_id'] or asked['slave_of_id']:
            super().create_instance(context, instance_id, **asked)
            return
        with notification.EndNotification(context, instance_id=instance_id):
            try:
                with tenant_errors.translated_errors(f'instance {instance_id}'):
                    is_ours = self._restore_volume(instance_id, asked)
            except Exception:
                trove_db.TroveDatabase().fail_volume(instance_id)
                raise
            if is_ours:
                instance_restore.create(context, instance_id, asked)
                flatten.flatten_dependents(self._deps())
            else:
                super()._create_instance(context, instance_id, **asked)

    def create_backup(self, context, backup_info, instance_id):
        """Take a backup."""
        if backup_info.get('storage_driver') != 'cinder' or not self._backs_up(instance_id):
            super().create_backup(context, backup_info, instance_id)
            return
        backup_id = backup_info['id']
        with (
            notification.EndNotification(context, backup_id=backup_id),
            tenant_errors.translated_errors(f'backup {backup_id}'),
        ):
            try:
                asked = self._deps()
            except exceptions.TroveCephError:
                trove_db.TroveDatabase().fail_backup(backup_id)
                raise
            create.create_backup(asked, backup_id, backup_api.request_of(context))

    def delete_backup(self, context, backup_id):
        """Delete a backup, and nothing that is complete without it."""
        record = self._deps().records.find(backup_id)
        if record is None:
            super().delete_backup(context, backup_id)
            return
        with (
            notification.EndNotification(context),
            tenant_errors.translated_errors(f'backup {backup_id}'),
        ):
            if record.state is RecordState.DELETING:
                # It was counted as gone when it was first asked for.
                self._deps().trove.count_backup(record.project_id)
            delete.delete_backup(self._deps(), backup_id)

    def delete_instance(self, context, instance_id):
        """Delete an instance; its backups stay, and its volume as long as they need it."""
        found = trove_db.TroveDatabase().find_instance(instance_id)
        if found is None or found.volume_id is None or not self._is_ours(instance_id):
            if found is not None and found.volume_id is None:
                self._clean_up_restore(found)
            super().delete_instance(context, instance_id)
            return
        with (
            notification.EndNotification(context),
            tenant_errors.translated_errors(f'instance {instance_id}'),
        ):
            flatten.stop_flattening(self._deps(), found.volume_id)
            deletion = instance_deletion.InstanceDeletion(
                self._deps(),
                found,
                functools.partial(
                    trove_adapter_instance_deletion.delete_but_volume, context, instance_id
                ),
            )
            steps.run(f'deletion of instance {instance_id}', deletion.steps())

    def run_periodic_tasks(self, context, raise_on_error=False):
        """Run the tasks that are due; the first call starts the threads of this process."""
        self._start_threads()
        return super().run_periodic_tasks(context, raise_on_error)

    @periodic_task.periodic_task(spacing=_POLICIES_SPACING_SEC)
    def carry_on_with_backups(self, context):
        """Show as failed the backups that no taskmanager was ever told of."""
        expire_unstarted.expire_unstarted(self._deps(), expire_unstarted.START_TIMEOUT)

    # The API asks for this one and for the policies' as well (nudging).
    def copy_and_verify_backups(self, context):
        """Begin to copy and verify the backups for which that is due."""
        self._start_threads()
        self._start_due_jobs()

    @periodic_task.periodic_task(spacing=_SPACING_SEC)
    def make_volumes_independent(self, context):
        """Have volumes not read from other pools any more, such as from the vault."""
        flatten.flatten_dependents(self._deps())

    @periodic_task.periodic_task(spacing=_SPACING_SEC)
    def reclaim_space(self, context):
        """Give back what deleted instances and backups have left."""
        volume_cleanup.reclaim(self._deps())

    @periodic_task.periodic_task(spacing=_SPACING_SEC)
    def tell_tiers(self, context):
        """Tell guests the I/O rates of their tiers: a retype or the tiers file may change them."""
        self._telling.start(self._sweep_tiers)

    @periodic_task.periodic_task(spacing=_POLICIES_SPACING_SEC)
    def run_backup_policies(self, context):
        """Take the backups that policies have due, and delete those that they keep no longer."""
        scheduler.run_due(self._policy_deps())

    def _start_threads(self) -> None:
        self._deps().heartbeat.start()
        self._background.start()

    def _recover(self) -> None:
        recovery.recover(self._deps(), self._recovery_threads)

    def _claimed(self, created: str | list[str]) -> contextlib.AbstractContextManager[None]:
        """Hold the claims of instances that are created, of which replicas come several at once."""
        try:
            return self._creations().claimed([created] if isinstance(created, str) else created)
        except exceptions.TroveCephError as error:
            LOG.warning('Instance %s stays in BUILD if this process dies now: %s', created, error)
            return contextlib.nullcontext()

    def _fail_creations(self) -> None:
        self._creations().fail_interrupted()

    def _start_due_jobs(self) -> None:
        for role, threads in self._queue_threads.items():
            queue_worker.start_due_jobs(self._deps(), role, threads, self._limits[role])

    def _restore_volume(self, instance_id: str, asked: Mapping[str, Any]) -> bool:
        """Make a volume of a backup, where Cinder cannot when Trove asks it to.

        :returns: whether the backup is ours
        """
        backup_id = asked['backup_id']
        if self._deps().records.find(backup_id) is None:
            return False
        volume_type = asked['volume_type'] or CONF.cinder_volume_type
        wanted = restore_types.RestoreRequest(
            instance_id, backup_id, volume_type, asked['volume_size']
        )
        prefer_copy = CONF.trove_ceph_backup.restore_from == 'vault'
        plan = planning.plan(self._deps(), wanted, prefer_copy)
        if not plan.by_cinder:
            clone_volume.clone_volume(self._deps(), wanted, plan)
        return True

    def _sweep_tiers(self) -> None:
        try:
            self._tier_settings().sweep(trove_db.TroveDatabase().list_instances())
        except exceptions.TroveCephError as error:
            LOG.warning('Guests wait for the rates of their tiers: %s', error)

    def _tell_tiers(self, created: str | list[str]) -> None:
        """Tell guests that were just created, of which replicas come several at once."""
        for instance_id in [created] if isinstance(created, str) else created:
            try:
                found = trove_db.TroveDatabase().find_instance(instance_id)
                if found is not None:
                    self._tier_settings().tell(found)
            except exceptions.TroveCephError as error:
                LOG.warning('Instance %s waits for the rate of its tier: %s', instance_id, error)

    def _clean_up_restore(self, instance: backup_types.Instance) -> None:
        try:
            clone_volume.remove_clone(self._deps(), instance)
        except exceptions.TroveCephError as error:
            LOG.warning('What may be left of instance %s in Ceph: %s', instance.id, error)

    def _backs_up(self, instance_id: str) -> bool:
        """Tell whether backups of an instance are taken here: by its agent, and by its volume."""
        found = trove_db.TroveDatabase().find_instance(instance_id)
        has_our_agent = found is None or found.has_our_guest_agent
        return has_our_agent and self._is_ours(instance_id)

    def _is_ours(self, instance_id: str) -> bool:
        """Tell whether an instance's volume is one of the tiers'.

        Of what cannot be told the answer is yes: it then fails with the reason, instead of being
        done in another way.
        """
        found = trove_db.TroveDatabase().find_instance(instance_id)
        if found is None or found.volume_id is None:
            return True
        try:
            volume = self._deps().cinder.find_volume(found.volume_id)
            return volume is None or self._deps().find_image(volume) is not None
        except exceptions.TroveCephError as error:
            LOG.warning('Where the volume of instance %s lies: %s', instance_id, error)
            return True
