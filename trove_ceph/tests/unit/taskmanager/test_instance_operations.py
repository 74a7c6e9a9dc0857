# SPDX-License-Identifier: Apache-2.0
"""An instance whose taskmanager dies during its creation ends in ERROR."""

import contextlib
import datetime
import types

from oslotest import base
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions, waiting
from trove_ceph.db import claims, heartbeat, transactions
from trove_ceph.db import instance_operations as operation_store
from trove_ceph.db.roles import Role
from trove_ceph.taskmanager import instance_operations
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import database
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import trove_db

CREATE, DELETE = Role.CREATE_INSTANCE, Role.DELETE_INSTANCE
SECOND = datetime.timedelta(seconds=1)


class InstanceOperationsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        self.transactions = transactions.Transactions(
            database.facade(trove_database.path()), lambda: self.now
        )
        self.store = operation_store.InstanceOperationStore(self.transactions)
        self.dead, self.deleted = set(), []
        self.resumptions = {DELETE: lambda claim: self.deleted.append(claim.resource_id)}
        self.one, self.two = self.start('one'), self.start('two')
        self.instance = self.add()

    def add(self, task_status=InstanceTasks.BUILDING):
        return trove_database.add_instance('project', None, task_status=task_status)

    def start(self, name):
        """Return the claims of one taskmanager."""
        self.heartbeat = heartbeat.Heartbeat(claims.Claims(self.transactions), 5, 45)
        return instance_operations.InstanceOperations(
            self.store,
            trove_db.TroveDatabase(),
            claims.Claimant(name, is_dead=self.dead.__contains__),
            self.heartbeat,
        )

    def kill(self, creations, *instances, role=CREATE):
        """Kill a taskmanager while it creates instances."""

        def create():
            # The rows stay, since a killed process deletes nothing.
            creations.finish = lambda _claim: None
            with creations.claimed(role, [one.id for one in instances]):
                raise interruption.Kill

        self.assertRaises(interruption.Kill, create)

    def status(self, instance=None):
        return trove_database.instance((instance or self.instance).id).task_status

    def test_the_error_says_what_to_do(self):
        replica = self.add()
        self.kill(self.one, self.instance, replica)
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual(InstanceTasks.BUILDING, self.status())
        self.dead.add('one')
        self.two.recover(self.resumptions, worlds.AtOnce())
        for instance in (self.instance, replica):
            self.assertEqual(InstanceTasks.BUILDING_ERROR_SERVER, self.status(instance))
            fault = instance_models.DBInstanceFault.find_by(instance_id=instance.id)
            self.assertIn('create it again', fault.message)
        self.assertEqual([], self.store.list_interrupted(claims.Claimant('three')))

    def test_a_worker_without_heartbeats_counts_as_dead(self):
        """Nothing else is known of a worker on another host."""
        self.kill(self.one, self.instance)
        self.now += claims.DEFAULT_EXPIRY
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual(InstanceTasks.BUILDING, self.status())
        self.now += SECOND
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual(InstanceTasks.BUILDING_ERROR_SERVER, self.status())

    def test_heartbeats_renew_the_claim(self):
        with self.two.claimed(CREATE, [self.instance.id]):
            for _again in range(3):
                self.now += claims.DEFAULT_EXPIRY
                self.heartbeat.beat()
                self.one.recover(self.resumptions, worlds.AtOnce())
                self.assertEqual(InstanceTasks.BUILDING, self.status())
        self.dead.add('two')
        self.one.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual(InstanceTasks.BUILDING, self.status())

    def test_leaves_instances_that_are_built_or_deleted(self):
        built = self.add(InstanceTasks.NONE)
        deleted = self.add(InstanceTasks.DELETING)
        self.kill(self.one, built, deleted)
        self.dead.add('one')
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual(InstanceTasks.NONE, self.status(built))
        self.assertEqual(InstanceTasks.DELETING, self.status(deleted))

    def test_a_failed_creation_is_not_interrupted(self):
        def create():
            with self.one.claimed(CREATE, [self.instance.id]):
                raise exceptions.NoSpaceError('the pool is full')

        self.assertRaises(exceptions.NoSpaceError, create)
        self.dead.add('one')
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual(InstanceTasks.BUILDING, self.status())

    def test_the_claim_of_one_of_several_ends_with_its_own_creation(self):
        other = self.add()
        with self.one.claimed(CREATE, [self.instance.id, other.id]) as end:
            end(self.instance.id)
            end(self.instance.id)
            self.assertIsNone(self.store.find_role(self.instance.id))
            self.assertIs(CREATE, self.store.find_role(other.id))
            claim = self.store.begin(Role.PROMOTE_REPLICA, self.instance.id, claims.Claimant('x'))
        self.assertIs(Role.PROMOTE_REPLICA, self.store.find_role(self.instance.id))
        self.assertIsNone(self.store.find_role(other.id))
        self.store.finish(claim)

    def test_a_deletion_keeps_the_row_of_a_dead_promotion(self):
        """It shows that the replica may be the source."""
        worker = claims.Claimant('three')
        self.store.begin(Role.PROMOTE_REPLICA, self.instance.id, worker)
        self.dead.add('three')
        with self.one.claimed(DELETE, [self.instance.id]):
            self.assertIs(Role.PROMOTE_REPLICA, self.store.find_role(self.instance.id))
        self.assertIs(Role.PROMOTE_REPLICA, self.store.find_role(self.instance.id))

    def test_a_claim_only_if_nothing_else_works_on_the_instance(self):
        with self.one.if_free(Role.CHANGE_SOURCE, self.instance.id) as claim:
            self.assertIs(Role.CHANGE_SOURCE, claim.role)
            with self.two.if_free(Role.CHANGE_SOURCE, self.instance.id) as other:
                self.assertIsNone(other)
            self.assertIs(Role.CHANGE_SOURCE, self.store.find_role(self.instance.id))
        self.assertIsNone(self.store.find_role(self.instance.id))

    def fail_with_claim(self, error):
        with self.one.if_free(Role.CHANGE_SOURCE, self.instance.id):
            raise error

    def test_such_a_claim_ends_with_an_error_but_not_with_the_process(self):
        self.assertRaises(ValueError, self.fail_with_claim, ValueError())
        self.assertIsNone(self.store.find_role(self.instance.id))
        self.assertRaises(interruption.Kill, self.fail_with_claim, interruption.Kill())
        self.assertIs(Role.CHANGE_SOURCE, self.store.find_role(self.instance.id))
        self.dead.add('one')
        over = {Role.CHANGE_SOURCE}
        with self.two.if_free(Role.CHANGE_SOURCE, self.instance.id, over) as claim:
            self.assertIs(Role.CHANGE_SOURCE, claim.former_role)

    def promote(self, name):
        """Return the claim of a promotion by a worker."""
        return self.store.begin(Role.PROMOTE_REPLICA, self.instance.id, claims.Claimant(name))

    def test_a_new_operation_leaves_the_row_of_a_dead_one(self):
        self.store.begin(Role.EJECT_SOURCE, self.instance.id, claims.Claimant('three'))
        four = claims.Claimant('four', is_dead=lambda name: name == 'three')
        self.assertIsNone(self.store.begin(Role.CHANGE_SOURCE, self.instance.id, four))
        self.assertIs(Role.EJECT_SOURCE, self.store.find_role(self.instance.id))
        claim = self.store.begin(
            Role.CHANGE_SOURCE, self.instance.id, four, over={Role.EJECT_SOURCE}
        )
        self.assertIs(Role.EJECT_SOURCE, claim.former_role)
        self.assertIs(Role.CHANGE_SOURCE, self.store.find_role(self.instance.id))

    def test_a_deletion_that_waited_for_a_promotion_is_done_by_any_worker(self):
        claim = self.promote('three')
        self.instance.update(task_status=InstanceTasks.DELETING)
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual([], self.deleted)
        self.one.finish(claim)
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual([self.instance.id], self.deleted)
        self.assertIsNone(self.store.find_role(self.instance.id))

    def test_a_promotion_that_ends_leaves_no_row(self):
        self.one.finish(self.promote('three'))
        self.assertIsNone(self.store.find_role(self.instance.id))

    def test_a_deletion_holds_its_claim_once_the_promotion_has_ended(self):
        claim = self.promote('three')
        self.instance.update(task_status=InstanceTasks.DELETING)
        self.one._start_wait = lambda _sec: self.deadline(lambda: self.two.finish(claim))
        with self.one.deleting(self.instance.id):
            self.assertIs(DELETE, self.store.find_role(self.instance.id))
            self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual([], self.deleted)
        self.assertIsNone(self.store.find_role(self.instance.id))

    def test_a_deletion_waits_for_short_work_on_an_instance(self):
        """Such as the one that powers the server of an ejected source off."""
        claim = self.store.begin(Role.CHANGE_SOURCE, self.instance.id, claims.Claimant('three'))
        self.one._start_wait = lambda _sec: self.deadline(lambda: self.two.finish(claim))
        with self.one.deleting(self.instance.id):
            self.assertIs(DELETE, self.store.find_role(self.instance.id))

    @staticmethod
    def deadline(pause=lambda: None, left=1):
        """Return a deadline with some pauses left, in each of which something happens."""
        pauses = iter(range(left))

        def wait(_sec):
            pause()
            return next(pauses, None) is not None

        return types.SimpleNamespace(pause=wait)

    def delete_over(self, error):
        """Delete while the row of a dead promotion stays, and have the deletion fail."""
        self.promote('three')
        self.instance.update(task_status=InstanceTasks.DELETING)
        self.dead.add('three')
        self.one._start_wait = lambda _sec: self.deadline()
        with contextlib.suppress(type(error)), self.one.deleting(self.instance.id):
            self.assertIs(Role.PROMOTE_REPLICA, self.store.find_role(self.instance.id))
            raise error

    def test_the_promotion_goes_on_if_the_deletion_fails(self):
        for error in (exceptions.DeletionRefusedError('it accepts writes'), interruption.Kill()):
            self.delete_over(error)
            self.assertIs(Role.PROMOTE_REPLICA, self.store.find_role(self.instance.id))
            self.dead.add('one')
            promoted = []
            resumptions = {
                **self.resumptions,
                Role.PROMOTE_REPLICA: lambda claim, to=promoted: to.append(claim.resource_id),
            }
            for _again in range(2):
                self.two.recover(resumptions, worlds.AtOnce())
            self.assertIn(self.instance.id, promoted)
            self.assertEqual([self.instance.id], self.deleted)
            self.deleted.clear()

    def test_a_deletion_that_cannot_end_yet_is_resumed(self):
        error = exceptions.OperationUnfinishedError('the database does not answer')

        def delete(_claim):
            raise error

        self.assertIs(
            error, self.assertRaises(exceptions.OperationUnfinishedError, self.fail_deletion, error)
        )
        self.now += claims.DEFAULT_EXPIRY + SECOND
        self.two.recover({DELETE: delete}, worlds.AtOnce())
        self.now += claims.DEFAULT_EXPIRY + SECOND
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual([self.instance.id], self.deleted)

    def test_such_a_deletion_is_resumed_if_it_could_not_be_claimed_before(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('the database is down')

        find_role = self.store.find_role
        self.store.find_role = fail
        error = exceptions.OperationUnfinishedError('the database does not answer')

        def delete():
            with self.one.deleting(self.instance.id):
                self.store.find_role = find_role
                raise error

        self.assertRaises(exceptions.OperationUnfinishedError, delete)
        self.now += claims.DEFAULT_EXPIRY + SECOND
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual([self.instance.id], self.deleted)

    def fail_deletion(self, error):
        with self.one.deleting(self.instance.id):
            raise error

    def test_deletes_without_a_claim_if_the_database_fails(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('the table is missing')

        self.store.find_role = fail
        with self.one.deleting(self.instance.id):
            pass

    def test_creates_without_claims_if_the_database_fails(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('the table is missing')

        self.store.begin = fail
        with self.one.claimed(CREATE, [self.instance.id]):
            pass

    def test_a_claim_that_cannot_be_released_expires(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('the database is down')

        finish = self.store.finish
        self.store.finish = fail
        with self.one.claimed(CREATE, [self.instance.id]):
            trove_database.instance(self.instance.id).update(task_status=InstanceTasks.NONE)
        self.store.finish = finish
        self.now += claims.DEFAULT_EXPIRY + SECOND
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual(InstanceTasks.NONE, self.status())
        self.assertEqual([], self.store.list_interrupted(claims.Claimant('three')))

    def test_resumes_an_interrupted_deletion(self):
        self.kill(self.one, self.instance, role=DELETE)
        self.two.recover(self.resumptions, worlds.AtOnce())
        self.assertEqual([], self.deleted)
        self.dead.add('one')
        for _again in range(2):
            self.two.recover(self.resumptions, worlds.AtOnce())
            self.assertEqual([self.instance.id], self.deleted)

    def test_deletion_that_fails_again_is_left_to_the_tenant(self):
        def fail(_claim):
            raise exceptions.ServiceUnavailableError('Nova is down')

        self.kill(self.one, self.instance, role=DELETE)
        self.dead.add('one')
        self.two.recover({DELETE: fail}, worlds.AtOnce())
        self.assertEqual([], self.store.list_interrupted(claims.Claimant('three')))

    def test_a_new_replica_waits_for_the_end_of_each_change_of_its_source(self):
        """A promotion lists the replicas when it begins."""
        for role in (
            *(Role.PROMOTE_REPLICA, Role.CHANGE_SOURCE, Role.EJECT_SOURCE, Role.TAKE_OVER),
            *(Role.DETACH_REPLICA, Role.REBUILD_SERVER),
        ):
            claim = self.store.begin(role, self.instance.id, claims.Claimant('three'))
            slept = []

            def sleep(seconds, claim=claim, slept=slept):
                slept.append(seconds)
                if len(slept) == 3:
                    self.store.finish(claim)

            self.one._start_wait = lambda seconds, sleep=sleep: waiting.Deadline(
                seconds, lambda: 0.0, sleep
            )
            self.one.await_changes(self.instance.id)
            self.assertEqual(3, len(slept), role)

    def test_a_new_replica_is_refused_if_a_change_of_its_source_does_not_end(self):
        claim = self.store.begin(Role.EJECT_SOURCE, self.instance.id, claims.Claimant('three'))
        self.addCleanup(self.store.finish, claim)
        self.one._start_wait = lambda _seconds: waiting.Deadline(0, lambda: 0.0, self.fail)
        error = self.assertRaises(
            exceptions.ReplicaRefusedError, self.one.await_changes, self.instance.id
        )
        self.assertIn('create the replica again when that has ended', str(error))

    def test_a_new_replica_does_not_wait_for_other_work(self):
        """What hinders it is found next, with a better reason."""
        claim = self.store.begin(DELETE, self.instance.id, claims.Claimant('three'))
        self.addCleanup(self.store.finish, claim)
        self.one._start_wait = lambda _seconds: waiting.Deadline(0, lambda: 0.0, self.fail)
        self.one.await_changes(self.instance.id)

    def test_a_stuck_promotion_holds_up_its_own_source_only(self):
        source, other = self.add(InstanceTasks.NONE), self.add(InstanceTasks.NONE)
        replica = trove_database.add_instance('project', None, slave_of_id=source.id)
        dead = claims.Claimant('three')
        self.dead.add('three')
        self.store.begin(Role.PROMOTE_REPLICA, replica.id, dead)
        released = []
        resumptions = {Role.CHANGE_SOURCE: lambda claim: released.append(claim.resource_id)}
        for one in (source, other):
            self.store.begin(Role.CHANGE_SOURCE, one.id, dead)
        self.two.recover(resumptions, worlds.AtOnce())
        self.assertEqual([other.id], released)
