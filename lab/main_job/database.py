# SPDX-License-Identifier: Apache-2.0
"""The tenant's view of the database: SQL over the network."""

import dataclasses
import re
import subprocess
import time

import pymysql

from main_job.errors import JobError

CONNECT_TIMEOUT_SEC = 300
# Variables that show that this project's guest manager configured the server.
SETTINGS = (
    'version',
    'innodb_buffer_pool_size',
    'innodb_redo_log_capacity',
    'innodb_io_capacity',
    'innodb_flush_method',
    'innodb_doublewrite',
    'innodb_flush_log_at_trx_commit',
    'sync_binlog',
    'gtid_mode',
    'log_bin',
    'skip_name_resolve',
)
TABLES, ROWS, THREADS = 2, 5000, 4


@dataclasses.dataclass(frozen=True)
class Database:
    """The address and credentials of one database of an instance."""

    host: str
    user: str
    password: str
    name: str

    def wait_reachable(self):
        """Return once the server answers SQL over the network.

        :raises JobError: the server does not answer within five minutes.
        """
        deadline = time.monotonic() + CONNECT_TIMEOUT_SEC
        while True:
            try:
                return self.query('SELECT 1')
            except pymysql.MySQLError as e:
                if time.monotonic() > deadline:
                    raise JobError(f'{self.host}:3306 does not answer SQL: {e}') from e
            time.sleep(2)

    def query(self, statement: str) -> list[tuple]:
        with pymysql.connect(
            host=self.host,
            user=self.user,
            port=3306,
            password=self.password,
            database=self.name,
            connect_timeout=30,
        ) as connection:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())

    def settings(self) -> dict[str, str]:
        """Return the server variables named in :data:`SETTINGS`."""
        columns = ', '.join(f'@@{name}' for name in SETTINGS)
        row = self.query(f'SELECT {columns}')[0]
        return {name: str(value) for name, value in zip(SETTINGS, row, strict=True)}

    def prepare(self):
        """Recreate sysbench's tables."""
        self._sysbench('cleanup')
        self._sysbench('prepare')

    def load(self, seconds: int) -> dict:
        """Run oltp_read_write; return tps, qps and latency in ms."""
        return parse_sysbench(self._sysbench('run', f'--time={seconds}', '--percentile=95'))

    def _sysbench(self, verb, *options):
        command = [
            'sysbench',
            'oltp_read_write',
            '--db-driver=mysql',
            f'--mysql-host={self.host}',
            f'--mysql-user={self.user}',
            f'--mysql-db={self.name}',
            f'--tables={TABLES}',
            f'--mysql-password={self.password}',
            f'--table-size={ROWS}',
            f'--threads={THREADS}',
            *options,
            verb,
        ]
        done = subprocess.run(command, text=True, capture_output=True, timeout=1800)
        if done.returncode:
            raise JobError(f'sysbench {verb} failed: {(done.stderr or done.stdout).strip()[-400:]}')
        return done.stdout


def parse_sysbench(text: str) -> dict:
    """Return the figures of a sysbench report.

    :raises JobError: a figure is missing in the report.
    """
    patterns = {
        'tps': r'transactions:\s+\d+\s+\(([\d.]+) per sec',
        'qps': r'queries:\s+\d+\s+\(([\d.]+) per sec',
        'errors': r'ignored errors:\s+(\d+)',
        'latency_avg_ms': r'avg:\s+([\d.]+)',
        'latency_p95_ms': r'95th percentile:\s+([\d.]+)',
        'latency_max_ms': r'max:\s+([\d.]+)',
    }
    found = {key: re.search(pattern, text) for key, pattern in patterns.items()}
    missing = [key for key, match in found.items() if not match]
    if missing:
        raise JobError(f'sysbench reported no {", ".join(missing)}')
    return {key: float(match[1]) for key, match in found.items()}
