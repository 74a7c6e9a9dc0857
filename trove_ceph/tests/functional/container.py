# SPDX-License-Identifier: Apache-2.0
"""The MySQL container without a container runtime: its root, its entrypoint, its user.

Each container has mount and PID namespaces of its own, so a kill has the same effect as under
docker: every process in it is gone at once. A fault directory at the front of its PATH can halt the
entrypoint before any external command, so that it can be killed at every step boundary.
"""

import os
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import fixtures
import pymysql

from trove_ceph.host import processes
from trove_ceph.tests.functional import mysqld, workspace

UID = 1001
READY_TIMEOUT_SEC = 240
POLL_SEC = 0.02
# Trove's data directory is one level below its mount at /var/lib/mysql.
DATA = 'data'

ENTER = """
for name in dev/shm proc tmp; do mkdir -p "$ROOTFS/$name"; done
mount --bind "$VOLUME" "$ROOTFS/var/lib/mysql"
mount --bind "$RUN" "$ROOTFS/run/mysqld"
mount --bind "$SETTINGS" "$ROOTFS/etc/mysql"
mount --bind "$HOOKS" "$ROOTFS/docker-entrypoint-initdb.d"
mount --bind "$FAULTS" "$ROOTFS/mnt"
mount --bind /dev "$ROOTFS/dev"
mount -t proc proc "$ROOTFS/proc"
mount -t tmpfs tmpfs "$ROOTFS/tmp"
exec chroot --userspec="$USER_ID" "$ROOTFS" env -i "$@"
"""

# Counts the external commands of the entrypoint and halts before the one with a given number.
FAULT = """#!/bin/sh
PATH=${PATH#/mnt:}
name=${0##*/}
echo "$name $*" >>/mnt/commands
if [ "$(wc -l </mnt/commands)" = "$(cat /mnt/halt)" ]; then
    : >/mnt/halted
    sleep 1000
fi
exec "$name" "$@"
"""
FAULTY_COMMANDS = ('chmod', 'cp', 'mkdir', 'mv', 'openssl', 'rm', 'rmdir', 'sync', 'tar')


