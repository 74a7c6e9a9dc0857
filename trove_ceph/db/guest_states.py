# SPDX-License-Identifier: Apache-2.0
"""The state machine of a warm guest, as one table of transitions.

Every write of a state goes through :func:`next_state`. The diagram in the documentation is
generated from the same table, see :func:`as_dot`.
"""

import enum

from trove_ceph.db import state_machine
from trove_ceph.db.guest_record import GuestState
from trove_ceph.db.state_machine import ABSENT


class Event(enum.StrEnum):
    """Events that change the state of a guest."""

    BOOT = 'boot'
    MAKE_READY = 'make ready'
    LOAD = 'load'
    KEEP_WARM = 'keep warm'
    MAKE_HOT = 'make hot'
    CLAIM = 'claim'
    RELEASE = 'release'
    BIND = 'bind'
    RETIRE = 'retire'
    DELETE = 'delete'


TRANSITIONS = (
    # A taskmanager decides to boot a guest; it has neither port nor server yet.
    (ABSENT, Event.BOOT, GuestState.BOOTING),
    # The agent of the guest answers that it can be bound.
    (GuestState.BOOTING, Event.MAKE_READY, GuestState.READY),
    (GuestState.READY, Event.MAKE_READY, GuestState.READY),
    # A taskmanager decides to make the guest hot.
    (GuestState.READY, Event.LOAD, GuestState.LOADING),
    # No volume could be made, so that nothing was attached to the guest.
    (GuestState.LOADING, Event.KEEP_WARM, GuestState.READY),
    # The agent of the guest answers that MySQL serves.
    (GuestState.LOADING, Event.MAKE_HOT, GuestState.HOT),
    (GuestState.HOT, Event.MAKE_HOT, GuestState.HOT),
    # An instance takes the guest.
    (GuestState.READY, Event.CLAIM, GuestState.CLAIMED),
    (GuestState.HOT, Event.CLAIM, GuestState.CLAIMED),
    # The instance could not be created, and the guest was told nothing of it.
    (GuestState.CLAIMED, Event.RELEASE, GuestState.READY),
    # The agent has the identity of the instance.
    (GuestState.CLAIMED, Event.BIND, GuestState.BOUND),
    (GuestState.BOUND, Event.BIND, GuestState.BOUND),
    # The guest is unfit, its binding failed, or its instance is deleted.
    (GuestState.BOOTING, Event.RETIRE, GuestState.RETIRED),
    (GuestState.READY, Event.RETIRE, GuestState.RETIRED),
    (GuestState.LOADING, Event.RETIRE, GuestState.RETIRED),
    (GuestState.HOT, Event.RETIRE, GuestState.RETIRED),
    (GuestState.CLAIMED, Event.RETIRE, GuestState.RETIRED),
    (GuestState.BOUND, Event.RETIRE, GuestState.RETIRED),
    (GuestState.RETIRED, Event.RETIRE, GuestState.RETIRED),
    # Server, port and volume are deleted.
    (GuestState.RETIRED, Event.DELETE, ABSENT),
)

_MACHINE = state_machine.StateMachine('a warm guest', GuestState, TRANSITIONS)


def next_state(state: GuestState | str, event: Event) -> GuestState | str:
    """Return the state that an event leads to, see :meth:`.StateMachine.next_state`."""
    return _MACHINE.next_state(state, event)


def as_dot() -> str:
    """Return the machine as a graph in the DOT language of Graphviz."""
    return _MACHINE.as_dot('guest_states')


if __name__ == '__main__':
    print(as_dot())
