# SPDX-License-Identifier: Apache-2.0
"""The figures of backups and their metrics, from the tables in a database."""

import datetime
import math

import sqlalchemy as sa
from oslotest import base

from trove_ceph.db import figures, tables, transactions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.policy_record import PolicyRunState
from trove_ceph.metrics import tables as table_metrics
from trove_ceph.tests.unit.db import database, replacement_helpers

SHARED = database.Shared()
NOW = datetime.datetime(2026, 5, 1, 12)
HOUR = datetime.timedelta(hours=1)


class BackupMetricsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.facade = SHARED.emptied()
        self.transactions = transactions.Transactions(self.facade, lambda: NOW)
        self.trove = replacement_helpers.TroveTable(self.facade)

    def add(self, *rows):
        with self.transactions.writing() as session:
            session.add_all(rows)

    def add_policy(self, policy_id='p', interval_min=60, enabled=True):
        numbers = dict.fromkeys(
            ('keep_last', 'keep_hourly', 'keep_daily', 'keep_weekly', 'keep_monthly'), 1
        )
        self.add(
            tables.BackupPolicyRow(
                policy_id=policy_id,
                name=policy_id,
                scope='datastore',
                target=policy_id,
                enabled=enabled,
                interval_min=interval_min,
                timezone='UTC',
                copy_every=1,
                verify_every=1,
                created_at=NOW,
                updated_at=NOW,
                **numbers,
            )
        )

    def add_run(self, instance_id, age, policy_id='p', state=PolicyRunState.DONE, attempts=0):
        self.add(
            tables.PolicyRunRow(
                instance_id=instance_id,
                policy_id=policy_id,
                state=str(state),
                due_at=NOW - age,
                backup_name='b',
                attempts=attempts,
                count=1,
            )
        )

    def add_backup(self, backup_id, instance_id, state, age, **values):
        self.add(
            tables.BackupRow(
                backup_id=backup_id,
                instance_id=instance_id,
                project_id='p',
                state=str(state),
                snapshot_at=NOW - age,
                created_at=NOW - age,
                updated_at=NOW,
                **values,
            )
        )

    def samples(self, ages=None):
        return {
            (sample.name, *sample.labels.values()): sample.value
            for metric in table_metrics.metrics_of(figures.read(self.transactions), ages)
            for sample in metric.samples
        }

    def test_ages_of_good_and_verified_backups(self):
        self.add_policy()
        for instance_id in ('one', 'two', 'three'):
            self.add_run(instance_id, HOUR / 2)
        self.add_backup('a', 'one', RecordState.VERIFIED, 30 * HOUR)
        self.add_backup('b', 'one', RecordState.TAKEN, HOUR)
        # It proves nothing, and is not restored from.
        self.add_backup('c', 'two', RecordState.DAMAGED, HOUR)
        self.add_backup('d', 'two', RecordState.COPIED, 50 * HOUR)
        found = self.samples()
        age, instances = 'trove_ceph_backup_age_seconds', 'trove_ceph_backup_age_instances'
        self.assertEqual(50 * 3600, found[age, 'good', 'yes', 'max'])
        self.assertEqual(25.5 * 3600, found[age, 'good', 'yes', 'mean'])
        self.assertEqual(30 * 3600, found[age, 'verified', 'yes', 'max'])
        good = {
            hours: found[instances, 'good', 'yes', hours] for hours in ('24', '48', '168', '+Inf')
        }
        self.assertEqual({'24': 2, '48': 2, '168': 1, '+Inf': 1}, good)
        self.assertEqual(3, found[instances, 'verified', 'yes', '24'])
        self.assertEqual(2, found[instances, 'verified', 'yes', '+Inf'])
        self.assertEqual(0, found[instances, 'good', 'no', '24'])
        self.assertEqual(1, found['trove_ceph_backups', 'damaged'])
        self.assertEqual(0, found['trove_ceph_backups', 'failed'])

    def test_ages_of_backups_without_a_policy(self):
        self.add_policy('off', enabled=False)
        for instance_id in ('manual', 'disabled', 'damaged', 'none', 'deleted'):
            self.trove.add(instance_id)
        self.trove.set('deleted', deleted=True)
        self.add_run('disabled', HOUR, 'off')
        self.add_backup('a', 'manual', RecordState.VERIFIED, 30 * HOUR)
        self.add_backup('b', 'disabled', RecordState.TAKEN, 50 * HOUR)
        self.add_backup('c', 'damaged', RecordState.DAMAGED, HOUR)
        self.add_backup('d', 'deleted', RecordState.TAKEN, 900 * HOUR)
        found = self.samples()
        age, instances = 'trove_ceph_backup_age_seconds', 'trove_ceph_backup_age_instances'
        self.assertEqual(50 * 3600, found[age, 'good', 'no', 'max'])
        self.assertEqual(30 * 3600, found[age, 'verified', 'no', 'max'])
        self.assertNotIn((age, 'good', 'yes', 'max'), found)
        good = {hours: found[instances, 'good', 'no', hours] for hours in ('24', '48', '+Inf')}
        self.assertEqual({'24': 3, '48': 2, '+Inf': 1}, good)
        self.assertEqual(0, found[instances, 'good', 'yes', '24'])

    def test_instances_have_labels_only_on_request(self):
        self.add_policy()
        self.add_run('one', HOUR)
        self.add_backup('a', 'one', RecordState.TAKEN, HOUR)
        name = table_metrics.INSTANCE_AGE.name
        self.assertEqual([], [key for key in self.samples() if key[0] == name])
        found = self.samples(table_metrics.BackupAges(by_instance=True))
        self.assertEqual(3600, found[name, 'one', 'good', 'yes'])
        self.assertEqual(float('inf'), found[name, 'one', 'verified', 'yes'])

    def test_runs_of_policies(self):
        self.add_policy()
        self.add_policy('rare', 24 * 60)
        self.add_policy('off', enabled=False)
        self.add_run('in-time', 1.5 * HOUR)
        self.add_run('late', 2.5 * HOUR)
        self.add_run('also-late', 49 * HOUR, 'rare', PolicyRunState.FAILED, 4)
        self.add_run('daily', 40 * HOUR, 'rare')
        self.add_run('disabled', 1000 * HOUR, 'off', PolicyRunState.FAILED, 1)
        found = self.samples()
        self.assertEqual(2, found['trove_ceph_policy_runs_overdue',])
        self.assertEqual(1, found['trove_ceph_policy_runs_failing',])
        self.assertEqual(3, found['trove_ceph_policy_runs', 'done'])
        self.assertEqual(0, found['trove_ceph_policy_runs', 'begun'])

    def test_queues(self):
        self.add_backup('a', 'i', RecordState.TAKEN, HOUR, copy_wanted_at=NOW - HOUR)
        self.add_backup(
            *('b', 'i', RecordState.TAKEN, HOUR), copy_wanted_at=NOW - 2 * HOUR, copy_failures=3
        )
        found = self.samples()
        for name, copies, verifications in (
            ('trove_ceph_backup_queue', 2, 0),
            ('trove_ceph_backup_queue_failing', 1, 0),
            ('trove_ceph_backup_queue_oldest_seconds', 7200, 0),
        ):
            self.assertEqual(copies, found[name, 'copy'])
            self.assertEqual(verifications, found[name, 'verify'])

    def test_what_deleted_instances_leave(self):
        self.assertEqual(0, self.samples()['trove_ceph_trashed_image_oldest_seconds',])
        self.add(
            tables.KeptVolumeRow(volume_id='v', instance_id='i', project_id='p', created_at=NOW),
            *(
                tables.TrashedImageRow(pool='p', image_id=image_id, name='x', created_at=NOW - age)
                for image_id, age in (('1', HOUR), ('2', 2 * HOUR))
            ),
        )
        found = self.samples()
        self.assertEqual(1, found['trove_ceph_kept_volumes',])
        self.assertEqual(2, found['trove_ceph_trashed_images',])
        self.assertEqual(7200, found['trove_ceph_trashed_image_oldest_seconds',])

    def test_the_watch(self):
        name = 'trove_ceph_failover_watch_age_seconds'
        self.assertNotIn((name,), self.samples())
        self.add(tables.FailoverWatchRow(name='w', reported_at=NOW - HOUR, maintenance_since=NOW))
        found = self.samples()
        self.assertEqual(3600, found[name,])
        self.assertEqual(1, found['trove_ceph_failover_maintenance',])

    def test_what_holds_automatic_failover(self):
        """It is that of the last report, also of one of a round that failed."""
        name = 'trove_ceph_failover_held'
        self.assertEqual(0, self.samples()[name,])
        watch = tables.FailoverWatchRow(name='w')
        self.add(watch)
        for report, is_held in (
            (None, 0),
            ({'hold': '2 hosts do not report to Nova', 'findings': []}, 1),
            ({'hold': None, 'findings': []}, 0),
            ({'hold': 'the last round failed: a defect'}, 1),
        ):
            with self.transactions.writing() as session:
                session.execute(sa.update(tables.FailoverWatchRow).values(report=report))
            self.assertEqual(is_held, self.samples()[name,], report)

    def test_the_sweep_for_orphans(self):
        name = 'trove_ceph_orphan_sweep_age_seconds'
        self.assertEqual(math.inf, self.samples()[name,])
        found, removed = {'image': 3, 'job': 0}, {'image': 1}
        self.add(
            tables.OrphanSweepRow(name='cloud', ended_at=NOW - HOUR, found=found, removed=removed)
        )
        found = self.samples()
        self.assertEqual(3600, found[name,])
        self.assertEqual(2, found['trove_ceph_orphans', 'image'])
        self.assertEqual(0, found['trove_ceph_orphans', 'job'])

    def count_queries(self):
        engine = self.facade.reader.get_engine()
        statements = []

        def note(_connection, _cursor, statement, *_rest):
            statements.append(statement)

        sa.event.listen(engine, 'before_cursor_execute', note)
        try:
            figures.read(self.transactions)
        finally:
            sa.event.remove(engine, 'before_cursor_execute', note)
        return len([one for one in statements if one.startswith('SELECT')])

    def test_the_number_of_queries_does_not_depend_on_the_rows(self):
        empty = self.count_queries()
        self.add_policy()
        for number in range(20):
            self.add_run(f'i{number}', HOUR)
            self.add_backup(f'b{number}', f'i{number}', RecordState.TAKEN, HOUR)
        self.assertEqual(empty, self.count_queries())
        self.assertLess(empty, 25)

    def test_every_metric_is_described(self):
        described = {one.name for one in table_metrics.DESCRIPTIONS}
        found = {one.name for one in table_metrics.metrics_of(figures.read(self.transactions))}
        self.assertEqual(described, found)
