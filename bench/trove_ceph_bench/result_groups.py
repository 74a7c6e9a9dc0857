# SPDX-License-Identifier: Apache-2.0
"""Group runs into cells and groups, and compute their figures.

A *cell* is one configuration with its repeats. A *group* holds the cells measured under the same
conditions, which differ only in the variant. Report, comparison and check are built on these.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from trove_ceph_bench import plan as plans
from trove_ceph_bench import results, stats

#: Roles in display order.
ROLES = ('baseline', 'subject', 'control')

#: Returns a readable name for a configuration or for conditions.
Label = Callable[[Mapping[str, Any]], str]

#: Keys that distinguish the variants of one group; all other keys are the conditions.
IDENTITY = frozenset({'variant', 'role', 'target', 'targets', 'commands'})


@dataclasses.dataclass(frozen=True)
class Metric:
    """A figure of a run.

    :param path: path of keys in ``run.json``
    :param higher_is_better: None if neither direction is better
    :param center: ``mean``, or ``median`` for metrics with outliers
    :param kind: kind of the runs that have it: ``load`` or ``operation``; None means both
    """

    name: str
    label: str
    unit: str
    path: tuple[str, ...]
    higher_is_better: bool | None = False
    center: str = 'mean'
    kind: str | None = 'load'

    def value(self, run: Mapping[str, Any]) -> float | None:
        """Return the figure of one run; None if it was not measured."""
        found: Any = run
        for key in self.path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return None if found is None else float(found)


def _latency(name: str, label: str, center: str = 'mean') -> Metric:
    path = ('totals', 'latency_ms', name)
    return Metric(f'{name}_ms', f'{label} latency', 'ms', path, center=center)


def _operation(
    name: str, label: str, unit: str, path: tuple[str, ...], higher_is_better: bool | None = False
) -> Metric:
    return Metric(name, label, unit, path, higher_is_better, kind='operation')


METRICS = {
    metric.name: metric
    for metric in (
        Metric('tps', 'TPS', '', ('totals', 'tps'), higher_is_better=True),
        Metric('qps', 'QPS', '', ('totals', 'qps'), higher_is_better=True),
        Metric('errors', 'Errors', '', ('totals', 'errors')),
        _latency('avg', 'Average'),
        _latency('p50', 'p50'),
        _latency('p95', 'p95'),
        _latency('p99', 'p99'),
        _latency('p99.9', 'p99.9'),
        _latency('max', 'Maximum', center='median'),
        Metric(
            'gap_max_ms',
            'Largest commit gap',
            'ms',
            ('committer', 'gap_max_ms'),
            center='median',
            kind=None,
        ),
        Metric(
            'commit_p99_ms',
            'Single commit, p99',
            'ms',
            ('committer', 'commit_ms', 'p99'),
            kind=None,
        ),
        Metric('read_iops', 'Reads', '1/s', ('rbd', 'totals', 'read_iops'), None),
        Metric('write_iops', 'Writes', '1/s', ('rbd', 'totals', 'write_iops'), None),
        Metric('read_mib_s', 'Read', 'MiB/s', ('rbd', 'totals', 'read_mib_s'), None),
        Metric('write_mib_s', 'Written', 'MiB/s', ('rbd', 'totals', 'write_mib_s'), None),
        Metric('read_latency_ms', 'Read latency', 'ms', ('rbd', 'totals', 'read_latency_ms')),
        Metric('write_latency_ms', 'Write latency', 'ms', ('rbd', 'totals', 'write_latency_ms')),
        Metric('iops_per_gib', 'IOPS per GiB', '1/s/GiB', ('rbd', 'totals', 'iops_per_gib'), True),
        Metric(
            'write_iops_per_gib',
            'Write IOPS per GiB',
            '1/s/GiB',
            ('rbd', 'totals', 'write_iops_per_gib'),
            True,
        ),
        Metric(
            'pool_write_iops_per_gib',
            'Write IOPS per GiB of the pool',
            '1/s/GiB',
            ('pool', 'write_iops_per_gib'),
            True,
        ),
        Metric('client_cores', 'Client', 'cores', ('cpu', 'client_cores')),
        Metric('server_cores', 'Server', 'cores', ('cpu', 'server_cores')),
        Metric('host_busy', 'Host busy', 'share', ('cpu', 'host_busy'), None),
        _operation('seconds', 'Wall time', 's', ('seconds',)),
        _operation('data_bytes', 'Data', 'bytes', ('data_bytes',), None),
        _operation('space_bytes', 'Space', 'bytes', ('cost', 'space_bytes')),
        _operation('moved_bytes', 'Data moved', 'bytes', ('cost', 'moved_bytes')),
        _operation('changed_bytes', 'Data changed', 'bytes', ('cost', 'changed_bytes'), None),
        _operation('out_of_service_ms', 'Out of service', 'ms', ('cost', 'out_of_service_ms')),
        _operation('lost_commits', 'Lost commits', '', ('cost', 'lost_commits')),
        _operation('writer_before', 'Commits before', '1/s', ('writer_tps', 'before'), True),
        _operation('writer_during', 'Commits during', '1/s', ('writer_tps', 'during'), True),
    )
}

#: The figure that decides which variant is better, by the kind of a run.
DECISIVE = {'load': 'tps', 'operation': 'seconds'}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One configuration and its repeats, by number."""

    config: Mapping[str, Any]
    runs: Mapping[int, results.Run]

    @property
    def variant(self) -> str:
        return self.config['variant']

    @property
    def role(self) -> str:
        return self.config.get('role') or 'subject'

    @property
    def is_load(self) -> bool:
        return self.config['kind'] == 'load'

    @property
    def counted(self) -> Mapping[int, results.Run]:
        """The repeats that figures include.

        These are the ones that succeeded. If no repeat of a load did, the interrupted ones count
        with the seconds that they measured.
        """
        return self.succeeded or (self.runs if self.is_load else {})

    @property
    def succeeded(self) -> Mapping[int, results.Run]:
        """The complete repeats; of operations, those that also succeeded."""
        return {
            key: run
            for key, run in self.runs.items()
            if run.run['complete'] is True and (self.is_load or run.run.get('exit_code') == 0)
        }

    @property
    def failed_attempts(self) -> Sequence[Mapping[str, Any]]:
        """The results of the attempts that failed and were repeated."""
        return [each for run in self.runs.values() for each in run.failed_attempts]

    def values(self, metric: str) -> dict[int, float]:
        """Return a metric of each repeat that has it."""
        found = ((key, METRICS[metric].value(run.run)) for key, run in self.counted.items())
        return {key: value for key, value in found if value is not None}

    def estimate(self, metric: str) -> stats.Estimate | None:
        """Return the mean of a metric with its interval; None if it was not measured."""
        values = list(self.values(metric).values())
        return stats.mean(values) if values else None

    def spread(self, metric: str) -> stats.Spread | None:
        """Return median and extremes of a metric; None if it was not measured."""
        values = list(self.values(metric).values())
        return stats.spread(values) if values else None

    def figure(self, metric: str) -> dict[str, Any] | None:
        """Return a metric as JSON data: its spread if it has outliers, else its mean."""
        is_median = METRICS[metric].center == 'median'
        return stats.as_dict(self.spread(metric) if is_median else self.estimate(metric))

    def phases(self) -> dict[str, dict[str, Any] | None]:
        """Return the seconds of each phase of an operation, in order, as JSON data.

        Phases with the same name within a repeat are added up; repeats without it do not count.
        """
        found: dict[str, dict[int, float]] = {}
        for key, run in self.counted.items():
            for each in run.run.get('phases') or ():
                repeats = found.setdefault(each['name'], {})
                repeats[key] = repeats.get(key, 0.0) + each['seconds']
        return {
            name: stats.as_dict(stats.mean(list(each.values()))) for name, each in found.items()
        }


