# SPDX-License-Identifier: Apache-2.0
import prometheus_client
from oslotest import base

from trove_ceph import exceptions, operation_events
from trove_ceph.metrics import operations
from trove_ceph.operation_events import Event, Operation, Phase


class OperationMetricsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.registry = prometheus_client.CollectorRegistry()
        own = (Operation.BACKUP_COPY, Operation.FAILOVER)
        self.addCleanup(operations.OperationMetrics(self.registry, own).follow())

    def value(self, name, **labels):
        return self.registry.get_sample_value(name, labels)

    def ended(self, operation, outcome):
        name = 'trove_ceph_operation_seconds_count'
        return self.value(name, operation=operation, outcome=outcome)

    def test_each_series_exists_from_the_start(self):
        for outcome in ('end', 'error', 'interrupted'):
            self.assertEqual(0, self.ended('backup.copy', outcome))
        self.assertEqual(0, self.value('trove_ceph_operations_running', operation='backup.copy'))
        self.assertIsNone(self.ended('restore', 'end'))

    def test_success_and_failure(self):
        with operation_events.reported(Operation.BACKUP_COPY):
            running = self.value('trove_ceph_operations_running', operation='backup.copy')
            self.assertEqual(1, running)
        with (
            self.assertRaises(exceptions.NoSpaceError),
            operation_events.reported(Operation.BACKUP_COPY),
        ):
            raise exceptions.NoSpaceError('full')
        self.assertEqual(0, self.value('trove_ceph_operations_running', operation='backup.copy'))
        self.assertEqual(1, self.ended('backup.copy', 'end'))
        self.assertEqual(1, self.ended('backup.copy', 'error'))
        name = 'trove_ceph_operation_failures_total'
        self.assertEqual(1, self.value(name, operation='backup.copy', cause='NoSpaceError'))

    def test_an_operation_of_many_attempts_counts_once(self):
        def tell(phase, seconds=None, cause=None):
            event = Event(Operation.FAILOVER, phase, {}, seconds, cause=cause)
            operation_events.publish(event)

        tell(Phase.START)
        tell(Phase.RETRY, cause='ServiceUnavailableError')
        tell(Phase.END, 125.0)
        self.assertEqual(1, self.ended('failover', 'end'))
        self.assertEqual(0, self.ended('failover', 'error'))
        labels = {'operation': 'failover', 'outcome': 'end'}
        name = 'trove_ceph_operation_seconds_bucket'
        self.assertEqual(0, self.value(name, le='120.0', **labels))
        self.assertEqual(1, self.value(name, le='300.0', **labels))
        self.assertEqual(
            1,
            self.value(
                'trove_ceph_operation_failures_total',
                operation='failover',
                cause='ServiceUnavailableError',
            ),
        )

    def test_steps(self):
        event = Event(Operation.BACKUP_COPY, Phase.STEP, {}, 2.0, step='copy')
        operation_events.publish(event)
        name = 'trove_ceph_operation_step_seconds_sum'
        self.assertEqual(2.0, self.value(name, operation='backup.copy', step='copy'))

    def test_operations_of_another_kind_of_process_are_not_counted(self):
        with operation_events.reported(Operation.STORAGE_COPY):
            pass
        self.assertIsNone(self.ended('storage.copy', 'end'))

    def test_the_descriptions_are_those_of_what_is_exported(self):
        exported = {sample.name for metric in self.registry.collect() for sample in metric.samples}
        described = {name for one in operations.DESCRIPTIONS for name in one.series}
        # Without a label's value, these have no series yet.
        later = {
            *(name for name in operations.STEP_SECONDS.series),
            *(name for name in operations.FAILURES.series),
        }
        created = {name for name in exported if name.endswith('_created')}
        self.assertEqual(described - later, exported - created)
