# SPDX-License-Identifier: Apache-2.0
"""Check results against thresholds.

A file of thresholds is a YAML list. Each entry names a metric and a bound; further keys select the
cells that it applies to, and a key that is absent matches every cell::

    -{metric: tps, workload: write, variant: ours, to: stock, min_ratio: 1.0}
    -{metric: gap_max_ms, max: 500}
    -{metric: seconds, operation: backup, variant: ours, max: 30, conservative: true}

The mean is compared with the bound, or with ``conservative`` the less favourable end of its
interval. For a metric with outliers, such as the largest commit gap, it is always the worst repeat;
for its ratio, the worst repeat to the median of the other variant.

A cell that a threshold applies to must have all repeats of the plan, and none may have failed, not
even an attempt that was repeated since then.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from trove_ceph import exceptions
from trove_ceph_bench import numbers, result_groups, results, stats

_NUMBER = {'type': 'number'}
_TEXT = {'type': 'string'}
_COUNT = {'type': 'integer', 'minimum': 1}
_BOUNDS = ('min', 'max', 'min_ratio', 'max_ratio')

SCHEMA = {
    'type': 'array',
    'minItems': 1,
    'items': {
        'type': 'object',
        'properties': {
            'metric': {'enum': sorted(result_groups.METRICS)},
            'workload': _TEXT,
            'dataset': _TEXT,
            'threads': _COUNT,
            'instances': _COUNT,
            'operation': _TEXT,
            'data_mib': _COUNT,
            'variant': _TEXT,
            'to': _TEXT,
            'conservative': {'type': 'boolean'},
            **dict.fromkeys(_BOUNDS, _NUMBER),
        },
        'required': ['metric'],
        'anyOf': [{'required': [bound]} for bound in _BOUNDS],
        'dependentRequired': {'min_ratio': ['to'], 'max_ratio': ['to']},
        'additionalProperties': False,
    },
}


@dataclasses.dataclass(frozen=True)
class Failure:
    """A threshold that was not met, and what was observed instead."""

    threshold: Mapping[str, Any]
    where: str
    observed: str

    def __str__(self) -> str:
        expected = ', '.join(f'{key}: {value}' for key, value in self.threshold.items())
        return f'{self.where}: {self.observed} (threshold {{{expected}}})'


def load(path: Path | str) -> list[dict[str, Any]]:
    """Read thresholds.

    :raises InvalidPlanError: the file is missing or invalid; the message names the entry
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding='utf-8'))
        jsonschema.validate(content, SCHEMA)
    except OSError as error:
        raise exceptions.InvalidPlanError(f'{path}: {error.strerror}') from error
    except (ValueError, yaml.YAMLError) as error:
        raise exceptions.InvalidPlanError(f'{path}: {" ".join(str(error).split())}') from error
    except jsonschema.ValidationError as error:
        raise exceptions.InvalidPlanError(f'{path}: {_explain(error)}') from error
    return content


def check(
    store: results.Store, thresholds: Sequence[Mapping[str, Any]], conservative: bool = False
) -> list[Failure]:
    """Return the thresholds that were not met; a threshold that matches no cell is one of them.

    :param conservative: compare the end of the interval with every bound, so that a result meets
        it with 95 % confidence; a single repeat has no interval and fails
    :raises ResultsFormatError: the folder cannot be used
    """
    groups = result_groups.group(result_groups.gather(store.runs()))
    plan = store.plan()
    return [
        failure
        for threshold in thresholds
        for failure in _failures(groups, plan, threshold, conservative)
    ]


def _explain(error: jsonschema.ValidationError) -> str:
    path = list(error.absolute_path)
    where = f'entry {int(path[0]) + 1}' if path else 'the file'
    where += ''.join(f', {key}' for key in path[1:])
    if error.validator == 'anyOf':
        return f'{where}: a bound is missing, one of {", ".join(_BOUNDS)}'
    return f'{where}: {error.message}'


def _failures(
    groups: Sequence[result_groups.Group],
    plan: Mapping[str, Any],
    threshold: Mapping[str, Any],
    conservative: bool,
) -> Iterator[Failure]:
    conservative = threshold.get('conservative', conservative)
    matched = False
    for group in groups:
        if not _matches(threshold, group.conditions):
            continue
        for cell in _cells(group, threshold):
            matched = True
            where = f'{group.label} · {cell.variant}'
            for observed in (
                *_shortfalls(cell, result_groups.planned_repeats(cell, plan)),
                *_observe(group, cell, threshold, conservative),
            ):
                yield Failure(threshold, where, observed)
    if not matched:
        yield Failure(threshold, 'nothing', 'no result matches this threshold')


