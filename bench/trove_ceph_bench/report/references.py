# SPDX-License-Identifier: Apache-2.0
"""Published figures of the reference architectures, and our ratios to compare with them.

Absolute figures depend on the hardware; ratios within one system are comparable.
"""

import importlib.resources
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from trove_ceph_bench import result_groups, stats


def published() -> dict[str, Any]:
    """Return the sources, figures and ratios that the package ships."""
    text = (importlib.resources.files(__package__) / 'references.yaml').read_text(encoding='utf-8')
    return yaml.safe_load(text)


def build(
    found: Sequence[result_groups.Group], plan: Mapping[str, Any], label: result_groups.Label
) -> dict[str, Any]:
    """Return the published figures, and the ratios that the plan declares with their references."""
    known = published()
    by_id = {ratio['id']: ratio for ratio in known['ratios']}
    declared = plan.get('ratios') or ()
    named = {each['reference'] for each in declared if 'reference' in each}
    return {
        'sources': known['sources'],
        'figures': known['figures'],
        'ratios': known['ratios'],
        'measured': [
            _row(group, each, by_id.get(each.get('reference'))) | {'where': label(group.conditions)}
            for each in declared
            for group in _with_both(found, each)
        ],
        'unknown': sorted(named - by_id.keys()),
    }


def _with_both(
    found: Sequence[result_groups.Group], declared: Mapping[str, Any]
) -> list[result_groups.Group]:
    return [group for group in found if {declared['of'], declared['to']} <= group.cells.keys()]


def _row(
    group: result_groups.Group, declared: Mapping[str, Any], reference: Mapping[str, Any] | None
) -> dict[str, Any]:
    kind = group.conditions['kind']
    metric = reference['metric'] if reference else result_groups.DECISIVE[kind]
    of, to = (group.cells[declared[key]].values(metric) for key in ('of', 'to'))
    return {
        'name': declared['name'],
        'of': declared['of'],
        'to': declared['to'],
        'metric': metric,
        'ratio': stats.as_dict(stats.ratio(of, to)),
        'reference': dict(reference) if reference else None,
    }
