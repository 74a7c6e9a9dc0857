# SPDX-License-Identifier: Apache-2.0
"""The figures of every group as JSON data: means, spreads, and ratios to the baseline."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trove_ceph_bench import plan, result_groups, stats

#: Metrics whose ratio to the baseline is reported.
_COMPARED = {
    'load': ('tps', 'p95_ms', 'p99_ms', 'gap_max_ms'),
    'operation': ('seconds', 'gap_max_ms', 'space_bytes', 'moved_bytes', 'out_of_service_ms'),
}
#: Metrics of the RBD image below a server.
IMAGE_METRICS = (
    'read_iops',
    'write_iops',
    'read_mib_s',
    'write_mib_s',
    'read_latency_ms',
    'write_latency_ms',
    'iops_per_gib',
    'write_iops_per_gib',
)
_INSTRUMENTS = (
    *IMAGE_METRICS,
    'client_cores',
    'server_cores',
    'host_busy',
)
_SHOWN = {
    'load': (
        'tps',
        'qps',
        'errors',
        'avg_ms',
        'p50_ms',
        'p95_ms',
        'p99_ms',
        'p99.9_ms',
        'max_ms',
        'gap_max_ms',
        'commit_p99_ms',
        *_INSTRUMENTS,
    ),
    'operation': (
        'seconds',
        'data_bytes',
        'gap_max_ms',
        *plan.COSTS,
        'writer_before',
        'writer_during',
    ),
}


def build(
    found: Iterable[result_groups.Group],
    variants: Sequence[result_groups.Variant],
    baseline: str | None,
    label: result_groups.Label,
) -> list[dict[str, Any]]:
    """Return each group with its variants in order."""
    return [_group(group, variants, baseline, label) for group in found]


def _group(
    group: result_groups.Group,
    variants: Sequence[result_groups.Variant],
    baseline: str | None,
    label: result_groups.Label,
) -> dict[str, Any]:
    conditions = group.conditions
    base = group.cells.get(baseline) if baseline else None
    return {
        'kind': conditions['kind'],
        'label': label(conditions),
        'workload': conditions.get('workload', {}).get('name'),
        'dataset': conditions.get('dataset', {}).get('name'),
        'threads': conditions.get('threads'),
        'instances': conditions.get('instances'),
        'events': [event['name'] for event in conditions.get('events', ())],
        'operation': conditions.get('operation'),
        'data_mib': conditions.get('data_mib'),
        'variants': [
            _variant(group.cells[variant.name], base)
            for variant in variants
            if variant.name in group.cells
        ],
    }


def _variant(cell: result_groups.Cell, base: result_groups.Cell | None) -> dict[str, Any]:
    kind = cell.config['kind']
    ratios = {}
    if base is not None and base is not cell:
        ratios = {metric: result_groups.ratio(cell, base, metric) for metric in _COMPARED[kind]}
    return {
        'variant': cell.variant,
        'role': cell.role,
        'repeats': len(cell.runs),
        'counted': len(cell.counted),
        'failed_attempts': len(cell.failed_attempts),
        'figures': {metric: cell.figure(metric) for metric in _SHOWN[kind]},
        'phases': cell.phases(),
        'ratios': {metric: stats.as_dict(ratio) for metric, ratio in ratios.items()},
        'verdicts': {
            metric: result_groups.verdict(metric, ratio) for metric, ratio in ratios.items()
        },
    }


def summary(groups: Sequence[Mapping[str, Any]], baseline: str | None) -> list[str]:
    """Return one sentence for each kind and variant: how often it was faster than the baseline."""
    tally: dict[tuple[str, str], dict[str, int]] = {}
    for group in groups:
        metric = result_groups.DECISIVE[group['kind']]
        for variant in group['variants']:
            if metric in variant['verdicts']:
                verdicts = tally.setdefault((group['kind'], variant['variant']), {})
                verdict = variant['verdicts'][metric]
                verdicts[verdict] = verdicts.get(verdict, 0) + 1
    return [_sentence(kind, name, baseline, verdicts) for (kind, name), verdicts in tally.items()]


def _sentence(kind: str, name: str, baseline: str | None, verdicts: Mapping[str, int]) -> str:
    phrases = {
        'better': f'faster than {baseline}',
        'worse': f'slower than {baseline}',
        'no difference shown': 'without a significant difference',
        'one repeat': 'undecided with one repeat',
        'not comparable': 'not comparable',
    }
    total = sum(verdicts.values())
    parts = [f'{phrases[each]} in {verdicts[each]}' for each in phrases if each in verdicts]
    unit = 'comparison' if kind == 'load' else 'operation'
    return f'{name}: {", ".join(parts)} of {total} {unit}{"s" if total != 1 else ""}'
