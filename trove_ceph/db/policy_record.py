# SPDX-License-Identifier: Apache-2.0
"""The rows of the tables of backup policies as plain dataclasses.

All times are in UTC, without a time zone.
"""

import dataclasses
import datetime
import enum


class Scope(enum.StrEnum):
    """The kind of target of a policy."""

    INSTANCE = 'instance'
    DATASTORE = 'datastore'
    TIER = 'tier'


@dataclasses.dataclass(frozen=True)
class Retention:
    """How many backups to retain: the last ones, and the last one of each of the last periods."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0


@dataclasses.dataclass(frozen=True)
class BackupPolicy:
    """A backup policy: schedule, target and retention.

    :param target: id of an instance, name of a datastore or ``datastore/version``, or name of a
        tier
    :param project_id: project of the instance; None: the policy belongs to the operator
    :param interval_min: minutes from one backup to the next
    :param at: wall-clock time, as ``HH:MM`` in ``timezone``, from which the intervals are counted;
        None: a time that differs between instances, which spreads the load
    :param copy_every: copy every n-th backup to the vault; 0: none
    :param verify_every: verify every n-th backup; 0: none
    :param quiesce: the quiesce level; None: the configured level of the datastore
    :param run_wanted_at: when a run outside of the schedule was last requested
    """

    policy_id: str
    name: str
    scope: Scope
    target: str
    interval_min: int
    keep: Retention
    created_at: datetime.datetime
    updated_at: datetime.datetime
    project_id: str | None = None
    enabled: bool = True
    at: str | None = None
    timezone: str = 'UTC'
    copy_every: int = 0
    verify_every: int = 0
    quiesce: str | None = None
    run_wanted_at: datetime.datetime | None = None

    def __str__(self) -> str:
        return f'policy {self.policy_id} ({self.scope} {self.target})'

    @property
    def interval(self) -> datetime.timedelta:
        return datetime.timedelta(minutes=self.interval_min)


class PolicyRunState(enum.StrEnum):
    """The state of a run.

    The backup of a begun run may be requested from Trove or not; the backup of a requested run is.
    Done and failed runs have ended.
    """

    BEGUN = 'begun'
    #: Databases contain this value, so it stays.
    REQUESTED = 'asked'
    DONE = 'done'
    FAILED = 'failed'

    @property
    def is_under_way(self) -> bool:
        return self in (PolicyRunState.BEGUN, PolicyRunState.REQUESTED)


@dataclasses.dataclass(frozen=True)
class PolicyRun:
    """The last run of a policy for an instance.

    :param due_at: the scheduled time
    :param backup_name: unique name of the backup, recorded before the backup is requested
    :param attempts: failed attempts since the last success
    :param retry_at: earliest time of the next attempt
    :param count: number of backups of the instance that policies have taken
    :param claimed_by: the worker that requests the backup from Trove; its claim has
        ``claim_role``, ``claim_token`` and ``heartbeat_at`` like a claim on a backup
    """

    instance_id: str
    policy_id: str
    state: PolicyRunState
    due_at: datetime.datetime
    backup_name: str
    backup_id: str | None = None
    attempts: int = 0
    retry_at: datetime.datetime | None = None
    error: str | None = None
    count: int = 0
    claim_role: str | None = None
    claimed_by: str | None = None
    claim_token: str | None = None
    heartbeat_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True)
class PolicyBackup:
    """A backup that a policy requested, and that retention may therefore delete.

    :param number: grows from backup to backup, independent of clocks
    :param taken_at: when it was requested, by the clock of the database
    :param removal_wanted_at: when its deletion was requested
    """

    number: int
    backup_id: str
    instance_id: str
    policy_id: str
    taken_at: datetime.datetime
    removal_wanted_at: datetime.datetime | None = None
