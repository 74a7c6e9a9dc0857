# SPDX-License-Identifier: Apache-2.0
"""Plans: which runs to measure, and in which order.

There are two kinds, plans of loads and plans of operations; :mod:`trove_ceph_bench.plan_file` reads
both.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trove_ceph_bench import model

#: If neither the plan nor the workload names a number.
DEFAULT_THREADS = 16
#: Costs of an operation besides its time: the space that it occupies; the bytes that it moves; the
#: bytes that had changed in the data that it copies; for how long the server answers no reads; how
#: many acknowledged commits it loses.
COSTS = ('space_bytes', 'moved_bytes', 'changed_bytes', 'out_of_service_ms', 'lost_commits')


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way of running MySQL, to compare with others, on one or more targets.

    :param prepare: command to run before each run of the variant, before its clients connect
    """

    name: str
    role: str
    targets: Sequence[Mapping[str, Any]]
    prepare: str | None = None


@dataclasses.dataclass(frozen=True)
class Cell:
    """One measurement of a plan of loads, before the size of its data is known."""

    dataset: str
    iteration: int
    instances: int
    workload: model.Workload
    threads: int
    variant: Variant
    fill_percent: float | None = None


@dataclasses.dataclass(frozen=True)
class LoadPlan:
    """Variants under loads.

    :param reference: name of the variant whose buffer pool determines the size of the data
    :param buffer_pool_mib: size of that buffer pool; None means that the server is queried
    :param fio: jobs to run on the volume below before a variant's first run in each repeat
    :param threads: empty means each workload's own number
    :param fill_percent: how full the pool is; empty means as it is
    :param scale: share of the rows of datasets with a size of their own, for a small machine
    :param text: the plan as it is stored with the results
    :param prepare: command to run once before the first run, unless no run is missing
    :param cleanup: command to run once at the end, also after a failure
    :param environment: those variables ``BENCH_…`` that the commands refer to which are set outside
        of the plan; None if they refer to none
    """

    name: str
    description: str
    variants: Sequence[Variant]
    workloads: Sequence[model.Workload]
    datasets: Sequence[str]
    reference: str
    text: str = dataclasses.field(repr=False)
    buffer_pool_mib: int | None = None
    threads: Sequence[int] = ()
    instances: Sequence[int] = (1,)
    repeats: int = 5
    warmup_sec: int = 300
    measure_sec: int = 300
    tables: int = 4
    scale: float = 1
    fill_percent: Sequence[float] = ()
    committer: bool = True
    restart: bool = False
    fio: Sequence[str] = ()
    events: Sequence[model.Event] = ()
    prepare: str | None = None
    cleanup: str | None = None
    environment: Mapping[str, str] | None = None

    def cells(self, only: Sequence[str] = ()) -> Iterator[Cell]:
        """Yield all measurements in order: variants alternate innermost (ABAB).

        A variant with fewer targets than the number of instances is skipped there.

        :param only: names of variants; empty means all
        """
        axes = itertools.product(
            self.datasets,
            self.fill_percent or (None,),
            range(self.repeats),
            self.instances,
            self.workloads,
        )
        for dataset, fill_percent, iteration, instances, workload in axes:
            for threads in self.threads or (workload.threads or DEFAULT_THREADS,):
                for variant in self.variants:
                    if only and variant.name not in only:
                        continue
                    if len(variant.targets) >= instances:
                        yield Cell(
                            *(dataset, iteration, instances, workload, threads, variant),
                            fill_percent,
                        )

    def load(self, cell: Cell, dataset: model.Dataset) -> model.Load:
        """Return the load of one measurement."""
        return model.Load(
            workload=cell.workload,
            dataset=dataset,
            threads=cell.threads,
            warmup_sec=self.warmup_sec,
            measure_sec=self.measure_sec,
            events=[
                event
                for event in self.events
                if not event.variants or cell.variant.name in event.variants
            ],
            committer=self.committer,
        )

    def configuration(self, cell: Cell, dataset: model.Dataset) -> dict[str, Any]:
        """Return everything that distinguishes one measurement from another, as JSON data."""
        used = list(cell.variant.targets[: cell.instances])
        configuration = {
            'kind': 'load',
            'plan': self.name,
            'variant': cell.variant.name,
            'role': cell.variant.role,
            **({'target': used[0]} if len(used) == 1 else {'targets': used}),
            'workload': {
                'name': cell.workload.name,
                'script': cell.workload.script,
                'options': dict(cell.workload.options),
            },
            'dataset': dataset.facts(),
            'threads': cell.threads,
            'instances': cell.instances,
            'warmup_sec': self.warmup_sec,
            'measure_sec': self.measure_sec,
            # All events: variants with an event are compared with variants without it.
            'events': [_event(event) for event in self.events],
            'committer': self.committer,
        }
        if cell.variant.prepare:
            configuration['commands'] = {'prepare': cell.variant.prepare}
        if self.environment is not None:
            configuration['environment'] = dict(self.environment)
        if self.restart:
            configuration['restart'] = True
        if cell.fill_percent is not None:
            configuration['fill_percent'] = cell.fill_percent
        return configuration


