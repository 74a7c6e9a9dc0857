# SPDX-License-Identifier: Apache-2.0
"""Build the report as JSON data, from which every format of it is rendered.

:func:`build` returns the content of ``report.json``; ``doc/source/reference/bench-results.rst``
describes its keys. It does not depend on the clock or the host, so the same results give the same
report.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trove_ceph_bench import compare, model, result_groups, results
from trove_ceph_bench.plan import COSTS
from trove_ceph_bench.report import caveats, groups, references, series, settings


def build(store: results.Store, baseline: results.Store | None = None) -> dict[str, Any]:
    """Return the report of a store.

    :param baseline: another store to compare with
    :raises ResultsFormatError: a store cannot be used
    """
    runs = store.runs()
    plan = store.plan()
    found = result_groups.gather(runs)
    variants = result_groups.variants(found, plan)
    base = result_groups.find_baseline(variants)
    grouped = result_groups.group(found)
    common = result_groups.common(grouped)
    label = functools.partial(result_groups.label, hidden=common)
    loads = [cell for cell in found if cell.is_load]
    operations = [cell for cell in found if not cell.is_load]
    root = store.path / results.REPORT_DIRECTORY
    built = groups.build(grouped, variants, base, label)
    return {
        'format': model.FORMAT,
        'plan': {key: plan.get(key) for key in ('name', 'description')},
        'measured': _measured(runs),
        'throughout': [
            f'dataset {text}' if key == 'dataset' else text for key, text in common.items()
        ],
        'variants': [{'name': each.name, 'role': each.role} for each in variants],
        'baseline': base,
        'summary': groups.summary(built, base),
        'caveats': caveats.find(found, variants, base, label),
        'loads': [group for group in built if group['kind'] == 'load'],
        'operations': [group for group in built if group['kind'] == 'operation'],
        'thread_sweeps': series.sweeps(
            loads, variants, 'threads', ('tps', 'p95_ms', 'p99_ms'), label
        ),
        'instance_sweeps': series.sweeps(loads, variants, 'instances', ('tps', 'p99_ms'), label),
        'fill_sweeps': series.sweeps(
            loads,
            variants,
            'fill_percent',
            ('pool_write_iops_per_gib', 'write_iops_per_gib', 'tps', 'p99_ms'),
            label,
        ),
        'timelines': series.timelines(result_groups.group(loads), variants, label),
        'size_sweeps': series.sweeps(
            operations,
            variants,
            'data_mib',
            ('data_bytes', 'seconds', 'gap_max_ms', *COSTS),
            label,
        ),
        'volumes': _volumes(loads, variants),
        'comparison': compare.compare(store, baseline) if baseline else None,
        'references': references.build(grouped, plan, label),
        'disclosure': settings.build(found, variants),
        'files': _files(runs, root, label),
    }


def _measured(runs: Sequence[results.Run]) -> dict[str, Any]:
    started = sorted(str(run.run['started']) for run in runs if run.run.get('started'))
    return {
        'from': started[0] if started else None,
        'to': started[-1] if started else None,
        'runs': len(runs),
        'complete': sum(run.run['complete'] is True for run in runs),
        'repeats': len({run.iteration for run in runs}),
    }


def _volumes(
    loads: Sequence[result_groups.Cell], variants: Sequence[result_groups.Variant]
) -> list[dict[str, Any]]:
    """Return the fio figures of the volume below each variant, from the first run with them."""
    rows = []
    for variant in variants:
        jobs: Mapping[str, Any] = next(
            (
                run.run['fio']
                for cell in loads
                if cell.variant == variant.name
                for run in cell.runs.values()
                if run.run.get('fio')
            ),
            {},
        )
        rows += [{'variant': variant.name, 'job': job, **figures} for job, figures in jobs.items()]
    return rows


def _files(
    runs: Sequence[results.Run], root: Path, label: result_groups.Label
) -> list[dict[str, Any]]:
    """Return the files of every run, with paths relative to the report."""
    return [
        {
            'where': f'{label(run.config)} · {run.config["variant"]}',
            'iteration': run.iteration,
            'complete': run.run['complete'],
            'path': f'../{run.path.relative_to(root.parent).as_posix()}',
            'files': sorted(
                path.relative_to(run.path).as_posix()
                for path in run.path.rglob('*')
                if path.is_file() and not path.name.startswith('.')
            ),
        }
        for run in runs
    ]
