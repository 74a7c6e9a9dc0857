# SPDX-License-Identifier: Apache-2.0
"""The data of the plots as JSON data: sweeps, timelines and operations by data size."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trove_ceph_bench import result_groups, results


def sweeps(
    found: Sequence[result_groups.Cell],
    variants: Sequence[result_groups.Variant],
    axis: str,
    metrics: Sequence[str],
    label: result_groups.Label,
) -> list[dict[str, Any]]:
    """Return a sweep for all conditions measured at two or more values of an axis.

    :param axis: ``threads``, ``instances``, ``fill_percent`` or ``data_mib``
    """
    return [
        sweep
        for group in _sweep_groups(found, axis)
        if len((sweep := _sweep(group, variants, axis, metrics, label))['values']) > 1
    ]


def _sweep_groups(
    found: Sequence[result_groups.Cell], axis: str
) -> list[list[result_groups.Group]]:
    """Return lists of groups that differ only in the axis, each sorted by it."""
    gathered: dict[str, list[result_groups.Group]] = {}
    for group in result_groups.group(cell for cell in found if axis in cell.config):
        rest = result_groups.without(group.conditions, [axis])
        gathered.setdefault(results.config_hash(rest), []).append(group)
    return [
        sorted(group_list, key=lambda group: group.conditions[axis])
        for group_list in gathered.values()
    ]


def _sweep(
    group_list: Sequence[result_groups.Group],
    variants: Sequence[result_groups.Variant],
    axis: str,
    metrics: Sequence[str],
    label: result_groups.Label,
) -> dict[str, Any]:
    lines = []
    for variant in variants:
        points = [
            {
                axis: group.conditions[axis],
                'figures': {metric: group.cells[variant.name].figure(metric) for metric in metrics},
            }
            for group in group_list
            if variant.name in group.cells and group.cells[variant.name].counted
        ]
        if points:
            lines.append({'variant': variant.name, 'points': points})
    return {
        'label': label(result_groups.without(group_list[0].conditions, [axis])),
        'axis': axis,
        'values': [group.conditions[axis] for group in group_list],
        'lines': lines,
    }


def timelines(
    found: Sequence[result_groups.Group],
    variants: Sequence[result_groups.Variant],
    label: result_groups.Label,
) -> list[dict[str, Any]]:
    """Return for each group the seconds of the repeat with the median TPS of each variant."""
    return [
        {
            'label': label(group.conditions),
            'lines': [
                _timeline(group.cells[variant.name])
                for variant in variants
                if variant.name in group.cells and group.cells[variant.name].values('tps')
            ],
        }
        for group in found
    ]


def _timeline(cell: result_groups.Cell) -> dict[str, Any]:
    tps = cell.values('tps')
    iteration = min(tps, key=lambda key: (abs(tps[key] - statistics.median_low(tps.values())), key))
    run = cell.runs[iteration].run
    committer = run.get('committer') or {}
    return {
        'variant': cell.variant,
        'iteration': iteration,
        'of': len(tps),
        'measured_sec': run.get('measured_sec'),
        'tps': [[each['second'], each['tps']] for each in run.get('seconds') or ()],
        'p99_ms': [
            [each['second'], (each.get('latency_ms') or {}).get('p99')]
            for each in run.get('seconds') or ()
        ],
        'gap_max_ms': [
            [each['second'], each['gap_max_ms']] for each in committer.get('seconds') or ()
        ],
        'events': [_event(event) for event in run.get('events') or ()],
    }


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key: event.get(key) for key in ('name', 'at_sec', 'ended_sec', 'exit_code')}
