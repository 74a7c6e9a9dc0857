# SPDX-License-Identifier: Apache-2.0
"""Run sysbench 1.0 as load generator.

*Errors.* Deadlocks (1213), lock wait timeouts (1205) and rows that changed meanwhile (1020) are
normal under concurrent load: sysbench retries the transaction and counts the error, and the latency
includes the retries. Any other error ends the run, also a lost connection, so that a dying server
does not look like a slow one. sysbench does not survive a restart of the server: built with
MariaDB's client library, as in distributions, it crashes when it reconnects (its issue 527). The
committer measures how clients see a restart.

*Passwords* are not on the command line, which every user of the host can see, but in an option file
of mode 0600, which is removed as soon as sysbench has connected.

*Latencies* are recorded by ``lua/timed.lua`` around sysbench's own script.
"""

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph_bench import latency, model, sysbench_output

PROGRAM = 'sysbench'
TIMED_SCRIPT = Path(__file__).parent / 'lua' / 'timed.lua'
IGNORED_ERRORS = '1213,1205,1020'
_PERCENTILE = 99
#: Delay before the start, so that every thread knows the start time before it comes.
_NOTICE_SEC = 0.25
_POLL_SEC = 0.02

parse_summary = sysbench_output.parse_summary
Summary = sysbench_output.Summary


def version() -> str:
    """Return the version, such as ``1.0.20``.

    :raises LoadFailedError: sysbench is not installed, or its version is not 1.0
    """
    if shutil.which(PROGRAM) is None:
        raise exceptions.LoadFailedError(
            'sysbench is not installed: install the package sysbench (1.0) on this host'
        )
    output = subprocess.run(
        [PROGRAM, '--version'], capture_output=True, text=True, check=False
    ).stdout.split()
    if len(output) < 2 or not output[1].startswith('1.'):
        raise exceptions.LoadFailedError(f'expected sysbench 1.0, found {" ".join(output)!r}')
    return output[1]


