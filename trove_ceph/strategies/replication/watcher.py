# SPDX-License-Identifier: Apache-2.0
"""Watch all replicas, in one taskmanager at a time, and request re-provisionings.

A replica that has no row gets one.

Each source is looked at, with its replicas, in a thread of its own, so that an agent that does not
answer delays the others of its source only. A round starts the looks, and decides by those that
have ended. It never fails: what went wrong is logged, and the next round begins anew.
"""

import dataclasses
import datetime
import functools
import math
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim
from trove_ceph.db.replica_record import Cause, ReplicaRecord, ReplicationPolicy, Requester
from trove_ceph.strategies.backup import backup_types, claimed
from trove_ceph.strategies.replication import drift, observation, registration, semi_sync
from trove_ceph.strategies.replication.drift import Candidate, Drift
from trove_ceph.strategies.replication.observation import Group, GroupLook, ReplicaLook
from trove_ceph.strategies.replication.replication_types import ReplicationStatus
from trove_ceph.strategies.replication.watch_dependencies import WatchDependencies

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class _Memory:
    """What the watcher remembers of a replica; it may be lost at any time.

    :param looks: how many in a row have found the cause
    """

    before: drift.Before = dataclasses.field(default_factory=drift.Before)
    cause: Cause | None = None
    looks: int = 0


class Watcher:
    """Watches the replicas; one thread calls it.

    :param deps: of all rounds
    """

    def __init__(self, deps: WatchDependencies):
        self._deps = deps
        self._claim: Claim | None = None
        self._registration = registration.Registration()
        self._look_memory = observation.LookMemory(deps.volumes, deps.clock)
        self._memory: dict[str, _Memory] = {}
        self._started_at: dict[str, float] = {}
        # The following are shared with the threads of the looks.
        self._mutex = threading.Lock()
        self._running: set[str] = set()
        self._ended: list[GroupLook] = []

    def watch(self) -> None:
        """Run one round, if this taskmanager keeps the watch or can claim it."""
        try:
            claim = self._claim = self._keep_claim()
            if claim is not None:
                self._run(_guarded(self._deps, claim))
        except exceptions.ClaimLostError as error:
            LOG.info('%s', error)
            self._deps.heartbeat.drop(self._claim)
            self._claim = None
            self._forget()
        except exceptions.TroveCephError as error:
            LOG.warning('Watch over replicas: the round failed: %s', error)
            self._forget()

    def _keep_claim(self) -> Claim | None:
        if self._claim is not None:
            self._deps.heartbeat.check(self._claim)
            return self._claim
        watch, worker = self._deps.watch, self._deps.worker
        claim = self._deps.heartbeat.acquire(lambda: watch.begin_watching(worker))
        if claim is not None:
            LOG.info('Watch over replicas: this taskmanager watches them')
            self._forget()
        return claim

    def _run(self, deps: WatchDependencies) -> None:
        # Before the instances, so that each row of an instance that is absent there is an orphan.
        policies = {one.instance_id: one for one in deps.policies.all()}
        records = deps.store.list()
        if not policies and not records and not deps.databases.has_replicas():
            return
        instances = {one.id: one for one in deps.databases.list_instances()}
        _remove_orphans(deps, records, policies, instances)
        records = [one for one in records if one.instance_id in instances]
        registered = self._registration.register(deps, records, instances)
        corrected = {one.instance_id for one in registered}
        records = [one for one in records if one.instance_id not in corrected] + [*registered]
        self._forget_others(records, instances)
        groups = _groups(records, policies, instances)
        self._started_at = {
            one.source_id: self._started_at.get(one.source_id, -math.inf) for one in groups
        }
        # Not the end of a look: Ceph may answer late when a host has failed.
        now = deps.store.now()
        # The threads may not suffice for all sources.
        for group in sorted(groups, key=lambda one: self._started_at[one.source_id]):
            policy = policies.get(group.source_id)
            self._start_look(deps, group, policy is not None and policy.semi_sync, now)
        self._decide(deps, records, policies, now)

    def _forget(self) -> None:
        """Forget the looks of before, so that drift must be seen anew."""
        self._memory.clear()
        with self._mutex:
            self._ended.clear()

    def _forget_others(
        self, records: Sequence[ReplicaRecord], instances: Mapping[str, backup_types.Instance]
    ) -> None:
        """Forget what is not watched any more."""
        ids = {one.instance_id for one in records}
        self._memory = {one: known for one, known in self._memory.items() if one in ids}
        self._look_memory.forget_others({one: instances[one].volume_id for one in ids})

    # Looks.

    def _start_look(
        self, deps: WatchDependencies, group: Group, is_semi_sync: bool, now: datetime.datetime
    ) -> None:
        """Look at a source in a thread of its own, unless the last look has not ended yet."""
        source_id = group.source_id
        with self._mutex:
            if source_id in self._running:
                return
            self._running.add(source_id)
        if deps.start(functools.partial(self._look, deps, group, is_semi_sync, now)):
            self._started_at[source_id] = deps.clock()
        else:
            with self._mutex:
                self._running.discard(source_id)

    def _look(
        self,
        deps: WatchDependencies,
        group: Group,
        is_semi_sync: bool,
        began_at: datetime.datetime,
    ) -> None:
        try:
            found = observation.look(deps, self._look_memory, group)
            for one in found.replicas:
                deps.store.observe(
                    one.record,
                    observation.observe(one, found.source),
                    None if found.source is None else began_at,
                )
            timeout_ms = deps.settings.semi_sync_timeout_ms
            semi_sync.apply(deps.agents, found, is_semi_sync, timeout_ms)
            with self._mutex:
                self._ended.append(found)
            source = found.source
            if source is not None and any(_is_left(one, source) for one in found.replicas):
                deps.resume_replicas(group.source_id)
        except exceptions.TroveCephError as error:
            LOG.info('Instance %s: its replicas may not work: %s', group.source_id, error)
        finally:
            with self._mutex:
                self._running.discard(group.source_id)

    # Decisions.

    def _decide(
        self,
        deps: WatchDependencies,
        records: Sequence[ReplicaRecord],
        policies: Mapping[str, ReplicationPolicy],
        now: datetime.datetime,
    ) -> None:
        with self._mutex:
            ended, self._ended = self._ended, []
        if not ended:
            return
        present = {one.instance_id: one for one in records}
        candidates = []
        for group in ended:
            limits = drift.limits_of(policies.get(group.source_id), deps.settings)
            for one in group.replicas:
                found = self._judge(group, one, limits, now)
                record = present.get(one.record.instance_id)
                if found is not None and record is not None:
                    candidates.append(Candidate(record, found))
        for candidate in drift.choose(candidates, records, deps.settings, now):
            self._request(deps, candidate)

    def _judge(
        self, group: GroupLook, one: ReplicaLook, limits: drift.Limits, now: datetime.datetime
    ) -> Drift | None:
        """Count a look at a replica; return its drift after enough looks in a row."""
        instance_id = one.record.instance_id
        known = self._memory.get(instance_id, _Memory())
        found = None
        # Without its source, a replica cannot get a fresh clone.
        if group.source is not None and not one.record.state.is_reprovisioning:
            found = drift.find_drift(one, group.source, limits, known.before, now)
        cause = None if found is None else found.cause
        looks = 0 if found is None else 1 + (known.looks if cause is known.cause else 0)
        lag_sec = observation.observe(one, group.source).lag_sec
        lags = drift.lags_after(known.before.lags, lag_sec)
        failing_since = None if one.agent_error is None else known.before.failing_since or now
        self._memory[instance_id] = _Memory(drift.Before(lags, failing_since), cause, looks)
        if found is not None and looks == 1:
            LOG.info('%s: has drifted: %s', one.record, found.reason)
        return found if looks >= self._deps.settings.looks else None

    def _request(self, deps: WatchDependencies, candidate: Candidate) -> None:
        record, found = candidate.record, candidate.drift
        try:
            deps.store.request(record.instance_id, Requester.POLICY, found.reason, found.cause)
        except (exceptions.ReprovisioningRefusedError, exceptions.RecordNotFoundError) as error:
            LOG.info('%s: its re-provisioning was refused: %s', record, error)
            return
        self._memory.pop(record.instance_id, None)
        LOG.warning('%s: its re-provisioning was requested: %s', record, found.reason)


