# SPDX-License-Identifier: Apache-2.0
"""Roles of workers that hold a claim, and the states of a backup in which each may write."""

import enum
from collections.abc import Mapping

from trove_ceph.db.backup_record import RecordState


class Role(enum.StrEnum):
    """The operation for which a worker holds a claim."""

    TAKE = 'take'
    DELETE = 'delete'
    #: Removes the snapshot that a failed backup has left behind.
    CLEAN_UP = 'clean-up'
    COPY = 'copy'
    VERIFY = 'verify'
    #: Requests the backup of a policy from Trove; the claim is on the run, not on a backup.
    RUN_POLICY = 'run-policy'
    #: Creates an instance; the claim is on the instance, not on a backup.
    CREATE_INSTANCE = 'create-instance'
    #: Deletes an instance; the claim is on the instance, not on a backup.
    DELETE_INSTANCE = 'delete-instance'
    #: Makes a replica the source; the claim is on the replica. Its row also shows that the replica
    #: may accept writes already.
    PROMOTE_REPLICA = 'promote-replica'
    #: Gives up a source for one of its replicas; the claim is on the source.
    EJECT_SOURCE = 'eject-source'
    #: Gives up a source for one of its replicas as its failover; the claim is on the source. Only
    #: the failover continues it, as long as it is open.
    TAKE_OVER = 'take-over'
    #: Detaches a replica from its source; the claim is on the replica.
    DETACH_REPLICA = 'detach-replica'
    #: Keeps others from changing the replicas of a source; the claim is on the source.
    CHANGE_SOURCE = 'change-source'
    #: Gives an instance a new root disk in Nova; the claim is on the instance.
    REBUILD_SERVER = 'rebuild-server'
    #: Keeps a pool of warm guests; the claim is on the pool.
    KEEP_GUESTS = 'keep-guests'
    #: Replaces the server of an instance; the claim is on the replacement.
    REPLACE_SERVER = 'replace-server'
    #: Watches all databases for automatic failover; the claim is on the watch.
    WATCH_FAILOVERS = 'watch-failovers'
    #: Gives a replica a fresh clone of its source; the claim is on the replica.
    REPROVISION_REPLICA = 'reprovision'
    #: Watches all replicas; the claim is on the watch.
    WATCH_REPLICAS = 'watch-replicas'


_INSPECTABLE = frozenset(state for state in RecordState if state.can_be_verified)

#: In any other state a write of the worker is refused, even if its claim is valid.
STATES: Mapping[Role, frozenset[RecordState]] = {
    Role.TAKE: frozenset({RecordState.TAKING}),
    Role.DELETE: frozenset({RecordState.DELETING}),
    Role.CLEAN_UP: frozenset({RecordState.FAILED}),
    # The steps of a copy refuse a suspected or damaged backup, with a reason.
    Role.COPY: _INSPECTABLE,
    Role.VERIFY: _INSPECTABLE,
}
