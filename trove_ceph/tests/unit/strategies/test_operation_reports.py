# SPDX-License-Identifier: Apache-2.0
"""What operations report of themselves, by which metrics and notifications go."""

from oslotest import base

from trove_ceph import enums, exceptions, operation_events
from trove_ceph.db.roles import Role
from trove_ceph.operation_events import Operation, Phase
from trove_ceph.strategies.backup import backup_types, delete, queue_worker
from trove_ceph.tests.unit.strategies import (
    replacement_world,
    reprovision_world,
    test_bind,
    test_verify,
    vault_helpers,
)
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.replacement_cloud import INSTANCE
from trove_ceph.tests.unit.strategies.reprovision_cloud import REPLICA


class ReportsMixin:
    """Records the events of operations."""

    def setUp(self):
        super().setUp()
        self.told = []
        self.addCleanup(operation_events.subscribe(self.told.append))

    def phases(self, operation):
        return [one.phase for one in self.told if one.operation is operation]

    def last(self, operation):
        return [one for one in self.told if one.operation is operation][-1]


class BackupReportsTest(ReportsMixin, base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = test_verify.World()
        vault_helpers.write(self.world, 'ab')

    def take(self, verify=enums.VerifyWhen.NEVER):
        self.world.policy = backup_types.BackupSettings(copy=True, verify=verify)
        return vault_helpers.take(self.world)

    def fulfill(self):
        for role in (Role.COPY, Role.VERIFY):
            queue_worker.start_due_jobs(self.world.deps(), role, worlds.AtOnce(100))

    def test_a_backup_that_is_taken_copied_verified_and_deleted(self):
        backup = self.take(enums.VerifyWhen.COPIED)
        self.fulfill()
        self.fulfill()
        delete.delete_backup(self.world.deps(), backup)
        for operation in (Operation.BACKUP_COPY, Operation.BACKUP_VERIFY, Operation.BACKUP_DELETE):
            self.assertEqual([Phase.START, Phase.END], self.phases(operation), operation)
        taking = self.phases(Operation.BACKUP_TAKE)
        self.assertEqual((Phase.START, Phase.END), (taking[0], taking[-1]))
        self.assertEqual({Phase.STEP}, set(taking[1:-1]))
        copied = self.last(Operation.BACKUP_COPY)
        self.assertGreater(copied.subject['moved_bytes'], 0)
        self.assertEqual(self.world.instance.id, copied.subject['instance_id'])
        self.assertEqual('verified', self.last(Operation.BACKUP_VERIFY).subject['verdict'])

    def test_a_copy_that_fails_tells_the_class_of_the_error(self):
        self.take()
        for pool in ('vault', 'vault-data'):
            self.world.cluster.capacities[pool] = 0
        self.fulfill()
        failed = self.last(Operation.BACKUP_COPY)
        self.assertEqual((Phase.ERROR, 'NoSpaceError'), (failed.phase, failed.cause))


class BindReportsTest(ReportsMixin, base.BaseTestCase):
    def test_each_step_of_a_binding_has_a_duration(self):
        test_bind.Cloud().binding().run()
        steps = [one.step for one in self.told if one.phase is Phase.STEP]
        self.assertEqual(
            [
                'replace the identity of the guest',
                'request the volume',
                'attach the ports',
                'describe the server',
                'await the volume',
                'record the binding',
            ],
            steps,
        )
        self.assertIs(Phase.END, self.last(Operation.GUEST_BIND).phase)


class ReplacementReportsTest(ReportsMixin, base.BaseTestCase):
    def test_a_failover_counts_from_its_request(self):
        world = replacement_world.World(guest_hosts=('host-1', 'host-2'), has_database=True)
        world.finish()
        world.check_completed()
        self.assertEqual([Phase.START, Phase.END], self.phases(Operation.FAILOVER))
        ended = self.last(Operation.FAILOVER)
        self.assertEqual(0, ended.seconds)
        self.assertEqual(
            (INSTANCE, 'host-1', 'host-2'),
            tuple(ended.subject[name] for name in ('instance_id', 'old_host', 'new_host')),
        )

    def test_a_re_provisioning(self):
        world = reprovision_world.World()
        world.attempt().run()
        world.check_completed()
        self.assertEqual([Phase.START, Phase.END], self.phases(Operation.REPLICA_REPROVISION))
        ended = self.last(Operation.REPLICA_REPROVISION)
        self.assertEqual(REPLICA, ended.subject['instance_id'])
        self.assertIsNotNone(ended.seconds)


class InterruptionsTest(base.BaseTestCase):
    def test_interruptions_are_errors_of_ours(self):
        for error in operation_events.INTERRUPTIONS:
            self.assertTrue(issubclass(error, exceptions.TroveCephError))
