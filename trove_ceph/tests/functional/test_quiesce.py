# SPDX-License-Identifier: Apache-2.0
"""A real MySQL on a real XFS volume is quiesced for backups, and always continues."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import pymysql
from oslo_utils import units
from pymysql.constants import ER

from trove_ceph import exceptions
from trove_ceph.guestagent import backup_lock, backup_settings, quiesce, volume_freeze
from trove_ceph.host import data_volume, filesystem
from trove_ceph.tests.functional import base, mysqld

VOLUME_MIB = 1024
WAIT_SEC = 2
LONG_SEC = 60
TIMEOUT_SEC = 60
PATH = os.environ['PATH'] + ':/usr/sbin:/sbin'

# As in the guest agent: with green threads, in a process that may be killed.
AGENT = """
import eventlet
eventlet.monkey_patch(all=True)
import sys
import pymysql
from trove_ceph.guestagent import backup_lock, quiesce, volume_freeze
from trove_ceph.host import filesystem

socket, mount_point, level, limit_sec = sys.argv[1:]
storage = filesystem.HostStorage()

def connect(timeout_sec):
    return pymysql.connect(
        unix_socket=socket, user='root', autocommit=True, read_timeout=timeout_sec)

quiescer = quiesce.Quiescer(
    lambda hold_sec: backup_lock.BackupLock(connect, 2, hold_sec),
    lambda limit_sec: volume_freeze.VolumeFreeze(
        *storage.start_freeze_process(mount_point, limit_sec), limit_sec),
    60,
)
quiescer.quiesce('agent', 'token', level, int(limit_sec))
print('held', flush=True)
sys.stdin.readline()
print(quiescer.release('agent', 'token')['held'], flush=True)
"""


class Writer(threading.Thread):
    """Commit rows one after another and count those that were acknowledged."""

    def __init__(self, server, table):
        super().__init__(daemon=True)
        self._server = server
        self._table = table
        self._ended = threading.Event()
        self.acknowledged = 0
        self.error = None

    def run(self):
        try:
            with self._server.connect() as connection, connection.cursor() as cursor:
                while not self._ended.is_set():
                    cursor.execute(f"INSERT INTO {self._table} (note) VALUES (REPEAT('x', 500))")
                    self.acknowledged += 1
        except pymysql.MySQLError as error:
            self.error = error

    def end(self):
        self._ended.set()
        self.join(TIMEOUT_SEC)


class VolumeTestCase(base.FunctionalTestCase):
    """A test with a volume, and a server on it."""

    def setUp(self):
        super().setUp()
        for program in ('mkfs.xfs', 'losetup', 'fsfreeze'):
            if not shutil.which(program, path=PATH):
                self.skipTest(f'needs {program}')
        if '\txfs\n' not in pathlib.Path('/proc/filesystems').read_text():
            self.skipTest('needs a kernel with XFS')
        self.storage = filesystem.HostStorage()
        self.image = self.directory / 'volume.img'
        with open(self.image, 'wb') as image:
            image.truncate(VOLUME_MIB * units.Mi)
        self.mount_point = str(self.directory / 'volume')
        self.volume = self._attach(self.image, self.mount_point)

    def _attach(self, image, mount_point):
        device = run('losetup', '--find', '--show', str(image)).strip()
        self.addCleanup(run, 'losetup', '--detach', device)
        fstab = self.directory / 'fstab'
        fstab.touch()
        volume = data_volume.DataVolume(device, mount_point, self.storage, fstab=str(fstab))
        volume.prepare(0, 0, ready_timeout_sec=5, format_timeout_sec=60, read_ahead_kib=128)
        self.addCleanup(volume.ensure_unmounted)
        return volume

    def _serve(self, **options):
        """Start a server on the volume."""
        server = mysqld.durable_server(self.mount_point, self.directory / 'run')
        server.options.update(options)
        self.enterContext(server)
        # A server that waits for the volume cannot be stopped.
        self.addCleanup(self.storage.thaw, self.mount_point)
        self.server = server
        server.query('CREATE DATABASE IF NOT EXISTS shop')
        return server

    def _connect(self, timeout_sec):
        return self.server.connect(read_timeout=timeout_sec)

    def _check(self):
        return backup_settings.check(self._connect, self.storage, self.mount_point)


@base.serial
class QuiesceTest(VolumeTestCase):
    def _quiescer(self):
        return quiesce.Quiescer(
            lambda hold_sec: backup_lock.BackupLock(self._connect, WAIT_SEC, hold_sec),
            lambda limit_sec: volume_freeze.VolumeFreeze(
                *self.storage.start_freeze_process(self.mount_point, limit_sec), limit_sec
            ),
            LONG_SEC,
        )

    def _start_writer(self, table='shop.orders', engine='InnoDB'):
        self.server.query(
            f'CREATE TABLE {table} (number INT AUTO_INCREMENT PRIMARY KEY, note TEXT) '
            f'ENGINE = {engine}'
        )
        writer = Writer(self.server, table)
        writer.start()
        self.addCleanup(writer.end)
        self._assert_writes(writer)
        return writer

    def _assert_writes(self, writer):
        before, deadline = writer.acknowledged, time.monotonic() + TIMEOUT_SEC
        while writer.acknowledged < before + 5:
            self.assertIsNone(writer.error)
            self.assertLess(time.monotonic(), deadline, 'the writer waits for ever')
            time.sleep(0.01)

    def _assert_stalled(self, writer):
        before = writer.acknowledged
        time.sleep(0.5)
        # The acknowledgement of an earlier commit may have been in flight.
        self.assertLessEqual(writer.acknowledged, before + 1)

    def _create_table(self, name):
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute('SET lock_wait_timeout = 1')
            cursor.execute(f'CREATE TABLE shop.{name} (id INT PRIMARY KEY)')

    def _assert_definitions_are_blocked(self):
        error = self.assertRaises(pymysql.err.OperationalError, self._create_table, 'one')
        self.assertEqual(ER.LOCK_WAIT_TIMEOUT, error.args[0])

    def _start_agent(self, level, limit_sec=LONG_SEC):
        agent = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', AGENT]
            + [str(self.server.socket), self.mount_point, level, str(limit_sec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=base.CHECKOUT,
        )
        self.addCleanup(agent.wait, TIMEOUT_SEC)
        self.addCleanup(agent.stdout.close)
        self.addCleanup(agent.stdin.close)
        self.addCleanup(agent.kill)
        self.assertEqual('held\n', agent.stdout.readline())
        return agent

    # ddl

    def test_ddl_blocks_definitions_but_not_rows(self):
        self._serve()
        writer = self._start_writer()
        quiescer = self._quiescer()

        quiescer.quiesce('b1', 't1', 'ddl', LONG_SEC)

        self._assert_definitions_are_blocked()
        self._assert_writes(writer)
        self.assertTrue(quiescer.release('b1', 't1')['held'])
        self._create_table('one')

    def test_ddl_ends_by_the_servers_own_clock(self):
        self._serve()
        quiescer = self._quiescer()

        quiescer.quiesce('b1', 't1', 'ddl', 1)
        time.sleep(2.5)

        self._create_table('one')
        answer = quiescer.release('b1', 't1')
        self.assertFalse(answer['held'])
        self.assertTrue(answer['reason'])

    def test_ddl_wait_is_limited(self):
        server = self._serve()
        server.query('CREATE TABLE shop.orders (id INT PRIMARY KEY)')
        with server.connect() as reader, reader.cursor() as cursor:
            cursor.execute('LOCK TABLES shop.orders READ')
            altering = threading.Thread(
                target=server.query, args=('ALTER TABLE shop.orders ADD note TEXT',)
            )
            altering.start()
            self.addCleanup(altering.join, TIMEOUT_SEC)
            self._wait_for_statement('ALTER TABLE%')
            began = time.monotonic()

            error = self.assertRaises(
                exceptions.NotQuiescedError, self._quiescer().quiesce, 'b1', 't1', 'ddl', LONG_SEC
            )

            self.assertIn(f'did not end within {WAIT_SEC} s', str(error))
            # Neither for the requested duration of the lock, nor for that of the reading statement.
            self.assertLess(time.monotonic() - began, LONG_SEC / 2)
        altering.join(TIMEOUT_SEC)
        self._create_table('one')

    def _wait_for_statement(self, pattern):
        deadline = time.monotonic() + TIMEOUT_SEC
        while not (
            found := self.server.query(
                'SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE %s', pattern
            )
        ):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        return found

    def test_kill_of_the_agent_releases_the_lock(self):
        self._serve()
        agent = self._start_agent('ddl')
        self._assert_definitions_are_blocked()

        agent.kill()
        agent.wait(TIMEOUT_SEC)

        self._create_table('one')

    # freeze

    def test_freeze_stalls_writers_until_the_release_even_with_the_general_log(self):
        """Defect 3: stock unlocks before it thaws, and waits for a log on the frozen volume."""
        self._serve(general_log='ON', general_log_file='/var/lib/mysql/data/general.log')
        writer = self._start_writer()
        quiescer = self._quiescer()

        answer = quiescer.quiesce('b1', 't1', 'freeze', LONG_SEC)
        self._assert_stalled(writer)
        self.assertEqual(0, answer['locked_tables'])
        self.assertEqual('b1', quiescer.quiesce('b1', 't1', 'freeze', LONG_SEC)['backup_id'])
        self.assertRaises(
            exceptions.NotQuiescedError, quiescer.quiesce, 'b2', 't2', 'freeze', LONG_SEC
        )
        began = time.monotonic()
        released = quiescer.release('b1', 't1')

        self.assertTrue(released['held'], released)
        self.assertLess(time.monotonic() - began, LONG_SEC / 2)
        self._assert_writes(writer)
        self._create_table('one')
        self.assertTrue((self.server.data / 'general.log').stat().st_size)

    def test_agent_with_green_threads(self):
        self._serve()
        writer = self._start_writer()
        agent = self._start_agent('freeze')
        self._assert_stalled(writer)

        agent.stdin.write('\n')
        agent.stdin.flush()

        self.assertEqual('True\n', agent.stdout.readline())
        self._assert_writes(writer)

    def test_killed_agent_leaves_nothing_frozen(self):
        self._serve(general_log='ON')
        writer = self._start_writer()
        agent = self._start_agent('freeze')
        self._assert_stalled(writer)

        agent.kill()

        self._assert_writes(writer)
        self._create_table('one')

    def test_volume_thaws_at_the_limit_while_the_agent_hangs(self):
        self._serve(general_log='ON')
        writer = self._start_writer()
        agent = self._start_agent('freeze', limit_sec=10)
        agent.send_signal(signal.SIGSTOP)

        self._assert_stalled(writer)
        self._assert_writes(writer)

        agent.send_signal(signal.SIGCONT)
        agent.stdin.write('\n')
        agent.stdin.flush()
        self.assertEqual('False\n', agent.stdout.readline())
        self._create_table('one')

    def test_volume_thaws_after_the_holder_was_killed(self):
        self._serve()
        writer = self._start_writer()
        quiescer = self._quiescer()
        quiescer.quiesce('b1', 't1', 'freeze', LONG_SEC)
        self._assert_stalled(writer)

        os.kill(quiescer._hold._freeze._process.pid, signal.SIGKILL)

        self._assert_writes(writer)
        self.assertFalse(quiescer.release('b1', 't1')['held'])
        # Nothing blocks the next backup.
        quiescer.quiesce('b2', 't2', 'freeze', LONG_SEC)
        self._assert_stalled(writer)
        self.assertTrue(quiescer.release('b2', 't2')['held'])

    def test_starting_agent_thaws_a_frozen_volume(self):
        self._serve()
        writer = self._start_writer()
        run('fsfreeze', '--freeze', self.mount_point)
        self._assert_stalled(writer)
        # Usually another process has frozen the volume. But MySQL may also not grant the lock in
        # time, as a statement that writes to the frozen volume is in its way.
        error = self.assertRaises(
            exceptions.NotQuiescedError, self._quiescer().quiesce, 'b1', 't1', 'freeze', LONG_SEC
        )
        self.assertRegex(
            str(error), 'another process|MySQL does not hold the lock|did not end within'
        )

        self.volume.prepare(0, 0, ready_timeout_sec=5, format_timeout_sec=60, read_ahead_kib=128)

        self._assert_writes(writer)
        self.assertFalse(self.storage.thaw(self.mount_point))

    def test_frozen_volume_is_a_backup_where_a_running_one_is_not(self):
        server = self._serve(innodb_flush_log_at_trx_commit=2, sync_binlog=0)
        writers = [
            self._start_writer('shop.orders', 'InnoDB'),
            self._start_writer('shop.visits', 'MyISAM'),
        ]
        reasons = self._check()['reasons']
        self.assertEqual(3, len(reasons), reasons)
        self.assertTrue(all(reason['freeze_suffices'] for reason in reasons))
        quiescer = self._quiescer()

        answer = quiescer.quiesce('b1', 't1', 'freeze', LONG_SEC)
        acknowledged = [writer.acknowledged for writer in writers]
        copy = self.directory / 'copy.img'
        run('cp', '--sparse=always', str(self.image), str(copy))
        self.assertTrue(quiescer.release('b1', 't1')['held'])

        self.assertEqual(1, answer['locked_tables'])
        for writer in writers:
            self._assert_writes(writer)
            writer.end()
        server.stop()
        # Both file systems have the same UUID.
        self.volume.ensure_unmounted()
        self._attach(copy, self.mount_point)
        server.start()
        counts = []
        for writer, table in zip(acknowledged, ('orders', 'visits'), strict=True):
            rows = server.query(f'CHECK TABLE shop.{table} EXTENDED')
            self.assertEqual('OK', rows[-1][-1], rows)
            ((count,),) = server.query(f'SELECT COUNT(*) FROM shop.{table}')
            self.assertIn(count - writer, (0, 1))
            counts.append(count)
        ((position,),) = server.query('SELECT @@gtid_executed')
        # Each row is a transaction, and so are the schema and the two tables.
        self.assertEqual(sum(counts) + 3, int(position.rpartition('-')[2]))

    def test_query_on_a_myisam_table_delays_others_only_briefly(self):
        server = self._serve()
        writer = self._start_writer()
        server.query('CREATE TABLE shop.visits (id INT) ENGINE = MyISAM')
        server.query('INSERT INTO shop.visits VALUES (1)')
        select = f'SELECT SLEEP({LONG_SEC}) FROM shop.visits'
        reading = threading.Thread(target=server.query, args=(select,))
        reading.start()
        self.addCleanup(reading.join, TIMEOUT_SEC)
        ((reader,),) = self._wait_for_statement('SELECT SLEEP%')
        # This ends the sleep, but not the statement.
        self.addCleanup(server.query, 'KILL QUERY %s', reader)

        self.assertRaises(
            exceptions.NotQuiescedError, self._quiescer().quiesce, 'b1', 't1', 'freeze', LONG_SEC
        )

        self._assert_writes(writer)
        self.assertTrue(reading.is_alive())
        self.assertFalse(self.storage.thaw(self.mount_point))


def run(*command):
    return subprocess.run(
        command,
        check=True,
        timeout=TIMEOUT_SEC,
        text=True,
        stdout=subprocess.PIPE,
        env=os.environ | {'PATH': PATH},
    ).stdout