def _matches(threshold: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    actual = {
        **conditions,
        'workload': conditions.get('workload', {}).get('name'),
        'dataset': conditions.get('dataset', {}).get('name'),
    }
    keys = ('workload', 'dataset', 'threads', 'instances', 'operation', 'data_mib')
    return all(actual.get(key) == threshold[key] for key in keys if key in threshold)


def _cells(group: result_groups.Group, threshold: Mapping[str, Any]) -> list[result_groups.Cell]:
    """Return the cells of a group that a threshold applies to, measured or not."""
    # A load has no wall time, and an operation no throughput.
    if result_groups.METRICS[threshold['metric']].kind not in (None, group.conditions['kind']):
        return []
    return [
        cell
        for name, cell in group.cells.items()
        if name == threshold.get('variant', name) and name != threshold.get('to')
    ]


def _shortfalls(cell: result_groups.Cell, planned: int) -> Iterator[str]:
    """Yield what one cell lacks: repeats, or the success of all attempts at them."""
    failed = [run.run for key, run in cell.runs.items() if key not in cell.succeeded]
    if failed:
        yield (
            f'{len(failed)} of {len(cell.runs)} repeats failed or are not complete: '
            f'{failed[0].get("reason")}'
        )
    if len(cell.runs) < planned:
        yield f'{len(cell.runs)} of {planned} repeats are measured'
    # Attempts whose preparation failed say nothing about the operation.
    tried = [each for each in cell.failed_attempts if each.get('seconds') is not None]
    if tried:
        yield (
            f'{len(tried)} attempt{"s" if len(tried) > 1 else ""} failed and '
            f'{"were" if len(tried) > 1 else "was"} repeated: {tried[0].get("reason")}'
        )


def _observe(
    group: result_groups.Group,
    cell: result_groups.Cell,
    threshold: Mapping[str, Any],
    conservative: bool,
) -> Iterator[str]:
    """Yield each bound that one cell misses."""
    metric = threshold['metric']
    if not cell.values(metric):
        yield f'{metric} was not measured'
        return
    for bound, sign in (('min', 1), ('max', -1)):
        if bound in threshold:
            yield from _compare(
                _absolute(cell, metric, conservative), threshold[bound], sign, metric
            )
        if f'{bound}_ratio' in threshold:
            other = group.cells.get(threshold['to'])
            yield from _compare(
                _relative(cell, other, metric, conservative) if other else None,
                threshold[f'{bound}_ratio'],
                sign,
                f'ratio of {metric} to {threshold["to"]}',
            )


def _absolute(
    cell: result_groups.Cell, metric: str, conservative: bool
) -> tuple[float | None, float | None] | None:
    if result_groups.METRICS[metric].center == 'median':
        spread = cell.spread(metric)
        return None if spread is None else (spread.low, spread.high)
    return _range(cell.estimate(metric), conservative)


def _relative(
    cell: result_groups.Cell, other: result_groups.Cell, metric: str, conservative: bool
) -> tuple[float | None, float | None] | None:
    if result_groups.METRICS[metric].center == 'median':
        ours, theirs = cell.spread(metric), other.spread(metric)
        if ours is None or theirs is None or theirs.median <= 0:
            return None
        # A mean would hide one long stall among short ones. The median of the other variant: its
        # own outliers must neither hide a stall nor make one.
        return ours.low / theirs.median, ours.high / theirs.median
    return _range(result_groups.ratio(cell, other, metric), conservative)


def _range(
    estimate: stats.Estimate | None, conservative: bool
) -> tuple[float | None, float | None] | None:
    """Return the values to compare with a lower and an upper bound; None if there is none."""
    if estimate is None:
        return None
    if conservative:
        return estimate.low, estimate.high
    return estimate.value, estimate.value


def _compare(
    ends: tuple[float | None, float | None] | None, bound: float, sign: int, what: str
) -> Iterator[str]:
    if ends is None:
        yield f'{what} is unknown'
        return
    end = ends[0] if sign > 0 else ends[1]
    if end is None:
        yield f'{what} has no interval, because there is only one repeat'
    elif (end - bound) * sign < 0:
        relation = 'below' if sign > 0 else 'above'
        yield f'{what} is {numbers.number(end)}, {relation} {numbers.number(bound)}'
