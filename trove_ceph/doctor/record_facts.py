# SPDX-License-Identifier: Apache-2.0
"""The rows that the checks judge; this module needs no Trove."""

import dataclasses
import datetime
from collections.abc import Mapping

from trove_ceph.db.backup_record import BackupRecord, TrashedImage
from trove_ceph.db.orphan_sweeps import OrphanSweep
from trove_ceph.db.policy_record import BackupPolicy, PolicyRun
from trove_ceph.db.replica_record import ReplicaRecord
from trove_ceph.db.trove_rows import InstanceRow, SettingRow, VersionRow


@dataclasses.dataclass(frozen=True)
class Limits:
    """Settings of trove-taskmanager by which rows are judged.

    :param heartbeat_sec: age of a heartbeat from which Trove takes an agent for dead
    :param clone_depth: images above that of a source
    :param quiesce: the quiesce level of backups
    :param unsafe_action: what becomes of a backup that the level makes unsafe
    :param needs_keys: trove-conductor accepts only what the key of an instance encrypts
    """

    heartbeat_sec: int
    clone_depth: int
    quiesce: str
    unsafe_action: str
    needs_keys: bool = True


@dataclasses.dataclass(frozen=True)
class Records:
    """The rows of Trove's database at one time, Trove's own and ours.

    :param now: that time, in UTC without a time zone
    :param instances: those that are not deleted
    :param settings: parameters of configuration groups that instances use
    :param tiers: names of tiers by instance; only if a policy is for a tier
    :param runs: the last run of a policy by instance
    :param trashed: images that wait in the trash for their clones
    :param orphan_sweep: the last sweep for orphans; None: there was none
    """

    now: datetime.datetime
    limits: Limits
    instances: tuple[InstanceRow, ...] = ()
    versions: tuple[VersionRow, ...] = ()
    settings: tuple[SettingRow, ...] = ()
    tiers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    backups: tuple[BackupRecord, ...] = ()
    policies: tuple[BackupPolicy, ...] = ()
    runs: Mapping[str, PolicyRun] = dataclasses.field(default_factory=dict)
    replicas: tuple[ReplicaRecord, ...] = ()
    trashed: tuple[TrashedImage, ...] = ()
    orphan_sweep: OrphanSweep | None = None


@dataclasses.dataclass(frozen=True)
class SchemaFacts:
    """The version of our tables; None: there are none."""

    found: str | None
    required: str
