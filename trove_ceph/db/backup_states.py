# SPDX-License-Identifier: Apache-2.0
"""The states of a backup: one table says which event leads from which state to which.

Every write of a state goes through :func:`next_state`. The diagram in the documents is generated
from the same table, see :func:`as_dot`.
"""

import enum
from collections.abc import Iterator

from automaton import exceptions as automaton_exceptions
from automaton import machines

from trove_ceph import exceptions
from trove_ceph.db.backup_record import RecordState

#: The pseudo-state of a backup that has no row: not begun yet, or forgotten.
ABSENT = 'absent'


class Event(enum.StrEnum):
    """What happens to a backup."""

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
    # A worker begins to take the backup, or carries on where another worker was interrupted.
    (ABSENT, Event.BEGIN, RecordState.TAKING),
    (RecordState.TAKING, Event.BEGIN, RecordState.TAKING),
    # The snapshot exists, holds what it promises, and Cinder and Trove know of it.
    (RecordState.TAKING, Event.COMPLETE, RecordState.TAKEN),
    # It could not be taken. Or no taskmanager ever heard of the request (then it has no row).
    (RecordState.TAKING, Event.FAIL, RecordState.FAILED),
    (ABSENT, Event.FAIL, RecordState.FAILED),
    # The vault holds a complete copy. A copy proves nothing about the content, nor unproves it.
    (RecordState.TAKEN, Event.COPY, RecordState.COPIED),
    (RecordState.COPIED, Event.COPY, RecordState.COPIED),
    (RecordState.VERIFIED, Event.COPY, RecordState.VERIFIED),
    # The copy in the vault is damaged or gone, and the snapshot is sound: only the copy is lost.
    (RecordState.TAKEN, Event.LOSE_COPY, RecordState.TAKEN),
    (RecordState.COPIED, Event.LOSE_COPY, RecordState.TAKEN),
    (RecordState.VERIFIED, Event.LOSE_COPY, RecordState.VERIFIED),
    (RecordState.SUSPECTED, Event.LOSE_COPY, RecordState.SUSPECTED),
    (RecordState.DAMAGED, Event.LOSE_COPY, RecordState.DAMAGED),
    # One inspection found something against it, which no second one has confirmed.
    (RecordState.TAKEN, Event.SUSPECT, RecordState.SUSPECTED),
    (RecordState.COPIED, Event.SUSPECT, RecordState.SUSPECTED),
    (RecordState.VERIFIED, Event.SUSPECT, RecordState.SUSPECTED),
    (RecordState.SUSPECTED, Event.SUSPECT, RecordState.SUSPECTED),
    (RecordState.DAMAGED, Event.SUSPECT, RecordState.DAMAGED),
    # A server was started from a clone of the backup, and everything it checked was sound.
    (RecordState.TAKEN, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    (RecordState.COPIED, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    (RecordState.VERIFIED, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    (RecordState.SUSPECTED, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    (RecordState.DAMAGED, Event.PASS_VERIFICATION, RecordState.VERIFIED),
    # Two inspections found that the backup does not restore, or not all of it.
    (RecordState.TAKEN, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    (RecordState.COPIED, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    (RecordState.VERIFIED, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    (RecordState.SUSPECTED, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    (RecordState.DAMAGED, Event.FAIL_VERIFICATION, RecordState.DAMAGED),
    # Anybody may ask for the deletion of any backup at any time; from then on it only goes.
    (RecordState.TAKING, Event.DELETE, RecordState.DELETING),
    (RecordState.TAKEN, Event.DELETE, RecordState.DELETING),
    (RecordState.COPIED, Event.DELETE, RecordState.DELETING),
    (RecordState.VERIFIED, Event.DELETE, RecordState.DELETING),
    (RecordState.SUSPECTED, Event.DELETE, RecordState.DELETING),
    (RecordState.DAMAGED, Event.DELETE, RecordState.DELETING),
    (RecordState.FAILED, Event.DELETE, RecordState.DELETING),
    (RecordState.DELETING, Event.DELETE, RecordState.DELETING),
    # Nothing of it is left, in Ceph, Cinder and Trove: the row goes last.
    (RecordState.DELETING, Event.FINISH_DELETION, ABSENT),
)


def make_machine() -> machines.FiniteMachine:
    """Return a new machine of the table, not yet initialized."""
    machine = machines.FiniteMachine()
    for state in (ABSENT, *RecordState):
        machine.add_state(str(state))
    for start, event, end in TRANSITIONS:
        machine.add_transition(str(start), str(end), str(event))
    machine.default_start_state = ABSENT
    machine.freeze()
    return machine


_MACHINE = make_machine()


def next_state(state: RecordState | str, event: Event) -> RecordState | str:
    """Return the state that an event leads to; :data:`ABSENT` where there is no backup then.

    :param state: the present one; :data:`ABSENT` where there is no row
    :raises InvalidTransitionError: the event is not possible in this state
    """
    machine = _MACHINE.copy(shallow=True)
    machine.initialize(start_state=str(state))
    try:
        machine.process_event(str(event))
    except automaton_exceptions.NotFound as error:
        raise exceptions.InvalidTransitionError(
            f'a backup that is {state}: the event "{event}" is not possible; '
            f'possible are {", ".join(sorted(_events_of(str(state)))) or "none"}'
        ) from error
    found = str(machine.current_state)
    return found if found == ABSENT else RecordState(found)


def as_dot() -> str:
    """Return the machine as a directed graph in the language of graphviz."""
    lines = ['digraph backup_states {', '  node [shape=box, style=rounded, fontsize=11];']
    lines += ['  edge [fontsize=9];', '  rankdir=LR;', f'  {ABSENT} [shape=circle];']
    events: dict[tuple[str, str], list[str]] = {}
    for start, event, end in sorted(_MACHINE):
        events.setdefault((start, end), []).append(event)
    lines += [
        f'  {start} -> {end} [label="{", ".join(names)}"];'
        for (start, end), names in events.items()
    ]
    return '\n'.join([*lines, '}'])


def _events_of(state: str) -> Iterator[str]:
    return (event for start, event, _end in _MACHINE if start == state)


if __name__ == '__main__':
    print(as_dot())
