# SPDX-License-Identifier: Apache-2.0
"""Parse the output of sysbench 1.0: a line for each second, a summary, and errors."""

import dataclasses
import re
from typing import Any

_SAMPLE = re.compile(
    r'\[ (?P<second>\d+)s \] thds: (?P<threads>\d+) tps: (?P<tps>[\d.]+) qps: (?P<qps>[\d.]+) '
    r'\(r/w/o: [\d./]+\) lat \(ms,\d+%\): (?P<latency_ms>[\d.]+) '
    r'err/s: (?P<errors>[\d.]+) reconn/s: (?P<reconnects>[\d.]+)'
)
_COUNTS = {
    'transactions': r'transactions:\s+(\d+)',
    'queries': r'queries:\s+(\d+)',
    'errors': r'ignored errors:\s+(\d+)',
    'reconnects': r'reconnects:\s+(\d+)',
}
_FIGURES = {
    'elapsed_sec': r'total time:\s+([\d.]+)s',
    'latency_avg_ms': r'avg:\s+([\d.]+)',
    'latency_max_ms': r'max:\s+([\d.]+)',
    'latency_percentile_ms': r'percentile:\s+([\d.]+)',
}

#: Explanations of errors for the operator, by MySQL's error numbers.
_REASONS = {
    1021: 'the disk of the server is full',
    1028: 'the disk of the server is full',
    1040: 'the server has no free connection: raise max_connections or use fewer threads',
    1044: 'access to the database is denied',
    1045: 'access is denied: wrong user or password',
    1114: 'a table is full: the disk of the server is full, or a tablespace reached its limit',
    1146: 'a table is missing: it was dropped while it was in use',
    1290: 'the server is read only',
    1461: 'too many prepared statements: raise max_prepared_stmt_count or use fewer threads',
    1836: 'the server is read only',
    2002: 'the server cannot be reached',
    2003: 'the server cannot be reached',
    2006: 'the server went away',
    2013: 'the connection to the server was lost',
    3675: 'the disk of the server is full',
}
#: The formats in which sysbench and the client library print an error number.
_NUMBER = re.compile(r'err(?:or|no)[ :=]+(\d{4})\b')
_LAST_LINES = 6


@dataclasses.dataclass(frozen=True)
class Sample:
    """One second: rates, and the single latency percentile that sysbench reports.

    :param second: counted from 1 by sysbench, since its threads started
    """

    second: int
    threads: int
    tps: float
    qps: float
    latency_ms: float
    errors: float
    reconnects: float


@dataclasses.dataclass(frozen=True)
class Summary:
    """sysbench's totals over its whole run, warm-up included.

    :param errors: number of ignored errors; the transaction was retried
    """

    transactions: int
    queries: int
    errors: int
    reconnects: int
    elapsed_sec: float
    latency_avg_ms: float
    latency_max_ms: float
    latency_percentile_ms: float

    @property
    def tps(self) -> float:
        return self.transactions / self.elapsed_sec

    @property
    def qps(self) -> float:
        return self.queries / self.elapsed_sec


def parse_samples(text: str) -> list[Sample]:
    """Return the seconds reported so far."""
    found = []
    for match in _SAMPLE.finditer(text):
        fields = match.groupdict()
        second, threads = int(fields.pop('second')), int(fields.pop('threads'))
        found.append(Sample(second, threads, **{name: float(v) for name, v in fields.items()}))
    return found


def parse_summary(text: str) -> Summary:
    """Return the totals at the end of the output of a run.

    :raises ValueError: there is no complete summary, because the run was cut off
    """
    _, marker, end = text.partition('SQL statistics:')
    if not marker:
        raise ValueError('sysbench printed no summary')
    counts = {name: int(_search(pattern, end)) for name, pattern in _COUNTS.items()}
    figures: dict[str, Any] = {
        name: float(_search(pattern, end)) for name, pattern in _FIGURES.items()
    }
    return Summary(**counts, **figures)


def _search(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f'the summary of sysbench is incomplete: no {pattern!r}')
    return match[1]


def last_lines(text: str, count: int = _LAST_LINES) -> str:
    """Return the last non-empty lines of an output, joined to one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ' | '.join(lines[-count:])


def explain(text: str) -> str:
    """Return why sysbench failed: the reason if its error number is known, and the last lines."""
    numbers = [int(number) for number in _NUMBER.findall(text)]
    reasons = [_REASONS[number] for number in dict.fromkeys(numbers) if number in _REASONS]
    return ': '.join([*reasons[:1], last_lines(text)])
