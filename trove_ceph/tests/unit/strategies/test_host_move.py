# SPDX-License-Identifier: Apache-2.0
"""The databases leave a host one after the other; the busy ones stay."""

import dataclasses
import datetime
import types

from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph.db import claims
from trove_ceph.db.replacement_record import (
    FailoverCause,
    ReplacementKind,
    ReplacementState,
    RequestedBy,
)
from trove_ceph.db.replacement_states import Event
from trove_ceph.strategies.failover import host_move
from trove_ceph.strategies.failover.facts import HostState
from trove_ceph.strategies.replacement.dependencies import InstanceFacts
from trove_ceph.tests.unit.db import replacement_memory

HOST = 'compute-3'
DISABLED = HostState(True, 'maintenance')


class HostMoveTest(base.BaseTestCase):
    """The test case acts as Nova and as Trove's tables.

    :ivar work: what a taskmanager does while the move waits; called with the open failover
    """

    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        self.hosts = {HOST: DISABLED, 'compute-4': HostState(True)}
        self.on_host = set()
        self.instances, self.facts, self.notes = [], {}, []
        self.trove = replacement_memory.MemoryTrove()
        self.store = replacement_memory.MemoryStore(self.trove, lambda: self.now)
        self.work = self.complete
        began = self.now
        self.move = host_move.HostMove(
            host=HOST,
            reason='new memory',
            servers=self,
            databases=self,
            store=self.store,
            timeout_sec=60,
            note=self.notes.append,
            start_wait=lambda seconds: waiting.Deadline(
                seconds, lambda: (self.now - began).total_seconds(), self.sleep
            ),
        )

    def sleep(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)
        for one in self.instances:
            if record := self.store.find_open(one.id):
                self.work(record)

    def add(self, instance_id, is_on_host=True, **values):
        server_id = f'server-{instance_id}'
        self.instances.append(
            types.SimpleNamespace(id=instance_id, project_id='p', server_id=server_id)
        )
        if is_on_host:
            self.on_host.add(server_id)
        facts = InstanceFacts(instance_id, 'p', 'db', 'v', server_id, 'small', 'version', 'NONE')
        self.facts[instance_id] = dataclasses.replace(facts, **values)
        self.trove.add(instance_id)

    # Nova and Trove.

    def list_hosts(self):
        return self.hosts

    def list_on_host(self, host):
        self.assertEqual(HOST, host)
        return self.on_host

    def list_instances(self):
        return self.instances

    def find_facts(self, instance_id):
        return self.facts.get(instance_id)

    # A taskmanager.

    def claim(self, record):
        return self.store.claim(record.replacement_id, claims.Claimant('t', is_dead=lambda _: True))

    def advance(self, record):
        claim = self.claim(record)
        self.store.note(claim, step='fencing the volume')
        for event in (Event.FENCE, Event.MOVE, Event.SHOW):
            self.store.advance(claim, event, new_host=self.new_host)
        return claim

    new_host = 'compute-4'

    def complete(self, record):
        self.store.complete(self.advance(record))

    # Tests.

    def test_lists_the_databases_of_the_host(self):
        self.add('b')
        self.add('a', is_being_backed_up=True)
        self.add('elsewhere', is_on_host=False)
        busy, free = self.move.list()
        self.assertEqual(('a', 'b'), (busy.instance_id, free.instance_id))
        self.assertIn('is being backed up', busy.refused)
        self.assertIsNone(free.refused)
        self.assertIsNone(self.store.find_open('b'))

    def test_moves_a_database(self):
        self.add('a', service_status='HEALTHY', agent_seen_at=self.now)
        ended = self.move.move(*self.move.list())
        self.assertTrue(self.move.has_left(ended))
        self.assertEqual(
            (ReplacementKind.FAILOVER, FailoverCause.MAINTENANCE, RequestedBy.OPERATOR),
            (ended.kind, ended.cause, ended.requested_by),
        )
        self.assertEqual((True, 'new memory'), (ended.is_forced, ended.reason))

    def test_says_what_is_done(self):
        self.add('a')
        self.work = lambda record: self.advance(record)
        candidates = self.move.list()

        def then_complete(record):
            self.advance(record)
            self.work = lambda record: self.store.complete(self.claim(record))

        self.work = then_complete
        self.move.move(*candidates)
        self.assertEqual(['instance a: fencing the volume'], self.notes)

    def test_database_that_became_busy(self):
        self.add('a')
        (candidate,) = self.move.list()
        self.facts['a'] = dataclasses.replace(self.facts['a'], task='BACKUP')
        self.assertRaises(exceptions.ReplacementRefusedError, self.move.move, candidate)

    def test_database_that_has_left_meanwhile(self):
        """Such as by its tenant's own failover or resize, or by its deletion."""
        self.add('a')
        (candidate,) = self.move.list()
        self.facts['a'] = dataclasses.replace(self.facts['a'], server_id='new')
        self.assertIsNone(self.move.move(candidate))
        self.facts['a'] = dataclasses.replace(self.facts['a'], is_deleted=True)
        self.assertIsNone(self.move.move(candidate))
        del self.facts['a']
        self.assertIsNone(self.move.move(candidate))
        self.assertIsNone(self.store.find_open('a'))

    def test_failover_that_takes_long(self):
        self.add('a')
        self.work = lambda record: None
        error = self.assertRaises(exceptions.InProgressError, self.move.move, *self.move.list())
        self.assertIn('did not end within 60 s; it goes on', str(error))
        self.assertTrue(self.store.find_open('a').state.is_open)

    def test_database_that_stays(self):
        """As if no other host has room, or MySQL does not start."""
        self.add('a')
        self.new_host = HOST
        ended = self.move.move(*self.move.list())
        self.assertIs(ReplacementState.COMPLETED, ended.state)
        self.assertFalse(self.move.has_left(ended))
        failed = dataclasses.replace(ended, state=ReplacementState.FAILED, new_host='compute-4')
        self.assertFalse(self.move.has_left(failed))
        self.assertTrue(
            self.move.has_left(dataclasses.replace(ended, state=ReplacementState.CANCELED))
        )

    def test_host_that_takes_new_servers(self):
        self.move.check_host(is_begun=True)
        self.hosts[HOST] = HostState(True)
        self.move.check_host(is_begun=False)
        error = self.assertRaises(
            exceptions.ConsequencesNotAcceptedError, self.move.check_host, is_begun=True
        )
        self.assertIn(f'--disable-reason maintenance {HOST} nova-compute', str(error))

    def test_unknown_host(self):
        del self.hosts[HOST]
        for is_begun in (False, True):
            error = self.assertRaises(
                exceptions.RecordNotFoundError, self.move.check_host, is_begun=is_begun
            )
            self.assertIn('it has them on compute-4', str(error))
