# SPDX-License-Identifier: Apache-2.0
"""Published figures of the reference architectures, and our ratios to compare with them.

Absolute figures depend on the hardware; ratios within one system are comparable. Either is shown
only beside the workload and the metric that it belongs to: a ratio for writes says nothing about
reads.
"""

import importlib.resources
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from trove_ceph_bench import result_groups, stats


def published() -> dict[str, Any]:
    """Return the sources, figures and ratios that the package ships.

    Each ratio has the ``id``, ``source`` and ``what`` of its comparison.
    """
    text = (importlib.resources.files(__package__) / 'references.yaml').read_text(encoding='utf-8')
    content = yaml.safe_load(text)
    ratios = [
        {key: comparison[key] for key in ('id', 'source', 'what')} | ratio
        for comparison in content['comparisons']
        for ratio in comparison['ratios']
    ]
    return {'sources': content['sources'], 'figures': content['figures'], 'ratios': ratios}


def build(
    found: Sequence[result_groups.Group], plan: Mapping[str, Any], label: result_groups.Label
) -> dict[str, Any]:
    """Return the published figures and ratios of what was measured.

    ``measured`` has the ratios that the plan declares, each with the published ratio of the same
    workload and metric, if there is one.
    """
    known = published()
    loads = [group for group in found if group.conditions['kind'] == 'load']
    measured = {_workload(group) for group in loads} - {None}
    jobs = {job for group in loads for job in _jobs(group)}
    declared = plan.get('ratios') or ()
    named = {each['reference'] for each in declared if 'reference' in each}
    return {
        'sources': known['sources'],
        'figures': [
            figure | {'measured': _figures(loads, figure, label)}
            for figure in known['figures']
            if measured & set(figure.get('workloads', ())) or figure.get('job') in jobs
        ],
        'ratios': [ratio for ratio in known['ratios'] if measured & set(ratio['workloads'])],
        'measured': [
            row | {'where': label(group.conditions)}
            for each in declared
            for group in _with_both(found, each)
            for row in _rows(group, each, known['ratios'])
        ],
        'unknown': sorted(named - {ratio['id'] for ratio in known['ratios']}),
    }


def _workload(group: result_groups.Group) -> str | None:
    return group.conditions.get('workload', {}).get('name')


def _jobs(group: result_groups.Group) -> dict[str, dict[str, Any]]:
    """Return the fio jobs of a group, with the figures of each variant's first run with them."""
    jobs: dict[str, dict[str, Any]] = {}
    for variant, cell in group.cells.items():
        for run in cell.runs.values():
            for job, figures in (run.run.get('fio') or {}).items():
                jobs.setdefault(job, {}).setdefault(variant, figures)
    return jobs


def _figures(
    loads: Sequence[result_groups.Group], figure: Mapping[str, Any], label: result_groups.Label
) -> list[dict[str, Any]]:
    """Return our own figures of the same workload and metric, or of the same fio job."""
    if 'job' in figure:
        return [
            {'variant': variant, 'where': figure['job'], 'value': ours[figure['metric']]}
            for group in loads
            for variant, ours in _jobs(group).get(figure['job'], {}).items()
        ]
    return [
        {'variant': cell.variant, 'where': label(group.conditions), 'value': estimate.value}
        for group in loads
        if _workload(group) in figure['workloads']
        for cell in group.cells.values()
        if (estimate := cell.estimate(figure['metric'])) is not None
    ]


def _with_both(
    found: Sequence[result_groups.Group], declared: Mapping[str, Any]
) -> list[result_groups.Group]:
    return [group for group in found if {declared['of'], declared['to']} <= group.cells.keys()]


def _rows(
    group: result_groups.Group,
    declared: Mapping[str, Any],
    ratios: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return a row for each published ratio of the group's workload; else one without any."""
    fitting = [
        ratio
        for ratio in ratios
        if ratio['id'] == declared.get('reference') and _workload(group) in ratio['workloads']
    ]
    return [_row(group, declared, ratio) for ratio in fitting] or [_row(group, declared, None)]


def _row(
    group: result_groups.Group, declared: Mapping[str, Any], reference: Mapping[str, Any] | None
) -> dict[str, Any]:
    kind = group.conditions['kind']
    metric = reference['metric'] if reference else result_groups.DECISIVE[kind]
    of, to = (group.cells[declared[key]] for key in ('of', 'to'))
    return {
        'name': declared['name'],
        'of': declared['of'],
        'to': declared['to'],
        'metric': metric,
        'ratio': stats.as_dict(result_groups.ratio(of, to, metric)),
        'reference': dict(reference) if reference else None,
    }
