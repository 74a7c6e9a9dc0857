# SPDX-License-Identifier: Apache-2.0
"""The sources of replicas and the tasks of their changes, in Trove's table of instances.

This module writes single columns. Trove's models write whole rows, and would thereby undo what
Trove's API writes at the same time, such as the task DELETING.
"""

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTask, InstanceTasks

from trove_ceph.db import quota_usage, replacement_record, tables
from trove_ceph.db.transactions import Transactions, retry_on_deadlock
from trove_ceph.strategies.replication.source_dependencies import CHANGE_TASKS, Member, RowChange
from trove_ceph.trove_adapter import trove_db
from trove_ceph.trove_adapter.replacement_servers import translated

_INSTANCES = sa.table(
    'instances',
    *map(
        sa.column,
        (
            *('id', 'tenant_id', 'volume_id', 'compute_instance_id', 'slave_of_id'),
            *('task_id', 'task_description', 'deleted', 'updated', 'volume_size', 'flavor_id'),
        ),
    ),
)
_ROOT_HISTORY = sa.table(
    'root_enabled_history', *map(sa.column, ('id', 'user', 'created', 'deleted_at'))
)
_COLUMNS = _INSTANCES.c
#: The tasks that a change of the source ends. It replaces no other, such as DELETING.
_OWN_CODES = tuple(getattr(InstanceTasks, one).code for one in CHANGE_TASKS)


