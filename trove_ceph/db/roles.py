# SPDX-License-Identifier: Apache-2.0
"""What a worker that holds a claim does, and in which states of a backup it may."""

import enum
from collections.abc import Mapping

from trove_ceph.db.backup_record import RecordState


class Role(enum.StrEnum):
    """What a worker does with what it has claimed."""

    TAKE = 'take'
    DELETE = 'delete'
    #: Removes what is left of a backup that could not be taken.
    CLEAN_UP = 'clean-up'
    COPY = 'copy'
    VERIFY = 'verify'
    #: Asks Trove for the backup that a policy has due; the claim is on the run, not on a backup.
    RUN_POLICY = 'run-policy'
    #: Creates an instance; the claim is on the instance, not on a backup.
    CREATE_INSTANCE = 'create-instance'


_THERE = frozenset(state for state in RecordState if state.can_be_verified)

#: A worker writes nothing in any other state, whatever its claim says.
STATES: Mapping[Role, frozenset[RecordState]] = {
    Role.TAKE: frozenset({RecordState.TAKING}),
    Role.DELETE: frozenset({RecordState.DELETING}),
    Role.CLEAN_UP: frozenset({RecordState.FAILED}),
    # Of a damaged backup an unfinished copy is still removed.
    Role.COPY: _THERE,
    Role.VERIFY: _THERE,
}
