# SPDX-License-Identifier: Apache-2.0
"""A state machine as one table of transitions: state, event, next state."""

import enum
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from automaton import exceptions as automaton_exceptions
from automaton import machines

from trove_ceph import exceptions

#: The pseudo-state of an object that has no row: not begun yet, or deleted.
ABSENT = 'absent'

StateT = TypeVar('StateT', bound=enum.StrEnum)
EventT = TypeVar('EventT', bound=enum.StrEnum)


class StateMachine(Generic[StateT, EventT]):
    """The states of one kind of object; threads may share it.

    :param noun: the object, with its article, for messages
    :param states: all states but :data:`ABSENT`
    :param transitions: state, event, next state; all others are refused
    """

    def __init__(
        self,
        noun: str,
        states: type[StateT],
        transitions: Sequence[tuple[StateT | str, EventT, StateT | str]],
    ):
        self._noun = noun
        self._states = states
        self._machine = machines.FiniteMachine()
        for state in (ABSENT, *states):
            self._machine.add_state(str(state))
        for start, event, end in transitions:
            self._machine.add_transition(str(start), str(end), str(event))
        self._machine.default_start_state = ABSENT
        self._machine.freeze()

    def next_state(self, state: StateT | str, event: EventT) -> StateT | str:
        """Return the state that an event leads to.

        :param state: the present state; :data:`ABSENT`: there is no row
        :returns: the next state; :data:`ABSENT`: the row is to be deleted
        :raises InvalidTransitionError: the state does not allow the event
        """
        machine = self._machine.copy(shallow=True)
        machine.initialize(start_state=str(state))
        try:
            machine.process_event(str(event))
        except automaton_exceptions.NotFound as error:
            raise exceptions.InvalidTransitionError(
                f'{self._noun} in state "{state}": does not allow the event "{event}"; '
                f'allowed: {", ".join(sorted(self._events_of(str(state)))) or "none"}'
            ) from error
        found = str(machine.current_state)
        return found if found == ABSENT else self._states(found)

    def as_dot(self, name: str) -> str:
        """Return the machine as a graph in the DOT language of Graphviz.

        :param name: the name of the graph
        """
        lines = [f'digraph {name} {{', '  node [shape=box, style=rounded, fontsize=11];']
        lines += ['  edge [fontsize=9];', '  rankdir=LR;', f'  {ABSENT} [shape=circle];']
        events: dict[tuple[str, str], list[str]] = {}
        for start, event, end in sorted(self._machine):
            events.setdefault((start, end), []).append(event)
        lines += [
            f'  {start} -> {end} [label="{", ".join(names)}"];'
            for (start, end), names in events.items()
        ]
        return '\n'.join([*lines, '}'])

    def _events_of(self, state: str) -> Iterator[str]:
        return (event for start, event, _end in self._machine if start == state)
