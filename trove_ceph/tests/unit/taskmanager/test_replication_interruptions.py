# SPDX-License-Identifier: Apache-2.0
"""Interrupt the creation of replicas at each request, up to the report of the last guest.

A tenant deletes the replicas then, and nothing of them is left.
"""

import contextlib
import dataclasses
import datetime
import itertools

import fixtures
from oslotest import base
from trove.common import exception as trove_exceptions
from trove.common import notification
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.db import instance_operations
from trove_ceph.strategies.replication import clones
from trove_ceph.taskmanager import manager
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import replication_world
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import replica_creation, trove_database

_FINISH = 'trove_ceph.db.instance_operations.InstanceOperationStore.finish'
_TASKS = 'trove.taskmanager.models.FreshInstanceTasks'


class ChangeStrike(worlds.Strike):
    """Strikes after a request that changes something; a kill after another one equals that.

    :param number: of the request among those that change something
    """

    def __init__(self, world, number, **facts):
        super().__init__(number, after=True, **facts)
        self._world = world

    def around(self, request, unavailable):
        if self._world.events[-1] in worlds.READS:
            return request()
        return super().around(request, unavailable)


class StruckAgents:
    """The client of the guest agent of the source."""

    def __init__(self, world, strike):
        self._world, self._strike = world, strike

    def __getattr__(self, verb):
        def ask(*arguments):
            self._world.events.append(f'agent {verb}')
            lost = exceptions.GuestUnavailableError('guest agent: no answer')
            return self._strike.around(lambda: getattr(self._world, verb)(*arguments), lost)

        return ask


class CreationInterruptionTest(replica_creation.ReplicaCreation, base.BaseTestCase):
    """Replicas of one request, on the tier for replicas."""

    def setUp(self):
        super().setUp()
        self.strike = worlds.Strike(None)
        self.set_up(self.make_world())
        for verb in ('_create_server', '_guest_prepare'):
            self.patch(f'{_TASKS}.{verb}', self.struck(self.record(self.built, verb), verb))
        self.patch(
            'trove_ceph.trove_adapter.instance_deletion.delete_but_volume',
            lambda _context, instance_id: self.delete_row(instance_id),
        )
        self.patch(f'{clones.__name__}.SNAPSHOT_EXPIRY', datetime.timedelta(minutes=-1))

    @staticmethod
    def make_world(count=1):
        return replication_world.ReplicationWorld(count, replicas_on='replica')

    def replication_deps(self):
        deps = self.world.replication_deps(self.strike)
        return dataclasses.replace(deps, agents=StruckAgents(self.world, self.strike))

    def struck(self, verb, name):
        """Return a request to Nova or a guest that the strike may hit."""

        def called(*arguments, **options):
            self.world.events.append(f'trove {name}')
            return self.strike.around(
                lambda: verb(*arguments, **options), trove_exceptions.TroveError('no answer')
            )

        return called

    def wait(self, *arguments):
        self.struck(super().wait, 'wait')(*arguments)

    @staticmethod
    def delete_row(instance_id):
        trove_database.instance(instance_id).update(deleted=True)

    def create(self):
        context = self.context(notification.DBaaSInstanceCreate)
        instance_ids, request = self.replica_request()
        self.manager.create_instance(context, instance_ids, **request)

    def delete(self, instance_id):
        """Delete an instance as Trove's API and its taskmanager do."""
        row = trove_database.instance(instance_id)
        row.update(task_status=InstanceTasks.DELETING)
        context = self.context(notification.DBaaSInstanceDelete)
        self.manager.delete_instance(context, instance_id)
        if row.volume_id is None:
            self.assertEqual([('delete_instance', (context, instance_id), {})], self.stock[-1:])
            self.delete_row(instance_id)

    def test_killed_after_each_change(self):
        def run():
            # A killed process deletes no row.
            with (
                fixtures.MonkeyPatch(_FINISH, lambda *_: None),
                contextlib.suppress(interruption.Kill),
            ):
                self.create()
            self.recover()

        self.at_each_request(lambda number: ChangeStrike(self.world, number), run, 15)

    def recover(self):
        """Start the next taskmanager, which finds what the killed one has left."""
        self.strike = worlds.Strike(None)
        self.manager = manager.Manager()
        self.manager._recovery_threads = worlds.AtOnce()
        self.manager._recover_instances()

    def test_answer_to_each_change_is_lost(self):
        self.at_each_request(
            lambda number: ChangeStrike(self.world, number, lost=True), self.create, 15
        )

    def test_each_request_is_lost(self):
        self.at_each_request(lambda number: worlds.Strike(number, lost=True), self.create, 25, 1)

    def at_each_request(self, make_strike, run, least, count=2):
        """Create replicas once for each request.

        :param make_strike: returns the strike at the request with a number
        :param least: how many requests there are at least
        :param count: of replicas
        """
        for number in itertools.count():
            self.use(self.make_world(count))
            self.manager = manager.Manager()
            self.strike = strike = make_strike(number)
            run()
            if not strike.struck:
                self.assertGreater(number, least)
                return
            try:
                self.check()
            except Exception as error:
                error.add_note(f'struck at request {number}')
                raise

    def check(self):
        """Check that all replicas have ended, and that nothing is left of them once deleted."""
        for instance_id, task in zip(self.world.replicas, self.tasks(), strict=True):
            self.assertTrue(task == InstanceTasks.NONE or task.is_error, task)
            if task.is_error:
                self.assertTrue(self.fault(instance_id))
        self.delete_all()
        self.check_nothing_left()

    def delete_all(self):
        for instance_id in self.world.replicas:
            self.delete(instance_id)
        self.manager.remove_old_replica_snapshots(None)
        self.manager.reclaim_space(None)
        self.world.cinder.work()
        self.manager.reclaim_space(None)

    def check_nothing_left(self):
        world = self.world
        self.assertEqual([world.volume], list(world.cinder.volumes.values()))
        self.assertEqual({world.volume_image.name}, world.images())
        images = world.images(replication_world.REPLICA_POOL) - {world.vault.name}
        self.assertEqual(set(), images)
        self.assertEqual([], world.snapshots())
        self.assertEqual([], world.trash())
        self.assertEqual([], world.records.kept_volumes())
        self.assertEqual(world.cinder.true_usage(), world.cinder.quota.counted())
        self.assertEqual([], list(world.store.list(source_id=world.instance.id)))
        self.assertEqual(set(), world.accounts)
        operations = instance_operations.InstanceOperationStore()
        self.assertEqual([], list(operations.list_interrupted(world.worker())))
