# SPDX-License-Identifier: Apache-2.0
"""The store of replacements and Trove's table in memory, for tests with very many worlds.

``test_replacements`` and ``test_replacement_states`` run the same tests on it and on the real one.
"""

import dataclasses
import secrets
import types

from trove_ceph import exceptions
from trove_ceph.db import replacement_states
from trove_ceph.db.claims import Claim
from trove_ceph.db.replacement_record import ReplacementKind, ReplacementState
from trove_ceph.db.replacement_states import Event
from trove_ceph.db.roles import Role
from trove_ceph.db.trove_tasks import Task

_TASKS = {
    ReplacementKind.FAILOVER: Task.MIGRATING,
    ReplacementKind.RESIZE: Task.RESIZING,
    ReplacementKind.REBUILD: Task.MIGRATING,
}


class MemoryTrove:
    """Trove's table of instances, as :class:`.replacement_helpers.TroveTable`."""

    def __init__(self):
        self._rows = {}

    def add(self, instance_id, task=Task.NONE.value[0]):
        text = f'Task {task}.'
        self._rows[instance_id] = types.SimpleNamespace(
            id=instance_id, task_id=task, task_description=text, updated=None, deleted=False
        )

    def set(self, instance_id, **values):
        vars(self._rows[instance_id]).update(values)

    def find(self, instance_id):
        return self._rows[instance_id]

    def task(self, instance_id):
        return self._rows[instance_id].task_id

    def replace(self, instance_id, before, after, now):
        row = self._rows.get(instance_id)
        if row is None or row.deleted or row.task_id != before.value[0]:
            return False
        code, text = after.value
        self.set(instance_id, task_id=code, task_description=text, updated=now)
        return True


class MemoryStore:
    """The verbs of :class:`.ReplacementStore` that requesters and workers use."""

    def __init__(self, trove, clock):
        self.now = clock
        self._trove = trove
        self._records, self._tokens, self._tasks_before = {}, {}, {}
        self.claims = self

    def request(self, record, expected_task='NONE'):
        before, own = Task[expected_task], _TASKS[record.kind]
        if record.state is not ReplacementState.REQUESTED:
            raise exceptions.InvalidTransitionError(f'{record}: {record.state}')
        refused = exceptions.ReplacementRefusedError
        if self.find_open(record.instance_id):
            raise refused(f'{record}: being replaced already')
        if not self._trove.replace(record.instance_id, before, own, self.now()):
            raise refused(f'{record}: it is deleted or has another task')
        made = dataclasses.replace(record, created_at=self.now(), updated_at=self.now())
        self._records[record.replacement_id] = made
        is_failover = record.kind is ReplacementKind.FAILOVER
        self._tasks_before[record.replacement_id] = before if is_failover else Task.NONE
        return made

    def find(self, replacement_id):
        return self._records.get(replacement_id)

    def find_open(self, instance_id):
        found = [one for one in self._records.values() if one.instance_id == instance_id]
        return next((one for one in found if one.state.is_open), None)

    def claim(self, replacement_id, claimant):
        record = self._records.get(replacement_id)
        if record is None or not record.state.is_open:
            return None
        if not claimant.may_claim(record, self.now()):
            return None
        claim = Claim(Role.REPLACE_SERVER, replacement_id, claimant.name, secrets.token_hex(16))
        self._tokens[replacement_id] = claim.token
        self._records[replacement_id] = dataclasses.replace(
            record, claimed_by=claimant.name, heartbeat_at=self.now()
        )
        return claim

    def heartbeat(self, claim):
        return bool(self.heartbeat_all([claim]))

    def heartbeat_all(self, claims):
        renewed = {one for one in claims if self._tokens.get(one.resource_id) == one.token}
        for one in renewed:
            self.note(one, heartbeat_at=self.now())
        return renewed

    def release(self, claim):
        if self._tokens.get(claim.resource_id) == claim.token:
            self.note(claim, claimed_by=None)
            del self._tokens[claim.resource_id]

    def note(self, claim, **values):
        if self._tokens.get(claim.resource_id) != claim.token:
            raise exceptions.ClaimLostError(f'replacement {claim.resource_id}: {claim} is lost')
        found = self._records[claim.resource_id]
        self._records[claim.resource_id] = dataclasses.replace(
            found, **{'updated_at': self.now()} | values
        )
        return self._records[claim.resource_id]

    def advance(self, claim, event, **values):
        return self.note(claim, state=self._next_state(claim, event), **values)

    def complete(self, claim):
        return self._end(claim, Event.COMPLETE, error=None)

    def fail(self, claim, reason):
        return self._end(claim, Event.FAIL, error=reason)

    def cancel(self, claim):
        return self._end(claim, Event.CANCEL)

    def _next_state(self, claim, event):
        return replacement_states.next_state(self.note(claim).state, event)

    def _end(self, claim, event, **values):
        state, before = self._next_state(claim, event), self._records[claim.resource_id]
        if event is not Event.CANCEL:
            is_unchanged = before.state is ReplacementState.REQUESTED
            after = self._tasks_before[claim.resource_id] if is_unchanged else Task.NONE
            if before.state is ReplacementState.TAKING_OVER:
                after = Task.EJECTION_ERROR
            for own in {before.kind.task, before.kind.requested_task or before.kind.task}:
                self._trove.replace(before.instance_id, Task[own], after, self.now())
        values |= {'ended_at': self.now(), 'step': None, 'claimed_by': None}
        ended = self.note(claim, state=state, **values)
        del self._tokens[claim.resource_id]
        return ended
