# SPDX-License-Identifier: Apache-2.0
"""The state machine of replicas, its diagram, and the check that all writes follow it."""

import re

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import replica_states
from trove_ceph.db.replica_record import ReplicaState
from trove_ceph.db.replica_states import TRANSITIONS, Event
from trove_ceph.db.state_machine import ABSENT
from trove_ceph.tests.unit.db import replica_helpers


class ReplicaStatesTest(base.BaseTestCase):
    def test_each_transition_of_the_table(self):
        for start, event, end in TRANSITIONS:
            self.assertEqual(end, replica_states.next_state(start, event))

    def test_all_other_transitions_are_refused(self):
        known = {(start, event) for start, event, _end in TRANSITIONS}
        self.assertEqual(len(known), len(TRANSITIONS))
        for start in (ABSENT, *ReplicaState):
            for event in Event:
                if (start, event) not in known:
                    error = self.assertRaises(
                        exceptions.InvalidTransitionError, replica_states.next_state, start, event
                    )
                    self.assertIn(f'a replica in state "{start}"', str(error))

    def test_a_deleted_instance_ends_each_reprovisioning(self):
        for state in ReplicaState:
            event = Event.CANCEL if state.is_reprovisioning else Event.REMOVE
            self.assertEqual(ABSENT, replica_states.next_state(state, event))

    def test_each_state_leads_back_to_following(self):
        reached = {ReplicaState.FOLLOWING}
        for _round in ReplicaState:
            reached |= {start for start, _event, end in TRANSITIONS if end in reached}
        self.assertEqual({ABSENT, *ReplicaState}, reached)

    def test_diagram_and_table_agree(self):
        drawn = {
            (start, event, end)
            for start, end, events in re.findall(
                r'^  (\w+) -> (\w+) \[label="(.+)"\];$', replica_states.as_dot(), re.MULTILINE
            )
            for event in events.split(', ')
        }
        self.assertEqual({tuple(map(str, one)) for one in TRANSITIONS}, drawn)


_STEPS = (Event.CLONE, Event.EXCHANGE, Event.EXCHANGED, Event.GIVE_BACK, Event.BLOCK)


class StateWritesTest(replica_helpers.ReplicaStoreTestCase):
    """Each verb in each state makes the transition of the machine, or changes nothing."""

    def verbs(self):
        store = self.store
        verbs = {
            Event.REMOVE: lambda claim: store.remove(claim.resource_id),
            Event.COMPLETE: store.complete,
            Event.FAIL: lambda claim: store.fail(claim, 'why'),
            Event.GIVE_UP: lambda claim: store.give_up(claim, 'why'),
            Event.RETURNED: store.finish_return,
            Event.CANCEL: store.cancel,
        }
        for event in _STEPS:
            verbs[event] = lambda claim, event=event: store.advance(claim, event)
        return verbs

    def test_each_verb_in_each_state(self):
        verbs = self.verbs()
        self.assertEqual(set(Event) - {Event.REGISTER, Event.REQUEST}, set(verbs))
        table = {(start, event): end for start, event, end in TRANSITIONS}
        for state in ReplicaState:
            for event, verb in verbs.items():
                before, claim = self.make(f'{state}-{event}', state)
                self.assertIs(state, before.state)
                expected = table.get((state, event))
                if expected is None:
                    # Without a re-provisioning there is no claim either.
                    refused = (exceptions.InvalidTransitionError, exceptions.ClaimLostError)
                    self.assertRaises(refused, verb, claim)
                    self.assertEqual(before, self.store.find(before.instance_id))
                    continue
                verb(claim)
                after = self.store.find(before.instance_id)
                self.assertEqual(expected, ABSENT if after is None else after.state)

    def test_a_request_in_each_state(self):
        for state in ReplicaState:
            before, _claim = self.make(f'{state}', state)
            request = (before.instance_id, replica_helpers.Requester.OPERATOR, 'why')
            if state is ReplicaState.FOLLOWING:
                self.assertIs(ReplicaState.REQUESTED, self.store.request(*request).state)
            else:
                self.assertRaises(
                    exceptions.ReprovisioningRefusedError, self.store.request, *request
                )
                self.assertEqual(before, self.store.find(before.instance_id))
