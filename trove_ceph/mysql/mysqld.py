# SPDX-License-Identifier: Apache-2.0
"""A mysqld process on any data directory, as a context manager."""

import contextlib
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
from trove_ceph.host import bounded_files, processes
from trove_ceph.mysql import installation

#: On a busy host, initialisation alone may take minutes.
START_TIMEOUT_SEC = 300
#: A clean shutdown flushes all dirty pages of the buffer pool.
STOP_TIMEOUT_SEC = 600
_KILL_TIMEOUT_SEC = 20
_LOG_CHARACTERS = 3000
_POLL_SEC = 0.05
_ER_ACCESS_DENIED = 1045

Options = Mapping[str, str | int | float | bool]


class Mysqld:
    """Run a server on a volume while the context is active; initialise an empty data directory.

    Root of a new server has no password and can log in from this host only. The server listens on
    its socket only, unless the option ``skip_networking`` is off; only its own user and root have
    access to the socket.

    :param source: the installation of mysqld
    :param volume: stands for /var/lib/mysql; the data directory is ``data`` in it
    :param directory: for the socket and the error log; created if missing. Keep its path short: the
        path of the socket must not exceed 107 characters
    :param options: options of mysqld without dashes; changes take effect at the next start
    :param my_cnf: an option file that is read first
    :param environment: environment of the process; by default that of this process
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
        """Stop the server; kill it if that takes too long."""
        self.stop()

    @property
    def data(self) -> Path:
        """The path of the data directory on this host."""
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
        """The exit code of the server, negative for a signal; None: it runs."""
        return self._process.poll() if self._process else None

    @property
    def pid(self) -> int | None:
        """The process id of the server; None: it does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def cpu_sec(self) -> float:
        """Return the CPU time in seconds since the first start, over all restarts."""
        pid = self.pid
        return self._ended_cpu_sec + (processes.cpu_sec(pid) if pid else 0.0)

    def ensure_initialised(self) -> None:
        """Initialise the data directory if it is missing or empty.

        :raises ServerFailedError: mysqld failed; the incomplete directory is removed
        """
        self.prepare_run()
        if self.data.exists() and any(self.data.iterdir()):
            return
        self.data.mkdir(exist_ok=True)
        self._chown(self.data)
        process = self._spawn('--initialize-insecure')
        try:
            code = process.wait(START_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait(_KILL_TIMEOUT_SEC)
        if code != 0:
            shutil.rmtree(self.data)
            raise exceptions.ServerFailedError(
                f'mysqld --initialize-insecure failed with exit code {code}: {self.log_tail()}'
            )

    def start(self, timeout_sec: float = START_TIMEOUT_SEC) -> None:
        """Start the server and wait until it answers.

        :raises ServerFailedError: the server did not answer in time; it is killed
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
        """Shut the server down; kill it after ten minutes."""
        self._terminate(signal.SIGTERM, STOP_TIMEOUT_SEC)

    def kill(self) -> None:
        """Kill the server, as a crash does."""
        self._terminate(signal.SIGKILL, _KILL_TIMEOUT_SEC)

    def restart(self) -> None:
        """Shut the server down and start it again with the present options.

        :raises ServerFailedError: the server does not start
        """
        self.stop()
        self.start()

    def has_ended(self, within_sec: float) -> bool:
        """Return whether the server has ended or ends within the time; a crash is not instant."""
        if self._process is None:
            return True
        try:
            self._process.wait(within_sec)
        except subprocess.TimeoutExpired:
            return False
        return True

    def connect(self, **options: Any) -> pymysql.connections.Connection:
        """Open a connection through the socket, by default as root and in autocommit mode."""
        # PyMySQL would encrypt it, and read all certificates of the system first.
        defaults = {'user': 'root', 'autocommit': True, 'ssl_disabled': True}
        return pymysql.connect(unix_socket=str(self.socket), **{**defaults, **options})

    def query(self, statement: str, *arguments: Any) -> tuple:
        """Execute one statement on a new connection and return its rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return cursor.fetchall()

    def find_refused_option(self) -> str | None:
        """Return the first of ``options`` that this mysqld does not know; None: it knows all.

        :raises ServerFailedError: mysqld refuses the options for another reason
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
        """Return the last lines of the server's output and error log."""
        texts = []
        for name in ('console.log', 'mysqld.log'):
            # A hostile server may have replaced the file.
            with contextlib.suppress(OSError):
                tail, _ = bounded_files.read_tail(self._run / name, _LOG_CHARACTERS)
                texts.append(tail.decode(errors='replace'))
        return '\n'.join(text for text in texts if text) or 'mysqld has written nothing'

    def prepare_run(self) -> None:
        """Create the directory for the socket and the log; needed before :meth:`start`."""
        self._run.mkdir(parents=True, exist_ok=True)
        # A login through the socket needs no password.
        self._run.chmod(0o700)
        self._chown(self._run)
        if self._my_cnf:
            # The copy is readable for the server's user and inside of a root file system.
            (self._run / 'my.cnf').write_text(self._my_cnf.read_text())

    def _chown(self, path: Path) -> None:
        _, uid, gid = self._source.user()
        os.chown(path, uid, gid)

    def _spawn(self, *mode: str) -> subprocess.Popen:
        data, run = self._source.paths(self.volume, self._run)
        words = [f'--defaults-file={run}/my.cnf' if self._my_cnf else '--no-defaults']
        # The X plugin opens another port and is not in all builds. The default directory of
        # secure_file_priv often does not exist.
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
                    # Existing data has its own passwords.
                    return
                if self.pid is None:
                    raise exceptions.ServerFailedError(
                        f'mysqld ended while it started: {self.log_tail()}'
                    ) from error
                if not deadline.pause(_POLL_SEC):
                    raise exceptions.ServerFailedError(
                        f'mysqld does not answer after {timeout_sec:.0f} s: {self.log_tail()}'
                    ) from error

    def _terminate(self, number: signal.Signals, timeout_sec: float) -> None:
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
