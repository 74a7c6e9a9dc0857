# SPDX-License-Identifier: Apache-2.0
"""Run a plan of loads: fill the tables, warm up and measure, variants in turn."""

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from trove_ceph import exceptions
from trove_ceph_bench import dataset, measure, model, plan, pool_filler, runner
from trove_ceph_bench.targets import database

#: Estimate until the first table is filled.
FILL_BYTES_PER_SEC = 8 * 1024 * 1024
#: Estimate until the first run is done: connecting, evaluating and writing.
RUN_OVERHEAD_SEC = 5


@dataclasses.dataclass(frozen=True)
class _Missing:
    """A run that is not measured yet."""

    number: int
    cell: plan.Cell
    dataset: model.Dataset
    config: Mapping[str, Any]


class LoadRunner(runner.Runner):
    """Run a plan of loads."""

    def __init__(self, loads: plan.LoadPlan, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self._plan = loads
        self._total = 0
        self._fillers: dict[tuple[str, str, str], pool_filler.PoolFiller] = {}
        self._volumes_measured: set[tuple[int, str]] = set()

    def measure_all(self, stack: contextlib.ExitStack) -> None:
        missing = self._missing(self._datasets(stack))
        if not missing:
            return
        if self._plan.cleanup:
            stack.callback(self.run_command, 'cleanup', self._plan.cleanup)
        if self._plan.prepare:
            with self.progress.step('prepare', 'preparing', 1):
                self.run_command('prepare', self._plan.prepare)
        by_variant = self._enter_all(stack, missing)
        filled: set[tuple[str, str]] = set()
        iteration: tuple[str, int] | None = None
        for each in missing:
            used = by_variant[each.cell.variant.name]
            key = (each.dataset.name, each.cell.variant.name)
            if key not in filled:
                self._fill(each, used)
                filled.add(key)
            if iteration not in (None, (each.dataset.name, each.cell.iteration)):
                self._restart(by_variant)
            iteration = (each.dataset.name, each.cell.iteration)
            stored_gib = self._fill_pools(stack, each, used)
            self._measure(each, used[: each.cell.instances], stored_gib)

    def _datasets(self, stack: contextlib.ExitStack) -> dict[str, model.Dataset]:
        """Return the datasets by name; query the reference server for a size that they need."""
        loads = self._plan
        size_bytes: int | None = None
        if loads.buffer_pool_mib is not None:
            size_bytes = loads.buffer_pool_mib * 1024 * 1024
        elif any(map(dataset.is_relative, loads.datasets)):
            (variant,) = [each for each in loads.variants if each.name == loads.reference]
            target = self.enter(stack, variant.name, variant.targets[0])
            variables = database.Server(target.address).variables()
            size_bytes = int(variables['innodb_buffer_pool_size'])
        return {
            name: dataset.for_name(name, size_bytes, loads.tables, loads.scale)
            for name in loads.datasets
        }

    def _missing(self, datasets: Mapping[str, model.Dataset]) -> list[_Missing]:
        loads, estimate = self._plan, self.progress.estimate
        missing = []
        for number, cell in enumerate(loads.cells(self.only), start=1):
            self._total = number
            config = loads.configuration(cell, datasets[cell.dataset])
            if not self.store.is_complete(cell.iteration, config):
                missing.append(_Missing(number, cell, datasets[cell.dataset], config))
                estimate.plan('run', run_sec(loads))
        for name, variant in {(each.dataset.name, each.cell.variant.name) for each in missing}:
            estimate.plan('fill', fill_sec(datasets[name], len(self._targets_of(variant))))
        self.outcome.present = self._total - len(missing)
        if self.outcome.present:
            self.progress.print_line(
                f'{self.outcome.present} of {self._total} runs are measured already'
            )
        return missing

    def _targets_of(self, name: str) -> Sequence[Mapping[str, Any]]:
        (variant,) = [each for each in self._plan.variants if each.name == name]
        return variant.targets[: max(self._plan.instances)]

    def _enter_all(
        self, stack: contextlib.ExitStack, missing: Sequence[_Missing]
    ) -> dict[str, list[model.Target]]:
        required = {each.cell.variant.name for each in missing}
        entered = {}
        for variant in self._plan.variants:
            if variant.name in required:
                specs = self._targets_of(variant.name)
                entered[variant.name] = [
                    self.enter(
                        stack, variant.name if len(specs) == 1 else f'{variant.name}-{i}', spec
                    )
                    for i, spec in enumerate(specs, start=1)
                ]
        return entered

    def _fill(self, each: _Missing, used: Sequence[model.Target]) -> None:
        text = f'{each.cell.variant.name}: filling {each.dataset.name}'
        with self.progress.step('fill', text, fill_sec(each.dataset, len(used))):
            measure.prefill(used, each.dataset, self.progress.note)

    def _fill_pools(
        self, stack: contextlib.ExitStack, each: _Missing, used: Sequence[model.Target]
    ) -> float | None:
        """Fill the pools of the servers as the run wants it; the stack removes the fillers.

        :return: GiB that the pools store then; None if the run wants nothing
        """
        percent = each.cell.fill_percent
        if percent is None:
            return None
        fillers = []
        for target in used:
            image = target.image
            if image is None:
                raise exceptions.LoadFailedError(
                    f'{target.name}: its RBD image is unknown, so its pool cannot be filled to '
                    f'{percent:g} %; name the image in the plan, or remove fill_percent'
                )
            key = (image.conf, image.user, image.pool)
            if key not in self._fillers:
                filler = pool_filler.PoolFiller(image, self.progress.note)
                self._fillers[key] = stack.enter_context(filler)
            fillers.append(self._fillers[key])
        with self.progress.step('pool', f'filling pools to {percent:g} %', RUN_OVERHEAD_SEC):
            return sum(filler.ensure(percent).stored_gib for filler in dict.fromkeys(fillers))

    def _restart(self, by_variant: Mapping[str, Sequence[model.Target]]) -> None:
        if self._plan.restart:
            for target in dict.fromkeys(itertools.chain.from_iterable(by_variant.values())):
                self.progress.note(f'restarting {target.name}', None)
                target.restart()

    def _measure(
        self, each: _Missing, used: Sequence[model.Target], stored_gib: float | None
    ) -> None:
        cell = each.cell
        directory = self.new_directory(cell.iteration, each.config)
        text = f'{each.number}/{self._total} {_text(cell)}'
        if cell.variant.prepare:
            self.progress.note(f'preparing {cell.variant.name}', None)
            self.run_command(f'prepare-{cell.variant.name}', cell.variant.prepare)
        with self.progress.step('run', text, run_sec(self._plan)):
            disclosed = self.disclose(used)
            load = self._plan.load(cell, each.dataset)
            run = measure.measure(used, load, directory, self.progress.note, self._fio_jobs(cell))
            if stored_gib is not None:
                run['pool'] = _pool_figures(run, stored_gib)
        self.save_run(cell.iteration, each.config, disclosed, run, f'{text}: {_figures(run)}')
        if not run['complete']:
            raise exceptions.LoadFailedError(f'{_text(cell)}: {run["reason"]}')

    def _fio_jobs(self, cell: plan.Cell) -> Sequence[str]:
        """Return the fio jobs for a variant's first run in a repeat; none for later runs."""
        key = (cell.iteration, cell.variant.name)
        if key in self._volumes_measured:
            return ()
        self._volumes_measured.add(key)
        return self._plan.fio


def _pool_figures(run: Mapping[str, Any], stored_gib: float) -> dict[str, float | None]:
    """Return the writes of a load for each GiB of all data in its pools."""
    writes = run['rbd'] and run['rbd']['totals']['write_iops']
    return {
        'stored_gib': round(stored_gib, 3),
        'write_iops_per_gib': None if writes is None else round(writes / stored_gib, 3),
    }


def run_sec(loads: plan.LoadPlan) -> float:
    """Return the expected duration of one run in seconds."""
    return loads.warmup_sec + loads.measure_sec + RUN_OVERHEAD_SEC


def fill_sec(data: model.Dataset, instances: int) -> float:
    """Return the expected time to fill the tables in seconds."""
    return dataset.stored_bytes(data) * instances / FILL_BYTES_PER_SEC


def _text(cell: plan.Cell) -> str:
    instances = f' on {cell.instances} instances' if cell.instances > 1 else ''
    filled = '' if cell.fill_percent is None else f', pool {cell.fill_percent:g} % full'
    return (
        f'{cell.workload.name} {cell.dataset} {cell.threads} threads{instances}{filled}, '
        f'{cell.variant.name}, repeat {cell.iteration + 1}'
    )


def _figures(run: Mapping[str, Any]) -> str:
    """Return a one-line summary of a run."""
    totals = run['totals']
    parts = [f'{totals["tps"]:.1f} TPS']
    if totals['latency_ms']['p99'] is not None:
        parts.append(f'p99 {totals["latency_ms"]["p99"]:.1f} ms')
    if run['committer']:
        parts.append(f'largest commit gap {run["committer"]["gap_max_ms"]:.0f} ms')
    if not run['complete']:
        parts.append(f'cut off: {run["reason"]}')
    return ', '.join(parts)
