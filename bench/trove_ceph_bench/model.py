# SPDX-License-Identifier: Apache-2.0
"""Types that the modules of the benchmark share.

A *plan* names variants, workloads and the axes of a sweep. It expands to *configurations*; each is
measured once in every *iteration* (repeat). One measurement is one *run*. The result of a run is
JSON data, described in ``doc/source/reference/bench-results.rst`` and written only by
:mod:`trove_ceph_bench.measure` and :mod:`trove_ceph_bench.operations`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

#: Version of the layout and content of results. The store refuses a folder of another version.
FORMAT = 1

#: The reason of a run that the user interrupted.
INTERRUPTED = 'interrupted'

#: The percentiles reported for every latency distribution.
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclasses.dataclass(frozen=True)
class Address:
    """The address of a MySQL server: TCP, or a socket on this host if one is named."""

    user: str
    password: str = dataclasses.field(repr=False)
    database: str
    host: str = '127.0.0.1'
    port: int = 3306
    unix_socket: str | None = None

    def login(self) -> dict[str, Any]:
        """Return the arguments of pymysql.connect that open a connection to the schema."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Image:
    """An RBD image below a server, and how to connect to its cluster."""

    pool: str
    name: str
    conf: str
    user: str = 'admin'


class Target(Protocol):
    """A MySQL server under test, as a context manager.

    On entering, the server becomes reachable and the target creates its own empty schema. On
    leaving, also after an error, the target removes that schema and all else that it created.
    """

    name: str

    def __enter__(self) -> 'Target': ...

    def __exit__(self, *exception: object) -> None: ...

    @property
    def address(self) -> Address:
        """The address of the schema; valid while entered."""

    @property
    def image(self) -> Image | None:
        """The RBD image that holds the data; None if there is none or Ceph is not accessible."""

    def disclose(self) -> dict[str, Any]:
        """Return all facts needed to repeat the measurement, as JSON data."""

    def cpu_sec(self) -> float | None:
        """Return the CPU seconds the server has used so far; None if unknown."""

    def restart(self) -> bool:
        """Restart the server if this target runs it; return whether it did."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """A sysbench script with its options.

    :param script: name of one of sysbench's own Lua scripts, such as ``oltp_read_write``
    :param options: further options of the script, without dashes
    :param threads: number of threads if the plan names none
    """

    name: str
    description: str
    script: str
    options: Mapping[str, str | int] = dataclasses.field(default_factory=dict)
    threads: int | None = None


@dataclasses.dataclass(frozen=True)
class Dataset:
    """sysbench's tables.

    :param name: as in the plan: ``cached``, ``1:4``, ``75GiB``, ``45000000 rows`` …
    :param rows: of each table
    :param scale: share of the size named, if the plan reduces it
    """

    name: str
    tables: int
    rows: int
    scale: float = 1

    @property
    def total_rows(self) -> int:
        return self.tables * self.rows

    def facts(self) -> dict[str, Any]:
        """Return it as JSON data; a dataset of full size has no scale."""
        facts = dataclasses.asdict(self)
        if self.scale == 1:
            del facts['scale']
        return facts


@dataclasses.dataclass(frozen=True)
class Event:
    """A command to run at a given second of the measured phase.

    The command gets ``BENCH_*`` variables, listed in the documentation.

    :param variants: names of the variants in whose runs it is run; empty means all
    """

    at_sec: float
    name: str
    command: str
    variants: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Load:
    """The load of one run, for :func:`trove_ceph_bench.measure.measure`.

    :param committer: run the single-row committer during the load
    """

    workload: Workload
    dataset: Dataset
    threads: int
    warmup_sec: int
    measure_sec: int
    events: Sequence[Event] = ()
    committer: bool = True


#: Called with a short text about the current activity and, if known, the share done from 0 to 1.
Note = Callable[[str, float | None], None]
