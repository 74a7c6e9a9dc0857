# SPDX-License-Identifier: Apache-2.0
"""An instance in Trove's tables whose server or volume is replaced.

This module writes single columns. Trove's models write whole rows, and would thereby undo what
Trove's API writes at the same time, such as the task DELETING.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import keystoneauth1.exceptions
import oslo_db.exception
import sqlalchemy as sa
from neutronclient.common import exceptions as neutron_exceptions
from sqlalchemy import orm
from trove.backup import models as backup_models
from trove.common import exception as trove_exceptions
from trove.instance import models as instance_models
from trove.instance.service_status import ServiceStatus, ServiceStatuses
from trove.instance.tasks import InstanceTasks
from trove.taskmanager import models

from trove_ceph import exceptions
from trove_ceph.db import instance_operations, quota_usage
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark, SourceMarkStore
from trove_ceph.db.transactions import Transactions, retry_on_deadlock
from trove_ceph.strategies.guests.bind import BindRequest
from trove_ceph.strategies.replacement.dependencies import InstanceFacts
from trove_ceph.strategies.replication.source_dependencies import EJECTION_ERROR
from trove_ceph.trove_adapter import server_description, service_context, trove_db
from trove_ceph.trove_compat import guest_files

#: Trove shows no more of a fault.
_MAX_FAULT = 255
_INSTANCES = sa.table(
    'instances',
    *map(sa.column, ('id', 'deleted', 'task_id', 'compute_instance_id', 'flavor_id', 'volume_id')),
    *map(sa.column, ('updated', 'volume_size', 'tenant_id')),
)
_STATUSES = sa.table(
    'service_statuses',
    *map(sa.column, ('instance_id', 'status_id', 'status_description', 'updated_at')),
)
#: Operations on an instance that may change which server accepts writes.
#: What changes an instance, and the name of the task that Trove's API sets for it.
_SOURCE_CHANGES = {
    Role.PROMOTE_REPLICA: ('is being promoted', 'PROMOTING'),
    Role.EJECT_SOURCE: ('is being ejected', 'EJECTING'),
    Role.DETACH_REPLICA: ('is being detached', 'DETACHING'),
}
#: The conductor's times of the last message of each agent, by the clocks of their guests.
_LAST_SEEN = sa.table('conductor_lastseen', *map(sa.column, ('instance_id', 'method_name')))


def find_facts(instance_id: str) -> InstanceFacts | None:
    """Return an instance, even a deleted one.

    :raises ServiceUnavailableError: the database does not answer
    """
    with _translated(f'instance {instance_id}: reading it'):
        row = trove_db.find_row(instance_models.DBInstance, instance_id)
        return None if row is None else _facts(row)


class ReplacedInstances:
    """The instances whose servers or volumes are replaced.

    See :class:`.replacement.dependencies.Instances` and
    :class:`.reprovision_dependencies.Instances`.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()

    def find(self, instance_id: str) -> InstanceFacts | None:
        """Return an instance, even a deleted one."""
        return find_facts(instance_id)

    def bind_request(self, record: ReplacementRecord) -> BindRequest:
        """Return what a warm guest becomes: the name, files, ports and tags of the instance.

        :raises ServiceUnavailableError: a service that has a part of it does not answer
        """
        with _translated(f'instance {record.instance_id}: reading the configuration of its server'):
            instance = load(record.instance_id)
            description = server_description.describe(instance)
            assert record.volume_id is not None
            return BindRequest(
                instance_id=record.instance_id,
                name=description.name,
                volume_id=record.volume_id,
                port_ids=record.port_ids,
                files=guest_files.files(
                    instance, (*record.port_ids, *record.old_management_port_ids)
                ),
                metadata=description.metadata,
                tags=description.tags,
            )

    @retry_on_deadlock
    def show_server(self, record: ReplacementRecord) -> None:
        """Make the new server that of the instance, with its flavor; idempotent.

        The service status becomes BUILDING, which only a report of the new agent replaces.

        :raises ReplacementCanceledError: the instance is being deleted
        """
        values: dict[str, Any] = {'compute_instance_id': record.new_server_id}
        if record.flavor_id is not None:
            values['flavor_id'] = record.flavor_id
        with self._transactions.writing() as session:
            values['updated'] = self._transactions.clock()
            if not _update_instance(session, record.instance_id, **values):
                raise exceptions.ReplacementCanceledError(
                    f'instance {record.instance_id}: it is being deleted, so its server is not '
                    'replaced'
                )
            self._set_status(session, record.instance_id, ServiceStatuses.BUILDING)
            # The conductor drops reports that are older than the last one. The clock of the new
            # guest may be behind that of the old one.
            session.execute(
                sa.delete(_LAST_SEEN).where(_LAST_SEEN.c.instance_id == record.instance_id)
            )

    @retry_on_deadlock
    def set_volume(self, instance_id: str, volume_id: str, size_gib: int | None) -> None:
        """Make a volume that of an instance, and count its size; idempotent."""
        values: dict[str, Any] = {'volume_id': volume_id}
        with self._transactions.writing() as session:
            if size_gib is not None:
                values['volume_size'] = size_gib
                columns = (_INSTANCES.c.tenant_id, _INSTANCES.c.volume_size)
                query = sa.select(*columns).where(_INSTANCES.c.id == instance_id)
                row = session.execute(query.with_for_update()).one()
                growth_gib = size_gib - (row.volume_size or 0)
                quota_usage.add(session, row.tenant_id, {'volumes': growth_gib})
            values['updated'] = self._transactions.clock()
            if not _update_instance(session, instance_id, **values):
                raise exceptions.ReplacementCanceledError(
                    f'instance {instance_id}: it is being deleted, so its volume is not replaced'
                )

    @retry_on_deadlock
    def report_healthy(self, instance_id: str) -> None:
        """Show that MySQL serves, without waiting for the next report of the guest agent."""
        with self._transactions.writing() as session:
            self._set_status(session, instance_id, ServiceStatuses.HEALTHY)

    @retry_on_deadlock
    def report_failed(self, instance_id: str, error: str) -> None:
        """Show that MySQL does not start, with the reason as a fault."""
        with self._transactions.writing() as session:
            # Trove lets tenants restart an instance in this status, or change its configuration.
            self._set_status(session, instance_id, ServiceStatuses.SHUTDOWN)
        self.record_fault(instance_id, error)

    def record_fault(self, instance_id: str, error: str) -> None:
        """Show a fault of the instance, which Trove does in each status."""
        with _translated(f'instance {instance_id}: recording its fault'):
            instance_models.save_instance_fault(instance_id, error[:_MAX_FAULT], '')

    def _set_status(self, session: orm.Session, instance_id: str, status: ServiceStatus) -> None:
        session.execute(
            sa.update(_STATUSES)
            .where(_STATUSES.c.instance_id == instance_id)
            .values(
                status_id=status.code,
                status_description=status.description,
                updated_at=self._transactions.database_time(session),
            )
        )


