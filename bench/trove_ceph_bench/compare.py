# SPDX-License-Identifier: Apache-2.0
"""Compare two results folders cell by cell."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import prettytable

from trove_ceph_bench import numbers, result_groups, results, stats

METRICS = {
    'load': ('tps', 'p95_ms', 'p99_ms', 'gap_max_ms'),
    'operation': ('seconds', 'gap_max_ms'),
}

#: Ignored when cells are matched: the name of the plan, and the role in a report.
_IGNORED = frozenset({'plan', 'role'})
_TARGET = frozenset({'target', 'targets', 'commands', 'environment'})


def compare(store: results.Store, baseline: results.Store) -> dict[str, Any]:
    """Return every cell that both folders have, with ratios of the first to the second.

    Cells are matched by their configuration: first by all of it; then by the name of the variant,
    with another target or other commands; then by the target, under another name. The folders were
    not measured in turns, so the intervals are those of unpaired values.

    :raises ResultsFormatError: a folder cannot be used
    """
    ours, theirs = (result_groups.gather(each.runs()) for each in (store, baseline))
    pairs = _match(ours, theirs)
    matched = {id(cell) for pair in pairs for cell in pair}
    return {
        'store': str(store.path),
        'baseline': str(baseline.path),
        'rows': [row for of, to in pairs for row in _rows(of, to)],
        'only_store': [_name(cell) for cell in ours if id(cell) not in matched],
        'only_baseline': [_name(cell) for cell in theirs if id(cell) not in matched],
    }


def as_json(comparison: Mapping[str, Any]) -> str:
    """Return a comparison as JSON."""
    return json.dumps(comparison, indent=1, ensure_ascii=False) + '\n'


def as_table(comparison: Mapping[str, Any]) -> str:
    """Return a comparison as text for a terminal."""
    table = prettytable.PrettyTable(
        ['Cell', 'Variant', 'Metric', 'Now', 'Baseline', 'Ratio', '95 % interval', 'Verdict']
    )
    table.align = 'l'
    for row in comparison['rows']:
        ratio = row['ratio']
        table.add_row(
            [
                row['label'],
                row['variant'],
                row['metric'],
                numbers.figure(row['of'], result_groups.METRICS[row['metric']].unit),
                numbers.figure(row['to'], result_groups.METRICS[row['metric']].unit),
                numbers.number(ratio and ratio['value']),
                numbers.interval(ratio) or 'none',
                row['verdict'],
            ]
        )
    lines = [f'{comparison["store"]} against {comparison["baseline"]}', table.get_string()]
    lines += [f'only in {comparison["store"]}: {name}' for name in comparison['only_store']]
    lines += [f'only in {comparison["baseline"]}: {name}' for name in comparison['only_baseline']]
    return '\n'.join(lines) + '\n'


def _match(
    ours: Sequence[result_groups.Cell], theirs: Sequence[result_groups.Cell]
) -> list[tuple[result_groups.Cell, result_groups.Cell]]:
    keys = (_key(_IGNORED), _key(_IGNORED | _TARGET), _key(_IGNORED | {'variant'}))
    partners: dict[int, result_groups.Cell] = {}
    left, right = list(ours), list(theirs)
    for key in keys:
        for cell in left:
            candidates = [other for other in right if key(other) == key(cell)]
            # Two cells with the same key on either side are ambiguous.
            if len(candidates) == 1 and sum(key(other) == key(cell) for other in left) == 1:
                partners[id(cell)] = candidates[0]
        matched = {id(cell) for cell in partners.values()}
        left = [cell for cell in left if id(cell) not in partners]
        right = [cell for cell in right if id(cell) not in matched]
    return [(cell, partners[id(cell)]) for cell in ours if id(cell) in partners]


def _key(ignored: frozenset[str]) -> Callable[[result_groups.Cell], Hashable]:
    return lambda cell: results.config_hash(result_groups.without(cell.config, ignored))


def _rows(of: result_groups.Cell, to: result_groups.Cell) -> list[dict[str, Any]]:
    rows = []
    for metric in METRICS[of.config['kind']]:
        now, before = (list(cell.values(metric).values()) for cell in (of, to))
        if not now or not before:
            continue
        ratio = stats.unpaired_ratio(now, before)
        rows.append(
            {
                'label': result_groups.label(of.config),
                'variant': _variants(of, to),
                'metric': metric,
                'of': of.figure(metric),
                'to': to.figure(metric),
                'ratio': stats.as_dict(ratio),
                'verdict': result_groups.verdict(metric, ratio),
            }
        )
    return rows


def _variants(of: result_groups.Cell, to: result_groups.Cell) -> str:
    if of.variant != to.variant:
        return f'{of.variant} against {to.variant}'
    changed = any(of.config.get(key) != to.config.get(key) for key in _TARGET)
    return f'{of.variant} (target changed)' if changed else of.variant


def _name(cell: result_groups.Cell) -> str:
    return f'{result_groups.label(cell.config)} · {cell.variant}'
