# SPDX-License-Identifier: Apache-2.0
"""The store of replicas in memory, for tests with very many worlds.

``test_replica_memory`` compares it with the real one.
"""

import dataclasses
import secrets

from trove_ceph import exceptions
from trove_ceph.db import replica_states
from trove_ceph.db.claims import Claim
from trove_ceph.db.replica_record import Cause, ReplicaRecord, ReplicaState
from trove_ceph.db.replica_states import Event
from trove_ceph.db.roles import Role
from trove_ceph.db.trove_tasks import Task


class MemoryStore:
    """The verbs of :class:`.ReplicaStore` that requesters and workers use.

    :param trove: a :class:`.replacement_memory.MemoryTrove`
    """

    def __init__(self, trove, clock):
        self.now = clock
        self._trove = trove
        self._records, self._tokens = {}, {}
        self.claims = self

    def register(self, instance_id, project_id, source_id, volume_id, cloned_at):
        record = ReplicaRecord(
            instance_id=instance_id,
            project_id=project_id,
            source_id=source_id,
            state=ReplicaState.FOLLOWING,
            created_at=self.now(),
            updated_at=self.now(),
            volume_id=volume_id,
            cloned_at=cloned_at,
        )
        return self._records.setdefault(instance_id, record)

    def observe(self, before, observation, source_seen_at=None):
        values = {'source_seen_at': source_seen_at} if source_seen_at else {}
        self._set(before.instance_id, **vars(observation), **values, observed_at=self.now())

    def request(self, instance_id, requested_by, reason):
        record = self._records[instance_id]
        if not self._trove.replace(instance_id, Task.NONE, Task.MIGRATING, self.now()):
            raise exceptions.ReprovisioningRefusedError(f'{record}: has a task')
        return self._set(
            instance_id,
            state=replica_states.next_state(record.state, Event.REQUEST),
            request_id='request',
            requested_by=requested_by,
            reason=reason,
            cause=Cause.REQUEST,
            requested_at=self.now(),
            error=None,
            step=None,
            attempts=0,
        )

    def find(self, instance_id):
        return self._records.get(instance_id)

    def claim(self, instance_id, claimant):
        record = self._records.get(instance_id)
        if record is None or not record.state.is_reprovisioning:
            return None
        if not claimant.may_claim(record, self.now()):
            return None
        claim = Claim(Role.REPROVISION_REPLICA, instance_id, claimant.name, secrets.token_hex(16))
        self._tokens[instance_id] = claim.token
        self._set(instance_id, claimed_by=claimant.name, heartbeat_at=self.now())
        return claim

    def heartbeat_all(self, claims):
        return {one for one in claims if self._tokens.get(one.resource_id) == one.token}

    def release(self, claim):
        if self._tokens.get(claim.resource_id) == claim.token:
            del self._tokens[claim.resource_id]
            self._set(claim.resource_id, claimed_by=None)

    def note(self, claim, **values):
        self._check(claim)
        return self._set(claim.resource_id, **values)

    def advance(self, claim, event, **values):
        return self.note(claim, state=self._next(claim, event), **values)

    def complete(self, claim):
        record = self.find(claim.resource_id)
        done = {'error': None, 'failures': 0, 'reprovisioned_at': self.now()}
        done |= {'last_reason': record.reason, 'last_cause': record.cause}
        return self._end(claim, Event.COMPLETE, **done)

    def fail(self, claim, reason):
        return self._end(claim, Event.FAIL, error=reason)

    def give_up(self, claim, reason):
        done = {'former_own_bytes': None, 'fresh_own_bytes': None, 'error': reason}
        return self._end(claim, Event.GIVE_UP, **done)

    def finish_return(self, claim):
        return self._end(claim, Event.RETURNED, former_own_bytes=None, fresh_own_bytes=None)

    def cancel(self, claim):
        self._next(claim, Event.CANCEL)
        del self._records[claim.resource_id], self._tokens[claim.resource_id]

    def _check(self, claim):
        if self._tokens.get(claim.resource_id) != claim.token:
            raise exceptions.ClaimLostError(f'{claim} is lost')

    def _next(self, claim, event):
        self._check(claim)
        return replica_states.next_state(self._records[claim.resource_id].state, event)

    def _end(self, claim, event, **values):
        state, record = self._next(claim, event), self._records[claim.resource_id]
        self._trove.replace(record.instance_id, Task.MIGRATING, Task.NONE, self.now())
        values = {'failures': record.failures + 1} | values
        values |= {'ended_at': self.now(), 'step': None, 'attempts': 0, 'claimed_by': None}
        values |= {'new_volume_id': None, 'old_volume_id': None}
        ended = self.note(claim, state=state, **values)
        del self._tokens[claim.resource_id]
        return ended

    def _set(self, instance_id, **values):
        found = dataclasses.replace(
            self._records[instance_id], **{'updated_at': self.now()} | values
        )
        self._records[instance_id] = found
        return found
