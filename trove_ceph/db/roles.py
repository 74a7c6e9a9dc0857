# SPDX-License-Identifier: Apache-2.0
"""What a worker that holds a claim does, and in which states of a backup it may."""

import enum
from collections.abc import Mapping

from trove_ceph.db.model import State


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


_THERE = frozenset({State.TAKEN, State.COPIED, State.VERIFIED, State.DAMAGED})

#: A worker writes nothing in any other state, whatever its claim says.
STATES: Mapping[Role, frozenset[State]] = {
    Role.TAKE: frozenset({State.TAKING}),
    Role.DELETE: frozenset({State.DELETING}),
    Role.CLEAN_UP: frozenset({State.FAILED}),
    # Of a damaged backup an unfinished copy is still removed.
    Role.COPY: _THERE,
    Role.VERIFY: _THERE,
}
