# SPDX-License-Identifier: Apache-2.0
"""Details of instances through Trove's own router."""

import datetime

import fixtures
from oslo_utils import timeutils
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import exception as trove_exceptions
from trove.db import get_db_api
from trove.instance import models as instance_models
from trove.instance.service_status import ServiceStatuses
from trove.instance.tasks import InstanceTasks

from trove_ceph.db.replica_record import Requester
from trove_ceph.db.roles import Role
from trove_ceph.tests.unit.api import world

CONF = trove_cfg.CONF
HOUR = datetime.timedelta(hours=1)
TIERS = """
tiers:
  gold:
    purpose: data
    device_class: nvme
    pool: volumes
    copies: 2
    placement_groups: {count: 32}
    volume_type: {name: nvme, backend: nvme}
    iops: {per_gib: 30, floor: 100, cap: 16000}
    throughput_mib_per_sec: 250
"""


class InstanceDetailsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.ask = self.world.ask
        self.instance = self.world.add_instance()

    def show(self, instance=None, **options):
        status, body = self.ask(
            'GET', f'/instance_details/{(instance or self.instance).id}', **options
        )
        self.assertEqual(200, status, body)
        return body['instance_detail']

    def list(self, query='', **options):
        status, body = self.ask('GET', f'/instance_details{query}', **options)
        self.assertEqual(200, status, body)
        return body['instance_details']

    def use_promises(self):
        path = self.useFixture(fixtures.TempDir()).join('tiers.yaml')
        with open(path, 'w') as tiers:
            tiers.write(TIERS)
        CONF.set_override('tiers_file', path, 'trove_ceph_backup')
        self.addCleanup(CONF.clear_override, 'tiers_file', 'trove_ceph_backup')
        # Trove asks the extensions for their resources when it starts.
        self.world.restart()

    def judge(self, backup, verb, *arguments):
        """Let a verification of a backup end."""
        claim = self.world.records.claims.claim(Role.VERIFY, backup.id, world.WORKER)
        getattr(self.world.records.results, verb)(claim, *arguments)

    def damage(self, backup):
        self.judge(backup, 'record_damaged', {}, 1.0, 'page 7 is corrupt')

    def verify(self, backup):
        self.judge(backup, 'record_verified', 'uuid:1-7', {}, 1.0)


