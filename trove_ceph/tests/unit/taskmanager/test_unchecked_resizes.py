# SPDX-License-Identifier: Apache-2.0
"""Resizes that Trove's API requests in the moment in which another operation begins."""

import types

import fixtures
from trove.common import notification
from trove.instance.tasks import InstanceTasks
from trove.quota.quota import QUOTAS

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementKind
from trove_ceph.db.roles import Role
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.taskmanager.unchecked_world import WORKER, UncheckedTestCase


class UncheckedResizesTest(UncheckedTestCase):
    def used(self):
        """Return the memory and the volumes that the project uses."""
        return [
            QUOTAS.get_quota_usage(QUOTAS.get_quota_by_tenant('project', one)).in_use
            for one in ('ram', 'volumes')
        ]

    def call(self, kind, verb, *arguments):
        """Call the taskmanager as Trove's API does; return the error."""
        notifier = types.SimpleNamespace(
            info=lambda context, event, payload: self.events.append(event)
        )
        self.useFixture(fixtures.MonkeyPatch('trove.rpc.get_notifier', lambda **_: notifier))
        self.have_waits()
        self.set_task(InstanceTasks.RESIZING)
        try:
            getattr(self.manager, verb)(self.context(kind), self.instance.id, *arguments)
        except exceptions.ReplacementRefusedError as error:
            return str(error)
        return None

    def request_flavor(self):
        return self.call(notification.DBaaSInstanceResizeInstance, 'resize_flavor', *self.flavors)

    def request_size(self):
        return self.call(notification.DBaaSInstanceResizeVolume, 'resize_volume', '4')

    def assert_resized(self):
        before = self.used()
        self.calls.clear()
        self.assertIsNone(self.request_flavor())
        self.assertIsNone(self.request_size())
        self.assertEqual([self.flavors, ('4',)], self.calls)
        self.assertEqual((before, InstanceTasks.RESIZING), (self.used(), self.task()))
        self.assertEqual(([], None), (self.events, self.fault()))

    def test_resizes(self):
        self.assert_resized()

    def test_resizes_what_its_creation_has_shown(self):
        """It may wait for other replicas of the same request, or for the flattening."""
        claim = self.operations.begin(Role.CREATE_INSTANCE, self.instance.id, WORKER)
        self.addCleanup(self.operations.finish, claim)
        self.assert_resized()

    def test_a_resize_is_refused_if_a_replacement_began_after_the_look_of_the_api(self):
        """Trove would resize a server that is being deleted, and end the task of the failover."""
        for kind in ReplacementKind:
            claim = self.replace(kind)
            ram, volumes = self.used()
            self.assertIn('the change of the flavor was refused', self.request_flavor())
            self.assertEqual(['dbaas.instance_resize_instance.error'], self.events)
            self.assertEqual([ram - 2048, volumes], self.used())
            self.assertEqual(kind.task, self.task().action)
            self.assertIn('the change of the flavor was refused', self.fault())
            self.assertIn('the resize of the volume was refused', self.request_size())
            # The instance keeps 1 GiB.
            self.assertEqual([ram - 2048, volumes - 3], self.used())
            self.assertEqual(kind.task, self.task().action)
            self.assertIn('the resize of the volume was refused', self.fault())
            self.store.cancel(claim)
            self.events.clear()
        self.assertEqual([], self.calls)

    def test_the_task_is_given_back_before_the_api_has_counted(self):
        self.replace()
        tasks = []
        self.at_pause = lambda: tasks.append((self.task(), self.used()))
        before = self.used()
        self.request_flavor()
        self.assertEqual([(InstanceTasks.MIGRATING, before)], tasks)
        self.assertEqual(5, self.now)

    def test_a_refused_resize_of_an_instance_that_is_deleted_meanwhile(self):
        """The API has given back what it used before."""
        self.replace()
        self.at_pause = lambda: self.set_task(InstanceTasks.DELETING)
        ram, _volumes = self.used()
        self.request_flavor()
        self.assertEqual(ram - 2048, self.used()[0])
        self.assertEqual(([], InstanceTasks.DELETING), (self.calls, self.task()))

    def test_a_volume_is_refused_with_that_of_its_source(self):
        """Otherwise only the replicas would be extended, and counted again with a repetition."""
        replica, self.instance = self.instance, trove_database.add_instance('project', 'volume-s')
        trove_database.instance(replica.id).update(slave_of_id=self.instance.id)
        self.replace()
        self.instance = replica
        before = self.used()
        self.assertIn('since its source', self.request_size())
        self.assertEqual(InstanceTasks.NONE, self.task())
        self.assertEqual([before[0], before[1] - 3], self.used())
        # Its flavor is its own.
        self.assertIsNone(self.request_flavor())

    def test_a_resize_of_a_replica_that_may_take_over(self):
        replica = self.instance
        source_id = self.make_replica()
        claim = self.operations.begin(Role.TAKE_OVER, source_id, WORKER)
        self.addCleanup(self.operations.finish, claim)
        self.assertIn('is being ejected', self.request_flavor())
        self.assertEqual(InstanceTasks.EJECTING, self.task())
        self.assertEqual([], self.calls)
        self.assertEqual(replica.id, self.instance.id)
