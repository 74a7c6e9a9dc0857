# SPDX-License-Identifier: Apache-2.0
"""The state machine of a backup, as one table of transitions.

Every write of a state goes through :func:`next_state`. The diagram in the documentation is
generated from the same table, see :func:`as_dot`.
"""

import enum

from trove_ceph.db import state_machine
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.state_machine import ABSENT


class Event(enum.StrEnum):
    """Events that change the state of a backup."""

    BEGIN = 'begin'
    COMPLETE = 'complete'
    FAIL = 'fail'
    COPY = 'copy'
    SUSPECT = 'suspect'
    LOSE_COPY = 'lose the copy'
    PASS_VERIFICATION = 'pass verification'
    FAIL_VERIFICATION = 'fail verification'
    DELETE = 'delete'
    FINISH_DELETION = 'finish deletion'


TRANSITIONS = (
    # A worker begins to take the backup, or continues after an interruption.
    (ABSENT, Event.BEGIN, RecordState.TAKING),
    (RecordState.TAKING, Event.BEGIN, RecordState.TAKING),
    # The snapshot exists, is proved to be consistent, and is recorded in Cinder and Trove.
    (RecordState.TAKING, Event.COMPLETE, RecordState.TAKEN),
    # Taking the backup failed. Or no taskmanager received the request; then there is no row.
    (RecordState.TAKING, Event.FAIL, RecordState.FAILED),
    (ABSENT, Event.FAIL, RecordState.FAILED),
    # The vault holds a complete copy. A copy does not change what is known of the content.
    (RecordState.TAKEN, Event.COPY, RecordState.COPIED),
    (RecordState.COPIED, Event.COPY, RecordState.COPIED),
    (RecordState.VERIFIED, Event.COPY, RecordState.VERIFIED),
    # The copy in the vault is damaged or gone, and the snapshot is intact.
    (RecordState.TAKEN, Event.LOSE_COPY, RecordState.TAKEN),
    (RecordState.COPIED, Event.LOSE_COPY, RecordState.TAKEN),
    (RecordState.VERIFIED, Event.LOSE_COPY, RecordState.VERIFIED),
    (RecordState.SUSPECTED, Event.LOSE_COPY, RecordState.SUSPECTED),
    (RecordState.DAMAGED, Event.LOSE_COPY, RecordState.DAMAGED),
    # One inspection failed, and no second one has confirmed it.
    (RecordState.TAKEN, Event.SUSPECT, RecordState.SUSPECTED),
    (RecordState.COPIED, Event.SUSPECT, RecordState.SUSPECTED),
    (RecordState.VERIFIED, Event.SUSPECT, RecordState.SUSPECTED),
    (RecordState.SUSPECTED, Event.SUSPECT, RecordState.SUSPECTED),
    (RecordState.DAMAGED, Event.SUSPECT, RecordState.DAMAGED),
    # A server was started on a clone of the backup, and all checks passed.
    (RecordState.TAKEN, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    (RecordState.COPIED, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    (RecordState.VERIFIED, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    (RecordState.SUSPECTED, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    (RecordState.DAMAGED, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    # Two inspections found that the backup does not restore completely.
    (RecordState.TAKEN, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    (RecordState.COPIED, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    (RecordState.VERIFIED, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    (RecordState.SUSPECTED, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    (RecordState.DAMAGED, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    # A backup can be deleted in any state. A deletion that has begun cannot be undone.
    (RecordState.TAKING, Event.DELETE, RecordState.DELETING),
    (RecordState.TAKEN, Event.DELETE, RecordState.DELETING),
    (RecordState.COPIED, Event.DELETE, RecordState.DELETING),
    (RecordState.VERIFIED, Event.DELETE, RecordState.DELETING),
    (RecordState.SUSPECTED, Event.DELETE, RecordState.DELETING),
    (RecordState.DAMAGED, Event.DELETE, RecordState.DELETING),
    (RecordState.FAILED, Event.DELETE, RecordState.DELETING),
    (RecordState.DELETING, Event.DELETE, RecordState.DELETING),
    # Nothing is left in Ceph, Cinder and Trove; the row is deleted last.
    (RecordState.DELETING, Event.FINISH_DELETION, ABSENT),
)


_MACHINE = state_machine.StateMachine('a backup', RecordState, TRANSITIONS)


def next_state(state: RecordState | str, event: Event) -> RecordState | str:
    """Return the state that an event leads to, see :meth:`.StateMachine.next_state`."""
    return _MACHINE.next_state(state, event)


def as_dot() -> str:
    """Return the machine as a graph in the DOT language of Graphviz."""
    return _MACHINE.as_dot('backup_states')


if __name__ == '__main__':
    print(as_dot())