def load(instance_id: str) -> Any:
    """Return an instance as Trove's taskmanager models it, without asking Nova or Neutron.

    :raises ReplacementCanceledError: it is deleted
    """
    row = trove_db.find_row(instance_models.DBInstance, instance_id)
    if row is None or row.deleted:
        raise exceptions.ReplacementCanceledError(f'instance {instance_id}: is deleted')
    status = instance_models.InstanceServiceStatus.find_by(instance_id=instance_id)
    context = service_context.of_project(row.tenant_id)
    return models.FreshInstanceTasks(context, row, None, status)


def _facts(row: Any) -> InstanceFacts:
    version = trove_db.version_of(row.datastore_version_id)
    status, source_status = _find_status(row.id), _find_status(row.slave_of_id)
    backup = backup_models.Backup.running(row.id)
    replicas = list(instance_models.DBInstance.find_all(slave_of_id=row.id, deleted=False))
    task, mark = trove_db.task_name(row.task_status.code), SourceMarkStore().find(row.id)
    change, _task = _find_source_change(row, replicas) or (None, None)
    if mark is SourceMark.UNFINISHED_PROMOTION:
        # On another server it would accept writes, even if it lacks some of its former source.
        change = 'has become the source while its guest agent was silent'
    return InstanceFacts(
        instance_id=row.id,
        project_id=row.tenant_id,
        name=row.name,
        volume_id=row.volume_id,
        server_id=row.compute_instance_id,
        flavor_id=str(row.flavor_id),
        version_id=row.datastore_version_id or '',
        task=task,
        service_status=None if status is None else _name_of(status.status),
        agent_seen_at=None if status is None else status.updated_at,
        is_deleted=bool(row.deleted),
        has_our_guest_agent=version.has_our_guest_agent,
        source_id=row.slave_of_id,
        source_status=None if source_status is None else _name_of(source_status.status),
        source_seen_at=None if source_status is None else source_status.updated_at,
        source_change=change,
        is_unfinished_source=mark is SourceMark.UNFINISHED_EJECTION and task == EJECTION_ERROR,
        is_being_cloned=any(
            one.task_status == InstanceTasks.BUILDING and one.volume_id is None for one in replicas
        ),
        is_in_cluster=row.cluster_id is not None,
        is_being_backed_up=backup is not None,
        is_agent_backing_up=backup is not None and backup.storage_driver != 'cinder',
    )


