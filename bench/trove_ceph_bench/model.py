# SPDX-License-Identifier: Apache-2.0
"""What the parts of the benchmark hand to each other.

A *plan* names variants, workloads and the axes of a sweep. It expands to *configurations*; each of
them is measured once in every *iteration* (repeat). One measurement is one *run*. A run's outcome
is plain JSON data, described in ``doc/source/reference/bench-results.rst`` and written only by
:mod:`trove_ceph_bench.measure` and :mod:`trove_ceph_bench.operations`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

#: Of the results' layout and of everything in them. A folder of another version is refused.
FORMAT = 1

#: The percentiles that every latency distribution is reported by.
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclasses.dataclass(frozen=True)
class Address:
    """How a MySQL server is reached: by TCP, or by a socket on this host when one is named."""

    user: str
    password: str = dataclasses.field(repr=False)
    database: str
    host: str = '127.0.0.1'
    port: int = 3306
    unix_socket: str | None = None


@dataclasses.dataclass(frozen=True)
class Image:
    """An RBD image below a server, and how to ask its cluster about it."""

    pool: str
    name: str
    conf: str
    user: str = 'admin'


class Target(Protocol):
    """A MySQL server under test, as a context manager.

    Entering makes it ready: it is reachable, and its own empty schema exists. Leaving removes that
    schema and everything else the target made, whatever happened in between.
    """

    name: str

    def __enter__(self) -> 'Target': ...

    def __exit__(self, *exception: object) -> None: ...

    @property
    def address(self) -> Address:
        """Where the schema is; valid while entered."""

    @property
    def image(self) -> Image | None:
        """The RBD image that holds the data, when there is one and Ceph may be asked."""

    def disclose(self) -> dict[str, Any]:
        """Return all that a reader must know to repeat the measurement, as JSON data."""

    def cpu_sec(self) -> float | None:
        """Return the processor seconds the server has used so far; None when out of reach."""

    def restart(self) -> bool:
        """Restart the server where that is this target's to do; return whether it did."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """A sysbench script with its options.

    :param script: name of one of sysbench's own Lua scripts, such as ``oltp_read_write``
    :param options: further options of the script, without dashes
    :param threads: used when the plan names none
    """

    name: str
    description: str
    script: str
    options: Mapping[str, str | int] = dataclasses.field(default_factory=dict)
    threads: int | None = None


@dataclasses.dataclass(frozen=True)
class Dataset:
    """sysbench's tables.

    :param name: as in the plan: ``cached``, ``1:4``, ``1:25`` …
    """

    name: str
    tables: int
    rows: int

    @property
    def total_rows(self) -> int:
        return self.tables * self.rows


@dataclasses.dataclass(frozen=True)
class Event:
    """A command that is run at a given second of the measured phase.

    The command sees ``BENCH_*`` variables, listed in the documentation.

    :param variants: those in whose runs it happens; empty means all
    """

    at_sec: float
    name: str
    command: str
    variants: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Load:
    """One run's load: what :func:`trove_ceph_bench.measure.measure` is asked for.

    :param committer: run the single-row committer beside the load
    """

    workload: Workload
    dataset: Dataset
    threads: int
    warmup_sec: int
    measure_sec: int
    events: Sequence[Event] = ()
    committer: bool = True


#: Called with a short text on what is being done now and, where known, the share done from 0 to 1.
Note = Callable[[str, float | None], None]
