# SPDX-License-Identifier: Apache-2.0
"""Eject with bad luck; servers, agents and rows are in memory."""

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.tests.unit.strategies.source_servers import gtids
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World

REFUSED = exceptions.SourceNotChangedError


class EjectionTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.make_world()

    def make_world(self):
        self.world = World()
        self.world.live()
        self.world.request('EJECTING')

    def kill_source(self):
        self.world.servers[SOURCE].is_down = True
        self.world.writes = False

    def eject(self):
        self.world.changes()[0].eject(SOURCE)


class EjectionTest(EjectionTestCase):
    def check_ejected(self):
        self.assertTrue(self.world.servers[SOURCE].is_fenced)
        self.assertEqual([f'vm-{SOURCE}'], self.world.stopped)
        self.assertEqual('EJECTION_ERROR', self.world.tasks[SOURCE])
        self.assertIsNone(self.world.sources[SOURCE])
        self.assertIn('ejected: ', self.world.faults[SOURCE][-1])
        self.assertEqual({SOURCE: SourceMark.EJECTED}, self.world.marks)
        self.assertEqual({SOURCE}, self.world.without_failover)

    def test_a_dead_source(self):
        self.kill_source()
        self.eject()
        self.world.check_source('one', ['two'])
        self.check_ejected()
        self.assertEqual([], self.world.long_waits)
        self.assertEqual({'two': 'one'}, self.world.table)
        self.assertEqual({'one'}, self.world.flattened)

    def test_a_source_whose_server_is_powered_off(self):
        """The ejection does not ask its guest agent."""
        self.kill_source()
        self.world.off_at[f'vm-{SOURCE}'] = self.world.now
        self.eject()
        self.check_ejected()
        self.assertEqual([], self.world.waits)

    def test_a_source_whose_host_nova_counts_as_down(self):
        """The ejection waits for its guest agent for a short time only."""
        for is_dead, missing in ((True, 'is not known'), (False, 'No transaction is known')):
            self.make_world()
            self.world.on_failed_hosts.add(f'vm-{SOURCE}')
            if is_dead:
                self.kill_source()
            self.eject()
            self.check_ejected()
            self.assertIn(5, self.world.time_limits)
            self.assertEqual([SOURCE] if is_dead else [], self.world.waits)
            self.assertIn(missing, self.world.faults['one'][-1])

    def test_a_source_of_whose_server_nova_says_nothing(self):
        self.world.down.add('nova')
        self.eject()
        self.world.check_source('one', ['two'])
        self.assertIn('No transaction is known to be missing', self.world.faults['one'][-1])

    def test_a_source_that_lives(self):
        """It ends its work, and no commit is lost."""
        self.eject()
        self.world.check_source('one', ['two'])
        self.check_ejected()
        self.assertIn('No transaction is known to be missing', self.world.faults['one'][-1])

    def test_a_source_that_lives_and_a_replica_that_disappears_meanwhile(self):
        """The other replica gets what the source has committed before the source is fenced."""
        one, two = self.world.servers['one'], self.world.servers['two']
        one.is_stuck, two.receives = True, False
        done = self.world.sleep

        def sleep(seconds):
            one.is_silent = True
            # Later than the end of the wait for the other one.
            two.receives = self.world.now > 30
            done(seconds)

        self.world.sleep = sleep
        self.assertRaises(exceptions.ReplicasLeftError, self.eject)
        self.world.check_source('two', [])
        self.assertIn('No transaction is known to be missing', self.world.faults['two'][-1])

    def test_the_one_that_has_all_wins(self):
        self.kill_source()
        self.world.servers['two'].received |= gtids(SOURCE, 12, 14)
        self.eject()
        self.world.check_source('two', ['one'])

    def test_tells_what_is_missing(self):
        self.kill_source()
        self.world.last_known = gtids(SOURCE, 1, 20)
        self.eject()
        self.assertIn('At least 9 transactions are missing', self.world.faults['one'][-1])
        self.assertIn(str(gtids(SOURCE, 12, 20)), self.world.faults['one'][-1])

    def receive_more(self, name, **how):
        """Have a replica of a dead source receive more transactions than the others."""
        self.kill_source()
        replica = self.world.servers[name]
        replica.received |= gtids(SOURCE, 12, 14)
        for field, value in how.items():
            setattr(replica, field, value)
        return replica

    def refuse(self, text):
        """Check that an ejection changes nothing, and says why."""
        error = self.assertRaises(REFUSED, self.eject)
        self.assertIn(text, str(error))
        self.assertIn(text, self.world.faults[SOURCE][-1])
        self.assertEqual([], self.world.writers())
        self.assertEqual([SOURCE, SOURCE], [self.world.sources[one] for one in ('one', 'two')])
        self.assertEqual('EJECTION_ERROR', self.world.tasks[SOURCE])
        self.world.check_ended()

    def eject_again(self):
        self.world.request('EJECTING')
        self.eject()

    def test_a_new_source_executes_what_it_has_received(self):
        """When it stops following, it forgets what it has not executed."""
        one = self.receive_more('one', is_stuck=True)
        self.world.servers['two'].is_down = True
        self.refuse('replica one still executes 3 transactions')
        one.is_stuck = False
        self.world.live()
        self.assertRaises(exceptions.ReplicasLeftError, self.eject_again)
        self.assertEqual(['one'], self.world.writers())
        self.assertLessEqual(gtids(SOURCE, 12, 14), one.executed)

    def test_a_replica_that_hangs_is_not_passed_over(self):
        """Whatever the order of the ids is: what it has received may be the last copy."""
        for name, other in (('one', 'two'), ('two', 'one')):
            self.make_world()
            ahead = self.receive_more(name, is_stuck=True)
            self.refuse(
                f'replica {name} still executes 3 transactions that it has received: repeat the '
                'request later, or delete it to give them up: '
                f'{gtids(SOURCE, 12, 14)}'[:150]
            )
            self.assertGreaterEqual(self.world.now, 60)
            ahead.is_stuck = False
            self.eject_again()
            self.world.check_source(name, [other])
            self.assertLessEqual(gtids(SOURCE, 12, 14), ahead.executed)

    def test_waits_for_a_replica_as_long_as_it_executes(self):
        for name, other in (('one', 'two'), ('two', 'one')):
            self.make_world()
            ahead = self.receive_more(name, pace_sec=50)
            self.eject()
            self.assertGreater(self.world.now, 60)
            self.world.check_source(name, [other])
            self.assertLessEqual(gtids(SOURCE, 12, 14), ahead.executed)

    def test_does_not_wait_for_a_replica_for_ever(self):
        """A guest that its tenant controls could report progress for ever."""
        ahead = self.receive_more('two', pace_sec=50)
        ahead.received |= gtids(SOURCE, 12, 1000)
        self.refuse('replica two still executes')
        self.assertLess(self.world.now, 2 * 3600)

    def test_does_not_wait_for_what_another_replica_has_executed(self):
        self.kill_source()
        self.world.servers['one'].executed = gtids(SOURCE, 1, 5)
        self.world.servers['one'].is_stuck = True
        self.eject()
        self.assertEqual(0, self.world.now)
        self.world.check_source('two', [])

    def test_a_replica_that_has_stopped_at_an_error(self):
        """It does not go on by itself, so nothing is waited for."""
        for name, other in (('one', 'two'), ('two', 'one')):
            self.make_world()
            self.receive_more(name, sql_error='no such table')
            self.refuse(
                f'replica {name} has stopped before 3 transactions that it has received: repair '
                'it and repeat the request, or detach or delete it to give them up: no such table'
            )
            self.assertEqual(0, self.world.now)
            self.world.end_deletion(name)
            self.world.request('EJECTING', SOURCE, other)
            self.eject()
            self.world.check_source(other, [])

    def test_a_replica_that_has_stopped_does_not_hinder_one_that_executes_the_same(self):
        self.receive_more('one', sql_error='no such table')
        self.receive_more('two', pace_sec=50)
        error = self.assertRaises(exceptions.ReplicasLeftError, self.eject)
        self.assertIn('no such table', str(error))
        self.assertEqual(['two'], self.world.writers())
        self.assertLessEqual(gtids(SOURCE, 12, 14), self.world.servers['two'].executed)

    def test_two_replicas_that_have_received_the_same(self):
        """The one that has executed it first becomes the source."""
        for pace_sec, name in ((20, 'one'), (50, 'two')):
            self.make_world()
            self.receive_more('one', pace_sec=pace_sec)
            self.receive_more('two', pace_sec=70 - pace_sec)
            self.eject()
            self.assertEqual([name], self.world.writers())
            self.assertLessEqual(gtids(SOURCE, 12, 14), self.world.servers[name].executed)

    def stop_while_it_waits(self, name, stop):
        """Have something happen to a replica that has more, while the ejection waits for it."""
        ahead = self.receive_more(name, is_stuck=True)
        done = self.world.sleep

        def sleep(seconds):
            done(seconds)
            stop(ahead)

        self.world.sleep = sleep
        return ahead

    def test_a_replica_that_disappears_meanwhile(self):
        for name, other in (('one', 'two'), ('two', 'one')):
            self.make_world()
            self.stop_while_it_waits(name, lambda server: setattr(server, 'is_silent', True))
            self.refuse(
                f'replica {name} has 3 transactions that replica {other} lacks, and does not '
                'answer: repeat the request when it does; a request now leaves it out'
            )
            self.assertRaises(exceptions.ReplicasLeftError, self.eject_again)
            self.assertEqual([other], self.world.writers())
            self.assertEqual('NONE', self.world.tasks[name])
            self.assertIn(name, self.world.paused & self.world.with_surplus)
            self.assertIn('no answer', self.world.faults[name][-1])

    def test_a_replica_that_disappears_before_the_wait(self):
        self.receive_more('two', is_stuck=True)
        done = self.world.check_always

        def disappear():
            done()
            self.world.servers['two'].is_silent |= self.world.servers[SOURCE].is_fenced

        self.world.check_always = disappear
        self.refuse('replica two has 3 transactions that replica one lacks')
        self.assertEqual(60, self.world.now)

    def test_a_replica_that_does_not_answer_for_a_moment(self):
        """It is asked again as long as something is waited for."""
        for name, other in (('one', 'two'), ('two', 'one')):
            self.make_world()

            def return_later(server):
                server.is_silent = self.world.now < 50
                server.is_stuck = False

            ahead = self.stop_while_it_waits(name, return_later)
            self.eject()
            self.world.check_source(name, [other])
            self.assertLessEqual(gtids(SOURCE, 12, 14), ahead.executed)

    def test_a_replica_that_restarts_meanwhile(self):
        """What it had received is nowhere any more, and that is told."""
        for name in ('one', 'two'):
            self.make_world()
            self.stop_while_it_waits(name, lambda server: server.restart())
            self.eject()
            self.world.check_source('one', ['two'])
            for told in (SOURCE, 'one'):
                self.assertIn(
                    f'At least 3 transactions are missing: {gtids(SOURCE, 12, 14)}',
                    self.world.faults[told][-1],
                )

    def test_what_is_missing_is_not_known(self):
        self.kill_source()
        self.eject()
        self.assertIn('What the old source had beyond it is not known', self.world.faults['one'][0])

    def test_a_replica_keeps_what_the_new_source_lacks(self):
        self.kill_source()
        self.world.servers['one'].executed |= gtids('a', 1, 5)
        self.world.servers['two'].executed |= gtids('b', 1, 3)
        error = self.assertRaises(exceptions.ReplicasLeftError, self.eject)
        self.assertIn('has 3 transactions that the new source lacks', str(error))
        self.world.acknowledged = gtids('a', 1, 5)
        self.world.check_source('one', [])
        two = self.world.servers['two']
        self.assertLessEqual(gtids('b', 1, 3), two.executed)
        self.assertTrue(two.is_read_only)
        self.assertEqual({}, self.world.renewed)
        # Its tenant decides, and nothing else discards what it has.
        self.assertEqual('NONE', self.world.tasks['two'])
        self.assertEqual(({'two'}, set()), (self.world.with_surplus, self.world.paused))
        self.assertIn('Detach it to keep them', self.world.faults['two'][-1])

    def test_a_replica_with_transactions_of_its_own(self):
        """They are discarded as those of any replica, unless it is detached."""
        self.kill_source()
        self.world.servers['one'].executed |= gtids('a', 1, 5)
        self.world.servers['two'].executed |= gtids('two', 1, 3)
        self.assertRaises(exceptions.ReplicasLeftError, self.eject)
        self.assertIn('Detach it now to keep them', self.world.faults['two'][-1])
        self.world.changes(worker='watch')[0].resume_replicas('one')
        self.assertEqual('one', self.world.servers['two'].source_id)
        self.assertLessEqual(gtids('two', 1, 3), self.world.servers['two'].executed)

    def test_a_replica_that_does_not_answer(self):
        self.kill_source()
        self.world.servers['one'].is_silent = True
        error = self.assertRaises(exceptions.ReplicasLeftError, self.eject)
        self.assertIn('one', str(error))
        self.world.check_source('two', [])
        self.assertEqual('NONE', self.world.tasks['one'])
        self.assertIn('follows the new source as soon as it can', self.world.faults['one'][-1])
        # Each wait takes a time limit, so it is asked before the fence and after it.
        self.assertEqual(2, self.world.waits.count('one'))

    def test_no_replica_answers(self):
        self.kill_source()
        for name in ('one', 'two'):
            self.world.servers[name].is_silent = True
        error = self.assertRaises(REFUSED, self.eject)
        self.assertIn('replica one: guest agent of instance one: no answer', str(error))
        self.assertFalse(self.world.servers[SOURCE].is_fenced)
        self.assertEqual({'NONE'}, set(self.world.tasks.values()))

    def test_a_replica_whose_server_is_replaced(self):
        """It is no candidate."""
        self.kill_source()
        self.world.other_tasks['one'] = 'FAILING_OVER'
        self.assertRaises(exceptions.ReplicasLeftError, self.eject)
        self.world.check_source('two', [])
        self.assertEqual('FAILING_OVER', self.world.tasks['one'])

    def test_without_proof_nothing_changes(self):
        self.world.down.add('ceph')
        error = self.assertRaises(REFUSED, self.eject)
        self.assertIn('does not prove', str(error))
        self.world.check_source(SOURCE, ['one', 'two'])
        self.assertEqual({'NONE'}, set(self.world.tasks.values()))

    def test_without_proof_a_dead_source_may_return(self):
        self.kill_source()
        self.world.down.add('ceph')
        self.assertRaises(REFUSED, self.eject)
        self.assertEqual({SOURCE: Role.CHANGE_SOURCE}, self.roles())
        self.assertEqual([], self.world.long_waits)
        self.world.servers[SOURCE].is_down = False
        self.world.servers[SOURCE].is_read_only = True
        self.world.recover(1)
        self.world.check_source(SOURCE, ['one', 'two'])

    def roles(self):
        return {name: role for name, (role, _claim) in self.world.store.rows.items()}

    def test_a_source_whose_server_is_replaced(self):
        self.world.other_tasks[SOURCE] = 'MIGRATING'
        error = self.assertRaises(REFUSED, self.eject)
        self.assertIn('has the task MIGRATING', str(error))
        self.assertEqual('MIGRATING', self.world.tasks[SOURCE])

    def test_a_re_provisioning_that_does_not_end(self):
        """Its replica may have the most, whether it answers or not."""
        for is_down in (False, True):
            self.make_world()
            one = self.receive_more('one', is_down=is_down)
            self.world.other_tasks['one'] = 'MIGRATING'
            error = self.assertRaises(REFUSED, self.eject)
            self.assertIn('replica one is being re-provisioned', str(error))
            self.assertIn('or delete it to give up', self.world.faults[SOURCE][-1])
            self.assertGreater(self.world.now, 60)
            self.assertFalse(self.world.servers[SOURCE].is_fenced)
            self.assertEqual('MIGRATING', self.world.tasks['one'])
            self.world.check_ended()
            # It has ended, on the old volume.
            one.is_down, self.world.other_tasks, self.world.tasks['one'] = False, {}, 'NONE'
            self.eject_again()
            self.world.check_source('one', ['two'])
            self.assertLessEqual(gtids(SOURCE, 12, 14), one.executed)

    def test_a_re_provisioning_that_ends_meanwhile(self):
        """One that has not begun its exchange ends because of the task of the ejection."""
        one = self.receive_more('one')
        self.world.other_tasks['one'] = 'MIGRATING'
        done = self.world.sleep

        def sleep(seconds):
            done(seconds)
            self.world.other_tasks.clear()

        self.world.sleep = sleep
        self.eject()
        self.world.check_source('one', ['two'])
        self.assertLessEqual(gtids(SOURCE, 12, 14), one.executed)

    def test_a_replica_that_is_given_up_while_it_is_re_provisioned(self):
        self.receive_more('one')
        self.world.other_tasks['one'] = 'MIGRATING'
        self.assertRaises(REFUSED, self.eject)
        self.world.end_deletion('one')
        self.world.request('EJECTING', SOURCE, 'two')
        self.eject()
        self.world.check_source('two', [])

    def test_a_re_provisioning_that_is_blocked(self):
        """It may never end; nothing is waited for, and the replica keeps what it has."""
        one = self.receive_more('one', is_down=True)
        self.world.other_tasks['one'] = 'MIGRATING'
        self.world.blocked.add('one')
        self.assertRaises(exceptions.ReplicasLeftError, self.eject)
        self.world.check_source('two', [])
        self.assertEqual(0, self.world.now)
        self.assertEqual('MIGRATING', self.world.tasks['one'])
        self.assertEqual('two', self.world.sources['one'])
        self.assertLessEqual(gtids(SOURCE, 12, 14), one.executed | one.received)

    def test_a_re_provisioning_that_goes_on_after_the_point_of_no_return(self):
        """The other replica accepts writes, so that the ejection is completed."""
        self.kill_source()
        self.world.store.begin(Role.EJECT_SOURCE, SOURCE, Claimant('other'))
        self.world.store.begin(Role.PROMOTE_REPLICA, 'two', Claimant('other'))
        two = self.world.servers['two']
        two.source_id, two.is_read_only, two.receives = None, False, False
        self.world.servers[SOURCE].is_fenced = True
        self.world.other_tasks['one'] = 'MIGRATING'
        self.world.recover()
        self.world.check_source('two', [])
        self.assertEqual('MIGRATING', self.world.tasks['one'])

    def test_a_replica_that_may_be_the_source_already(self):
        """The taskmanager died while it promoted it."""
        self.kill_source()
        self.world.store.begin(Role.PROMOTE_REPLICA, 'one', Claimant('other'))
        self.world.servers['one'].is_silent = True
        error = self.assertRaises(REFUSED, self.eject)
        self.assertIn('may be the source already', str(error))
        self.assertEqual([], self.world.writers())

    def begin_promotion_of_one(self, change):
        """Have one been chosen by a taskmanager that died, and change while two is waited for."""
        self.world.store.begin(Role.PROMOTE_REPLICA, 'one', Claimant('other'))

        def change_both(ahead):
            ahead.is_stuck = False
            change(self.world.servers['one'])

        self.stop_while_it_waits('two', change_both)

    def test_a_replica_that_becomes_the_source_meanwhile(self):
        """A request of the taskmanager that died takes effect late."""

        def accept_writes(server):
            server.source_id, server.is_read_only = None, False

        self.begin_promotion_of_one(accept_writes)
        self.assertRaises(exceptions.ReplicasLeftError, self.eject)
        self.assertEqual(['one'], self.world.writers())
        self.assertIn('two', self.world.with_surplus)

    def test_a_replica_that_may_be_the_source_disappears_meanwhile(self):
        self.begin_promotion_of_one(lambda server: setattr(server, 'is_silent', True))
        error = self.assertRaises(REFUSED, self.eject)
        self.assertIn('replica one may be the source already', str(error))
        self.assertEqual([], self.world.writers())