class Container(fixtures.Fixture):
    """Run the entrypoint on a volume, repeatedly if needed.

    :param volume: the directory that becomes /var/lib/mysql.
    :param directory: a directory for everything else; it is created.
    :param environment: the container's variables.
    :param options: arguments, with a leading dash.
    :param user: uid and gid, as for ``docker run --user``.
    """

    def __init__(self, volume, directory, environment, options=(), user=f'{UID}:{UID}'):
        super().__init__()
        self.volume = Path(volume)
        self.environment = {'MYSQL_INITDB_SKIP_TZINFO': '1'} | environment
        self.hooks = Path(directory) / 'hooks'
        self._directory = Path(directory)
        #: The directory that becomes /etc/mysql.
        self.settings = self._directory / 'settings'
        self._run = self._directory / 'run'
        self._faults = self._directory / 'faults'
        self._options = [f'--datadir=/var/lib/mysql/{DATA}', *options]
        self._user = user
        self._process = None
        self._log = self._directory / 'container.log'

    def _setUp(self):
        for path in (self._run, self._faults, self.hooks, self.data):
            path.mkdir(parents=True)
            os.chown(path, UID, UID)
        shutil.copytree(mysqld.rootfs() / 'etc' / 'mysql', self.settings, symlinks=True)
        os.chown(self.settings, UID, UID)
        for name in FAULTY_COMMANDS:
            path = self._faults / name
            path.write_text(FAULT)
            path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        self.addCleanup(self.kill)

    @property
    def data(self):
        """The data directory, seen from the host."""
        return self.volume / DATA

    def start(self, halt_before=0):
        """Start the container.

        :param halt_before: number of the external command before which the entrypoint halts.
        """
        self._start(
            [
                '--skip-networking',
                *(f'--{name}={value}' for name, value in mysqld.SMALL.items()),
                *('--socket=/var/run/mysqld/mysqld.sock', *self._options),
            ],
            halt_before,
        )

    def start_command(self, command, halt_before=0):
        """Start the container for a command instead of mysqld."""
        self._start([command], halt_before)

    def _start(self, command, halt_before):
        for name in ('commands', 'halted'):
            (self._faults / name).unlink(missing_ok=True)
        (self._faults / 'halt').write_text(str(halt_before))
        path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
        variables = {'PATH': f'/mnt:{path}' if halt_before else path} | self.environment
        arguments = [f'{name}={value}' for name, value in variables.items()]
        arguments += ['tini', '--', 'docker-entrypoint.sh', *command]
        paths = {
            'ROOTFS': mysqld.rootfs(),
            'VOLUME': self.volume,
            'RUN': self._run,
            'HOOKS': self.hooks,
            'SETTINGS': self.settings,
            'FAULTS': self._faults,
            'USER_ID': self._user,
        }
        argv = ['unshare', '--mount', '--propagation', 'private', '--pid', '--fork']
        argv += ['--kill-child=SIGKILL', 'sh', '-ec', ENTER, 'sh', *arguments]
        with open(self._log, 'ab') as log:
            self._process = subprocess.Popen(
                argv,
                env=os.environ | {name: str(path) for name, path in paths.items()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self):
        """Kill every process of the container at once."""
        if self._process is None:
            return
        if self._process.poll() is None:
            # Killing the first process kills all others in the namespace, and the kernel reaps the
            # first one only after them.
            first = self._first_process()
            os.kill(first or self._process.pid, signal.SIGKILL)
            self._process.wait()
            if first and not processes.wait_until_gone(first, workspace.KILL_TIMEOUT_SEC):
                raise AssertionError(f'process {first} survived SIGKILL')
        self._process = None

    def wait_until_halted(self):
        """Wait for the requested halt.

        :returns: the command before which the entrypoint halts, or None if mysqld is ready, or the
            container has ended, first.
        """
        self._wait_for(
            lambda: (self._faults / 'halted').exists() or self._has_ended() or self.accepts(),
            'halted',
        )
        if not (self._faults / 'halted').exists():
            return None
        return self.commands()[-1]

    def commands(self):
        """Return the external commands of the last start that was to halt, with arguments."""
        return (self._faults / 'commands').read_text().splitlines()

    def wait_until_ready(self):
        """Wait until the server accepts the password of the container's environment."""
        self._wait_for(self.accepts, 'ready')

    def wait_until_settled(self):
        """Wait until the first start has removed all its files from the data directory."""
        self._wait_for(lambda: not list(self.data.glob('*first-start*')), 'first start complete')

    def wait_for_end(self):
        """Wait for the container to end by itself and return its exit status."""
        return self._process.wait(READY_TIMEOUT_SEC)

    def _has_ended(self):
        return self._process.poll() == 0

    def accepts(self):
        """Return whether root can log in with the password of the container's environment."""
        try:
            self.query('DO 0')
        except pymysql.err.MySQLError:
            return False
        return True

    def query(self, statement, user='root', password=None, database=None):
        """Run one statement on a connection of its own and return its rows."""
        if password is None:
            password = self.environment.get('MYSQL_ROOT_PASSWORD', '')
        socket = str(self._run / 'mysqld.sock')
        with (
            pymysql.connect(
                unix_socket=socket,
                user=user,
                password=password,
                database=database,
                autocommit=True,
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return cursor.fetchall()

    def log(self):
        """Return the end of the container's output."""
        return self._log.read_text(errors='replace')[-4000:]

    def _first_process(self):
        """Return the host's pid of the container's process 1, None before it exists."""
        pid = self._process.pid
        children = Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
        return int(children[0]) if children else None

    def _wait_for(self, condition, event):
        deadline = time.monotonic() + READY_TIMEOUT_SEC
        while True:
            # First, since the condition may be that it has ended.
            status = None if self._process is None else self._process.poll()
            if condition():
                return
            if time.monotonic() > deadline:
                raise AssertionError(f'{event} not within {READY_TIMEOUT_SEC} s: {self.log()}')
            if status not in (None, -9):
                raise AssertionError(f'the container ended with {status}: {self.log()}')
            time.sleep(POLL_SEC)
