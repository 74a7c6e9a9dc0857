# SPDX-License-Identifier: Apache-2.0
"""The state machine of a replica, as one table of transitions.

Every write of a state goes through :func:`next_state`. The diagram in the documentation is
generated from the same table, see :func:`as_dot`.
"""

import enum

from trove_ceph.db import state_machine
from trove_ceph.db.replica_record import ReplicaState as State
from trove_ceph.db.state_machine import ABSENT


class Event(enum.StrEnum):
    """Events that change the state of a replica."""

    REGISTER = 'register'
    REQUEST = 'request'
    CLONE = 'clone'
    EXCHANGE = 'exchange'
    EXCHANGED = 'exchanged'
    COMPLETE = 'complete'
    FAIL = 'fail'
    GIVE_BACK = 'give_back'
    GIVE_UP = 'give_up'
    RETURNED = 'returned'
    BLOCK = 'block'
    CANCEL = 'cancel'
    REMOVE = 'remove'


TRANSITIONS = (
    # The replica follows its source for the first time.
    (ABSENT, Event.REGISTER, State.FOLLOWING),
    (State.FOLLOWING, Event.REQUEST, State.REQUESTED),
    # Everything that can be refused was checked.
    (State.REQUESTED, Event.CLONE, State.CLONING),
    (State.CLONING, Event.CLONE, State.CLONING),
    # The clone exists. From now on the replica is out of service.
    (State.CLONING, Event.EXCHANGE, State.EXCHANGING),
    (State.EXCHANGING, Event.EXCHANGE, State.EXCHANGING),
    # Trove's tables name the new volume.
    (State.EXCHANGING, Event.EXCHANGED, State.CATCHING_UP),
    # The new volume has caught up, so that the old one is deleted.
    (State.CATCHING_UP, Event.COMPLETE, State.FOLLOWING),
    # It cannot catch up. The old volume is not needed, and cannot be read.
    (State.CATCHING_UP, Event.GIVE_UP, State.FOLLOWING),
    # Nothing was changed yet.
    (State.REQUESTED, Event.FAIL, State.FOLLOWING),
    (State.CLONING, Event.FAIL, State.FOLLOWING),
    # The old volume has all data of the replica.
    (State.EXCHANGING, Event.GIVE_BACK, State.RETURNING),
    (State.CATCHING_UP, Event.GIVE_BACK, State.RETURNING),
    (State.RETURNING, Event.GIVE_BACK, State.RETURNING),
    (State.RETURNING, Event.RETURNED, State.FOLLOWING),
    # The volumes cannot be exchanged, in either direction, until an operator has acted.
    (State.EXCHANGING, Event.BLOCK, State.BLOCKED),
    (State.RETURNING, Event.BLOCK, State.BLOCKED),
    (State.BLOCKED, Event.EXCHANGE, State.EXCHANGING),
    (State.BLOCKED, Event.GIVE_BACK, State.RETURNING),
    # The instance is being deleted.
    (State.REQUESTED, Event.CANCEL, ABSENT),
    (State.CLONING, Event.CANCEL, ABSENT),
    (State.EXCHANGING, Event.CANCEL, ABSENT),
    (State.CATCHING_UP, Event.CANCEL, ABSENT),
    (State.RETURNING, Event.CANCEL, ABSENT),
    (State.BLOCKED, Event.CANCEL, ABSENT),
    # It was promoted, detached or deleted.
    (State.FOLLOWING, Event.REMOVE, ABSENT),
)

_MACHINE = state_machine.StateMachine('a replica', State, TRANSITIONS)


def next_state(state: State | str, event: Event) -> State | str:
    """Return the state that an event leads to, see :meth:`.StateMachine.next_state`."""
    return _MACHINE.next_state(state, event)


def as_dot() -> str:
    """Return the machine as a graph in the DOT language of Graphviz."""
    return _MACHINE.as_dot('replica_states')


if __name__ == '__main__':
    print(as_dot())
