# SPDX-License-Identifier: Apache-2.0
"""A store of replacements beside Trove's table of instances."""

import datetime

import sqlalchemy as sa
from oslotest import base

from trove_ceph.db import claims, replacements, transactions, trove_tasks
from trove_ceph.db.replacement_record import (
    ReplacementKind,
    ReplacementRecord,
    ReplacementState,
    RequestedBy,
)
from trove_ceph.db.replacement_states import Event
from trove_ceph.tests.unit.db import database, replacement_memory

SECOND = datetime.timedelta(seconds=1)
NONE, RESIZING, BUILDING, MIGRATING, RESTART_REQUIRED, EJECTION_ERROR = (
    trove_tasks.Task[name].value[0]
    for name in (
        *('NONE', 'RESIZING', 'BUILDING', 'MIGRATING', 'RESTART_REQUIRED'),
        'EJECTION_ERROR',
    )
)
DELETING = 2
CLAIMANT = claims.Claimant('one')

_DATABASE = database.Shared()
_INSTANCES = sa.Table(
    'instances',
    sa.MetaData(),
    sa.Column('id', sa.String(36), primary_key=True),
    sa.Column('task_id', sa.Integer),
    sa.Column('task_description', sa.String(255)),
    sa.Column('updated', sa.DateTime),
    sa.Column('deleted', sa.Boolean),
    sa.Column('slave_of_id', sa.String(36)),
    sa.Column('flavor_id', sa.String(255)),
)
_USAGES = sa.Table(
    'quota_usages',
    sa.MetaData(),
    sa.Column('tenant_id', sa.String(36), primary_key=True),
    sa.Column('resource', sa.String(255), primary_key=True),
    sa.Column('in_use', sa.Integer),
)


class TroveTable:
    """Trove's tables of instances and quotas, with the columns that our store uses."""

    def __init__(self, facade):
        self._engine = facade.writer.get_engine()
        for table in (_INSTANCES, _USAGES):
            table.create(self._engine, checkfirst=True)
            with self._engine.begin() as connection:
                connection.execute(table.delete())

    def add(self, instance_id, task=NONE):
        with self._engine.begin() as connection:
            connection.execute(
                _INSTANCES.insert().values(
                    id=instance_id, task_id=task, task_description=f'Task {task}.', deleted=False
                )
            )

    def set(self, instance_id, **values):
        with self._engine.begin() as connection:
            connection.execute(
                _INSTANCES.update().where(_INSTANCES.c.id == instance_id).values(**values)
            )

    def find(self, instance_id):
        """Return the row of an instance."""
        with self._engine.connect() as connection:
            found = sa.select(_INSTANCES).where(_INSTANCES.c.id == instance_id)
            return connection.execute(found).one()

    def task(self, instance_id):
        return self.find(instance_id).task_id

    def set_used_ram(self, project_id, mib):
        with self._engine.begin() as connection:
            values = {'tenant_id': project_id, 'resource': 'ram', 'in_use': mib}
            connection.execute(_USAGES.insert().values(**values))

    def used_ram(self, project_id):
        with self._engine.connect() as connection:
            found = sa.select(_USAGES.c.in_use).where(_USAGES.c.tenant_id == project_id)
            return connection.scalar(found)


def empty_database():
    """Return the database of this module without rows."""
    return _DATABASE.emptied()


def record(replacement_id, now, kind=ReplacementKind.FAILOVER, **values):
    """Return the record of a replacement that is about to be requested."""
    known = {'instance_id': f'i-{replacement_id}', 'project_id': 'p'}
    known |= {'state': ReplacementState.REQUESTED, 'requested_by': RequestedBy.TENANT}
    known |= {'created_at': now, 'updated_at': now}
    return ReplacementRecord(replacement_id, kind=kind, **known | values)


class ReplacementStoreTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        self.facade = empty_database()
        self.trove = TroveTable(self.facade)
        self.store = self.connect()

    def connect(self, clock=None):
        """Return the store of another process.

        :param clock: the clock of the database; by default the one of the test
        """
        return replacements.ReplacementStore(
            transactions.Transactions(self.facade, lambda: self.now, clock or (lambda: self.now))
        )

    def request(self, replacement_id, **values):
        """Request a failover of an idle instance."""
        found = record(replacement_id, self.now, **values)
        self.trove.add(found.instance_id)
        return self.store.request(found)

    def make(self, replacement_id, state, **values):
        """Request a failover and bring it into a state; return it and the claim on it."""
        self.request(replacement_id, **values)
        claim = self.store.claim(replacement_id, CLAIMANT)
        if state is ReplacementState.CANCELED:
            return self.store.cancel(claim), claim
        if state is ReplacementState.TAKING_OVER:
            return self.store.advance(claim, Event.TAKE_OVER), claim
        if state is ReplacementState.FAILED:
            return self.store.fail(claim, 'why'), claim
        is_returning = state is ReplacementState.RETURNING
        for event, after in (
            (Event.FENCE, ReplacementState.FENCING),
            (Event.MOVE, ReplacementState.MOVING),
            (Event.SHOW, ReplacementState.STARTING),
        ):
            if self.store.find(replacement_id).state is state:
                break
            assert self.store.advance(claim, event).state is after
        if is_returning:
            return self.store.advance(claim, Event.RETURN), claim
        if state is ReplacementState.COMPLETED:
            self.store.complete(claim)
        return self.store.find(replacement_id), claim


class InMemory:
    """Run the tests of a class on the store in memory; mix in before the class."""

    def setUp(self):
        super().setUp()
        self.trove = replacement_memory.MemoryTrove()
        self.store = replacement_memory.MemoryStore(self.trove, lambda: self.now)
