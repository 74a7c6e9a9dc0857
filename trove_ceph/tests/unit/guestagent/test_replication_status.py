# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.guestagent import replication_status
from trove_ceph.tests.unit.guestagent import replication_world


class ReplicationStatusTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.app = replication_world.App()

    def read(self):
        return replication_status.read(self.app.open_connection(1))

    def test_server_that_is_no_replica(self):
        self.app.gtid_executed = 'a:1-5,\nb:1'
        self.assertEqual(
            {
                'server_uuid': replication_world.UUID,
                'gtid_executed': 'a:1-5,b:1',
                'gtid_received': '',
                'is_replica': False,
                'source_host': '',
                'source_uuid': '',
                'io_state': 'OFF',
                'sql_state': 'OFF',
                'io_error': '',
                'sql_error': '',
                'io_error_number': 0,
                'sql_error_number': 0,
                'lag_sec': None,
                'is_read_only': False,
                'uptime_sec': 60,
                'semi_sync_source': False,
                'semi_sync_replica': False,
                'semi_sync_clients': 0,
                'semi_sync_waits': False,
            },
            self.read(),
        )

    def test_replica_that_cannot_connect(self):
        self.app.follow(
            Replica_IO_Running='Connecting', Last_IO_Errno=2003, Last_IO_Error='no\nroute'
        )
        status = self.read()
        self.assertEqual(('CONNECTING', 'ON'), (status['io_state'], status['sql_state']))
        self.assertEqual((2003, 'no route'), (status['io_error_number'], status['io_error']))

    def test_error_of_a_worker(self):
        self.app.follow(Last_SQL_Errno=1062, Last_SQL_Error='Coordinator stopped')
        self.assertEqual('Coordinator stopped', self.read()['sql_error'])
        self.app.worker_error = "Duplicate entry '7'"
        self.assertEqual("Duplicate entry '7'", self.read()['sql_error'])

    def test_errors_are_bounded(self):
        self.app.follow(Last_SQL_Error='x' * 100_000)
        self.assertEqual(500, len(self.read()['sql_error']))

    def test_semi_synchronous_source(self):
        self.app.variables = {
            'rpl_semi_sync_source_enabled': 'ON',
            'rpl_semi_sync_replica_enabled': 'OFF',
        }
        names = ('source', 'replica', 'clients', 'waits')
        for state in ('ON', 'OFF'):
            self.app.status = {
                'Rpl_semi_sync_source_clients': '2',
                'Rpl_semi_sync_source_status': state,
            }
            status = self.read()
            self.assertEqual(
                (True, False, 2, state == 'ON'),
                tuple(status[f'semi_sync_{name}'] for name in names),
            )


class LagTest(base.BaseTestCase):
    def lag_sec(self, is_applied, lag_sec=None, **columns):
        app = replication_world.App()
        app.follow(**columns)
        app.is_applied, app.lag_sec = is_applied, lag_sec
        return replication_status.read(app.open_connection(1))['lag_sec']

    def test_all_that_was_received_is_applied(self):
        self.assertEqual(0.0, self.lag_sec(1, lag_sec=7))

    def test_age_of_the_transaction_that_is_being_applied(self):
        self.assertEqual(7.25, self.lag_sec(0, lag_sec=7.25))

    def test_clock_of_the_source_is_ahead(self):
        self.assertEqual(0.0, self.lag_sec(0, lag_sec=-3))

    def test_between_two_transactions(self):
        self.assertEqual(4.0, self.lag_sec(0, Seconds_Behind_Source=4))

    def test_nothing_is_applied(self):
        self.assertIsNone(self.lag_sec(0, lag_sec=7, Replica_SQL_Running='No'))
        self.assertIsNone(self.lag_sec(1, Replica_SQL_Running='No'))

    def test_a_replica_that_does_not_receive_knows_no_lag(self):
        for state in ('Connecting', 'No'):
            self.assertIsNone(self.lag_sec(1, Replica_IO_Running=state), state)
            self.assertIsNone(self.lag_sec(0, lag_sec=7, Replica_IO_Running=state), state)