class Run:
    """A running sysbench; its directory holds ``sysbench.log`` and its latencies.

    :param connection: the option file with the password; removed once sysbench has read it
    """

    def __init__(self, process: subprocess.Popen, threads: int, directory: Path, connection: Path):
        self.pid = process.pid
        self._process = process
        self._threads = threads
        self._directory = directory
        self._connection = connection

    @property
    def ready(self) -> bool:
        """Return whether every thread is connected and waits for the start."""
        return len(self._thread_files()) == self._threads

    def _thread_files(self) -> list[Path]:
        return sorted((self._directory / 'latency').glob('thread-*'))

    def release(self, second: int) -> None:
        """Let the threads start at a second of the monotonic clock."""
        start = self._directory / 'latency' / 'start'
        start.with_suffix('.new').write_text(f'{second}\n')
        start.with_suffix('.new').rename(start)
        self._connection.unlink(missing_ok=True)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def failed(self) -> bool:
        """Return whether sysbench exited with an error."""
        return self._process.poll() not in (None, 0)

    def failure(self) -> exceptions.LoadFailedError:
        """Return the error with the reason of the failure."""
        return exceptions.LoadFailedError(
            f'sysbench exited with {self._process.poll()}: {sysbench_output.explain(self.output())}'
        )

    def wait(self, timeout_sec: float) -> bool:
        """Wait until sysbench exits; return False on timeout."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_sec)
        return self.ended

    def stop(self) -> None:
        """Ensure that sysbench does not run and that the password is not on the disk."""
        if not self.ended:
            self._process.kill()
            self._process.wait()
        self._connection.unlink(missing_ok=True)

    def output(self) -> str:
        return (self._directory / 'sysbench.log').read_text(errors='replace')

    def samples(self) -> list[sysbench_output.Sample]:
        """Return the seconds that sysbench has reported so far, warm-up included."""
        return sysbench_output.parse_samples(self.output())

    def merge_latencies(self) -> latency.Seconds:
        """Merge the threads' files into ``latency.txt`` and return its content.

        The seconds are those of the monotonic clock. A thread writes a second when its first
        transaction of a later second ends, so the last second is incomplete after :meth:`stop`.
        """
        seconds = latency.read(self._thread_files())
        latency.write(self._directory / 'latency.txt', seconds)
        shutil.rmtree(self._directory / 'latency')
        return seconds


class Sysbench:
    """A workload on the tables of a dataset in a server's database."""

    def __init__(self, address: model.Address, workload: model.Workload, dataset: model.Dataset):
        self._address = address
        self._workload = workload
        self._dataset = dataset

    def prepare(self, threads: int = 4, timeout_sec: float | None = None) -> None:
        """Create and fill the tables; none of them may exist.

        :param threads: each fills one table, so at most one thread per table is used
        :raises LoadFailedError: sysbench failed or timed out; some tables may exist
        """
        self._command('prepare', min(threads, self._dataset.tables), timeout_sec)

    def cleanup(self, timeout_sec: float | None = None) -> None:
        """Drop the tables that exist.

        :raises LoadFailedError: sysbench failed or timed out
        """
        self._command('cleanup', 1, timeout_sec)

    def start(
        self, threads: int, seconds: int, directory: Path, transactions: int | None = None
    ) -> Run:
        """Connect the threads; they wait for :func:`start_together`.

        :param seconds: duration of the run
        :param transactions: number after which the run ends earlier
        :param directory: for the raw results; created if missing, must hold none
        :raises LoadFailedError: sysbench is not installed
        :raises InvalidPlanError: the number of threads or seconds is less than 1
        """
        if threads < 1 or seconds < 1:
            raise exceptions.InvalidPlanError(
                f'{threads} threads for {seconds} seconds; expected at least 1 of each'
            )
        version()
        latencies = directory.absolute() / 'latency'
        latencies.mkdir(parents=True)
        options = [
            *(f'--threads={threads}', f'--time={seconds}', '--report-interval=1'),
            *('--histogram=on', f'--percentile={_PERCENTILE}'),
            *([f'--events={transactions}'] if transactions else []),
        ]
        environment = {'BENCH_SCRIPT': self._workload.script, 'BENCH_LATENCY': str(latencies)}
        with (directory / 'sysbench.log').open('wb') as log:
            connection = self._connection_file()
            process = subprocess.Popen(
                self._command_line(connection, str(TIMED_SCRIPT), options, 'run'),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
                # The caller handles Ctrl-C, to store the seconds measured so far.
                start_new_session=True,
            )
        return Run(process, threads, directory, connection)

    def run(self, threads: int, seconds: int, directory: Path, grace_sec: float = 60) -> Summary:
        """Run to the end and return sysbench's totals.

        :param grace_sec: how long the last transactions may take after the end of the run
        :raises LoadFailedError: sysbench failed; its output is in the directory
        """
        run = self.start(threads, seconds, directory)
        try:
            start_together([run])
            if not run.wait(seconds + grace_sec):
                raise exceptions.LoadFailedError(
                    f'sysbench was still busy {grace_sec} s after its {seconds} s: '
                    f'{sysbench_output.last_lines(run.output())}'
                )
            if run.failed:
                raise run.failure()
            return parse_summary(run.output())
        finally:
            run.stop()
            run.merge_latencies()

    def _command(self, command: str, threads: int, timeout_sec: float | None) -> None:
        version()
        with self._temporary_connection_file() as connection:
            command_line = self._command_line(
                connection, self._workload.script, [f'--threads={threads}'], command
            )
            try:
                result = subprocess.run(
                    command_line,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=timeout_sec,
                    check=False,
                    start_new_session=True,
                )
            except subprocess.TimeoutExpired as error:
                raise exceptions.LoadFailedError(
                    f'sysbench {command} took more than {timeout_sec} s'
                ) from error
        # A failed thread does not always make the whole command fail.
        if result.returncode != 0 or 'FATAL:' in result.stdout:
            raise exceptions.LoadFailedError(
                f'sysbench {command} exited with {result.returncode}: '
                f'{sysbench_output.explain(result.stdout)}'
            )

    def _command_line(
        self, connection: Path, script: str, options: Sequence[str], command: str
    ) -> list[str]:
        settings = {
            'tables': self._dataset.tables,
            'table-size': self._dataset.rows,
            'mysql-ignore-errors': IGNORED_ERRORS,
            **self._workload.options,
        }
        return [
            *(PROGRAM, f'--config-file={connection}', script),
            *(f'--{name}={value}' for name, value in settings.items()),
            *options,
            command,
        ]

    @contextlib.contextmanager
    def _temporary_connection_file(self) -> Iterator[Path]:
        path = self._connection_file()
        try:
            yield path
        finally:
            path.unlink()

    def _connection_file(self) -> Path:
        """Write the option file with the server's address; mkstemp gives it mode 0600.

        It holds the password, so it is not in the directory of the results.
        """
        address = self._address
        settings = {
            'db-driver': 'mysql',
            'mysql-user': address.user,
            'mysql-password': address.password,
            'mysql-db': address.database,
        }
        if address.unix_socket:
            settings['mysql-socket'] = address.unix_socket
        else:
            settings |= {'mysql-host': address.host, 'mysql-port': str(address.port)}
        text = ''.join(f'{name}={_quoted(name, value)}\n' for name, value in settings.items())
        handle, path = tempfile.mkstemp(prefix='trove-ceph-bench-')
        with open(handle, 'w') as file:
            file.write(text)
        return Path(path)


def _quoted(name: str, value: str) -> str:
    """Quote a value for sysbench's option file, which has quotes but no escapes."""
    for quote in ('"', "'"):
        if quote not in value and '\n' not in value:
            return f'{quote}{value}{quote}'
    raise exceptions.TargetUnavailableError(
        f'sysbench cannot read a {name} that contains both kinds of quotes or a line break'
    )


def start_together(runs: Sequence[Run]) -> int:
    """Wait until every thread of every run is connected, then start all at the same second.

    sysbench itself gives its threads 30 s to connect.

    :returns: that second of the monotonic clock
    :raises LoadFailedError: a sysbench exited before the start
    """
    while not all(run.ready for run in runs):
        for run in runs:
            if run.ended:
                raise run.failure()
        time.sleep(_POLL_SEC)
    second = math.ceil(time.monotonic() + _NOTICE_SEC)
    for run in runs:
        run.release(second)
    return second