def _event(event: model.Event) -> dict[str, Any]:
    data = dataclasses.asdict(event)
    if not event.variants:
        del data['variants']
    return data


@dataclasses.dataclass(frozen=True)
class Contender:
    """One way to do an operation, as commands; contenders of one operation share its name.

    :param target: the server to act on; None if the operation needs none
    :param check: command to run after the writer stops; it decides whether the operation succeeded
    :param repeats: fewer than the plan's, for slow operations; None means the plan's
    """

    name: str
    role: str
    operation: str
    run: str
    target: Mapping[str, Any] | None = None
    prepare: str | None = None
    check: str | None = None
    cleanup: str | None = None
    cost: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timeout_sec: int = 1800
    repeats: int | None = None

    def commands(self) -> dict[str, Any]:
        """Return the commands under the keys that results use."""
        return {
            'prepare': self.prepare,
            'run': self.run,
            'cleanup': self.cleanup,
            'cost': dict(self.cost),
            **({'check': self.check} if self.check else {}),
        }


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One measurement of a plan of operations."""

    size_mib: int
    iteration: int
    contender: Contender


@dataclasses.dataclass(frozen=True)
class OperationsPlan:
    """Operations by several contenders, at several sizes of data.

    :param settle_sec: how long the committer runs alone before and after each operation
    :param cleanup: command to run once at the end, also after a failure, for shared resources
    :param environment: those variables ``BENCH_…`` that the commands refer to which are set outside
        of the plan; None if they refer to none
    """

    name: str
    description: str
    sizes_mib: Sequence[int]
    contenders: Sequence[Contender]
    text: str = dataclasses.field(repr=False)
    repeats: int = 3
    committer: bool = True
    settle_sec: int = 10
    cleanup: str | None = None
    environment: Mapping[str, str] | None = None

    def attempts(self, only: Sequence[str] = ()) -> Iterator[Attempt]:
        """Yield all measurements in order: small data first, contenders alternating."""
        for size_mib in sorted(self.sizes_mib):
            for iteration in range(self.repeats):
                for contender in self.contenders:
                    if iteration >= (contender.repeats or self.repeats):
                        continue
                    if not only or contender.name in only:
                        yield Attempt(size_mib, iteration, contender)

    def configuration(self, attempt: Attempt) -> dict[str, Any]:
        """Return everything that distinguishes one measurement from another, as JSON data."""
        contender = attempt.contender
        return {
            'kind': 'operation',
            'plan': self.name,
            'operation': contender.operation,
            'variant': contender.name,
            'role': contender.role,
            'target': contender.target,
            'commands': contender.commands(),
            'data_mib': attempt.size_mib,
            'settle_sec': self.settle_sec,
            'committer': self.committer,
        } | ({} if self.environment is None else {'environment': dict(self.environment)})
