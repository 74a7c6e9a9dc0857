# SPDX-License-Identifier: Apache-2.0
"""The state machine of backups, its diagram, and the check that all writes follow it."""

import datetime
import re

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import backup_states, backups, claims
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.backup_states import TRANSITIONS, Event
from trove_ceph.db.roles import Role
from trove_ceph.db.state_machine import ABSENT
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.db import database

ONE = claims.Claimant('one')


class BackupStatesTest(base.BaseTestCase):
    def test_each_transition_of_the_table(self):
        for start, event, end in TRANSITIONS:
            self.assertEqual(end, backup_states.next_state(start, event))

    def test_all_other_transitions_are_refused(self):
        known = {(start, event) for start, event, _end in TRANSITIONS}
        self.assertEqual(len(known), len(TRANSITIONS))
        for start in (ABSENT, *RecordState):
            for event in Event:
                if (start, event) not in known:
                    error = self.assertRaises(
                        exceptions.InvalidTransitionError, backup_states.next_state, start, event
                    )
                    self.assertIn(f'in state "{start}": does not allow the event', str(error))
                    self.assertIn(f'event "{event}"', str(error))

    def test_every_state_can_be_reached_and_deleted(self):
        reached = {ABSENT}
        for _ in RecordState:
            reached |= {end for start, _event, end in TRANSITIONS if start in reached}
        self.assertEqual({ABSENT, *RecordState}, reached)
        for state in RecordState:
            self.assertIn(
                (state, Event.DELETE, RecordState.DELETING),
                TRANSITIONS,
                'a backup can be deleted in any state',
            )

    def test_diagram_and_table_agree(self):
        drawn = {
            (start, event, end)
            for start, end, events in re.findall(
                r'^  (\w+) -> (\w+) \[label="(.+)"\];$', backup_states.as_dot(), re.MULTILINE
            )
            for event in events.split(', ')
        }
        self.assertEqual({tuple(map(str, one)) for one in TRANSITIONS}, drawn)


class StateWritesTest(base.BaseTestCase):
    """Each verb in every state makes the transition of the machine, or changes nothing."""

    def setUp(self):
        super().setUp()
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        now = datetime.datetime(2026, 1, 1)
        self.records = backups.BackupStore(database.with_tables(path), lambda: now)
        self.results = self.records.results

    def make(self, backup_id, state):
        """Create a backup in a state."""
        if state is RecordState.FAILED:
            self.records.record_never_begun(backup_id, 'instance', 'project', 'why')
            return
        claim = self.records.begin_taking(backup_id, 'instance', 'project', ONE)
        if state is RecordState.TAKING:
            self.records.claims.release(claim)
            return
        self.records.record_taken(claim, 's', 'c', 1.0)
        if state is RecordState.COPIED:
            self.with_claim(Role.COPY, backup_id, self.results.record_copied, 1, 1.0)
        if state is RecordState.VERIFIED:
            self.with_claim(Role.VERIFY, backup_id, self.results.record_verified, None, {}, 1.0)
        if state is RecordState.SUSPECTED:
            self.with_claim(Role.VERIFY, backup_id, self.results.record_suspected, {}, 1.0, 'why')
        if state is RecordState.DAMAGED:
            self.with_claim(Role.VERIFY, backup_id, self.results.record_damaged, {}, 1.0, 'why')
        if state is RecordState.DELETING:
            self.records.claims.release(self.records.begin_deleting(backup_id, ONE))

    def with_claim(self, role, backup_id, verb, *arguments):
        claim = self.records.claims.claim(role, backup_id, ONE)
        # In a state that does not allow the role, try an expired token.
        claim = claim or claims.Claim(role, backup_id, 'one', 'old')
        try:
            verb(claim, *arguments)
        finally:
            self.records.claims.release(claim)

    def verbs(self):
        location = image_types.SnapshotRef('volumes', 'image', 'snapshot')
        return {
            Event.BEGIN: lambda one: self.records.begin_taking(one, 'instance', 'project', ONE),
            Event.COMPLETE: lambda one: self.with_claim(
                Role.TAKE, one, self.records.record_taken, location.name, 'c', 1.0
            ),
            Event.FAIL: lambda one: self.with_claim(
                Role.TAKE, one, self.records.record_failed, 'why'
            ),
            Event.COPY: lambda one: self.with_claim(
                Role.COPY, one, self.results.record_copied, 1, 1.0
            ),
            Event.SUSPECT: lambda one: self.with_claim(
                Role.VERIFY, one, self.results.record_suspected, {}, 1.0, 'why'
            ),
            Event.LOSE_COPY: lambda one: self.with_claim(
                Role.VERIFY, one, self.results.replace_copy, 'it was damaged'
            ),
            Event.PASS_VERIFICATION: lambda one: self.with_claim(
                Role.VERIFY, one, self.results.record_verified, 'uuid:1', {}, 1.0
            ),
            Event.FAIL_VERIFICATION: lambda one: self.with_claim(
                Role.VERIFY, one, self.results.record_damaged, {}, 1.0, 'why'
            ),
            Event.DELETE: lambda one: self.records.begin_deleting(one, ONE),
            Event.FINISH_DELETION: lambda one: self.with_claim(
                Role.DELETE, one, self.records.delete
            ),
        }

    def test_each_verb_in_each_state(self):
        verbs = self.verbs()
        self.assertEqual(set(Event), set(verbs))
        table = {(start, event): end for start, event, end in TRANSITIONS}
        for state in RecordState:
            for event, verb in verbs.items():
                backup_id = f'{state}-{event}'
                self.make(backup_id, state)
                before = self.records.get(backup_id)
                self.assertEqual(state, before.state)
                expected = table.get((state, event))
                if expected is None:
                    refused = (exceptions.InvalidTransitionError, exceptions.ClaimLostError)
                    self.assertRaises(refused, verb, backup_id)
                    self.assertEqual(before, self.records.get(backup_id), (state, event))
                    continue
                verb(backup_id)
                found = self.records.find(backup_id)
                self.assertEqual(expected, ABSENT if found is None else found.state)