def ratio(of: Cell, to: Cell, metric: str) -> stats.Estimate | None:
    """Return the ratio of a metric of two cells of a group; None as in :func:`stats.ratio`.

    The repeats are pairs only if the cells were measured in turn.
    """
    ours, theirs = of.values(metric), to.values(metric)
    if are_in_turn(of, to):
        return stats.ratio(ours, theirs)
    return stats.unpaired_ratio(list(ours.values()), list(theirs.values()))


def are_in_turn(one: Cell, other: Cell) -> bool:
    """Return whether the repeats that two cells share were each measured one after the other.

    They were if both runs of a repeat are of the same session, which is one run of the command. Of
    results that have no session, every repeat must have ended before the next began.
    """
    older: list[tuple[str, str]] = []
    for key in sorted(one.counted.keys() & other.counted.keys()):
        runs = [cell.counted[key].run for cell in (one, other)]
        sessions = {run.get('session') for run in runs}
        if len(sessions) > 1:
            return False
        if sessions == {None}:
            started = [str(run.get('started')) for run in runs]
            older.append((min(started), max(started)))
    return all(before <= after for (_, before), (after, _) in itertools.pairwise(older))


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells with the same conditions, by the name of the variant."""

    conditions: Mapping[str, Any]
    cells: Mapping[str, Cell]

    @property
    def label(self) -> str:
        return label(self.conditions)


@dataclasses.dataclass(frozen=True)
class Variant:
    """The name of a variant and its role in the comparison."""

    name: str
    role: str


def gather(runs: Iterable[results.Run]) -> list[Cell]:
    """Return the cells of runs, sorted for display; equal ones in the order of measurement."""
    configs: dict[str, Mapping[str, Any]] = {}
    repeats: dict[str, dict[int, results.Run]] = {}
    for run in runs:
        key = results.config_hash(run.config)
        configs.setdefault(key, run.config)
        repeats.setdefault(key, {})[run.iteration] = run
    found = [Cell(configs[key], repeats[key]) for key in configs]
    return sorted(found, key=lambda cell: _order(cell.config))


def group(cells: Iterable[Cell]) -> list[Group]:
    """Group cells by their conditions, sorted for display.

    If a variant has two cells, because its target was changed midway, the later one is used.
    """
    conditions: dict[str, Mapping[str, Any]] = {}
    members: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        shared = without(cell.config, IDENTITY)
        key = results.config_hash(shared)
        conditions.setdefault(key, shared)
        members.setdefault(key, {})[cell.variant] = cell
    found = [Group(conditions[key], members[key]) for key in conditions]
    return sorted(found, key=lambda group: _order(group.conditions))


def variants(cells: Iterable[Cell], plan: Mapping[str, Any]) -> list[Variant]:
    """Return the variants in the order of the plan; others by role and name."""
    found = {cell.variant: Variant(cell.variant, cell.role) for cell in cells}
    named = plan.get('variants') or plan.get('operations', {}).get('contenders', ())
    position = {entry['name']: number for number, entry in enumerate(named)}

    def order(variant: Variant) -> tuple[int, int, str]:
        role = ROLES.index(variant.role) if variant.role in ROLES else len(ROLES)
        return position.get(variant.name, len(position)), role, variant.name

    return sorted(found.values(), key=order)


def planned_repeats(cell: Cell, plan: Mapping[str, Any]) -> int:
    """Return how many repeats of a cell a stored plan wants."""
    if cell.is_load:
        return plan.get('repeats', plans.LoadPlan.repeats)
    operations = plan.get('operations', {})
    repeats = operations.get('repeats', plans.OperationsPlan.repeats)
    own = [
        each['repeats']
        for each in operations.get('contenders', ())
        if (each['name'], each['operation']) == (cell.variant, cell.config['operation'])
        and 'repeats' in each
    ]
    return min([repeats, *own])


def find_baseline(found: Sequence[Variant]) -> str | None:
    """Return the name of the variant to compare the others with; None if there is only one."""
    if len(found) < 2:
        return None
    return next((variant.name for variant in found if variant.role == 'baseline'), found[0].name)


def verdict(metric: str, ratio: stats.Estimate | None) -> str:
    """Return the verdict of a ratio in a few words."""
    if ratio is None:
        return 'not comparable'
    if ratio.significant is None:
        return 'one repeat'
    if not ratio.significant:
        return 'no difference shown'
    return 'better' if (ratio.value > 1) == METRICS[metric].higher_is_better else 'worse'


def without(config: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return a configuration without some of its keys."""
    return {key: value for key, value in config.items() if key not in keys}


