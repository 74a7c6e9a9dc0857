# SPDX-License-Identifier: Apache-2.0
"""The state machine of replacements, its diagram, and the check that all writes follow it."""

import re

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import replacement_states
from trove_ceph.db.replacement_record import OPEN, ReplacementState
from trove_ceph.db.replacement_states import TRANSITIONS, Event
from trove_ceph.db.state_machine import ABSENT
from trove_ceph.tests.unit.db import replacement_helpers
from trove_ceph.tests.unit.db.replacement_helpers import SECOND

BEFORE_THE_FENCE = {ABSENT, ReplacementState.REQUESTED}


class ReplacementStatesTest(base.BaseTestCase):
    def test_each_transition_of_the_table(self):
        for start, event, end in TRANSITIONS:
            self.assertEqual(end, replacement_states.next_state(start, event))

    def test_all_other_transitions_are_refused(self):
        known = {(start, event) for start, event, _end in TRANSITIONS}
        self.assertEqual(len(known), len(TRANSITIONS))
        for start in (ABSENT, *ReplacementState):
            for event in Event:
                if (start, event) not in known:
                    error = self.assertRaises(
                        exceptions.InvalidTransitionError,
                        replacement_states.next_state,
                        start,
                        event,
                    )
                    self.assertIn(f'replacement of a server in state "{start}"', str(error))

    def test_nothing_leads_back_before_the_fence(self):
        for start, _event, end in TRANSITIONS:
            if start not in BEFORE_THE_FENCE:
                self.assertNotEqual(ReplacementState.REQUESTED, end)

    def test_a_deleted_instance_ends_each_open_replacement(self):
        for state in OPEN:
            self.assertIn((state, Event.CANCEL, ReplacementState.CANCELED), TRANSITIONS)

    def test_diagram_and_table_agree(self):
        drawn = {
            (start, event, end)
            for start, end, events in re.findall(
                r'^  (\w+) -> (\w+) \[label="(.+)"\];$',
                replacement_states.as_dot(),
                re.MULTILINE,
            )
            for event in events.split(', ')
        }
        self.assertEqual({tuple(map(str, one)) for one in TRANSITIONS}, drawn)


class StateWritesTest(replacement_helpers.ReplacementStoreTestCase):
    """Each verb in each state makes the transition of the machine, or changes nothing."""

    def verbs(self):
        store = self.store
        return {
            Event.TAKE_OVER: lambda claim: store.advance(claim, Event.TAKE_OVER),
            Event.FENCE: lambda claim: store.advance(claim, Event.FENCE),
            Event.MOVE: lambda claim: store.advance(claim, Event.MOVE),
            Event.SHOW: lambda claim: store.advance(claim, Event.SHOW),
            Event.RETURN: lambda claim: store.advance(claim, Event.RETURN),
            Event.COMPLETE: store.complete,
            Event.FAIL: lambda claim: store.fail(claim, 'why'),
            Event.CANCEL: store.cancel,
        }

    def test_each_verb_in_each_state(self):
        verbs = self.verbs()
        self.assertEqual(set(Event) - {Event.REQUEST, Event.PRUNE}, set(verbs))
        table = {(start, event): end for start, event, end in TRANSITIONS}
        for state in ReplacementState:
            for event, verb in verbs.items():
                before, claim = self.make(f'{state}-{event}', state)
                self.assertIs(state, before.state)
                expected = table.get((state, event))
                if expected is None:
                    # The claim ends with the replacement.
                    refused = (exceptions.InvalidTransitionError, exceptions.ClaimLostError)
                    self.assertRaises(refused, verb, claim)
                    self.assertEqual(before, self.store.find(before.replacement_id))
                else:
                    self.assertIs(expected, verb(claim).state)
                    self.assertIs(expected, self.store.find(before.replacement_id).state)


class MemoryStateWritesTest(replacement_helpers.InMemory, StateWritesTest):
    """The store on which the tests of the strategies run makes the same transitions."""


class PruneTest(replacement_helpers.ReplacementStoreTestCase):
    def test_prune_in_each_state(self):
        for state in ReplacementState:
            self.make(f'{state}', state)
        self.store.prune(self.now)
        self.assertEqual(len(ReplacementState), len(self.store.list()))
        self.store.prune(self.now + SECOND)
        pruned = {start for start, event, _end in TRANSITIONS if event is Event.PRUNE}
        self.assertEqual(set(ReplacementState) - pruned, {one.state for one in self.store.list()})