class ShowTest(InstanceDetailsTest):
    def test_an_instance_of_which_nothing_is_known(self):
        shown = self.show()
        self.assertIsNotNone(shown.pop('created'))
        self.assertEqual(
            {
                'id': self.instance.id,
                'name': 'db1',
                'project_id': self.world.project,
                'operating_status': 'HEALTHY',
                'task': None,
                'volume_size_gib': self.instance.volume_size,
                'tier': None,
                'volume_type': None,
                'copies': None,
                'promised_iops': None,
                'throughput_mib_per_sec': None,
                'good_backups': 0,
                'last_good_backup_id': None,
                'last_good_backup_at': None,
                'last_good_backup_state': None,
                'last_verified_backup_id': None,
                'last_verified_backup_at': None,
                'damaged_backups': [],
                'replica_of': None,
                'replica_state': None,
                'replicating': None,
                'lag_sec': None,
                'lag_transactions': None,
                'replica_own_bytes': None,
                'replica_cloned_at': None,
                'replica_reprovisioned_at': None,
                'replica_last_reason': None,
                'problem': None,
            },
            shown,
        )

    def test_the_tier_and_what_it_promises_for_this_size(self):
        self.use_promises()
        for size_gib, iops in ((1, 100), (40, 1200), (10000, 16000)):
            self.instance.update(volume_size=size_gib)
            shown = self.show()
            self.assertEqual(
                ('gold', 'nvme', 2, iops, 250),
                tuple(
                    shown[name]
                    for name in (
                        *('tier', 'volume_type', 'copies', 'promised_iops'),
                        'throughput_mib_per_sec',
                    )
                ),
            )

    def test_a_volume_outside_of_the_tiers(self):
        self.use_promises()
        for volume_type in ('lvm', None):
            self.world.volume_type = volume_type
            shown = self.show()
            self.assertEqual((None, None), (shown['tier'], shown['promised_iops']))

    def test_a_region_without_cinder(self):
        def fail(*_arguments, **_options):
            raise trove_exceptions.EmptyCatalog()

        self.use_promises()
        self.useFixture(fixtures.MonkeyPatch('trove.common.clients.create_cinder_client', fail))
        self.assertIsNone(self.show()['tier'])

    def test_the_last_good_and_the_last_verified_backup(self):
        verified, taken = (self.world.add_backup(self.instance, 'taken') for _ in range(2))
        self.verify(verified)
        for age, backup in enumerate((taken, verified)):
            self.world.records._update(backup.id, snapshot_at=self.world.now - age * HOUR)
        failed = self.world.add_backup(self.instance, 'taking')
        self.world.records.record_failed(self.world.claims[failed.id], 'the agent is down')
        shown = self.show()
        self.assertEqual(
            (2, taken.id, 'taken', '2026-01-01T12:00:00Z'),
            tuple(
                shown[name]
                for name in (
                    *('good_backups', 'last_good_backup_id', 'last_good_backup_state'),
                    'last_good_backup_at',
                )
            ),
        )
        self.assertEqual(
            (verified.id, '2026-01-01T11:00:00Z'),
            (shown['last_verified_backup_id'], shown['last_verified_backup_at']),
        )

    def test_damaged_backups_are_no_good_ones(self):
        damaged = self.world.add_backup(self.instance, 'taken')
        self.damage(damaged)
        shown = self.show()
        self.assertEqual(
            (0, None, [damaged.id]),
            (shown['good_backups'], shown['last_good_backup_id'], shown['damaged_backups']),
        )
        self.assertIn(f'1 backup is damaged and cannot be restored: {damaged.id}', shown['problem'])

    def test_how_a_replica_follows(self):
        replica = self.world.add_replica(
            self.instance, is_replicating=True, lag_sec=2.5, lag_transactions=7, own_bytes=4096
        )
        self.world.replicas.request(replica.id, Requester.TENANT, 'it grew')
        self.world.end_reprovisioning(replica)
        shown = self.show(replica)
        expected = {
            'replica_of': self.instance.id,
            'replica_state': 'following',
            'replicating': True,
            'lag_sec': 2.5,
            'lag_transactions': 7,
            'replica_own_bytes': 4096,
            'replica_cloned_at': '2026-01-01T12:00:00Z',
            'replica_reprovisioned_at': '2026-01-01T12:00:00Z',
            'replica_last_reason': 'it grew',
            'problem': None,
        }
        self.assertEqual(expected, {name: shown[name] for name in expected})

    def test_a_replica_and_its_problem(self):
        broken = self.world.add_replica(
            self.instance, is_replicating=False, replication_error='error 1236: no binlog.000001'
        )
        shown = self.show(broken)
        self.assertEqual(
            (self.instance.id, 'broken', False),
            (shown['replica_of'], shown['replica_state'], shown['replicating']),
        )
        self.assertIn('binary logs', shown['problem'])
        self.assertIsNone(self.show()['replica_state'])

    def test_says_what_the_cloud_and_the_agent_do(self):
        self.instance.update(task_status=InstanceTasks.RESIZING)
        self.world.report(self.instance, ServiceStatuses.SHUTDOWN)
        shown = self.show()
        self.assertEqual(('SHUTDOWN', 'RESIZING'), (shown['operating_status'], shown['task']))

    def report(self, status, age=datetime.timedelta()):
        """Let the agent have reported a status some time ago, by the clock of the API."""
        row = instance_models.InstanceServiceStatus.find_by(instance_id=self.instance.id)
        row.set_status(status)
        row.updated_at = timeutils.utcnow() - age
        get_db_api().save(row)

    def test_an_agent_that_is_silent(self):
        """A dead database is not healthy because its agent has said so long ago."""
        self.report(ServiceStatuses.HEALTHY, HOUR)
        shown = self.show()
        self.assertEqual('ERROR', shown['operating_status'])
        self.assertIn('its agent has not reported since', shown['problem'])
        row = instance_models.InstanceServiceStatus.find_by(instance_id=self.instance.id)
        self.assertEqual(ServiceStatuses.HEALTHY, row.status)
        # Meanwhile the cloud restarts it, for instance.
        self.instance.update(task_status=InstanceTasks.REBOOTING)
        shown = self.show()
        self.assertEqual(('HEALTHY', None), (shown['operating_status'], shown['problem']))

    def test_an_agent_that_has_never_reported(self):
        instance_models.InstanceServiceStatus.find_by(instance_id=self.instance.id).delete()
        shown = self.show()
        self.assertIsNone(shown['operating_status'])
        self.assertEqual('its agent has never reported', shown['problem'])

    def test_a_database_that_does_not_serve(self):
        for status, shown_status, problem in (
            (ServiceStatuses.SHUTDOWN, 'SHUTDOWN', 'the database does not run'),
            (ServiceStatuses.CRASHED, 'SHUTDOWN', 'has crashed'),
            (ServiceStatuses.FAILED, 'FAILED', 'could not be started'),
            (ServiceStatuses.RESTART_REQUIRED, 'RESTART_REQUIRED', 'when it is restarted'),
        ):
            self.report(status)
            shown = self.show()
            self.assertEqual(shown_status, shown['operating_status'])
            self.assertIn(problem, shown['problem'])
        for status in (ServiceStatuses.HEALTHY, ServiceStatuses.RUNNING, ServiceStatuses.BUILDING):
            self.report(status)
            self.assertIsNone(self.show()['problem'])

    def test_an_operation_that_has_failed(self):
        self.instance.update(task_status=InstanceTasks.PROMOTION_ERROR)
        shown = self.show()
        self.assertEqual('PROMOTING', shown['task'])
        self.assertIn('an operation has failed', shown['problem'])

    def test_hides_instances_of_other_projects(self):
        status, _body = self.ask(
            'GET', f'/instance_details/{self.instance.id}', project=self.world.other
        )
        self.assertEqual(404, status)


class ListTest(InstanceDetailsTest):
    def test_lists_with_the_backups_of_each(self):
        other = self.world.add_instance()
        backup = self.world.add_backup(other, 'taken')
        found = {one['id']: one['last_good_backup_id'] for one in self.list()}
        self.assertEqual({self.instance.id: None, other.id: backup.id}, found)

    def test_lists_those_of_all_projects_to_administrators(self):
        options = {'project': self.world.other}
        self.assertEqual([], self.list(**options))
        self.assertEqual(403, self.ask('GET', '/instance_details?all_projects=true', **options)[0])
        found = self.list('?all_projects=true', role='admin', **options)
        self.assertIn(self.instance.id, {one['id'] for one in found})

    def test_lists_in_pages(self):
        self.world.add_instance()
        (first,) = self.list('?limit=1')
        (second,) = self.list(f'?limit=1&marker={first["id"]}')
        self.assertEqual(2, len({first['id'], second['id']}))

    def test_continues_after_an_instance_that_was_deleted(self):
        other = self.world.add_instance()
        latest, earlier = sorted(
            (self.instance, other), key=lambda one: (one.created, one.id), reverse=True
        )
        latest.update(deleted=True)
        (found,) = self.list(f'?marker={latest.id}')
        self.assertEqual(earlier.id, found['id'])
