# SPDX-License-Identifier: Apache-2.0
"""A real server on a clone of a running one follows it, without a transaction of its own."""

import contextlib
import os
import signal
from concurrent import futures
from unittest import mock

import pymysql

from trove_ceph import exceptions, waiting
from trove_ceph.guestagent import persisted_options, read_only, semi_sync
from trove_ceph.tests import interruption
from trove_ceph.tests.functional import base, replication_servers

REPLICA_ID = '01234567-89ab-cdef-0123-456789abcdef'
SOURCE_ID = 'fedcba98-7654-3210-fedc-ba9876543210'
READ_ONLY = 1290
# How long a commit waits: longer than a replica needs on a busy machine, and about as long as
# a test can wait.
LONG_MS, SHORT_MS = 600_000, 500
FILL = """
CREATE DATABASE shop
CREATE TABLE shop.orders (number INT PRIMARY KEY AUTO_INCREMENT, note TEXT)
CREATE TABLE shop.events (number INT PRIMARY KEY AUTO_INCREMENT)
CREATE EVENT shop.tick ON SCHEDULE EVERY 1 SECOND DO INSERT INTO shop.events VALUES (NULL)
SET PERSIST event_scheduler = ON
SET PERSIST super_read_only = OFF
SET PERSIST max_connections = 77
CREATE USER 'root'@'%' IDENTIFIED BY 'of-the-tenant-1A'
INSERT INTO shop.orders (note) VALUES ('first')
""".strip()


