# SPDX-License-Identifier: Apache-2.0
"""The verbs of replicas, which Trove's taskmanager calls."""

import contextlib
import datetime
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from oslo_log import log as logging
from trove.common import notification

from trove_ceph import exceptions, operation_events, steps
from trove_ceph.strategies.backup import backup_types, tenant_errors
from trove_ceph.strategies.replication import clones
from trove_ceph.strategies.replication import create as creation
from trove_ceph.strategies.replication.dependencies import ReplicationDependencies
from trove_ceph.taskmanager import reprovisionings
from trove_ceph.trove_adapter import (
    instance_creation,
    replication_rows,
    service_context,
    trove_db,
    warm_server,
)

LOG = logging.getLogger(__name__)


class Replication:
    """The replicas of the instances whose volumes are on the storage tiers.

    :param get_deps: returns the dependencies; called at each request, since the services need not
        be up when the process starts
    :param find_guests: returns the warm guests; None: there are none
    :param get_reprovisionings: returns those of this process; called as ``get_deps``
    :param await_changes: see :meth:`.InstanceOperations.await_changes`
    """

    def __init__(
        self,
        get_deps: Callable[[], ReplicationDependencies],
        find_guests: Callable[[], warm_server.WarmGuests | None],
        get_reprovisionings: Callable[[], reprovisionings.Reprovisionings],
        await_changes: Callable[[str], None],
    ):
        self._get_deps = get_deps
        self._find_guests = find_guests
        self._get_reprovisionings = get_reprovisionings
        self._await_changes = await_changes

    def create(
        self,
        context: Any,
        instance_ids: Sequence[str],
        arguments: Mapping[str, Any],
        end_creation: Callable[[str], None],
    ) -> None:
        """Create replicas of one source in parallel, and wait until they follow it.

        Raises no error: each replica that failed is shown so, with the reason as a fault, and is
        notified of by itself.

        :param arguments: of the call to Trove's manager, by their names
        :param end_creation: called with the id of each one that follows, however long others take
        """
        request = creation.ReplicaRequest(
            arguments['slave_of_id'], tuple(instance_ids), arguments['volume_type']
        )
        contexts = {one: service_context.copy_for(context, one) for one in instance_ids}
        reports = {
            one: operation_events.begin(
                operation_events.Operation.REPLICA_CREATE,
                instance_id=one,
                source_id=request.source_id,
            )
            for one in instance_ids
        }
        volumes = self._create_volumes(request, contexts, reports)
        if volumes is None:
            return
        follow = functools.partial(
            self._follow, volumes, self._find_guests(), arguments, end_creation
        )
        begin = self._get_deps().backup.begin
        waits = [
            begin(functools.partial(follow, contexts[one], reports[one], one, number))
            for number, one in enumerate(instance_ids)
        ]
        followed = {one: wait() for one, wait in zip(instance_ids, waits, strict=True)}
        if not all(followed.values()):
            self._drop_users(request.source_id, [one for one, ok in followed.items() if not ok])

    def reprovision_due(self) -> None:
        """Continue the re-provisionings that are due; call it every 2 s."""
        self._get_reprovisionings().start_due()

    def cancel_reprovisioning(self, instance_id: str) -> None:
        """Return when an instance that is being deleted is not re-provisioned any more.

        :raises InProgressError: it did not end in time
        """
        self._get_reprovisionings().cancel(instance_id)

    def remove_snapshots(self, replica: backup_types.Instance) -> None:
        """Remove the snapshots that replicas have left on their source, with the last of them.

        Call it when a replica is deleted: :meth:`remove_old_snapshots` does not look at a source
        without replicas. As long as there are others, one of them may be created from the snapshot
        of their common request. It raises no error, since a deletion must not fail for it.
        """
        source_id = replica.source_id
        if source_id is None:
            return

        def has_others() -> bool:
            found = trove_db.TroveDatabase().list_replicas(source_id)
            return any(one.id != replica.id and not one.is_deleting for one in found)

        # Most deletions need not wait for Ceph, which may not answer.
        if has_others():
            return
        try:
            clones.remove_snapshots(self._get_deps().backup, source_id, has_others)
        except exceptions.TroveCephError as error:
            LOG.warning(
                'Instance %s: snapshots for replicas cannot be removed now; trove-ceph-manage gc '
                'lists them if they exist: %s',
                *(source_id, error),
            )

    def remove_old_snapshots(self) -> None:
        """Remove the snapshots of sources that interrupted operations have left."""
        deps = self._get_deps().backup
        kept = [one.volume_id for one in deps.records.kept_volumes()]
        replicated = trove_db.TroveDatabase().list_replicated_volumes()
        clones.remove_old_snapshots(deps, [*replicated, *kept], datetime.datetime.now(datetime.UTC))

    def _create_volumes(
        self,
        request: creation.ReplicaRequest,
        contexts: Mapping[str, Any],
        reports: Mapping[str, operation_events.Report],
    ) -> creation.VolumeCreation | None:
        """Create the volumes; None: that of no replica was created, and all are shown as failed."""
        try:
            self._await_changes(request.source_id)
            deps = self._get_deps()
            volumes = creation.VolumeCreation(deps, creation.plan(deps, request))
            steps.run(str(request), volumes.steps())
        except Exception as error:
            for instance_id, context in contexts.items():
                with self._shown(context, instance_id), reports[instance_id].guarding():
                    raise error
            return None
        return volumes

    def _follow(
        self,
        volumes: creation.VolumeCreation,
        guests: warm_server.WarmGuests | None,
        arguments: Mapping[str, Any],
        end_creation: Callable[[str], None],
        context: Any,
        report: operation_events.Report,
        instance_id: str,
        number: int,
    ) -> bool:
        """Create the server of a replica, and have it follow; return whether it does.

        :param number: of the replica in the request
        """
        passwords = arguments['root_password']
        own = {
            **arguments,
            'root_password': passwords[number] if isinstance(passwords, list) else passwords,
        }
        is_following = False
        with self._shown(context, instance_id), report.ending():
            if error := volumes.failures.get(instance_id):
                raise error
            deps = self._get_deps()
            replica_context = deps.agents.replica_context(arguments['slave_of_id'], instance_id)
            is_following = instance_creation.create_replica(
                context, instance_id, own, replica_context, guests
            )
            if is_following:
                self._register(volumes, arguments['slave_of_id'], instance_id)
        if is_following:
            end_creation(instance_id)
        return is_following

    def _register(self, volumes: creation.VolumeCreation, source_id: str, instance_id: str) -> None:
        replication_rows.ReplicationRows().copy_root_record(instance_id)
        deps = self._get_deps()
        replica = deps.backup.trove.find_instance(instance_id)
        if replica is not None:
            deps.store.register(
                instance_id, replica.project_id, source_id, replica.volume_id, volumes.cloned_at
            )

    @contextlib.contextmanager
    def _shown(self, context: Any, instance_id: str) -> Iterator[None]:
        """Show tenants an error of the block as the fault of a replica; it is not raised."""
        try:
            with (
                notification.EndNotification(context, instance_id=instance_id),
                tenant_errors.translated_errors(f'instance {instance_id}'),
            ):
                yield
        except Exception as error:
            LOG.warning('Replica %s was not created: %s', instance_id, error)
            try:
                trove_db.TroveDatabase().fail_replica(instance_id)
            except Exception as failure:
                # The other replicas are not to fail for this.
                LOG.error('Replica %s: it cannot be shown as failed: %s', instance_id, failure)

    def _drop_users(self, source_id: str, failed_ids: Sequence[str]) -> None:
        """Drop the accounts of replicas that failed on their source; best effort.

        Not while the source has replicas that are not recorded: another request may be creating
        them, or Trove's own code may have created them, with accounts that are not known here.
        """
        try:
            deps = self._get_deps()
            others = {one.id for one in deps.trove.list_replicas(source_id)} - set(failed_ids)
            if others <= {one.instance_id for one in deps.store.list(source_id=source_id)}:
                deps.agents.drop_replication_users(source_id, others)
        except exceptions.TroveCephError as error:
            LOG.warning(
                'Instance %s: the accounts of failed replicas are not dropped: %s',
                *(source_id, error),
            )
