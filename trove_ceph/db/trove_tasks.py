# SPDX-License-Identifier: Apache-2.0
"""The task of an instance in Trove's table, which is in the same database as ours.

Trove's API refuses an operation on an instance that has another task. So a task that is set in the
transaction of our own row excludes the operations of Trove as long as that row is open.
"""

import datetime
import enum

import sqlalchemy as sa
from sqlalchemy import orm

_INSTANCES = sa.table(
    'instances',
    sa.column('id', sa.String),
    sa.column('task_id', sa.Integer),
    sa.column('task_description', sa.String),
    sa.column('updated', sa.DateTime),
    sa.column('deleted', sa.Boolean),
    sa.column('slave_of_id', sa.String),
    sa.column('flavor_id', sa.String),
)

#: A task of Trove that this package does not set.
_DELETING = 0x02


class Task(enum.Enum):
    """Trove's tasks that this package changes, with the code and the text of each."""

    NONE = (0x01, 'No tasks for the instance.')
    RESIZING = (0x04, 'Resizing the instance.')
    BUILDING = (0x05, 'The instance is building.')
    MIGRATING = (0x06, 'Migrating the instance.')
    RESTART_REQUIRED = (0x07, 'Instance requires a restart.')
    EJECTION_ERROR = (0x56, 'Replica Source Ejection Error.')


#: Those of an instance on which nothing works.
IDLE = (Task.NONE, Task.RESTART_REQUIRED)


def replace(
    session: orm.Session, instance_id: str, before: Task, after: Task, now: datetime.datetime
) -> bool:
    """Set the task of an instance within a transaction.

    :returns: False: the instance is deleted or has another task than ``before``; nothing is changed
    """
    code, text = after.value
    row = _INSTANCES.c
    done = session.connection().execute(
        sa.update(_INSTANCES)
        .where(row.id == instance_id, row.task_id == before.value[0], row.deleted == sa.false())
        .values(task_id=code, task_description=text, updated=now)
    )
    return bool(done.rowcount)


def is_idle_replica(session: orm.Session, instance_id: str, source_id: str) -> bool:
    """Return whether an instance follows a source, and has no task that may change that."""
    row = _INSTANCES.c
    query = sa.select(row.id).where(
        row.id == instance_id,
        row.slave_of_id == source_id,
        row.task_id.in_([one.value[0] for one in IDLE]),
        row.deleted == sa.false(),
    )
    return session.scalar(query.with_for_update()) is not None


def present(session: orm.Session) -> set[str]:
    """Return the ids of the instances that are not deleted.

    Our tables are not joined with Trove's, whose columns may have another collation.
    """
    row = _INSTANCES.c
    return set(session.scalars(sa.select(row.id).where(row.deleted == sa.false())))


def flavor(session: orm.Session, instance_id: str) -> str | None:
    """Return the id of an instance's flavor, even of a deleted one; None: there is no instance."""
    query = sa.select(_INSTANCES.c.flavor_id).where(_INSTANCES.c.id == instance_id)
    found: str | None = session.scalar(query)
    return found


def why_refused(session: orm.Session, instance_id: str) -> str:
    """Return why an instance with another task than the expected one is left alone, for tenants."""
    row = _INSTANCES.c
    query = sa.select(row.task_id, row.task_description).where(
        row.id == instance_id, row.deleted == sa.false()
    )
    # The lock reads the latest row. The snapshot of the transaction may have an older task.
    found = session.execute(query.with_for_update()).one_or_none()
    if found is None:
        return 'it is deleted'
    if found.task_id == _DELETING:
        return 'it is being deleted'
    return f'it has a task: {found.task_description} Repeat the request later'