class ReplicationTest(replication_servers.ReplicationTestCase):
    def setUp(self):
        super().setUp()
        for statement in FILL.splitlines():
            self.source.query(statement)
        self.replica = self.make_app('r', 2)

    def _context(self, source, replica_id=REPLICA_ID):
        return self.strategy.get_replica_context(source, None, replica_id)

    def _clone(self):
        self.clone_to(self.replica, REPLICA_ID)

    def _attach(self, replica, source, replica_id):
        self.strategy.enable_as_slave(replica, self._context(source, replica_id), '')

    @contextlib.contextmanager
    def _load(self, app):
        with replication_servers.Writer(app) as writer:
            writer.wait_for_rows(20)
            yield
            writer.wait_for_rows(20)

    def _check_equal(self, source, replica):
        """Check that neither server has a transaction or a row that the other lacks."""
        # The events of the source write all the time.
        read_only.refuse_writes(source)
        self.assert_same_transactions(source, replica)
        for table in ('shop.orders', 'shop.events'):
            checksum = f'CHECKSUM TABLE {table}'
            self.assertEqual(source.query(checksum), replica.query(checksum))

    def _refused(self, app, statement):
        error = self.assertRaises(pymysql.MySQLError, app.query, statement)
        self.assertEqual(READ_ONLY, error.args[0])

    def test_clone_of_a_source_under_load(self):
        with self._load(self.source):
            self._clone()
        status = self.replica.wait_for_status(lag_sec=0.0, io_state='ON', sql_state='ON')
        self.assertTrue(status['is_replica'])
        self.assertTrue(status['is_read_only'])
        self.assertNotEqual(self.source.value('@@server_uuid'), status['server_uuid'])
        self.assertEqual(self.source.value('@@server_uuid'), status['source_uuid'])
        self.assertEqual('OFF', self.replica.value('@@event_scheduler'))
        # The sandbox does not read the file, a guest does.
        persisted = (self.replica.server.data / persisted_options.FILE).read_text()
        self.assertIn('max_connections', persisted)
        for name in ('event_scheduler', 'read_only'):
            self.assertNotIn(name, persisted)
        self._refused(self.replica, 'CREATE DATABASE errant')
        self._check_equal(self.source, self.replica)
        self._check_same_accounts(self.source, self.replica)
        read_only.become_writable(self.source)
        self._check_restarts()

    def _check_same_accounts(self, source, replica):
        """Check that all accounts but those of Trove have the same passwords on both servers."""
        accounts = (
            'SELECT User, Host, authentication_string FROM mysql.user '
            "WHERE Host <> 'localhost' ORDER BY User, Host"
        )
        found = source.query(accounts)
        self.assertIn(('root', '%'), [account[:2] for account in found])
        self.assertEqual(found, replica.query(accounts))

    def _check_restarts(self):
        """A server that docker restarts neither follows nor writes until the agent sees it."""
        self.assertFalse(self.strategy.resume(self.replica))
        self.replica.restart()
        self.assertEqual('OFF', self.replica.status()['io_state'])
        self._refused(self.replica, 'CREATE DATABASE errant')
        self.assertEqual('OFF', self.replica.value('@@event_scheduler'))
        self.assertTrue(self.strategy.resume(self.replica))
        self.replica.wait_for_status(io_state='ON', sql_state='ON')
        self.source.restart()
        self.replica.wait_for_status(io_state='ON')
        self._check_equal(self.source, self.replica)

    def test_promotion_and_back(self):
        self._clone()
        self._promote(self.source, self.replica, SOURCE_ID)
        with self._load(self.replica):
            self.assertEqual('OFF', self.source.value('@@event_scheduler'))
        self._check_equal(self.replica, self.source)
        self._promote(self.replica, self.source, REPLICA_ID)
        with self._load(self.source):
            pass
        self._check_equal(self.source, self.replica)
        # The users of replicas are those of the present ones.
        read_only.become_writable(self.source)
        self.strategy.get_replica_context(self.source, None)
        self.strategy.drop_users(self.source, [REPLICA_ID])
        users = self.source.query("SELECT User FROM mysql.user WHERE User LIKE 'slave%'")
        self.assertEqual((('slave_0123456789',),), users)
        self._check_equal(self.source, self.replica)

    def _promote(self, source, candidate, old_source_id):
        self.strategy.make_read_only(source, True)
        self._refused(source, 'CREATE DATABASE errant')
        self.catch_up(source, candidate)
        self.assertRaises(
            exceptions.UnsafeSettingsError, self.strategy.enable_as_master, candidate, ''
        )
        self.assertRaises(exceptions.UnsafeSettingsError, self._context, candidate)
        self.strategy.detach_slave(candidate, True)
        self._refused(candidate, 'CREATE DATABASE errant')
        self.strategy.enable_as_master(candidate, '')
        self.assertEqual('ON', candidate.value('@@event_scheduler'))
        self._attach(source, candidate, old_source_id)

    def test_detached_replica_is_writable(self):
        self._clone()
        answer = self.strategy.detach_slave(self.replica, False)
        self.assertEqual({'replication_user': 'slave_0123456789'}, answer)
        status = self.replica.status()
        self.assertFalse(status['is_replica'] or status['is_read_only'])
        self.assertEqual('ON', self.replica.value('@@event_scheduler'))
        self.replica.query('CREATE DATABASE own')
        self.assertEqual({}, self.replica.configuration_manager.overrides)

    def test_broken_replication_is_reported(self):
        self._clone()
        self.catch_up(self.source, self.replica)
        self.replica.query('SET GLOBAL read_only = OFF')
        with self.replica.open_connection(60) as connection, connection.cursor() as cursor:
            cursor.execute('SET SESSION sql_log_bin = 0')
            cursor.execute("INSERT INTO shop.orders VALUES (5000, 'conflict')")
        self.source.query("INSERT INTO shop.orders VALUES (5000, 'of the source')")
        status = self.replica.wait_for_status(sql_state='OFF', io_state='ON')
        self.assertEqual(1062, status['sql_error_number'])
        self.assertIn('5000', status['sql_error'])
        self.assertIsNone(status['lag_sec'])
        # It is broken, not idle.
        self.assertFalse(self.strategy.resume(self.replica))

    def test_purged_binary_logs_are_reported(self):
        self._clone()
        self.catch_up(self.source, self.replica)
        self.strategy.stop_receiving(self.replica)
        self.source.query("INSERT INTO shop.orders (note) VALUES ('purged')")
        self.source.query('FLUSH BINARY LOGS')
        self.source.query('PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY')
        error = self.assertRaises(
            exceptions.ServerFailedError, self._attach, self.replica, self.source, REPLICA_ID
        )
        self.assertIn('purged', str(error))
        status = self.replica.wait_for_status(io_state='OFF')
        self.assertEqual(13114, status['io_error_number'])
        self.assertIn('1236', status['io_error'])

    def _switch_on(self, timeout_ms):
        """Have the source wait for its replica."""
        semi_sync.switch(self.source, True, False, timeout_ms)
        semi_sync.switch(self.replica, False, True, timeout_ms)
        self._wait_for_acknowledgement()

    def _wait_for_acknowledgement(self):
        self.source.wait_for_status(semi_sync_source=True, semi_sync_clients=1)
        self.replica.wait_for_status(semi_sync_replica=True, io_state='ON')
        self._wait_for_counter('status', 'ON')

    def _counter(self, name):
        """Return what the source has counted since it started."""
        ((_, value),) = self.source.query(
            'SHOW GLOBAL STATUS LIKE %s', f'Rpl_semi_sync_source_{name}'
        )
        return value

    def _wait_for_counter(self, name, expected):
        deadline = waiting.Deadline(replication_servers.TIMEOUT_SEC)
        while self._counter(name) != expected:
            self.assertTrue(deadline.pause(0.1), f'{name}: {self._counter(name)}, not {expected}')

    def _commits(self):
        """Return how many commits have been acknowledged, and how many have not."""
        return tuple(int(self._counter(name)) for name in ('yes_tx', 'no_tx'))

    def _insert(self, note):
        self.source.query('INSERT INTO shop.orders (note) VALUES (%s)', note)

    def _stop_events(self):
        """Leave the test alone with its commits."""
        self.source.query('DROP EVENT shop.tick')

    def test_semi_synchronous(self):
        self._clone()
        self._stop_events()
        for _ in range(2):
            self._switch_on(LONG_MS)
            acknowledged, unacknowledged = self._commits()
            self._insert('acknowledged')
            self.assertEqual((acknowledged + 1, unacknowledged), self._commits())
        self.source.restart()
        self._wait_for_acknowledgement()
        acknowledged, unacknowledged = self._commits()
        self._insert('acknowledged after a restart')
        self.assertEqual((acknowledged + 1, unacknowledged), self._commits())
        for app in (self.replica, self.source):
            semi_sync.switch(app, False, False, LONG_MS)
        self.source.wait_for_status(semi_sync_source=False, semi_sync_clients=0)
        self.replica.wait_for_status(semi_sync_replica=False, io_state='ON')
        before = self._commits()
        self._insert('not waited for')
        self.assertEqual(before, self._commits())

    def test_interrupted_switch_of_semi_synchronous_replication(self):
        """The agent dies when it has stopped the receiver; the next one starts it."""
        self._clone()
        semi_sync.switch(self.source, True, False, LONG_MS)
        with mock.patch.object(semi_sync, 'reconnect', self._stop_receiver_and_die):
            self.assertRaises(
                interruption.Kill, semi_sync.switch, self.replica, False, True, LONG_MS
            )
        self.replica.wait_for_status(io_state='OFF', io_error_number=0)
        self.assertTrue(self.strategy.resume(self.replica))
        self._wait_for_acknowledgement()
        self.assertFalse(self.strategy.resume(self.replica))

    @staticmethod
    def _stop_receiver_and_die(cursor):
        cursor.execute('STOP REPLICA IO_THREAD')
        raise interruption.Kill

    def test_commit_waits_until_a_replica_has_received_it(self):
        self._clone()
        self._stop_events()
        self._switch_on(LONG_MS)
        executed = self.source.status()['gtid_executed']
        acknowledged, unacknowledged = self._commits()
        self.strategy.stop_receiving(self.replica)
        with futures.ThreadPoolExecutor(1) as threads:
            commit = threads.submit(self._insert, 'received')
            self._wait_for_counter('wait_sessions', '1')
            self.assertFalse(commit.done())
            # No other client reads what would be lost with the source.
            found = self.source.query("SELECT * FROM shop.orders WHERE note = 'received'")
            self.assertEqual((), found)
            self.replica.query('START REPLICA IO_THREAD')
            commit.result(replication_servers.TIMEOUT_SEC)
        self.assertEqual((acknowledged + 1, unacknowledged), self._commits())
        subset = 'SELECT GTID_SUBSET(GTID_SUBTRACT(@@GLOBAL.gtid_executed, %s), %s)'
        received = self.replica.status()['gtid_received']
        self.assertEqual(((1,),), self.source.query(subset, executed, received))

    def test_servers_that_are_moved_replicate_again(self):
        self._clone()
        uuids = [app.value('@@server_uuid') for app in (self.source, self.replica)]
        with replication_servers.Writer(self.source) as writer:
            writer.wait_for_rows(20)
            self.source.server.kill()
        self.move(self.source, is_replica=False)
        self.replica.wait_for_status(io_state='ON', sql_state='ON')
        with self._load(self.source):
            self.replica.server.kill()
            self.move(self.replica, is_replica=True)
            self._refused(self.replica, 'CREATE DATABASE errant')
            self.assertEqual('OFF', self.replica.value('@@event_scheduler'))
        self.replica.wait_for_status(io_state='ON', sql_state='ON')
        # Their host has failed.
        for app in (self.source, self.replica):
            app.server.kill()
        self.move(self.replica, is_replica=True)
        self.replica.wait_for_status(io_state='CONNECTING', sql_state='ON')
        self.move(self.source, is_replica=False)
        self.replica.wait_for_status(io_state='ON', sql_state='ON')
        with self._load(self.source):
            pass
        self._check_equal(self.source, self.replica)
        self.assertEqual(uuids, [app.value('@@server_uuid') for app in (self.source, self.replica)])

    @base.serial
    def test_silent_source_is_noticed_before_mysql_does_by_default(self):
        """The server of a dead host closes no connection."""
        self._clone()
        self._stop_events()
        self.assertEqual(10, self.replica.value('@@GLOBAL.replica_net_timeout'))
        # An idle source is no silent one.
        deadline = waiting.Deadline(15)
        while deadline.pause(1):
            self.assertEqual('ON', self.replica.status()['io_state'])
        os.kill(self.source.server.pid, signal.SIGSTOP)
        try:
            deadline = waiting.Deadline(40)
            while self.replica.status()['io_state'] == 'ON':
                self.assertTrue(deadline.pause(1), 'the replica waits for 60 s')
        finally:
            os.kill(self.source.server.pid, signal.SIGCONT)
        self.replica.wait_for_status(io_state='ON', sql_state='ON')

    def test_moved_source_waits_for_its_replica_from_its_start_on(self):
        self._clone()
        self._stop_events()
        self._switch_on(LONG_MS)
        for app in (self.source, self.replica):
            app.server.kill()
        self.move(self.source, False, as_source=True, as_replica=False, timeout_ms=SHORT_MS)
        self.assertEqual('ON', self._counter('status'))
        self._insert('not received')
        self.assertEqual(((0, 1), 'OFF'), (self._commits(), self._counter('status')))
        self.move(self.replica, True, as_source=False, as_replica=True, timeout_ms=SHORT_MS)
        self._wait_for_acknowledgement()
        semi_sync.switch(self.source, True, False, LONG_MS)
        self._insert('received')
        self.assertEqual((1, 1), self._commits())
        self.catch_up(self.source, self.replica)

    def test_commit_waits_no_longer_than_the_timeout(self):
        self._clone()
        self._stop_events()
        self._switch_on(LONG_MS)
        semi_sync.switch(self.source, True, False, SHORT_MS)
        acknowledged, unacknowledged = self._commits()
        self.strategy.stop_receiving(self.replica)
        self._insert('not received')
        self.assertEqual((acknowledged, unacknowledged + 1), self._commits())
        self.assertEqual('OFF', self._counter('status'))
        semi_sync.switch(self.source, True, False, LONG_MS)
        self.replica.query('START REPLICA IO_THREAD')
        self._wait_for_acknowledgement()
        self._insert('received again')
        self.assertEqual((acknowledged + 1, unacknowledged + 1), self._commits())
        self.catch_up(self.source, self.replica)

    def test_lock_of_a_tenant_bounds_the_wait(self):
        with self.source.open_connection(60) as connection, connection.cursor() as cursor:
            cursor.execute('LOCK TABLES shop.orders WRITE')
            for change in (read_only.refuse_writes, read_only.become_replica):
                self.assertRaises(exceptions.NotQuiescedError, change, self.source, 1)
        self.assertEqual('0', str(self.source.value('@@read_only')))
        self.assertFalse(self.source.status()['is_read_only'])
        self.assertEqual({}, self.source.configuration_manager.overrides)
        self.source.query("INSERT INTO shop.orders (note) VALUES ('still writable')")
