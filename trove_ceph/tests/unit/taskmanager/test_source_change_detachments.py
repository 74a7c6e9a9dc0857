# SPDX-License-Identifier: Apache-2.0
"""Detach with bad luck; servers, agents and rows are in memory."""

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.strategies.source_servers import gtids
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World

REFUSED = exceptions.SourceNotChangedError


class DetachmentTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = World()
        self.world.may_have_two_writers = True
        self.world.request('DETACHING', 'one')

    def detach(self):
        self.world.changes()[0].detach('one')

    def check_detached(self):
        self.assertIsNone(self.world.sources['one'])
        self.assertTrue(self.world.servers['one'].accepts_writes)
        self.assertEqual('NONE', self.world.tasks['one'])
        self.assertEqual({'two': SOURCE}, self.world.table)
        self.assertEqual({}, self.world.store.rows)
        self.assertEqual({'one'}, self.world.flattened)

    def test_stands_for_itself(self):
        self.detach()
        self.check_detached()
        self.assertEqual(SOURCE, self.world.servers['two'].source_id)

    def test_drops_its_user(self):
        self.detach()
        self.assertEqual({SOURCE: {'two'}}, self.world.kept_users)

    def test_keeps_the_users_while_another_replica_is_created(self):
        del self.world.table['two']
        self.detach()
        self.assertEqual({}, self.world.kept_users)
        self.assertIsNone(self.world.sources['one'])
        self.assertEqual({}, self.world.table)

    def test_executes_what_it_has_received(self):
        self.world.servers[SOURCE].is_down = True
        self.world.servers['one'].received |= gtids(SOURCE, 11, 12)
        self.detach()
        self.check_detached()
        self.assertLessEqual(gtids(SOURCE, 11, 12), self.world.servers['one'].executed)
        self.assertEqual([], self.world.long_waits)

    def receive_more(self, last=13, **facts):
        """The replica has received what its source has, which is dead then."""
        self.world.writes = False
        one, source = self.world.servers['one'], self.world.servers[SOURCE]
        source.executed |= gtids(SOURCE, 11, last)
        source.is_down = True
        one.received |= source.executed
        for name, value in facts.items():
            setattr(one, name, value)
        return one

    def refuse(self, count):
        error = self.assertRaises(REFUSED, self.detach)
        self.assertIn(
            f'replica one: cannot be detached: still executes {count} transactions that it has '
            'received: repeat the request later, or delete it to give them up: ',
            str(error),
        )
        self.assertEqual([str(error)[:255]], self.world.faults.pop('one'))
        self.assertEqual('NONE', self.world.tasks['one'])
        self.assertEqual(SOURCE, self.world.sources['one'])
        self.assertFalse(self.world.servers['one'].accepts_writes)
        self.assertEqual(set(), self.world.flattened)
        self.world.request('DETACHING', 'one')

    def test_waits_while_it_executes(self):
        one = self.receive_more(pace_sec=50)
        self.detach()
        self.check_detached()
        self.assertLessEqual(gtids(SOURCE, 11, 13), one.executed)
        self.assertGreater(self.world.now, 60)
        self.assertEqual({}, self.world.faults)

    def test_is_refused_if_it_executes_nothing(self):
        one = self.receive_more(is_stuck=True)
        self.refuse(3)
        self.assertTrue(60 <= self.world.now < 120, self.world.now)
        # Nothing is lost: it goes on with what it has received.
        one.is_stuck = False
        self.detach()
        self.check_detached()
        self.assertLessEqual(gtids(SOURCE, 11, 13), one.executed)

    def test_is_refused_if_it_is_not_done_in_time(self):
        one = self.receive_more(last=30, pace_sec=40)
        self.refuse(4)
        self.assertTrue(600 <= self.world.now < 700, self.world.now)
        self.detach()
        self.check_detached()
        self.assertLessEqual(gtids(SOURCE, 11, 30), one.executed)

    def test_follows_again_if_it_is_refused(self):
        one = self.receive_more(is_stuck=True)
        self.world.servers[SOURCE].is_down = False
        self.refuse(3)
        self.assertEqual((SOURCE, True), (one.source_id, one.receives))

        self.assertEqual(set(), self.world.paused)

    def check_watch_has_it_receive(self):
        """The replica was stopped, and receives after a look of the watch at its source."""
        one = self.world.servers['one']
        self.assertEqual((SOURCE, False, {'one'}), (one.source_id, one.receives, self.world.paused))
        self.world.servers[SOURCE].is_down = one.is_silent = False
        self.world.tasks['one'] = 'NONE'
        self.world.changes(worker='watch')[0].resume_replicas(SOURCE)
        self.assertEqual((True, set()), (one.receives, self.world.paused))
        self.world.check_source(SOURCE, ['one', 'two'])

    def test_receives_again_if_its_source_did_not_answer_when_it_was_refused(self):
        one = self.receive_more(is_stuck=True)
        self.refuse(3)
        one.is_stuck = False
        self.check_watch_has_it_receive()

    def test_receives_again_if_it_did_not_answer_when_it_was_refused(self):
        one = self.receive_more(pace_sec=20)
        sleep = self.world.sleep

        def fall_silent(seconds):
            sleep(seconds)
            one.is_silent = True

        self.world.sleep = fall_silent
        self.assertRaises(exceptions.GuestUnavailableError, self.detach)
        one.pace_sec = 0
        self.check_watch_has_it_receive()

    def test_a_replica_that_others_have_stopped_is_not_marked(self):
        self.receive_more(is_stuck=True, receives=False)
        self.refuse(3)
        self.assertEqual(set(), self.world.paused)

    def test_tells_what_a_replica_that_has_stopped_gives_up(self):
        self.receive_more(sql_error='no such table')
        self.detach()
        self.check_detached()
        self.assertEqual(
            [
                'detached without 3 transactions that it had received and not executed; 3 of them '
                f'may be lost: {gtids(SOURCE, 11, 13)}: no such table'
            ],
            self.world.faults['one'],
        )

    def test_tells_that_the_source_has_what_it_gives_up(self):
        self.receive_more(sql_error='no such table')
        self.world.servers[SOURCE].is_down = False
        self.detach()
        self.check_detached()
        (fault,) = self.world.faults['one']
        self.assertIn('not executed; its source has them: ', fault)

    def test_tells_of_one_copy_and_of_what_it_gives_up(self):
        self.world.on_one_copy = {'one'}
        self.receive_more(sql_error='no such table')
        self.detach()
        (fault,) = self.world.faults['one']
        self.assertIn('keeps one copy', fault)
        self.assertIn('detached without 3 transactions', fault)

    def test_tells_what_is_given_up_of_a_deleted_source(self):
        self.receive_more(sql_error='no such table')
        self.world.deleted.add(SOURCE)
        self.detach()
        self.assertIn('3 of them may be lost', self.world.faults['one'][0])

    def test_its_source_is_deleted(self):
        self.world.deleted.add(SOURCE)
        self.detach()
        self.check_detached()

    def test_a_replica_that_does_not_answer(self):
        self.world.servers['one'].is_silent = True
        self.assertRaises(exceptions.GuestUnavailableError, self.detach)
        self.assertEqual('NONE', self.world.tasks['one'])
        self.assertEqual(SOURCE, self.world.sources['one'])
        self.world.check_ended()

    def test_forgets_a_replica_that_is_deleted(self):
        self.world.tasks['one'] = 'DELETING'
        self.world.changes()[0].forget('one')
        self.assertEqual({'two': SOURCE}, self.world.table)
        self.assertEqual({SOURCE: {'two'}}, self.world.kept_users)

    def test_forgets_a_replica_and_keeps_the_users_while_another_one_is_created(self):
        self.world.tasks['one'] = 'DELETING'
        del self.world.table['two']
        self.world.changes()[0].forget('one')
        self.assertEqual(({}, {}), (self.world.table, self.world.kept_users))
