# SPDX-License-Identifier: Apache-2.0
"""The rows of replicas and of the policies of sources as plain dataclasses.

Times are in UTC, without a time zone.
"""

import dataclasses
import datetime
import enum


class ReplicaState(enum.StrEnum):
    """The state of a replica.

    Between REQUESTED and BLOCKED it is being re-provisioned: it gets a fresh clone of its source.
    The old volume is kept until the new one has caught up.
    """

    FOLLOWING = 'following'
    REQUESTED = 'requested'
    #: The clone is made while the replica serves.
    CLONING = 'cloning'
    #: MySQL is stopped, and the volumes are exchanged.
    EXCHANGING = 'exchanging'
    #: The new volume is that of the instance. MySQL starts on it and catches up with the source.
    CATCHING_UP = 'catching_up'
    #: The old volume is attached again, since the new one cannot be used.
    RETURNING = 'returning'
    #: Its server or its volumes need an operator; what can be repaired is tried again and again.
    BLOCKED = 'blocked'

    @property
    def is_reprovisioning(self) -> bool:
        """Whether a taskmanager must continue the re-provisioning."""
        return self is not ReplicaState.FOLLOWING

    @property
    def needs_operator(self) -> bool:
        """Whether its re-provisioning goes on when an operator has repaired something."""
        return self is ReplicaState.BLOCKED


class Requester(enum.StrEnum):
    """Who requested a re-provisioning."""

    TENANT = 'tenant'
    OPERATOR = 'operator'
    POLICY = 'policy'


class Cause(enum.StrEnum):
    """Why a replica is re-provisioned."""

    #: A tenant or an operator requested it.
    REQUEST = 'request'
    #: The clone is older than the policy allows.
    AGE = 'age'
    #: The clone shares too little with its source by now.
    GROWTH = 'growth'
    #: The clone reads through more images than a replica may.
    DEPTH = 'depth'
    #: The replica stopped at an error.
    BROKEN = 'broken'
    #: The source has deleted binary logs that the replica needs.
    PURGED = 'purged'
    #: The replica falls behind more and more.
    LAG = 'lag'
    #: The volume of the replica is lost or does not answer.
    VOLUME = 'volume'
    #: The replica has transactions that its source does not have.
    ERRANT = 'errant'


@dataclasses.dataclass(frozen=True)
class Observation:
    """What the last look at a replica has found. None: it is not known.

    :param is_replicating: it receives and applies transactions; False too if its data are lost
    :param lag_sec: seconds by which it is behind its source; None too while it does not replicate
    :param lag_transactions: transactions of the source that it has not applied
    :param errant: the GTIDs of transactions that its source does not have; empty: there are none
    :param source_executed: ``gtid_executed`` of the source, from the last look that it answered
    :param replication_error: why it does not replicate, or why that is not known; None: it does
    :param own_bytes: space that it does not share with its source
    :param clone_depth: images above the one of its volume
    :param semi_sync_active: a commit of its source waits until a replica has it, this or another
    :param has_surplus: it has, or may write, transactions that its source lacks, from the last look
        at which both answered, or since its detachment began
    """

    is_replicating: bool | None = None
    lag_sec: float | None = None
    lag_transactions: int | None = None
    errant: str | None = None
    source_executed: str | None = None
    replication_error: str | None = None
    own_bytes: int | None = None
    clone_depth: int | None = None
    semi_sync_active: bool | None = None
    has_surplus: bool | None = None


