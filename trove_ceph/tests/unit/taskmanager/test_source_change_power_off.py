# SPDX-License-Identifier: Apache-2.0
"""The server of an ejected source is off, as long as the instance exists."""

from oslotest import base

from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World

_SERVER = f'vm-{SOURCE}'


def _make_world():
    """Return a world whose source was ejected, and whose server Nova refuses to power off."""
    world = World()
    world.live()
    world.refuses_stop = True
    world.request('EJECTING')
    world.changes()[0].eject(SOURCE)
    return world


class PowerOffTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = _make_world()

    def start_again(self):
        """Have Nova start the server anew, so that the volume is open again."""
        self.world.off_at.clear()
        source = self.world.servers[SOURCE]
        source.is_down, source.is_fenced, source.is_read_only = False, False, True

    def check_marked(self):
        self.assertEqual({SOURCE: SourceMark.EJECTED}, self.world.marks)
        self.assertEqual({}, self.world.store.rows)

    def test_it_is_repeated_until_nova_does_it(self):
        self.world.recover(2)
        self.assertEqual([_SERVER] * 3, self.world.stopped)
        self.world.refuses_stop = False
        self.world.recover()
        self.assertEqual([_SERVER] * 4, self.world.stopped)
        self.world.check_source('one', ['two'])
        self.check_marked()

    def test_nova_does_not_answer(self):
        self.world.down.add('nova')
        self.world.recover(2)
        self.assertEqual([_SERVER], self.world.stopped)
        self.world.down.clear()
        self.world.refuses_stop = False
        self.world.recover()
        self.world.check_source('one', ['two'])

    def test_a_server_that_was_started_again(self):
        self.world.refuses_stop = False
        self.world.recover()
        self.start_again()
        self.world.recover(1)
        self.assertTrue(self.world.servers[SOURCE].is_fenced)
        self.assertTrue(self.world.servers[SOURCE].is_down)
        self.check_marked()

    def test_without_proof_it_is_powered_off_all_the_same(self):
        self.start_again()
        self.world.down.add('ceph')
        self.world.refuses_stop = False
        self.world.recover(2)
        self.assertFalse(self.world.servers[SOURCE].is_fenced)
        self.assertTrue(self.world.servers[SOURCE].is_down)

    def test_one_that_is_off_is_left_alone(self):
        self.world.off_at[_SERVER] = self.world.now
        self.world.recover()
        self.assertEqual([_SERVER], self.world.stopped)
        self.check_marked()

    def test_one_that_an_operator_has_given_another_use(self):
        """Its status was reset, so that it may be failed over."""
        self.world.now += 3600
        self.world.tasks[SOURCE] = 'NONE'
        changes, _operations = self.world.changes(worker='next')
        changes.handle_marks(self.world.marks, worlds.AtOnce())
        self.check_marked()
        self.world.now += 60
        changes.handle_marks(dict(self.world.marks), worlds.AtOnce())
        self.assertEqual(([_SERVER], {}), (self.world.stopped, self.world.marks))
        self.world.check_ended()

    def test_a_request_that_trove_had_begun_before_the_ejection_ends(self):
        """Such as the restart of its MySQL, whose agent does not answer."""
        self.world.now += 80
        self.world.tasks[SOURCE] = 'NONE'
        changes, _operations = self.world.changes(worker='next')
        for _look in range(5):
            changes.handle_marks(dict(self.world.marks), worlds.AtOnce())
            self.check_marked()
            self.assertEqual('EJECTION_ERROR', self.world.tasks[SOURCE])
            self.world.now += 60

    def test_one_without_a_task_for_a_moment(self):
        """Trove ends a change of the access rules so."""
        changes, _operations = self.world.changes(worker='next')
        self.world.now += 3600
        for task in ('NONE', 'EJECTION_ERROR', 'NONE'):
            self.world.tasks[SOURCE] = task
            changes.handle_marks(self.world.marks, worlds.AtOnce())
            self.check_marked()
            self.world.now += 60

    def test_one_with_another_task_is_left_alone(self):
        """Trove's API sets that of a change of the access rules."""
        for self.world.tasks[SOURCE] in ('UPDATING', 'DELETING'):
            self.world.recover(1)
            self.assertEqual([_SERVER], self.world.stopped)
            self.check_marked()

    def test_one_that_is_failed_over_is_left_alone(self):
        self.world.other_tasks[SOURCE] = 'MIGRATING'
        self.world.recover(2)
        self.assertEqual([_SERVER], self.world.stopped)
        self.check_marked()

    def test_one_that_gets_another_use_right_before_it_is_fenced(self):
        """Its clients may be those of the server of its failover."""
        self.start_again()
        self.world.before_confirmed = lambda: self.world.tasks.update({SOURCE: 'NONE'})
        self.world.recover(1)
        self.assertFalse(self.world.servers[SOURCE].is_fenced)
        self.assertEqual([_SERVER], self.world.stopped)

    def test_one_that_gets_another_use_while_it_is_fenced(self):
        self.start_again()
        self.world.at_cut_off = lambda: self.world.tasks.update({SOURCE: 'NONE'})
        self.world.recover(1)
        self.assertEqual([_SERVER], self.world.stopped)

    def test_one_that_is_deleted(self):
        self.world.deleted.add(SOURCE)
        self.world.recover()
        self.assertEqual(([_SERVER], {}), (self.world.stopped, self.world.marks))

    def test_its_deletion_does_not_wait(self):
        _changes, operations = self.world.changes(worker='deleting')
        with operations.deleting(SOURCE):
            self.assertEqual(Role.DELETE_INSTANCE, self.world.store.find_role(SOURCE))
            # Nothing powers it off meanwhile.
            self.world.changes(worker='next')[0].handle_marks(self.world.marks, worlds.AtOnce())
        self.assertEqual([_SERVER], self.world.stopped)

    def test_a_pause_between_two_looks(self):
        """A host may be down for hours."""
        changes, _operations = self.world.changes(worker='next')
        for seconds, stops in ((0, 2), (10, 2), (49, 2), (1, 3)):
            self.world.now += seconds
            changes.handle_marks(self.world.marks, worlds.AtOnce())
            self.assertEqual(stops, len(self.world.stopped))

    def test_another_worker_powers_it_off(self):
        """No two do so at a time."""
        self.world.store.resume(Role.CHANGE_SOURCE, SOURCE, Claimant('other'))
        self.world.changes(worker='next')[0].handle_marks(self.world.marks, worlds.AtOnce())
        self.assertEqual([_SERVER], self.world.stopped)

    def test_a_worker_that_dies_has_it_accept_no_writes(self):
        """What it leaves is that of a source that may be read-only."""
        self.start_again()
        self.world.store.resume(Role.CHANGE_SOURCE, SOURCE, Claimant('dead'))
        self.world.recover(1)
        self.assertNotIn(SOURCE, self.world.writers())

    def test_the_taskmanager_dies_at_any_time(self):
        for number in range(1000):
            world, strike = World(), worlds.Strike(number, after=True)
            world.live()
            world.refuses_stop = True
            world.request('EJECTING')
            try:
                world.changes(strike)[0].eject(SOURCE)
            except interruption.Kill:
                world.recover(2)
            if world.sources['two'] == 'one':
                self.assertEqual({SOURCE: SourceMark.EJECTED}, world.marks, number)
                self.assertEqual('EJECTION_ERROR', world.tasks[SOURCE])
                self.assertNotIn('repeat the request', ' '.join(world.faults[SOURCE]))
                world.refuses_stop = False
                world.recover()
                self.assertTrue(world.servers[SOURCE].is_down)
                world.check_source('one', ['two'])
            if not strike.struck:
                break
        self.assertGreater(number, 20)
