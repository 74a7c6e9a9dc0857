# SPDX-License-Identifier: Apache-2.0
"""A taskmanager with our tables, an instance, and Trove's own code in the form of the test case."""

import datetime
import types
import uuid

import fixtures
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks

from trove_ceph import waiting
from trove_ceph.db import (
    claims,
    heartbeat,
    instance_operations,
    replacements,
    transactions,
)
from trove_ceph.db.replacement_record import ReplacementKind
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.db import replacement_helpers
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.taskmanager import contexts, trove_database

CONF = trove_cfg.CONF
WORKER = claims.Claimant('worker')


class UncheckedTestCase(contexts.ContextMixin, base.BaseTestCase):
    """The test case acts as Trove's own change of the rules, its resizes and its rebuild.

    :ivar error: with which the change of the rules fails; None: it does not
    :ivar at_pause: called with each pause of a wait
    """

    def setUp(self):
        super().setUp()
        self.instance = trove_database.add_instance('project', 'volume')
        self.calls, self.error, self.events = [], None, []
        self.now, self.at_pause = 0.0, lambda: None
        self.world = types.SimpleNamespace(project='project')
        self.flavors = ({'id': 'small', 'ram': 1024}, {'id': 'large', 'ram': 3072})
        for name, value in (
            ('trove.taskmanager.models.BuiltInstanceTasks.load', lambda *_: self),
            ('trove.taskmanager.manager.Manager.rebuild', lambda *_: self.rebuild_in_nova()),
            ('trove.taskmanager.manager.Manager.resize_flavor', self.resize_by_trove),
            ('trove.taskmanager.manager.Manager.resize_volume', self.resize_by_trove),
            ('trove_ceph.taskmanager.factory.make_dependencies', lambda *_: self),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))
        self.useFixture(bus.StorageTransport(CONF))
        self.manager = manager.Manager()
        self.manager._recovery_threads = types.SimpleNamespace(start=lambda work: work())
        self.manager._source_requests = types.SimpleNamespace(
            resumptions={}, handle_marks=lambda _threads: None
        )
        self.store = replacements.ReplacementStore()
        self.operations = instance_operations.InstanceOperationStore()
        self.worker = claims.Claimant('this taskmanager', is_dead=lambda name: name == 'dead')
        self.addCleanup(self.end_operations)
        self.heartbeat = heartbeat.Heartbeat(claims.Claims(transactions.Transactions()), 5, 45)

    def end_operations(self):
        """Leave nothing to the tests that share the database."""
        for role, instance_id in self.operations.list_interrupted(self.worker):
            claim = self.operations.resume(role, instance_id, self.worker)
            self.operations.finish(claim)

    def rebuild_in_nova(self):
        self.calls.append('rebuild')

    def resize_by_trove(self, _manager, _context, _instance_id, *sizes):
        self.calls.append(sizes)

    def update_access(self, access):
        self.calls.append(access)
        if self.error is not None:
            raise self.error
        self.set_task(InstanceTasks.NONE)

    def set_task(self, task):
        trove_database.instance(self.instance.id).update(task_status=task)

    def task(self):
        return trove_database.instance(self.instance.id).task_status

    def fault(self):
        faults = instance_models.DBInstanceFault.find_all(instance_id=self.instance.id)
        return next((one.message for one in faults), None)

    def replace(self, kind=ReplacementKind.FAILOVER):
        """Request a replacement of the server; return the claim on it."""
        self.set_task(getattr(InstanceTasks, kind.requested_task or 'NONE'))
        record = replacement_helpers.record(
            str(uuid.uuid4()), datetime.datetime(2026, 1, 1), kind, instance_id=self.instance.id
        )
        self.store.request(record, kind.requested_task or 'NONE')
        claim = self.store.claim(record.replacement_id, WORKER)
        self.addCleanup(self.end, claim)
        return claim

    def end(self, claim):
        if self.store.find(claim.resource_id).state.is_open:
            self.store.cancel(claim)

    def have_waits(self):
        """Have waits take no time."""
        self.now = 0.0

        def pause(seconds):
            self.now += seconds
            self.at_pause()

        self.manager._unchecked_requests._start_wait = lambda seconds: waiting.Deadline(
            seconds, lambda: self.now, pause
        )

    def make_replica(self):
        """Have the instance be a replica; return the id of its source."""
        source = trove_database.add_instance('project', 'volume-of-source')
        trove_database.instance(self.instance.id).update(slave_of_id=source.id)
        return source.id