def _find_status(instance_id: str | None) -> Any:
    if instance_id is None:
        return None
    found = instance_models.InstanceServiceStatus.find_all(instance_id=instance_id)
    return next(iter(found), None)


def find_source_change(instance_id: str) -> tuple[str, str] | None:
    """Return the change of a source that works on an instance, and the name of its task.

    :returns: None: there is none, or the instance is deleted
    """
    with _translated(f'instance {instance_id}: reading it'):
        row = trove_db.find_row(instance_models.DBInstance, instance_id)
        if row is None or row.deleted:
            return None
        replicas = list(instance_models.DBInstance.find_all(slave_of_id=row.id, deleted=False))
        return _find_source_change(row, replicas)


def _find_source_change(row: Any, replicas: Collection[Any]) -> tuple[str, str] | None:
    """Return what an operation changes, and the name of its task; None: there is none.

    Trove's task of the instance excludes the same operations, unless something has reset it. The
    row of a source alone, with the role CHANGE_SOURCE, hinders nothing: either a replica is being
    detached, which concerns that one, or a promotion has ended, and the source accepts writes again
    as soon as it answers. The role TAKE_OVER belongs to the failover of the source itself.
    """
    source_id, replica_ids = row.slave_of_id, [one.id for one in replicas]
    if source_id is None and not replica_ids:
        return None
    roles: Mapping[str, Role] = instance_operations.InstanceOperationStore().find_roles(
        [row.id, *filter(None, [source_id]), *replica_ids]
    )
    own = roles.get(row.id)
    if own is not None and own in _SOURCE_CHANGES:
        return _SOURCE_CHANGES[own]
    if roles.get(source_id) in (Role.EJECT_SOURCE, Role.TAKE_OVER):
        return f'its source {source_id} is being ejected', 'EJECTING'
    # The replica may accept writes already, so that this instance must not.
    promoted = [one for one in replica_ids if roles.get(one) is Role.PROMOTE_REPLICA]
    return (f'its replica {promoted[0]} is being promoted', 'PROMOTING') if promoted else None


def _name_of(status: ServiceStatus) -> str:
    return str(status.description).upper().replace(' ', '_')


def _update_instance(session: orm.Session, instance_id: str, **values: Any) -> bool:
    """Update an instance that is not being deleted; return whether there is one."""
    done = session.connection().execute(
        sa.update(_INSTANCES)
        .where(
            _INSTANCES.c.id == instance_id,
            _INSTANCES.c.deleted == sa.false(),
            _INSTANCES.c.task_id != InstanceTasks.DELETING.code,
        )
        .values(**values)
    )
    return bool(done.rowcount)


@contextlib.contextmanager
def _translated(action: str) -> Iterator[None]:
    """Raise the errors of the services as ServiceUnavailableError.

    :param action: the instance and what is done with it
    """
    try:
        yield
    except (
        trove_exceptions.TroveError,
        neutron_exceptions.NeutronClientException,
        keystoneauth1.exceptions.ClientException,
        oslo_db.exception.DBError,
    ) as error:
        raise exceptions.ServiceUnavailableError(f'{action} failed: {error}') from error
