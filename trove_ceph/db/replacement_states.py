# SPDX-License-Identifier: Apache-2.0
"""The state machine of a replacement, as one table of transitions.

Every write of a state goes through :func:`next_state`. The diagram in the documentation is
generated from the same table, see :func:`as_dot`.
"""

import enum

from trove_ceph.db import state_machine
from trove_ceph.db.replacement_record import ReplacementState as State
from trove_ceph.db.state_machine import ABSENT


class Event(enum.StrEnum):
    """Events that change the state of a replacement."""

    REQUEST = 'request'
    TAKE_OVER = 'take over'
    FENCE = 'fence'
    MOVE = 'move'
    SHOW = 'show'
    RETURN = 'return'
    COMPLETE = 'complete'
    FAIL = 'fail'
    CANCEL = 'cancel'
    PRUNE = 'prune'


TRANSITIONS = (
    (ABSENT, Event.REQUEST, State.REQUESTED),
    # The instance is a source, and its policy prefers that one of its replicas takes over.
    (State.REQUESTED, Event.TAKE_OVER, State.TAKING_OVER),
    # A replica is the source, and the instance is given up.
    (State.TAKING_OVER, Event.COMPLETE, State.COMPLETED),
    # A replica is the source, but its agent does not answer: nothing may accept writes.
    (State.TAKING_OVER, Event.FAIL, State.FAILED),
    # Everything that can be refused was checked, and what is needed later was noted.
    (State.REQUESTED, Event.FENCE, State.FENCING),
    # No replica accepts writes, so that the volume moves.
    (State.TAKING_OVER, Event.FENCE, State.FENCING),
    (State.FENCING, Event.FENCE, State.FENCING),
    # No client of the volume can write, and the old server is deleted in Nova.
    (State.FENCING, Event.MOVE, State.MOVING),
    (State.MOVING, Event.MOVE, State.MOVING),
    # Trove's tables name the new server.
    (State.MOVING, Event.SHOW, State.STARTING),
    (State.STARTING, Event.SHOW, State.STARTING),
    (State.STARTING, Event.COMPLETE, State.COMPLETED),
    # It is a resize, and there is no server of the new flavor, or MySQL does not start on it.
    (State.MOVING, Event.RETURN, State.RETURNING),
    (State.STARTING, Event.RETURN, State.RETURNING),
    # Nothing is left of that server, and its processes cannot write.
    (State.RETURNING, Event.MOVE, State.MOVING),
    # Nothing was changed yet.
    (State.REQUESTED, Event.FAIL, State.FAILED),
    # The guest agent says that MySQL does not start, the instance has no port any more, or it
    # serves with its former flavor.
    (State.STARTING, Event.FAIL, State.FAILED),
    # The instance is being deleted.
    (State.REQUESTED, Event.CANCEL, State.CANCELED),
    (State.TAKING_OVER, Event.CANCEL, State.CANCELED),
    (State.FENCING, Event.CANCEL, State.CANCELED),
    (State.MOVING, Event.CANCEL, State.CANCELED),
    (State.STARTING, Event.CANCEL, State.CANCELED),
    (State.RETURNING, Event.CANCEL, State.CANCELED),
    # It ended long ago.
    (State.COMPLETED, Event.PRUNE, ABSENT),
    (State.FAILED, Event.PRUNE, ABSENT),
    (State.CANCELED, Event.PRUNE, ABSENT),
)

_MACHINE = state_machine.StateMachine('a replacement of a server', State, TRANSITIONS)


def next_state(state: State | str, event: Event) -> State | str:
    """Return the state that an event leads to, see :meth:`.StateMachine.next_state`."""
    return _MACHINE.next_state(state, event)


def as_dot() -> str:
    """Return the machine as a graph in the DOT language of Graphviz."""
    return _MACHINE.as_dot('replacement_states')


if __name__ == '__main__':
    print(as_dot())
