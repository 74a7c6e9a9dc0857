# SPDX-License-Identifier: Apache-2.0
"""Tasks of promotions, ejections and detachments that nothing carries out."""

import datetime
import types

import fixtures
from oslotest import base
from trove.instance.tasks import InstanceTasks

from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.strategies.replication.source_dependencies import CHANGE_TASKS
from trove_ceph.taskmanager import source_requests
from trove_ceph.tests.unit.strategies import source_services
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World
from trove_ceph.tests.unit.taskmanager import trove_database

OTHER = Claimant('other')


class LostChangesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = World()
        self.changes, _operations = self.world.changes()
        self.rows = source_services.Rows(self.world)

    def look(self, names=(SOURCE, 'one', 'two')):
        """Look at the instances that have a task for long."""
        found = filter(None, map(self.rows.find, names))
        self.changes.end_lost([one for one in found if one.task in CHANGE_TASKS])

    def test_ends_what_nothing_carries_out(self):
        for number, task in enumerate(CHANGE_TASKS, 1):
            self.world.request(task)
            self.look()
            self.world.check_nothing_left()
            for name in (SOURCE, 'one', 'two'):
                self.assertEqual(number, len(self.world.faults[name]))
        self.assertIn('was lost; nothing was changed; repeat it', self.world.faults['one'][0])

    def test_ends_no_younger_task(self):
        self.world.request('DETACHING')
        self.look(['one'])
        self.assertEqual('NONE', self.world.tasks['one'])
        self.assertEqual('DETACHING', self.world.tasks['two'])

    def test_a_replica_that_was_deleted_before_its_promotion_began(self):
        self.world.request('PROMOTING')
        self.world.deleted.add('one')
        del self.world.tasks['one']
        self.look()
        self.world.check_nothing_left()
        self.assertEqual({SOURCE: 'NONE', 'two': 'NONE'}, self.world.tasks)

    def test_leaves_what_an_operation_works_on(self):
        """Also one whose worker has died, and one that does not have the source yet."""
        for role, name in (
            (Role.EJECT_SOURCE, SOURCE),
            (Role.TAKE_OVER, SOURCE),
            (Role.CHANGE_SOURCE, SOURCE),
            (Role.PROMOTE_REPLICA, 'one'),
        ):
            claim = self.world.store.begin(role, name, OTHER)
            self.world.store.forget_workers()
            self.world.request('PROMOTING')
            self.look()
            self.assertEqual({'PROMOTING'}, set(self.world.tasks.values()))
            self.assertEqual(role, self.world.store.find_role(name))
            self.world.store.finish(claim)

    def test_gives_back_the_tasks_of_others(self):
        self.world.request('PROMOTING')
        self.world.other_tasks['two'] = 'MIGRATING'
        self.world.marks[SOURCE] = SourceMark.UNFINISHED_EJECTION
        self.look()
        expected = {SOURCE: 'EJECTION_ERROR', 'one': 'NONE', 'two': 'MIGRATING'}
        self.assertEqual(expected, self.world.tasks)

    def test_two_taskmanagers_tell_once(self):
        self.world.request('PROMOTING')
        both = [self.rows.find(name) for name in (SOURCE, 'one', 'two')]
        self.changes.end_lost(both)
        self.world.changes(worker='another')[0].end_lost(both)
        self.assertEqual([1, 1, 1], [len(found) for found in self.world.faults.values()])

    def test_a_database_that_does_not_answer_hinders_no_other_look(self):
        self.world.request('DETACHING', 'one')
        found = self.rows.find('one')
        self.world.down.add('rows')
        self.changes.end_lost([found])
        self.assertEqual('DETACHING', self.world.tasks['one'])
        self.world.down.clear()
        self.changes.end_lost([found])
        self.world.check_nothing_left()

    def test_an_ejection_that_begins_afterwards(self):
        """The source may be healthy again."""
        self.world.live()
        self.world.request('EJECTING')
        self.look()
        self.changes.eject(SOURCE)
        self.world.check_source(SOURCE, {'one', 'two'})
        self.assertFalse(self.world.servers[SOURCE].is_fenced)
        self.assertIn('the source has changed meanwhile', self.world.faults[SOURCE][-1])


class OwnGroupsTest(base.BaseTestCase):
    """The tasks of instances of other agents are those of Trove's own code."""

    def setUp(self):
        super().setUp()
        self.ours, self.others = (
            trove_database.add_instance('project', 'volume') for _each in range(2)
        )
        self.replica, self.foreign = (
            trove_database.add_instance('project', 'volume', slave_of_id=one.id)
            for one in (self.ours, self.others)
        )
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.taskmanager.lost_changes.LOST_AFTER', datetime.timedelta(seconds=-60)
            )
        )

    def found(self, task):
        for one in (self.replica, self.foreign):
            one.update(task_status=task)
            self.addCleanup(one.update, task_status=InstanceTasks.NONE)
        found = []
        source_requests.SourceRequests(
            lambda: types.SimpleNamespace(end_lost=found.extend), lambda one: one != self.others.id
        ).end_lost()
        return {one.instance_id for one in found} & {self.replica.id, self.foreign.id}

    def test_promotions_of_groups_that_are_ours(self):
        self.assertEqual({self.replica.id}, self.found(InstanceTasks.PROMOTING))

    def test_detachments_of_replicas_that_are_ours(self):
        """Whatever their siblings are."""
        self.assertEqual({self.replica.id, self.foreign.id}, self.found(InstanceTasks.DETACHING))

    def test_young_tasks(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.taskmanager.lost_changes.LOST_AFTER', datetime.timedelta(minutes=15)
            )
        )
        self.assertEqual(set(), self.found(InstanceTasks.PROMOTING))
