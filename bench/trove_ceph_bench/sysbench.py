# SPDX-License-Identifier: Apache-2.0
"""sysbench 1.0 as load generator; needs nothing but the standard library and the program itself.

*Errors.* Deadlocks (1213), lock wait time-outs (1205) and rows that changed meanwhile (1020) belong
to concurrent load: sysbench begins the transaction again, counts the error, and its latency goes
on. Any other error ends the run, a lost connection too, so that a dying server cannot be taken for
a slow one. Nor can sysbench outlive a restart of the server: built with MariaDB's client library,
as distributions do, it crashes when it connects again (its issue 527). What clients see of a
restart is the committer's to measure.

*Passwords* are in none of the commands, which every user of the host can see, but in an option
file of mode 0600, that is gone as soon as sysbench has connected.

*Latencies* are recorded by ``lua/timed.lua`` around sysbench's own script; see there.
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
#: Between the decision to start and the start: time for every thread to see it.
_NOTICE_SEC = 0.25
_POLL_SEC = 0.02

parse_summary = sysbench_output.parse_summary
Summary = sysbench_output.Summary


def version() -> str:
    """Return the version, such as ``1.0.20``.

    :raises LoadFailedError: sysbench is not installed, or is not of the versions 1.0
    """
    if shutil.which(PROGRAM) is None:
        raise exceptions.LoadFailedError(
            'sysbench is not installed: install the package sysbench (1.0) on this host'
        )
    said = subprocess.run(
        [PROGRAM, '--version'], capture_output=True, text=True, check=False
    ).stdout.split()
    if len(said) < 2 or not said[1].startswith('1.'):
        raise exceptions.LoadFailedError(f'sysbench 1.0 is needed; found {" ".join(said)!r}')
    return said[1]


class Run:
    """sysbench while it runs; its directory holds ``sysbench.log`` and its latencies.

    :param connection: the option file with the password; it goes once that has been read
    """

    def __init__(self, process: subprocess.Popen, threads: int, directory: Path, connection: Path):
        self.pid = process.pid
        self._process = process
        self._threads = threads
        self._directory = directory
        self._connection = connection

    @property
    def ready(self) -> bool:
        """Whether every thread is connected and waits for the start."""
        return len(self._thread_files()) == self._threads

    def _thread_files(self) -> list[Path]:
        return sorted((self._directory / 'latency').glob('thread-*'))

    def release(self, second: int) -> None:
        """Let the threads begin at a second of the monotonic clock."""
        start = self._directory / 'latency' / 'start'
        start.with_suffix('.new').write_text(f'{second}\n')
        start.with_suffix('.new').rename(start)
        self._connection.unlink(missing_ok=True)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def failed(self) -> bool:
        """Whether it ended by itself before it was done."""
        return self._process.poll() not in (None, 0)

    def failure(self) -> exceptions.LoadFailedError:
        """Return the error that says why it failed."""
        return exceptions.LoadFailedError(
            f'sysbench ended with {self._process.poll()}: {sysbench_output.explain(self.output())}'
        )

    def wait(self, timeout_sec: float) -> bool:
        """Wait for the end; return whether it came in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_sec)
        return self.ended

    def end(self) -> None:
        """Make sure that it runs no more and that the password is off the disk."""
        if not self.ended:
            self._process.kill()
            self._process.wait()
        self._connection.unlink(missing_ok=True)

    def output(self) -> str:
        return (self._directory / 'sysbench.log').read_text(errors='replace')

    def samples(self) -> list[sysbench_output.Sample]:
        """Return the seconds that sysbench has reported so far, warm-up included."""
        return sysbench_output.parse_samples(self.output())

    def pack(self) -> latency.Seconds:
        """Put the threads' files together into one, ``latency.txt``, and return what is in it.

        The seconds are those of the monotonic clock. A thread hands a second over when a later one
        has seen the end of a transaction, so the last one is incomplete after :meth:`end`.
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

        :param threads: each fills a table of its own, so no more are used than there are tables
        :raises LoadFailedError: it failed or took longer; some tables may be there
        """
        self._command('prepare', min(threads, self._dataset.tables), timeout_sec)

    def cleanup(self, timeout_sec: float | None = None) -> None:
        """Drop the tables that are there.

        :raises LoadFailedError: it failed or took longer
        """
        self._command('cleanup', 1, timeout_sec)

    def start(self, threads: int, seconds: int, directory: Path) -> Run:
        """Connect the threads; they wait until :func:`begin_together` lets them begin.

        :param seconds: the run ends by itself after these
        :param directory: for the raw results; made when missing, must hold none
        :raises LoadFailedError: sysbench is missing
        :raises InvalidPlanError: no thread or no second is asked for
        """
        if threads < 1 or seconds < 1:
            raise exceptions.InvalidPlanError(
                f'{threads} threads for {seconds} seconds are no load; at least 1 of each is needed'
            )
        version()
        latencies = directory.absolute() / 'latency'
        latencies.mkdir(parents=True)
        connection = self._connection_file(directory)
        options = [
            *(f'--threads={threads}', f'--time={seconds}', '--report-interval=1'),
            *('--histogram=on', f'--percentile={_PERCENTILE}'),
        ]
        environment = {'BENCH_SCRIPT': self._workload.script, 'BENCH_LATENCY': str(latencies)}
        with (directory / 'sysbench.log').open('wb') as log:
            process = subprocess.Popen(
                self._words(connection, str(TIMED_SCRIPT), options, 'run'),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
                # Ctrl-C is the caller's to handle: what was measured is to be kept.
                start_new_session=True,
            )
        return Run(process, threads, directory, connection)

    def run(self, threads: int, seconds: int, directory: Path, grace_sec: float = 60) -> Summary:
        """Run to the end and return sysbench's totals.

        :param grace_sec: how long the last transactions may take after the time is up
        :raises LoadFailedError: it failed; what it printed is kept in the directory
        """
        run = self.start(threads, seconds, directory)
        try:
            begin_together([run])
            if not run.wait(seconds + grace_sec):
                raise exceptions.LoadFailedError(
                    f'sysbench was still busy {grace_sec} s after its {seconds} s: '
                    f'{sysbench_output.last_lines(run.output())}'
                )
            if run.failed:
                raise run.failure()
            return parse_summary(run.output())
        finally:
            run.end()
            run.pack()

    def _command(self, command: str, threads: int, timeout_sec: float | None) -> None:
        version()
        with self._temporary_connection_file() as connection:
            words = self._words(
                connection, self._workload.script, [f'--threads={threads}'], command
            )
            try:
                result = subprocess.run(
                    words,
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
                f'sysbench {command} ended with {result.returncode}: '
                f'{sysbench_output.explain(result.stdout)}'
            )

    def _words(
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
        with tempfile.TemporaryDirectory(prefix='trove-ceph-bench-') as directory:
            yield self._connection_file(Path(directory))

    def _connection_file(self, directory: Path) -> Path:
        """Write the option file that names the server; mkstemp gives it mode 0600."""
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
        handle, path = tempfile.mkstemp(prefix='connection-', dir=directory.absolute())
        with open(handle, 'w') as file:
            file.write(text)
        return Path(path)


def _quoted(name: str, value: str) -> str:
    """Write a value so that sysbench reads it back: it knows quotes, but no escapes in them."""
    for quote in ('"', "'"):
        if quote not in value and '\n' not in value:
            return f'{quote}{value}{quote}'
    raise exceptions.TargetUnavailableError(
        f'sysbench cannot read a {name} with both kinds of quotes or a line break in it'
    )


def begin_together(runs: Sequence[Run]) -> int:
    """Wait until every thread of every run is connected, then let all begin at one second.

    sysbench itself gives its threads 30 s to connect.

    :returns: that second of the monotonic clock
    :raises LoadFailedError: one of them ended before
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