def _groups(
    records: Sequence[ReplicaRecord],
    policies: Collection[str],
    instances: Mapping[str, backup_types.Instance],
) -> Sequence[Group]:
    """Return the sources with their replicas, and those that have a policy only."""
    by_source: dict[str, list[ReplicaRecord]] = {one: [] for one in policies if one in instances}
    for record in records:
        by_source.setdefault(record.source_id, []).append(record)
    groups = []
    for source_id, replicas in by_source.items():
        ids = (source_id, *(one.instance_id for one in replicas))
        volumes = {one: instances[one].volume_id for one in ids if one in instances}
        groups.append(Group(source_id, replicas, volumes))
    return groups


def _is_left(one: ReplicaLook, source: ReplicationStatus) -> bool:
    """Return whether a change of the source has left a replica behind, which answers."""
    if one.status is None or one.record.state.is_reprovisioning:
        return False
    return (
        one.record.stopped_at is not None
        or observation.is_stray(one.status, source)
        or observation.is_refused(one.status, source)
    )


def _remove_orphans(
    deps: WatchDependencies,
    records: Sequence[ReplicaRecord],
    policies: Collection[str],
    instances: Collection[str],
) -> None:
    """Delete the rows of deleted instances.

    A re-provisioning whose instance was deleted is canceled by the taskmanager that works on it.
    """
    for record in records:
        if record.instance_id not in instances and not record.state.is_reprovisioning:
            LOG.info('%s: delete its row, since the instance is gone', record)
            deps.store.remove(record.instance_id)
    for source_id in policies:
        if source_id not in instances:
            LOG.info('Instance %s: delete its replication policy, since it is gone', source_id)
            deps.policies.remove(source_id)


def _guarded(deps: WatchDependencies, claim: Claim) -> WatchDependencies:
    """Return dependencies that raise ClaimLostError instead of a request once a claim is lost."""
    changes: dict[str, Any] = {
        name: claimed.Guarded(getattr(deps, name), deps.heartbeat, claim)
        for name in ('store', 'policies', 'databases', 'agents', 'volumes')
    }
    return dataclasses.replace(deps, **changes)
