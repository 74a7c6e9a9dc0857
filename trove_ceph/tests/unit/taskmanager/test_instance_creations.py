# SPDX-License-Identifier: Apache-2.0
"""An instance whose taskmanager dies during its creation ends in ERROR."""

import datetime

from oslotest import base
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.db import claims, heartbeat, transactions
from trove_ceph.db import instance_creations as creation_store
from trove_ceph.taskmanager import instance_creations
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import database
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import trove_db

SECOND = datetime.timedelta(seconds=1)


class InstanceCreationsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        self.transactions = transactions.Transactions(
            database.facade(trove_database.path()), lambda: self.now
        )
        self.store = creation_store.InstanceCreationStore(self.transactions)
        self.dead = set()
        self.one, self.two = self.start('one'), self.start('two')
        self.instance = self.add()

    def add(self, task_status=InstanceTasks.BUILDING):
        return trove_database.add_instance('project', None, task_status=task_status)

    def start(self, name):
        """Return the claims of one taskmanager."""
        self.heartbeat = heartbeat.Heartbeat(claims.Claims(self.transactions), 5, 45)
        return instance_creations.InstanceCreations(
            self.store,
            trove_db.TroveDatabase(),
            claims.Claimant(name, is_dead=self.dead.__contains__),
            self.heartbeat,
        )

    def kill(self, creations, *instances):
        """Kill a taskmanager while it creates instances."""

        def create():
            # The rows stay, since a killed process deletes nothing.
            creations._finish = lambda _claim: None
            with creations.claimed([one.id for one in instances]):
                raise interruption.Kill

        self.assertRaises(interruption.Kill, create)

    def status(self, instance=None):
        return trove_database.instance((instance or self.instance).id).task_status

    def test_the_error_says_what_to_do(self):
        replica = self.add()
        self.kill(self.one, self.instance, replica)
        self.two.fail_interrupted()
        self.assertEqual(InstanceTasks.BUILDING, self.status())
        self.dead.add('one')
        self.two.fail_interrupted()
        for instance in (self.instance, replica):
            self.assertEqual(InstanceTasks.BUILDING_ERROR_SERVER, self.status(instance))
            fault = instance_models.DBInstanceFault.find_by(instance_id=instance.id)
            self.assertIn('create it again', fault.message)
        self.assertEqual([], self.store.list_interrupted(claims.Claimant('three')))

    def test_a_worker_without_heartbeats_counts_as_dead(self):
        """Nothing else is known of a worker on another host."""
        self.kill(self.one, self.instance)
        self.now += claims.DEFAULT_EXPIRY
        self.two.fail_interrupted()
        self.assertEqual(InstanceTasks.BUILDING, self.status())
        self.now += SECOND
        self.two.fail_interrupted()
        self.assertEqual(InstanceTasks.BUILDING_ERROR_SERVER, self.status())

    def test_heartbeats_renew_the_claim(self):
        with self.two.claimed([self.instance.id]):
            for _again in range(3):
                self.now += claims.DEFAULT_EXPIRY
                self.heartbeat.beat()
                self.one.fail_interrupted()
                self.assertEqual(InstanceTasks.BUILDING, self.status())
        self.dead.add('two')
        self.one.fail_interrupted()
        self.assertEqual(InstanceTasks.BUILDING, self.status())

    def test_leaves_instances_that_are_built_or_deleted(self):
        built = self.add(InstanceTasks.NONE)
        deleted = self.add(InstanceTasks.DELETING)
        self.kill(self.one, built, deleted)
        self.dead.add('one')
        self.two.fail_interrupted()
        self.assertEqual(InstanceTasks.NONE, self.status(built))
        self.assertEqual(InstanceTasks.DELETING, self.status(deleted))

    def test_a_failed_creation_is_not_interrupted(self):
        def create():
            with self.one.claimed([self.instance.id]):
                raise exceptions.NoSpaceError('the pool is full')

        self.assertRaises(exceptions.NoSpaceError, create)
        self.dead.add('one')
        self.two.fail_interrupted()
        self.assertEqual(InstanceTasks.BUILDING, self.status())

    def test_creates_without_claims_if_the_database_fails(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('the table is missing')

        self.store.begin = fail
        with self.one.claimed([self.instance.id]):
            pass

    def test_a_claim_that_cannot_be_released_expires(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('the database is down')

        finish = self.store.finish
        self.store.finish = fail
        with self.one.claimed([self.instance.id]):
            trove_database.instance(self.instance.id).update(task_status=InstanceTasks.NONE)
        self.store.finish = finish
        self.now += claims.DEFAULT_EXPIRY + SECOND
        self.two.fail_interrupted()
        self.assertEqual(InstanceTasks.NONE, self.status())
        self.assertEqual([], self.store.list_interrupted(claims.Claimant('three')))
