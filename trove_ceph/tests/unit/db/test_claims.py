# SPDX-License-Identifier: Apache-2.0
"""Claims: one worker at a time; every write of a worker that lost its claim is refused."""

import datetime

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import backups, claims, transactions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.db import database

SECOND = datetime.timedelta(seconds=1)
HOUR = datetime.timedelta(hours=1)
EXPIRY = claims.DEFAULT_EXPIRY
PLACE = image_types.SnapshotRef('volumes', 'image', 'snapshot')


class ClaimsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.facade = database.with_tables(path)
        self.records = self.connect()
        self.claims = self.records.claims
        self.one, self.two = claims.Claimant('one'), claims.Claimant('two')

    def connect(self, skew=datetime.timedelta(0)):
        """Return the store on a host whose own clock is wrong by ``skew``."""
        return backups.BackupStore(self.facade, lambda: self.now + skew, lambda: self.now)

    def take(self, backup_id='b', **requests):
        claim = self.records.begin_taking(backup_id, 'instance', 'project', self.one)
        self.records.record_location(claim, PLACE, 'volume', 1024)
        self.records.record_taken(claim, 's', 'c', 1.0, **requests)

    def test_only_one_of_two_workers_gets_the_claim(self):
        self.take()
        mine = self.claims.claim(Role.COPY, 'b', self.one)
        self.assertEqual((Role.COPY, 'b', 'one'), (mine.role, mine.resource_id, mine.worker))
        self.assertIsNone(self.claims.claim(Role.VERIFY, 'b', self.two))
        found = self.records.get('b')
        self.assertEqual(('copy', 'one', mine.token), claim_of(found))
        self.claims.release(mine)
        self.assertEqual((None, None, None), claim_of(self.records.get('b')))
        self.assertEqual('two', self.claims.claim(Role.VERIFY, 'b', self.two).worker)
        self.assertIsNone(self.claims.claim(Role.COPY, 'other', self.one))

    def test_each_attempt_has_its_own_token(self):
        self.take()
        tokens = set()
        for _ in range(3):
            claim = self.claims.claim(Role.COPY, 'b', self.one)
            self.claims.release(claim)
            tokens.add(claim.token)
        self.assertEqual(3, len(tokens))
        # An earlier claim of the same worker is lost, too.
        earlier, present = claim, self.claims.claim(Role.COPY, 'b', self.one)
        self.assertFalse(self.claims.heartbeat(earlier))
        self.assertTrue(self.claims.heartbeat(present))

    def test_claim_expires_without_heartbeats(self):
        self.take()
        mine = self.claims.claim(Role.COPY, 'b', self.one)
        for _ in range(3):
            self.now += EXPIRY
            self.assertIsNone(self.claims.claim(Role.COPY, 'b', self.two))
            self.assertTrue(self.claims.heartbeat(mine))
        self.now += EXPIRY + SECOND
        theirs = self.claims.claim(Role.COPY, 'b', self.two)
        self.assertIsNotNone(theirs)
        self.assertFalse(self.claims.heartbeat(mine))
        self.claims.release(mine)
        self.assertTrue(self.claims.heartbeat(theirs))

    def test_claim_of_a_dead_predecessor_is_free_at_once(self):
        self.take()
        self.claims.claim(Role.COPY, 'b', self.one)
        successor = claims.Claimant('three', is_dead=lambda name: name == 'one')
        self.assertIsNotNone(self.claims.claim(Role.COPY, 'b', successor))

    def test_wrong_clocks_of_workers(self):
        """Clocks of hosts may be an hour apart; only the clock of the database counts."""
        for skew in (-HOUR, HOUR):
            other_host = self.connect(skew)
            name = f'b{skew}'
            mine = self.records.begin_taking(name, 'instance', 'project', self.one)
            self.assertIsNone(other_host.claims.claim(Role.TAKE, name, self.two))
            self.assertEqual([], other_host.list_interrupted(self.two))
            self.now += EXPIRY - SECOND
            self.assertTrue(self.claims.heartbeat(mine))
            self.now += EXPIRY - SECOND
            self.assertIsNone(other_host.claims.claim(Role.TAKE, name, self.two))
            self.now += 2 * SECOND
            self.assertEqual(
                [name], [one.backup_id for one in other_host.list_interrupted(self.two)]
            )
            taken = other_host.claims.claim(Role.TAKE, name, self.two)
            other_host.record_taken(taken, 's', 'c', 1.0)

    def test_clock_of_the_database_is_set_back(self):
        self.take()
        self.claims.claim(Role.COPY, 'b', self.one)
        self.now -= HOUR
        # A heartbeat in the far future is ignored.
        self.assertIsNotNone(self.claims.claim(Role.COPY, 'b', self.two))

    def test_clock_of_the_database(self):
        connection = transactions.Transactions(self.facade)
        with connection.reading() as session:
            found = connection.database_time(session)
        self.assertLess(abs(found - transactions.utcnow()), datetime.timedelta(minutes=5))
        self.assertIsNone(found.tzinfo)

    def test_states_that_allow_a_role(self):
        self.take()
        for role in (Role.TAKE, Role.DELETE, Role.CLEAN_UP):
            self.assertIsNone(self.claims.claim(role, 'b', self.one))
        mine = self.claims.claim(Role.VERIFY, 'b', self.one)
        self.assertIsNone(self.records.begin_deleting('b', self.two))
        # The worker learns of it at its next heartbeat, and its writes are refused.
        self.assertFalse(self.claims.heartbeat(mine))
        self.assertEqual(set(), self.claims.heartbeat_all([mine]))
        verb = self.records.results.record_verified
        self.assertRaises(exceptions.ClaimLostError, verb, mine, None, {}, 1.0)
        self.assertEqual(RecordState.DELETING, self.records.get('b').state)

    def test_renewing_several_claims_at_once(self):
        held = []
        for name in 'abc':
            self.take(name)
            held.append(self.claims.claim(Role.COPY, name, self.one))
        self.claims.release(held[1])
        self.now += EXPIRY - SECOND
        self.assertEqual({held[0], held[2]}, self.claims.heartbeat_all(held))
        self.now += EXPIRY - SECOND
        self.assertIsNone(self.claims.claim(Role.COPY, 'a', self.two))
        self.assertEqual(set(), self.claims.heartbeat_all([]))

    def test_released_backup_waits_for_the_expiry_time(self):
        claim = self.records.begin_taking('b', 'instance', 'project', self.one)
        self.claims.release(claim)
        self.assertEqual([], self.records.list_interrupted(self.two))
        self.now += EXPIRY + SECOND
        self.assertEqual(1, len(self.records.list_interrupted(self.two)))

    def test_every_write_of_a_worker_that_lost_its_claim_is_refused(self):
        """No verb changes what the other worker has written."""
        results, queue, store = self.records.results, self.records.queue, self.records
        verbs = {
            Role.TAKE: [
                lambda c: store.begin_taking('b', 'i', 'p', self.one, quiesce='ddl', claim=c),
                lambda c: store.record_location(c, PLACE, 'v', 1),
                lambda c: store.record_checked_snapshot(
                    c,
                    level='freeze',
                    raised_from=None,
                    because=None,
                    gtid_before=None,
                    size_bytes=7,
                    quiesced_sec=1.0,
                    snapshot_sec=1.0,
                    age_sec=0.0,
                ),
                store.invalidate_snapshot,
                lambda c: store.record_taken(c, 's', 'c', 1.0),
                lambda c: store.record_failed(c, 'why'),
                store.clear_location,
            ],
            Role.COPY: [
                lambda c: results.begin_copying(c, PLACE),
                lambda c: results.record_copied(c, 1, 1.0),
                results.clear_copy,
                lambda c: queue.record_failure(c, 'why'),
            ],
            Role.VERIFY: [
                lambda c: results.record_verified(c, None, {}, 1.0),
                lambda c: results.record_damaged(c, {}, 1.0, 'why'),
                lambda c: results.record_unfinished(c, {}, 1.0, 'why'),
                lambda c: results.replace_copy(c, 'why'),
                lambda c: queue.record_failure(c, 'why'),
            ],
            Role.DELETE: [store.delete, lambda c: store.record_not_deleted('b', c, 'why')],
        }
        for role, writes in verbs.items():
            mine = self.prepare(role)
            self.now += EXPIRY + SECOND
            theirs = self.claims.claim(role, 'b', self.two)
            before = self.records.get('b')
            for number, write in enumerate(writes):
                self.assertRaises(exceptions.ClaimLostError, write, mine)
                self.assertEqual(before, self.records.get('b'), (role, number))
            self.assertTrue(self.claims.heartbeat(theirs))

    def prepare(self, role):
        """Create a backup in a state that allows a role, and return a claim on it."""
        if self.records.find('b') is not None:
            self.now += EXPIRY + SECOND
            self.records.delete(self.records.begin_deleting('b', self.one))
        if role is Role.TAKE:
            return self.records.begin_taking('b', 'instance', 'project', self.one)
        self.take()
        if role is Role.DELETE:
            return self.records.begin_deleting('b', self.one)
        return self.claims.claim(role, 'b', self.one)


def claim_of(record):
    return record.claim_role, record.claimed_by, record.claim_token
