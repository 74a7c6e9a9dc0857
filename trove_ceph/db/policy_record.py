# SPDX-License-Identifier: Apache-2.0
"""What the tables of backup policies hold, for those who know no database.

All times are in UTC, and of no zone.
"""

import dataclasses
import datetime
import enum


class Scope(enum.StrEnum):
    """What a policy is for."""

    INSTANCE = 'instance'
    DATASTORE = 'datastore'
    TIER = 'tier'


@dataclasses.dataclass(frozen=True)
class Retention:
    """How many backups stay: the last ones, and the last one of each of the last periods."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0


@dataclasses.dataclass(frozen=True)
class BackupPolicy:
    """When backups are taken of what, and which of them stay.

    :param target: an instance's id, the name of a datastore or ``datastore/version``, or the name
        of a tier
    :param project_id: whose instance it is; None for what operators have
    :param interval_min: minutes from one backup to the next
    :param at: the time of day, as ``HH:MM`` in ``timezone``, from which they are counted; None: it
        differs from instance to instance, so that not all are taken at once
    :param copy_every: every so manieth backup is copied to the vault; 0: none
    :param verify_every: every so manieth backup is verified; 0: none
    :param quiesce: how the server is held; None: as it is configured for its datastore
    :param run_wanted_at: when somebody last asked for backups besides the schedule
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
    """How far a run is.

    Begun, Trove may know of its backup or not; asked, it does; done and failed, it has ended.
    """

    BEGUN = 'begun'
    #: The value is older than the name, and is in databases.
    REQUESTED = 'asked'
    DONE = 'done'
    FAILED = 'failed'

    @property
    def is_under_way(self) -> bool:
        return self in (PolicyRunState.BEGUN, PolicyRunState.REQUESTED)


@dataclasses.dataclass(frozen=True)
class PolicyRun:
    """The last time that a policy had a backup of an instance taken, or tried.

    :param due_at: what it was due for
    :param backup_name: by which its backup is found, given before it is asked for
    :param attempts: that have failed since the last success
    :param retry_at: no sooner is it tried again
    :param count: of the backups that policies have taken of the instance so far
    :param claimed_by: the worker that asks Trove for the backup, while it does; its claim has
        ``claim_role``, ``claim_token`` and ``heartbeat_at`` as those on backups
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
    """A backup that a policy had taken, and may therefore have deleted.

    :param number: grows from backup to backup, whatever clocks do
    :param taken_at: when it was asked for
    :param removal_wanted_at: when its deletion was asked for
    """

    number: int
    backup_id: str
    instance_id: str
    policy_id: str
    taken_at: datetime.datetime
    removal_wanted_at: datetime.datetime | None = None