@dataclasses.dataclass(frozen=True)
class ReplicaRecord(Observation):
    """A replica.

    :param project_id: of the instance
    :param source_id: of the instance that it follows
    :param volume_id: of the volume that the instance uses; it changes with :attr:`CATCHING_UP`
    :param cloned_at: when the snapshot of its data was created; None: its volume is no clone, such
        as that of a former source
    :param request_id: of the present re-provisioning, or of the last one
    :param requested_by: who requested the present or the last one
    :param reason: why it was requested, for tenants
    :param cause: of the present or the last one
    :param error: why the last attempt failed, or why the last re-provisioning ended
    :param step: what is being done, for tenants
    :param attempts: how many attempts have failed in this state
    :param retry_at: earliest time of the next attempt, by the clock of the database
    :param new_volume_id: of the fresh clone
    :param old_volume_id: of the volume that is kept until the new one has caught up
    :param new_cloned_at: when the snapshot of the fresh clone was created
    :param target_gtid: what the source had executed before the exchange of the volumes, as text
    :param exchange_began_at: when the present exchange of the volumes began
    :param answered_at: when the guest agent last answered an attempt to start MySQL
    :param failed_starts: how many starts of MySQL on the volume have failed
    :param task_before: the name of the task to which the instance returns if nothing was changed
    :param requested_at: when the present or the last re-provisioning was requested
    :param ended_at: when the last one ended
    :param failures: how many in a row have failed
    :param reprovisioned_at: when the last successful one ended
    :param last_reason: the reason of the last successful one
    :param last_cause: the cause of the last successful one
    :param former_own_bytes: space that its volume did not share with the source before the present
        or the last exchange, as it was last measured; None: not known, or the exchange was undone
    :param fresh_own_bytes: the same of the fresh clone, when it had caught up
    :param observed_at: when the watcher last looked at it
    :param source_seen_at: when the last look began that its present source has answered
    :param stopped_at: when an ejection, a take-over or a detachment told it to receive no more;
        None: it receives since, or follows another source
    """

    _: dataclasses.KW_ONLY
    instance_id: str
    project_id: str
    source_id: str
    state: ReplicaState
    created_at: datetime.datetime
    updated_at: datetime.datetime
    volume_id: str | None = None
    cloned_at: datetime.datetime | None = None
    request_id: str | None = None
    requested_by: Requester | None = None
    reason: str | None = None
    cause: Cause | None = None
    error: str | None = None
    step: str | None = None
    attempts: int = 0
    retry_at: datetime.datetime | None = None
    new_volume_id: str | None = None
    old_volume_id: str | None = None
    new_cloned_at: datetime.datetime | None = None
    target_gtid: str | None = None
    exchange_began_at: datetime.datetime | None = None
    answered_at: datetime.datetime | None = None
    failed_starts: int = 0
    task_before: str = 'NONE'
    requested_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    failures: int = 0
    reprovisioned_at: datetime.datetime | None = None
    last_reason: str | None = None
    last_cause: Cause | None = None
    former_own_bytes: int | None = None
    fresh_own_bytes: int | None = None
    observed_at: datetime.datetime | None = None
    source_seen_at: datetime.datetime | None = None
    stopped_at: datetime.datetime | None = None
    claimed_by: str | None = None
    heartbeat_at: datetime.datetime | None = None

    @property
    def data_since(self) -> datetime.datetime:
        """When its data was cloned, or it became a replica with a volume that is no clone."""
        return self.cloned_at or self.created_at

    @property
    def is_observed(self) -> bool:
        """Whether it was looked at since the last re-provisioning ended, if there was one."""
        if self.observed_at is None:
            return False
        return self.ended_at is None or self.observed_at >= self.ended_at

    @property
    def is_broken(self) -> bool:
        """Whether it is known not to replicate, and is not being re-provisioned."""
        is_following = self.state is ReplicaState.FOLLOWING
        return is_following and self.is_observed and self.is_replicating is False

    def __str__(self) -> str:
        return f'replica {self.instance_id} of instance {self.source_id}'


@dataclasses.dataclass(frozen=True)
class ReplicationPolicy:
    """How the replicas of a source are kept. None: as the options or the tiers file say.

    :param instance_id: of the source
    :param semi_sync: a commit on the source waits until one replica has received it
    :param reprovision_every_hours: age of a clone after which the replica gets a fresh one; 0:
        never
    :param max_own_percent: space that a replica does not share with its source, in percent of its
        size, above which it gets a fresh clone; 0: never
    :param max_lag_sec: lag above which a replica that falls behind more and more gets a fresh
        clone; 0: never
    :param replica_volume_type: the name of the volume type of new replicas, and of the fresh clones
        of others
    """

    instance_id: str
    created_at: datetime.datetime
    updated_at: datetime.datetime
    semi_sync: bool = False
    reprovision_every_hours: int | None = None
    max_own_percent: int | None = None
    max_lag_sec: int | None = None
    replica_volume_type: str | None = None

    def __str__(self) -> str:
        return f'replication policy of instance {self.instance_id}'