class ReplicationRows:
    """The rows of sources and replicas; see :class:`.source_dependencies.Rows`.

    :param transactions: access to the database; by default the one of Trove's configuration
    :param find_task: see :class:`.source_dependencies.SourceDependencies`; None: no other operation
        ends while this one writes, since it only reads
    """

    def __init__(
        self,
        transactions: Transactions | None = None,
        find_task: Callable[[str], str | None] | None = None,
    ):
        self._transactions = transactions or Transactions()
        self._find_task = find_task

    def find(self, instance_id: str) -> Member | None:
        """Return an instance; None: it is deleted."""
        return next(iter(self._select(_COLUMNS.id == instance_id)), None)

    def list_replicas(self, source_id: str) -> Sequence[Member]:
        """Return the replicas of an instance that are not deleted, by their ids."""
        return self._select(_COLUMNS.slave_of_id == source_id)

    def list_changing(self, for_at_least: datetime.timedelta) -> Sequence[Member]:
        """Return the instances that are promoted, ejected or detached, by their task, for long."""
        with self._transactions.reading() as session:
            began = self._transactions.database_time(session) - for_at_least
        return self._select(sa.and_(_COLUMNS.task_id.in_(_OWN_CODES), _COLUMNS.updated <= began))

    @retry_on_deadlock
    def record(self, changes: Sequence[RowChange]) -> None:
        """Record the sources of instances and end the operation that they have as task.

        Of a replica that becomes independent, Trove then records whether root is enabled as of its
        former source, whose accounts it has.
        """
        with self._transactions.writing() as session:
            now = self._transactions.clock()
            for change in changes:
                if change.source_id is None:
                    self._copy_root_record(session, change.instance_id)
                self._update(
                    session,
                    _COLUMNS.id == change.instance_id,
                    slave_of_id=change.source_id,
                    updated=now,
                )
                self._end_task(session, change.instance_id, change.task, now)
        self._end_stale({one.instance_id: one.task for one in changes})

    @retry_on_deadlock
    def copy_root_record(self, replica_id: str) -> None:
        """Record of a new replica what is recorded of its source: whether root is enabled.

        It has the accounts of the source. What the source enables later is recorded when the
        replica is promoted or detached.
        """
        with self._transactions.writing() as session:
            self._copy_root_record(session, replica_id)

    @retry_on_deadlock
    def begin_ejection(self, instance_ids: Collection[str]) -> bool:
        """Give instances the task of an ejection, as Trove's API does; idempotent.

        :returns: False: one has another task; nothing is changed
        """
        allowed = {InstanceTasks.NONE.code, InstanceTasks.EJECTING.code}
        condition = sa.and_(_COLUMNS.id.in_(instance_ids), _COLUMNS.deleted == sa.false())
        with self._transactions.writing() as session:
            query = sa.select(_COLUMNS.task_id).where(condition).with_for_update()
            tasks = [row.task_id for row in session.execute(query)]
            if len(tasks) < len(instance_ids) or set(tasks) - allowed:
                return False
            self._set_task(session, condition, 'EJECTING', self._transactions.clock())
            return True

    @retry_on_deadlock
    def end_tasks(self, tasks: Mapping[str, str]) -> None:
        """Replace the tasks of a promotion, an ejection or a detachment."""
        with self._transactions.writing() as session:
            now = self._transactions.clock()
            for instance_id, task in tasks.items():
                self._end_task(session, instance_id, task, now)
        self._end_stale(tasks)

    @retry_on_deadlock
    def replace_task(self, instance_id: str, before: Collection[str], after: str) -> None:
        """Replace the task of an instance if it is one of others; do nothing if it is not.

        :param before: the names of the others
        """
        codes = [getattr(InstanceTasks, one).code for one in before]
        with self._transactions.writing() as session:
            condition = sa.and_(_COLUMNS.id == instance_id, _COLUMNS.task_id.in_(codes))
            self._set_task(session, condition, after, self._transactions.clock())
        self._end_stale({instance_id: after})

    @retry_on_deadlock
    def subtract_growth(self, instance_id: str, ram_growth_mib: int, size_gib: int | None) -> None:
        """Have the project of an instance use less again, since that was not resized.

        Trove's API has added the growth when it accepted the request.

        :param ram_growth_mib: that its flavor did not get
        :param size_gib: that its volume did not get; None: it was not to be extended
        """
        with self._transactions.writing() as session:
            columns = (_COLUMNS.tenant_id, _COLUMNS.volume_size)
            row = session.execute(sa.select(*columns).where(_COLUMNS.id == instance_id)).first()
            if row is None:
                return
            used = {'ram': -ram_growth_mib}
            if size_gib is not None:
                # A replica may be larger than its source, for which the API has counted.
                used['volumes'] = min(0, (row.volume_size or 0) - size_gib)
            quota_usage.add(session, row.tenant_id, used)

    @retry_on_deadlock
    def restore_source(self, instance_id: str, source_id: str | None) -> None:
        """Record the source of a replica again that Trove has forgotten in a rebuild; idempotent.

        The watch over replicas has it follow. Do nothing if the source is deleted.

        :param source_id: which it had before; our table, which changes with each promotion and
            ejection, takes precedence; None: only our table tells
        """
        with self._transactions.writing() as session:
            replica = session.get(tables.ReplicaRow, instance_id, with_for_update=True)
            if replica is not None:
                source_id = replica.source_id
            own = sa.and_(_COLUMNS.id == source_id, _COLUMNS.deleted == sa.false())
            if session.execute(sa.select(_COLUMNS.id).where(own)).first() is None:
                return
            now = self._transactions.clock()
            done = session.connection().execute(
                sa.update(_INSTANCES)
                .where(
                    _COLUMNS.id == instance_id,
                    _COLUMNS.slave_of_id.is_(None),
                    _COLUMNS.deleted == sa.false(),
                )
                .values(slave_of_id=source_id, updated=now)
            )
            if done.rowcount and replica is not None:
                replica.stopped_at = self._transactions.database_time(session)

    @retry_on_deadlock
    def refuse_deletion(self, instance_id: str, task: str, ram_mib: int) -> None:
        """Give an instance that is being deleted another task, since it is not deleted after all.

        Do nothing if it is not being deleted. Its project uses an instance, a volume and memory
        again, even beyond the quota, which Trove's API has subtracted when it accepted the
        deletion.

        :param ram_mib: of its flavor
        """
        with self._transactions.writing() as session:
            own = sa.and_(
                _COLUMNS.id == instance_id,
                _COLUMNS.task_id == InstanceTasks.DELETING.code,
                _COLUMNS.deleted == sa.false(),
            )
            columns = (_COLUMNS.tenant_id, _COLUMNS.volume_size)
            row = session.execute(sa.select(*columns).where(own).with_for_update()).one_or_none()
            if row is None:
                return
            self._set_task(session, own, task, self._transactions.clock())
            used = {'instances': 1, 'volumes': row.volume_size or 0, 'ram': ram_mib}
            quota_usage.add(session, row.tenant_id, used)

    def add_fault(self, instance_id: str, text: str) -> None:
        """Show a tenant what happened to an instance; do nothing if it is deleted."""
        with translated(f'instance {instance_id}: recording its fault'):
            row = trove_db.find_row(instance_models.DBInstance, instance_id)
            if row is not None and not row.deleted:
                instance_models.save_instance_fault(instance_id, text, '')

    def _select(self, condition: Any) -> list[Member]:
        query = sa.select(_INSTANCES).where(condition, _COLUMNS.deleted == sa.false())
        with self._transactions.reading() as session:
            return [
                Member(
                    instance_id=row.id,
                    project_id=row.tenant_id,
                    volume_id=row.volume_id,
                    server_id=row.compute_instance_id,
                    task=trove_db.task_name(row.task_id),
                    source_id=row.slave_of_id,
                    flavor_id=row.flavor_id or '',
                )
                for row in session.execute(query.order_by(_COLUMNS.id))
            ]

    @staticmethod
    def _copy_root_record(session: orm.Session, replica_id: str) -> None:
        """Do nothing for an instance that is no replica."""
        query = sa.select(_COLUMNS.slave_of_id).where(_COLUMNS.id == replica_id)
        source_id = session.execute(query).scalar()
        if source_id is None:
            return
        found = session.execute(
            sa.select(_ROOT_HISTORY).where(_ROOT_HISTORY.c.id == source_id)
        ).one_or_none()
        session.execute(sa.delete(_ROOT_HISTORY).where(_ROOT_HISTORY.c.id == replica_id))
        if found is not None:
            values = {**found._mapping, 'id': replica_id}
            session.execute(sa.insert(_ROOT_HISTORY).values(values))

    def _end_task(
        self, session: orm.Session, instance_id: str, task: str, now: datetime.datetime
    ) -> None:
        condition = sa.and_(_COLUMNS.id == instance_id, _COLUMNS.task_id.in_(_OWN_CODES))
        self._set_task(session, condition, task, now)

    def _end_stale(self, tasks: Mapping[str, str]) -> None:
        """End the tasks of operations that have ended after the look for them.

        A re-provisioning has the task of a failover, and a creation that of a rebuild. The task of
        a deletion stays.

        Such an operation has not found its task, since Trove's API had overwritten it. No other one
        begins while an instance has a task.
        """
        if self._find_task is None:
            return
        given = {one: task for one, task in tasks.items() if task in replacement_record.TASKS}
        for instance_id in [one for one in given if self._find_task(one) is None]:
            code = getattr(InstanceTasks, given[instance_id]).code
            with self._transactions.writing() as session:
                condition = sa.and_(_COLUMNS.id == instance_id, _COLUMNS.task_id == code)
                self._set_task(session, condition, 'NONE', self._transactions.clock())

    def _set_task(
        self, session: orm.Session, condition: Any, task: str, now: datetime.datetime
    ) -> None:
        after: InstanceTask = getattr(InstanceTasks, task)
        self._update(
            session,
            condition,
            task_id=after.code,
            task_description=after.db_text,
            updated=now,
        )

    @staticmethod
    def _update(session: orm.Session, condition: Any, **values: Any) -> None:
        session.execute(
            sa.update(_INSTANCES).where(condition, _COLUMNS.deleted == sa.false()).values(**values)
        )
