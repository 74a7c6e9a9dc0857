# SPDX-License-Identifier: Apache-2.0
"""The tables as SQLAlchemy models; :mod:`migration` creates them."""

from trove_ceph.db.tables.backups import BackupRow, JobStart, KeptVolumeRow, TrashedImageRow
from trove_ceph.db.tables.base import Base, Claimable
from trove_ceph.db.tables.failover import FailoverPolicyRow, FailoverWatchRow
from trove_ceph.db.tables.guests import GuestPoolRow, GuestRequestRow, GuestRow
from trove_ceph.db.tables.operations import InstanceOperationRow, ReplacementRow
from trove_ceph.db.tables.orphans import OrphanSweepRow
from trove_ceph.db.tables.policies import BackupPolicyRow, PolicyBackupRow, PolicyRunRow
from trove_ceph.db.tables.replication import (
    ReplicaRow,
    ReplicationPolicyRow,
    ReplicationWatchRow,
    SourceMarkRow,
)

__all__ = (
    'VERSION_TABLE',
    'BackupPolicyRow',
    'BackupRow',
    'Base',
    'Claimable',
    'FailoverPolicyRow',
    'FailoverWatchRow',
    'GuestPoolRow',
    'GuestRequestRow',
    'GuestRow',
    'InstanceOperationRow',
    'JobStart',
    'KeptVolumeRow',
    'OrphanSweepRow',
    'PolicyBackupRow',
    'PolicyRunRow',
    'ReplacementRow',
    'ReplicaRow',
    'ReplicationPolicyRow',
    'ReplicationWatchRow',
    'SourceMarkRow',
    'TrashedImageRow',
)

#: Unlike the version table of Trove, which is in the same database.
VERSION_TABLE = 'trove_ceph_alembic_version'