def label(conditions: Mapping[str, Any], hidden: Collection[str] | None = None) -> str:
    """Return a short text for the conditions, such as ``write · 1:4 · 16 threads``.

    :param hidden: keys of :func:`parts` to omit; by default the durations of the phases, and a
        single instance
    """
    if hidden is None:
        hidden = ('phases', 'instances') if conditions.get('instances') == 1 else ('phases',)
    return ' · '.join(text for key, text in parts(conditions).items() if key not in hidden)


def common(found: Sequence[Group]) -> dict[str, str]:
    """Return the parts of the conditions that all groups of loads share, except the workload."""
    described = [parts(group.conditions) for group in found if group.conditions['kind'] == 'load']
    if not described:
        return {}
    return {
        key: text
        for key, text in described[0].items()
        if key != 'workload' and all(other.get(key) == text for other in described)
    }


def parts(conditions: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts of a text that describes the conditions, by key."""
    if conditions['kind'] == 'operation':
        size = {'data_mib': f'{conditions["data_mib"]} MiB'} if 'data_mib' in conditions else {}
        return {'operation': conditions['operation'], **size}
    found = {
        'workload': conditions['workload']['name'],
        'dataset': _dataset_text(conditions['dataset']),
    }
    for key, word in (('threads', 'thread'), ('instances', 'instance')):
        count = conditions.get(key)
        if count is not None:
            found[key] = f'{count} {word}' + ('s' if count != 1 else '')
    if 'fill_percent' in conditions:
        found['fill_percent'] = f'pool {conditions["fill_percent"]:g} % full'
    found['phases'] = (
        f'{conditions["warmup_sec"]} s warm-up, {conditions["measure_sec"]} s measured'
    )
    if conditions.get('events'):
        found['events'] = 'with ' + ', '.join(event['name'] for event in conditions['events'])
    if not conditions.get('committer', True):
        found['committer'] = 'without committer'
    if conditions.get('restart'):
        found['restart'] = 'restarted before'
    return found


def _dataset_text(dataset: Mapping[str, Any]) -> str:
    scale = dataset.get('scale', 1)
    return dataset['name'] if scale == 1 else f'{dataset["name"]} at scale {scale:g}'


def _order(conditions: Mapping[str, Any]) -> tuple[Any, ...]:
    if conditions['kind'] == 'operation':
        return 1, conditions['operation'], conditions.get('data_mib') or 0, 0, 0, 0
    dataset = conditions['dataset']
    rows = (dataset.get('tables') or 0) * (dataset.get('rows') or 0)
    axes = (conditions.get(key) or 0 for key in ('fill_percent', 'instances', 'threads'))
    return 0, conditions['workload']['name'], rows, *axes
