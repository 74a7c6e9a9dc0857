# SPDX-License-Identifier: Apache-2.0
import pymysql
from oslotest import base
from pymysql.constants import ER

from trove_ceph import exceptions
from trove_ceph.guestagent import backup_lock


class FakeConnection:
    """A connection that records statements and returns given answers in order."""

    def __init__(self):
        self.statements = []
        self.rows = []
        self.error = None
        self.closed = 0

    def cursor(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def execute(self, statement, arguments=()):
        self.statements.append(statement)
        if self.error:
            raise self.error

    def fetchall(self):
        return self.rows.pop(0)

    def ping(self, reconnect):
        assert not reconnect, 'a new connection holds no lock'
        if self.error:
            raise self.error

    def close(self):
        self.closed += 1
        if self.closed > 1:
            raise pymysql.err.Error('Already closed')


class BackupLockTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.connection = FakeConnection()
        self.timeouts = []

    def connect(self, timeout_sec):
        self.timeouts.append(timeout_sec)
        return self.connection

    def lock(self):
        return backup_lock.BackupLock(self.connect, wait_sec=7, hold_sec=33)

    def test_server_has_its_own_timeouts(self):
        self.lock()

        (statement,) = self.connection.statements
        self.assertIn('lock_wait_timeout = 7', statement)
        self.assertIn('wait_timeout = 33', statement.replace('lock_wait_timeout', ''))
        # The client must wait longer for a lock than the server.
        self.assertGreater(self.timeouts[0], 7)

    def test_unreachable_server(self):
        self.connect = lambda _: (_ for _ in ()).throw(pymysql.err.OperationalError(2003, 'no'))

        self.assertRaises(exceptions.NotQuiescedError, self.lock)

    def test_unusable_connection_is_closed(self):
        self.connection.error = pymysql.err.OperationalError(2013, 'lost')

        self.assertRaises(exceptions.NotQuiescedError, self.lock)

        self.assertEqual(1, self.connection.closed)

    def test_tables_are_locked_by_name(self):
        lock = self.lock()
        self.connection.rows = [[('MyISAM',), ('CSV',)], [('shop', 'a`b'), ('shop', 'c')]]

        self.assertEqual(2, lock.lock_non_transactional_tables())

        self.assertEqual(
            'FLUSH TABLES `shop`.`a``b`, `shop`.`c` WITH READ LOCK', self.connection.statements[-1]
        )

    def test_locks_nothing_without_such_tables(self):
        lock = self.lock()
        self.connection.rows = [[('MyISAM',)], []]

        self.assertEqual(0, lock.lock_non_transactional_tables())

        self.assertNotIn('FLUSH', ''.join(self.connection.statements))

    def test_conflicting_statement(self):
        lock = self.lock()
        self.connection.error = pymysql.err.OperationalError(ER.LOCK_WAIT_TIMEOUT, 'timeout')

        error = self.assertRaises(exceptions.NotQuiescedError, lock.lock_instance)

        self.assertIn('did not end within 7 s', str(error))

    def test_lost_connection_holds_nothing(self):
        lock = self.lock()
        self.assertTrue(lock.is_held())
        self.connection.error = pymysql.err.OperationalError(2013, 'lost')

        self.assertFalse(lock.is_held())
        self.assertIn('lost', lock.unlock())

    def test_unlocking_and_closing(self):
        lock = self.lock()

        self.assertEqual('', lock.unlock())
        lock.close()
        lock.close()

        self.assertEqual(['UNLOCK TABLES', 'UNLOCK INSTANCE'], self.connection.statements[-2:])
