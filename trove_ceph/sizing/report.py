# SPDX-License-Identifier: Apache-2.0
"""The plan of a cluster as a document for programs, and as text for people."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import prettytable
from oslo_utils import units

from trove_ceph import reference_figures
from trove_ceph.sizing import costs, decisions, failure
from trove_ceph.sizing.cluster import Cluster
from trove_ceph.sizing.crush import Spread
from trove_ceph.sizing.decisions import Decision

_WIDTH = 100
_NAME, _VALUE = 22, 12
#: The lifetime that a budget is computed for without own prices (Red Hat 2016, Figure 9:
#: "three-year amortized CapEx").
_BUDGET_MONTHS = 36


@dataclass(frozen=True)
class Report:
    """All that is known about a cluster.

    :param failed: what was lost, in words; empty: nothing
    :param outcome: what remains; None: nothing was lost
    :param check: what CRUSH says; None: it was not asked
    """

    cluster: Cluster
    comparisons: Sequence[costs.Comparison]
    failed: str = ''
    outcome: failure.Outcome | None = None
    check: failure.Check | None = None

    @property
    def problems(self) -> list[str]:
        """Broken rules, and what the failure leaves unsafe."""
        found = failure.problems(self.cluster, self.outcome, self.check)
        return [*self.cluster.violations, *found]


def document(report: Report) -> dict[str, Any]:
    """Return the report with names as keys; sizes in bytes, shares from 0 to 1."""
    cluster, mine = report.cluster, costs.own(report.cluster)
    return {
        'fleet': _fleet(cluster),
        'cluster': _cluster(cluster),
        'decisions': [one.as_document() for one in cluster.decisions],
        'notes': list(cluster.notes),
        'problems': report.problems,
        'costs': {
            'own_per_month': asdict(mine) if mine else None,
            'target_share': costs.TARGET,
            'clouds': [one.as_document() for one in report.comparisons],
        },
        'failure': report.outcome.as_document() | {'failed': report.failed}
        if report.outcome
        else None,
        'crush': _crush(report) if report.check else None,
    }


def _fleet(cluster: Cluster) -> dict[str, Any]:
    fleet = cluster.request.fleet
    return {
        'databases': [asdict(one) for one in fleet.databases],
        'growth': fleet.growth,
        'data_bytes': fleet.data_bytes,
        'iops': fleet.iops,
        'io_size_bytes': fleet.io_size_bytes,
        'write_share': fleet.write_share,
    }


def _cluster(cluster: Cluster) -> dict[str, Any]:
    design = cluster.request.design
    names = (
        *('nodes', 'racks', 'devices_per_node', 'devices', 'osds', 'db_devices_per_node'),
        *('cores_per_node', 'memory_gib_per_node', 'network_gbit', 'monitors', 'pg_num'),
        *('pgs_per_osd', 'raw_bytes', 'usable_bytes', 'fill', 'recovery_sec', 'iops'),
    )
    return {
        'optimised_for': str(design.optimised_for),
        'redundancy': str(design.redundancy),
        'failure_domain': str(design.failure_domain),
        'device_class': str(design.device.device_class),
        'device_bytes': design.device.size_bytes,
        **{name: getattr(cluster, name) for name in names},
    }


def _crush(report: Report) -> dict[str, Any]:
    check, outcome = report.check, report.outcome
    assert check is not None
    return {
        'before': _spread(check.before, report.cluster.fill, report.cluster.fill),
        'after': _spread(check.after, outcome.domain_fill, outcome.fill)
        if check.after and outcome
        else None,
        'degraded_groups': check.degraded,
        'stopped_groups': check.stopped,
        'gone_groups': check.gone,
    }


def _spread(placed: Spread, domain_fill: float, fill: float) -> dict[str, Any]:
    return asdict(placed) | {
        'deviation': placed.deviation,
        'mean_fill': fill,
        'highest_fill': failure.highest_fill(fill, placed),
        'balanced_fill': failure.balanced_fill(domain_fill, fill, placed),
    }


def text(report: Report, explain: bool) -> str:
    """Return the report in words.

    :param explain: whether to show the rules that did not bind, and all sources
    """
    parts: list[str] = [
        '\n'.join(_summary(report.cluster)),
        '\n'.join(line for one in report.cluster.decisions for line in _decided(one, explain)),
        _costs(report),
    ]
    if report.check or report.outcome:
        parts.append('\n'.join(map(_folded, _failure(report))))
    parts += [_wrapped('note', one) for one in report.cluster.notes]
    parts += [_wrapped('problem', one) for one in report.problems]
    return '\n\n'.join(part for part in parts if part)


def _summary(cluster: Cluster) -> Iterator[str]:
    fleet, design = cluster.request.fleet, cluster.request.design
    yield (
        f'Fleet: {fleet.instances} databases; in {fleet.years:g} years {_tb(fleet.data_bytes)} and '
        f'{fleet.iops:,.0f} IOPS'
    )
    racks = f' in {cluster.racks} racks' if cluster.racks else ''
    yield (
        f'Cluster: {cluster.nodes} servers{racks} with {cluster.devices_per_node} '
        f'{design.device.device_class} of {design.device.size_bytes / units.T:.3g} TB each, '
        f'{design.redundancy}, optimised for {design.optimised_for}'
    )
    yield (
        f'Space: {_tb(cluster.raw_bytes)} raw, {_tb(cluster.usable_bytes)} usable, '
        f'{cluster.fill:.1%} filled by the fleet'
    )
    if cluster.iops is not None and fleet.iops:
        yield f'IOPS while a {design.failure_domain} is lost: {cluster.iops:,.0f}'
    lost = f'Recovery from the loss of a {design.failure_domain}'
    if cluster.recovery_sec is None:
        yield f'{lost}: not before it is back; there is no other place for its copies'
    else:
        yield f'{lost}: {duration(cluster.recovery_sec)}'
    yield f'Placement groups on an OSD: {cluster.pgs_per_osd:.0f}'


def _decided(one: Decision, explain: bool) -> Iterator[str]:
    value = f'{one.value:.1%}' if one.name == 'most fill' else f'{one.value:g} {one.unit}'.strip()
    indent = ' ' * (_NAME + _VALUE)
    head = f'{one.name:<{_NAME}}{value:<{_VALUE}}'
    rule = f'{one.binding.rule} [{one.binding.source}]' if explain else one.binding.rule
    yield textwrap.fill(rule, _WIDTH, initial_indent=head, subsequent_indent=indent)
    if explain:
        for bound in one.others:
            share = f'{bound.value:.1%}' if one.name == 'most fill' else f'{bound.value:.4g}'
            line = f'not {share}: {bound.rule} [{bound.source}]'
            yield textwrap.fill(
                line, _WIDTH, initial_indent=indent, subsequent_indent=indent + '  '
            )


def _costs(report: Report) -> str:
    """Return the table of prices, and what the own hardware costs or may cost."""
    table = prettytable.PrettyTable(
        ['public cloud', 'each GB', 'each IOPS', 'fleet for a month', 'a third', 'own hardware']
    )
    table.align = 'r'
    table.align['public cloud'] = 'l'
    for one in report.comparisons:
        share = '-' if one.own_share is None else f'{one.own_share:.0%} of it'
        table.add_row(
            [
                # Two lines, so that the table of the shipped prices fits the width.
                f'{one.price.provider} {one.price.product}\n{one.price.region}, {one.price.date}',
                f'{one.per_gb:.3f}',
                '-' if one.per_iops is None else f'{one.per_iops:.4f}',
                f'{one.price.currency} {one.per_month:,.0f}',
                f'{one.target_per_month:,.0f}',
                share,
            ]
        )
    mine = costs.own(report.cluster)
    lines = [_own_line(report.cluster, one, mine) for one in report.comparisons]
    return '\n'.join([table.get_string(), *map(_folded, lines)])


def _own_line(cluster: Cluster, one: costs.Comparison, mine: costs.Own | None) -> str:
    currency = one.price.currency
    if mine is None:
        budget = one.target_per_month * _BUDGET_MONTHS
        return (
            f'A third of {one.price.product}: the hardware may cost {currency} {budget:,.0f} over '
            f'3 years, {budget / cluster.nodes:,.0f} for a server with its devices'
        )
    verdict = 'meets' if one.meets_target else 'misses'
    each = f'{mine.per_gb:.3f} for a GB'
    if mine.per_iops is not None:
        each += f', {mine.per_iops:.4f} for an IOPS'
    return (
        f'A third of {one.price.product}: own hardware {verdict} it with {currency} '
        f'{mine.capital:,.0f} a month, {each}, and {mine.power:,.0f} for power'
    )


def _failure(report: Report) -> Iterator[str]:
    cluster, outcome, check = report.cluster, report.outcome, report.check
    if outcome:
        design = cluster.request.design
        yield f'Lost: {report.failed} ({len(outcome.lost_nodes)} of {cluster.nodes} hosts)'
        rest = f'the rest of a {design.failure_domain} {outcome.domain_fill:.1%}, '
        yield (
            f'  computed: {outcome.fill:.1%} full, {"" if outcome.is_even else rest}'
            + (
                f'recovered after {duration(outcome.recovery_sec)}'
                if outcome.recovery_sec is not None
                else f'not all recovered; {outcome.domains_left} {design.failure_domain}s are left'
            )
        )
    if check is None:
        return
    yield f'  CRUSH, all hosts: {_spread_text(check.before, cluster.fill, cluster.fill)}'
    if check.after and outcome:
        after = _spread_text(check.after, outcome.domain_fill, outcome.fill)
        yield f'  CRUSH, without the lost: {after}'
        yield (
            f'  of {check.before.groups} placement groups: {check.degraded} lose a copy or chunk, '
            f'{check.stopped} stop writes until recovered, {check.gone} cannot be recovered'
        )
    deviation = check.before.deviation
    if check.after and outcome:
        # The balancer moves nothing out of a rack that needs it.
        highest = failure.highest_fill(outcome.fill, check.after)
        deviation = highest / outcome.domain_fill - 1
    if deviation > reference_figures.DEVIATION:
        yield (
            f'  the fullest OSD is {deviation:.0%} above the mean, the reserve for deviation is '
            f'{reference_figures.DEVIATION:.0%} [{decisions.QCT}]: keep the balancer on'
        )


def _spread_text(placed: Spread, domain_fill: float, fill: float) -> str:
    where = f'{placed.incomplete} incomplete' if placed.incomplete else 'all complete'
    return (
        f'{placed.groups} placement groups, {where}; mean fill {fill:.1%}, fullest OSD '
        f'{failure.highest_fill(fill, placed):.1%}, balanced '
        f'{failure.balanced_fill(domain_fill, fill, placed):.1%} at most'
    )


def _folded(line: str) -> str:
    return textwrap.fill(line, _WIDTH, subsequent_indent='    ')


def _wrapped(kind: str, line: str) -> str:
    return textwrap.fill(f'{kind}: {line}', _WIDTH, subsequent_indent='  ')


def _tb(size: float) -> str:
    return f'{size / units.T:,.1f} TB'


def duration(seconds: float) -> str:
    """Return a time in the largest unit that it fills."""
    for unit, length in (('d', 86400), ('h', 3600), ('min', 60)):
        if seconds >= length:
            return f'{seconds / length:.1f} {unit}'
    return f'{seconds:.0f} s'
