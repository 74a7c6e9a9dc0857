# SPDX-License-Identifier: Apache-2.0
"""A real mysqld from the lab's MySQL root file system, on any data directory.

Each server has a mount namespace of its own: inside it sees its volume at /var/lib/mysql, the same
path as in a guest (binlog.index holds absolute paths), and the shared root file system stays
untouched. The mounts go with the process.
"""

import functools
import os
import signal
import subprocess
import time
from pathlib import Path

import fixtures
import pymysql

from trove_ceph.tests.functional import base, workspace

BUILD = base.CHECKOUT / 'lab' / 'images' / 'build'
BUILD_TIMEOUT_SEC = 900
START_TIMEOUT_SEC = 60

ENTER = """
mount --bind "$VOLUME" "$ROOTFS/var/lib/mysql"
mount --bind "$RUN" "$ROOTFS/run/mysqld"
mount --bind /dev "$ROOTFS/dev"
mount -t proc proc "$ROOTFS/proc"
mount -t tmpfs tmpfs "$ROOTFS/tmp"
exec chroot "$ROOTFS" "$@"
"""

# The settings on which a lock-free backup stands: every acknowledged commit is on the volume.
DURABLE = (
    '--innodb-flush-log-at-trx-commit=1',
    '--sync-binlog=1',
    '--innodb-doublewrite=ON',
    '--gtid-mode=ON',
    '--enforce-gtid-consistency=ON',
    '--log-bin=/var/lib/mysql/data/binlog',
)
SMALL = (
    '--innodb-buffer-pool-size=64M',
    '--innodb-redo-log-capacity=64M',
    '--performance-schema=OFF',
    '--mysqlx=OFF',
)


@functools.cache
def rootfs():
    """Return the root file system with MySQL, built when the cache does not hold it."""
    result = subprocess.run(
        [str(BUILD), 'mysql-rootfs'],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=BUILD_TIMEOUT_SEC,
        check=True,
    )
    return Path(result.stdout.strip().splitlines()[-1])


class Mysqld(fixtures.Fixture):
    """Runs a server on a volume; initialises the data directory when there is none.

    :param volume: the directory that stands for /var/lib/mysql.
    :param directory: an empty directory for the socket and the error log; it is made.
    :param server_id: differs between servers that run side by side.
    """

    def __init__(self, volume, directory, server_id=1):
        super().__init__()
        self._data = Path(volume) / 'data'
        self._volume = Path(volume)
        self._run = Path(directory)
        self._options = [
            'mysqld',
            '--no-defaults',
            '--user=mysql',
            '--datadir=/var/lib/mysql/data',
            '--socket=/run/mysqld/mysqld.sock',
            '--pid-file=/run/mysqld/mysqld.pid',
            '--log-error=/run/mysqld/mysqld.log',
            '--secure-file-priv=NULL',
            '--skip-networking',
            '--skip-replica-start',
            f'--server-id={server_id}',
            *DURABLE,
            *SMALL,
        ]
        self.process = None
        self.start_sec = None

    def _setUp(self):
        self._run.mkdir(parents=True)
        self._own(self._run)
        if not self._data.exists():
            self._data.mkdir()
            self._own(self._data)
            self._initialise()
        began = time.monotonic()
        self.process = self._spawn(self._options)
        self.addCleanup(self.stop)
        self._wait_until_ready(began + START_TIMEOUT_SEC)
        self.start_sec = time.monotonic() - began

    def _own(self, path):
        for line in (rootfs() / 'etc' / 'passwd').read_text().splitlines():
            fields = line.split(':')
            if fields[0] == 'mysql':
                os.chown(path, int(fields[2]), int(fields[3]))
                return
        raise AssertionError(f'no user mysql in {rootfs()}')

    def _spawn(self, words):
        places = {'ROOTFS': rootfs(), 'VOLUME': self._volume, 'RUN': self._run}
        return subprocess.Popen(
            ['unshare', '--mount', '--propagation', 'private', 'sh', '-ec', ENTER, 'sh', *words],
            env=os.environ | {name: str(path) for name, path in places.items()},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _initialise(self):
        code = self._spawn([*self._options, '--initialize-insecure']).wait(START_TIMEOUT_SEC)
        if code != 0:
            raise AssertionError(f'mysqld --initialize-insecure ended with {code}: {self.log()}')

    def _wait_until_ready(self, deadline):
        while True:
            try:
                self.connect().close()
                return
            except pymysql.err.OperationalError as error:
                if self.process.poll() is not None:
                    raise AssertionError(
                        f'mysqld ended with {self.process.returncode}: {self.log()}'
                    ) from error
                if time.monotonic() > deadline:
                    raise AssertionError(f'mysqld is not ready: {self.log()}') from error
            time.sleep(0.05)

    def connect(self, **options):
        """Open a connection as root through the socket, committing each statement."""
        return pymysql.connect(
            unix_socket=str(self._run / 'mysqld.sock'), user='root', autocommit=True, **options
        )

    def query(self, statement, *arguments):
        """Run one statement on a connection of its own and return its rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return cursor.fetchall()

    def forget_identity(self):
        """Before the first start on a clone: let the server make a UUID of its own."""
        (self._data / 'auto.cnf').unlink()

    def log(self):
        """The end of the error log."""
        try:
            return (self._run / 'mysqld.log').read_text()[-3000:]
        except FileNotFoundError:
            return 'no error log was written'

    def stop(self):
        """Shut the server down in order."""
        self.process.terminate()
        self.process.wait(START_TIMEOUT_SEC)

    def kill(self):
        """End the server as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(workspace.KILL_TIMEOUT_SEC)
