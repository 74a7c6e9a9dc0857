# SPDX-License-Identifier: Apache-2.0
"""Tasks of promotions, ejections and detachments that nothing carries out."""

import types

from oslotest import base
from trove.instance.tasks import InstanceTasks

from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.taskmanager import source_requests
from trove_ceph.tests.unit.strategies import source_services
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World
from trove_ceph.tests.unit.taskmanager import trove_database

OTHER = Claimant('other')
CHANGING = ('PROMOTING', 'EJECTING', 'DETACHING')


class LostChangesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = World()
        self.changes, _operations = self.world.changes()
        self.rows = source_services.Rows(self.world)

    def look(self, after_sec=0.0):
        self.world.now += after_sec
        found = map(self.rows.find, self.world.tasks)
        self.changes.end_lost([one for one in found if one and one.task in CHANGING])

    def test_ends_what_nothing_carries_out(self):
        for task in CHANGING:
            self.world.request(task)
            self.look()
            self.look(899)
            self.assertEqual({task}, set(self.world.tasks.values()))
            self.look(1)
            self.world.check_nothing_left()
        for name in (SOURCE, 'one', 'two'):
            self.assertEqual(3, len(self.world.faults[name]))
            self.assertIn('was lost; nothing was changed; repeat it', self.world.faults[name][0])

    def test_a_replica_that_was_deleted_before_its_promotion_began(self):
        self.world.request('PROMOTING')
        self.world.deleted.add('one')
        del self.world.tasks['one']
        self.look()
        self.look(900)
        self.world.check_nothing_left()
        self.assertEqual({SOURCE: 'NONE', 'two': 'NONE'}, self.world.tasks)

    def test_leaves_what_an_operation_works_on(self):
        """Also one whose worker has died, and one that does not have the source yet."""
        for role, name in (
            (Role.EJECT_SOURCE, SOURCE),
            (Role.CHANGE_SOURCE, SOURCE),
            (Role.PROMOTE_REPLICA, 'one'),
        ):
            claim = self.world.store.begin(role, name, OTHER)
            self.world.store.forget_workers()
            self.world.request('PROMOTING')
            self.look()
            self.look(900)
            self.assertEqual({'PROMOTING'}, set(self.world.tasks.values()))
            self.assertEqual(role, self.world.store.find_role(name))
            self.world.store.finish(claim)

    def test_the_time_begins_again_with_the_end_of_an_operation(self):
        self.world.request('PROMOTING')
        self.look()
        claim = self.world.store.begin(Role.CHANGE_SOURCE, SOURCE, OTHER)
        self.look(600)
        self.world.store.finish(claim)
        self.look(300)
        self.look(899)
        self.assertEqual({'PROMOTING'}, set(self.world.tasks.values()))
        self.look(1)
        self.world.check_nothing_left()

    def test_gives_back_the_tasks_of_others(self):
        self.world.request('PROMOTING')
        self.world.other_tasks['two'] = 'MIGRATING'
        self.world.marks[SOURCE] = SourceMark.UNFINISHED_EJECTION
        self.look()
        self.look(900)
        expected = {SOURCE: 'EJECTION_ERROR', 'one': 'NONE', 'two': 'MIGRATING'}
        self.assertEqual(expected, self.world.tasks)

    def test_a_database_that_does_not_answer_hinders_no_other_look(self):
        self.world.request('DETACHING', 'one')
        self.look()
        self.world.down.add('rows')
        self.changes.end_lost([self.rows.find('one')])
        self.world.now += 900
        self.changes.end_lost([self.rows.find('one')])
        self.assertEqual('DETACHING', self.world.tasks['one'])
        self.world.down.clear()
        self.look()
        self.world.check_nothing_left()


class OwnGroupsTest(base.BaseTestCase):
    """The tasks of instances of other agents are those of Trove's own code."""

    def test_looks_at_groups_that_are_ours(self):
        ours, others = (trove_database.add_instance('project', 'volume') for _each in range(2))
        replica = trove_database.add_instance('project', 'volume', slave_of_id=ours.id)
        foreign = trove_database.add_instance('project', 'volume', slave_of_id=others.id)
        for one in (replica, foreign):
            one.update(task_status=InstanceTasks.PROMOTING)
            self.addCleanup(one.update, task_status=InstanceTasks.NONE)
        found = []
        requests = source_requests.SourceRequests(
            lambda: types.SimpleNamespace(end_lost=found.extend), lambda one: one != others.id
        )
        requests.end_lost()
        self.assertEqual([replica.id], [one.instance_id for one in found])
