# SPDX-License-Identifier: Apache-2.0
"""A real mysqld on any data directory, as a context manager."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pymysql

from trove_ceph import exceptions, waiting
from trove_ceph.host import processes
from trove_ceph.mysql import installation

#: For what hangs: on a busy host, initialising alone may take minutes.
START_TIMEOUT_SEC = 300
#: A clean end writes all changed pages of the buffer pool.
STOP_TIMEOUT_SEC = 600
_KILL_TIMEOUT_SEC = 20
_LOG_CHARACTERS = 3000
_POLL_SEC = 0.05
_ER_ACCESS_DENIED = 1045

Options = Mapping[str, str | int | float | bool]


class Mysqld:
    """Runs a server on a volume while entered; the data directory is initialised when empty.

    A new server's root has no password and may log in from this host alone. The server listens on
    its socket only, unless an option ``skip_networking`` says otherwise; only its own user and root
    reach the socket.

    :param volume: stands for /var/lib/mysql; the data directory is ``data`` in it
    :param directory: for the socket and the error log; made when missing. Its path should be short:
        the socket's may have 107 characters
    :param options: mysqld's options without dashes; a later start takes changes of the mapping
    :param my_cnf: an option file that is read before
    :param environment: of the process; default this process's own
    """

    def __init__(
        self,
        source: installation.Installation,
        volume: Path,
        directory: Path,
        options: Options | None = None,
        my_cnf: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ):
        self.volume = Path(volume)
        self.options = dict(options or {})
        self.start_sec: float | None = None
        self._source = source
        self._run = Path(directory)
        self._my_cnf = my_cnf
        self._environment = os.environ if environment is None else environment
        self._process: subprocess.Popen | None = None
        self._ended_cpu_sec = 0.0

    def __enter__(self) -> 'Mysqld':
        self.ensure_initialised()
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """End the server in order, or at once when that takes too long."""
        self.stop()

    @property
    def data(self) -> Path:
        """The data directory, seen from outside."""
        return self.volume / installation.DATA

    @property
    def socket(self) -> Path:
        return self._run / 'mysqld.sock'

    @property
    def log(self) -> Path:
        """The error log."""
        return self._run / 'mysqld.log'

    @property
    def exit_code(self) -> int | None:
        """What the server ended with, a signal's number below zero; None while it runs."""
        return self._process.poll() if self._process else None

    @property
    def pid(self) -> int | None:
        """The server's process; None while there is none."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def cpu_sec(self) -> float:
        """Return the processor seconds used since the beginning, over all restarts."""
        pid = self.pid
        return self._ended_cpu_sec + (processes.cpu_sec(pid) if pid else 0.0)

    def ensure_initialised(self) -> None:
        """Make a new server's data directory, unless there is one already.

        :raises ServerFailedError: mysqld cannot; what it began is removed
        """
        self.prepare_run()
        if self.data.exists() and any(self.data.iterdir()):
            return
        self.data.mkdir(exist_ok=True)
        self._own(self.data)
        process = self._spawn('--initialize-insecure')
        try:
            code = process.wait(START_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait(_KILL_TIMEOUT_SEC)
        if code != 0:
            shutil.rmtree(self.data)
            raise exceptions.ServerFailedError(
                f'mysqld --initialize-insecure ended with {code}: {self.log_tail()}'
            )

    def start(self, timeout_sec: float = START_TIMEOUT_SEC) -> None:
        """Start the server and wait until it answers.

        :raises ServerFailedError: it does not within the time; it is ended then
        """
        began = time.monotonic()
        self._process = self._spawn()
        try:
            self._wait_until_ready(timeout_sec)
        except BaseException:
            self.kill()
            raise
        self.start_sec = time.monotonic() - began

    def stop(self) -> None:
        """End the server in order; after ten minutes, at once."""
        self._end(signal.SIGTERM, STOP_TIMEOUT_SEC)

    def kill(self) -> None:
        """End the server as a power cut would."""
        self._end(signal.SIGKILL, _KILL_TIMEOUT_SEC)

    def restart(self) -> None:
        """End the server in order and start it again, with the options as they are now.

        :raises ServerFailedError: it does not start
        """
        self.stop()
        self.start()

    def has_ended(self, within_sec: float) -> bool:
        """Whether the server is gone, or is so within the time: a crash takes its time to end."""
        if self._process is None:
            return True
        try:
            self._process.wait(within_sec)
        except subprocess.TimeoutExpired:
            return False
        return True

    def connect(self, **options: Any) -> pymysql.connections.Connection:
        """Open a connection through the socket, as root by default, committing each statement."""
        return pymysql.connect(
            **{'unix_socket': str(self.socket), 'user': 'root', 'autocommit': True, **options}
        )

    def query(self, statement: str, *arguments: Any) -> tuple:
        """Run one statement on a connection of its own and return its rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return cursor.fetchall()

    def forget_identity(self) -> None:
        """Before the first start on a clone: let the server make a UUID of its own."""
        (self.data / 'auto.cnf').unlink()

    def find_refused_option(self) -> str | None:
        """Return the first of ``options`` that this mysqld does not know, None if it takes all.

        :raises ServerFailedError: it refuses them for another reason
        """
        self.prepare_run()
        process = self._spawn('--validate-config')
        code = process.wait(START_TIMEOUT_SEC)
        log = self.log_tail()
        if code == 0:
            return None
        for name in self.options:
            if re.search(rf"unknown (variable|option) '(--)?{name}[='\"]", log):
                return name
        raise exceptions.ServerFailedError(f'mysqld refuses its settings: {log}')

    def log_tail(self) -> str:
        """Return the end of what the server has written."""
        texts = []
        for name in ('console.log', 'mysqld.log'):
            path = self._run / name
            if path.exists():
                texts.append(path.read_text(errors='replace')[-_LOG_CHARACTERS:])
        return '\n'.join(text for text in texts if text) or 'mysqld has written nothing'

    def prepare_run(self) -> None:
        """Make the directory for the socket and the log, before the first start on old data."""
        self._run.mkdir(parents=True, exist_ok=True)
        # Whoever reaches the socket may log in without a password.
        self._run.chmod(0o700)
        self._own(self._run)
        if self._my_cnf:
            # It must be readable for the server's user, and seen from inside a root file system.
            (self._run / 'my.cnf').write_text(self._my_cnf.read_text())

    def _own(self, path: Path) -> None:
        _, uid, gid = self._source.user()
        os.chown(path, uid, gid)

    def _spawn(self, *mode: str) -> subprocess.Popen:
        data, run = self._source.places(self.volume, self._run)
        words = [f'--defaults-file={run}/my.cnf' if self._my_cnf else '--no-defaults']
        # The X plugin has a port of its own, and is not in all builds. A build's own directory for
        # files of queries is seldom there.
        words += ['--skip-networking', '--loose-mysqlx=OFF', '--secure-file-priv=NULL']
        words += [f'--{name}={_text(value)}' for name, value in self.options.items()]
        words += [f'--user={self._source.user()[0]}', f'--datadir={data}']
        words += [f'--socket={run}/mysqld.sock', f'--pid-file={run}/mysqld.pid']
        words.append(f'--log-error={run}/mysqld.log')
        with open(self._run / 'console.log', 'ab') as console:
            return self._source.spawn(
                [*words, *mode], self.volume, self._run, self._environment, console
            )

    def _wait_until_ready(self, timeout_sec: float) -> None:
        deadline = waiting.Deadline(timeout_sec)
        while True:
            try:
                self.connect().close()
                return
            except pymysql.err.OperationalError as error:
                if error.args[0] == _ER_ACCESS_DENIED:
                    # Data that was there before has a password of its own.
                    return
                if self.pid is None:
                    raise exceptions.ServerFailedError(
                        f'mysqld ended while it started: {self.log_tail()}'
                    ) from error
                if not deadline.pause(_POLL_SEC):
                    raise exceptions.ServerFailedError(
                        f'mysqld does not answer after {timeout_sec:.0f} s: {self.log_tail()}'
                    ) from error

    def _end(self, number: signal.Signals, timeout_sec: float) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        self._ended_cpu_sec = self.cpu_sec()
        process.send_signal(number)
        try:
            process.wait(timeout_sec)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_KILL_TIMEOUT_SEC)


def _text(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return 'ON' if value else 'OFF'
    return str(value)
