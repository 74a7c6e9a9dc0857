# SPDX-License-Identifier: Apache-2.0
"""The state machine of warm guests, its diagram, and the check that all writes follow it."""

import re

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import guest_states
from trove_ceph.db.guest_record import GuestState
from trove_ceph.db.guest_states import TRANSITIONS, Event
from trove_ceph.db.state_machine import ABSENT
from trove_ceph.tests.unit.db import guest_helpers


class GuestStatesTest(base.BaseTestCase):
    def test_each_transition_of_the_table(self):
        for start, event, end in TRANSITIONS:
            self.assertEqual(end, guest_states.next_state(start, event))

    def test_all_other_transitions_are_refused(self):
        known = {(start, event) for start, event, _end in TRANSITIONS}
        self.assertEqual(len(known), len(TRANSITIONS))
        for start in (ABSENT, *GuestState):
            for event in set(Event) - {
                event for known_start, event in known if known_start == start
            }:
                error = self.assertRaises(
                    exceptions.InvalidTransitionError, guest_states.next_state, start, event
                )
                self.assertIn(f'a warm guest in state "{start}": does not allow', str(error))

    def test_guest_that_was_bound_never_becomes_ready_again(self):
        reached = {GuestState.BOUND}
        for _ in GuestState:
            reached |= {end for start, _event, end in TRANSITIONS if start in reached - {ABSENT}}
        self.assertEqual({GuestState.BOUND, GuestState.RETIRED, ABSENT}, reached)

    def test_guest_can_be_retired_in_any_state(self):
        for state in GuestState:
            self.assertIn((state, Event.RETIRE, GuestState.RETIRED), TRANSITIONS)

    def test_diagram_and_table_agree(self):
        drawn = {
            (start, event, end)
            for start, end, events in re.findall(
                r'^  (\w+) -> (\w+) \[label="(.+)"\];$', guest_states.as_dot(), re.MULTILINE
            )
            for event in events.split(', ')
        }
        self.assertEqual({tuple(map(str, one)) for one in TRANSITIONS}, drawn)


class StateWritesTest(guest_helpers.GuestStoreTestCase):
    """Each verb in every state makes the transition of the machine, or changes nothing."""

    def verbs(self):
        return {
            Event.MAKE_READY: lambda one: self.store.mark_ready(one, 'host'),
            Event.LOAD: lambda one: self.store.mark_loading(one, guest_helpers.HOT_DIGEST),
            Event.KEEP_WARM: self.store.keep_warm,
            Event.MAKE_HOT: self.store.mark_hot,
            Event.CLAIM: self.claim_it,
            Event.RELEASE: lambda one: self.store.release(one, 'instance'),
            Event.BIND: lambda one: self.store.mark_bound(one, 'instance'),
            Event.RETIRE: lambda one: self.store.retire(one, 'why'),
            Event.DELETE: self.store.delete,
        }

    def claim_it(self, guest_id):
        key, digest = guest_helpers.KEY, guest_helpers.HOT_DIGEST
        claimed = self.store.claim_hot(key, digest, 'instance') or self.store.claim(key, 'instance')
        if claimed is None:
            raise exceptions.InvalidTransitionError(guest_id)

    def test_each_verb_in_each_state(self):
        verbs = self.verbs()
        self.assertEqual(set(Event) - {Event.BOOT}, set(verbs))
        table = {(start, event): end for start, event, end in TRANSITIONS}
        for state in GuestState:
            for event, verb in verbs.items():
                guest_id = f'{state}-{event}'
                before = self.make(guest_id, state)
                self.assertEqual(state, before.state)
                expected = table.get((state, event))
                if expected is None:
                    refused = (exceptions.InvalidTransitionError, exceptions.RecordNotFoundError)
                    self.assertRaises(refused, verb, guest_id)
                    self.assertEqual(before, self.store.find(guest_id), (state, event))
                else:
                    verb(guest_id)
                    found = self.store.find(guest_id)
                    self.assertEqual(expected, ABSENT if found is None else found.state)
                self.remove(guest_id)
