# SPDX-License-Identifier: Apache-2.0
"""The plan and its findings as text for people and as a document for programs."""

import dataclasses
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import prettytable

from trove_ceph.hci.plan import AffinityRule, Derivation, Finding, HostPlan, Plan

_WIDTH = 100


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPUs in the kernel's form, such as ``0-3,28-31``; a dash if there are none."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    parts = [str(first) if first == last else f'{first}-{last}' for first, last in ranges]
    return ','.join(parts) or '-'


def document(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON has it; each host has its sets of CPUs too."""
    content = dataclasses.asdict(plan)
    for host, made in zip(content['hosts'], plan.hosts, strict=True):
        host |= {
            'host_cpus': made.host_cpus,
            'osd_cpus': made.osd_cpus,
            'guest_cpus': made.guest_cpus,
        }
    for aggregate in content['aggregates']:
        aggregate['properties'] = dict(aggregate['properties'])
    return _plain(content)


def plan_text(plan: Plan, explain: bool = False) -> str:
    """Return the plan as tables, with findings and, on request, how each value was found."""
    parts = []
    if plan.hosts:
        alike = _alike(plan.hosts)
        parts = [_host_table(plan.hosts), _node_table(alike), _osd_table(alike), _irq_table(alike)]
    if explain:
        parts += [_explanation(plan.derivations)]
    parts += [_affinity(plan.affinity)]
    if plan.findings:
        parts += [findings_text(plan.findings)]
    return '\n\n'.join(parts)


def findings_text(findings: Sequence[Finding]) -> str:
    """Return findings, three lines each; equal ones of several hosts are one."""
    return '\n'.join(itertools.chain.from_iterable(map(_finding, _grouped(findings))))


def summary(plan: Plan) -> str:
    """Return one line for a monitoring system."""
    errors, warnings = len(plan.errors), len(plan.findings) - len(plan.errors)
    if not plan.findings:
        return f'ok: {len(plan.hosts)} hosts meet every rule'
    return f'{"error" if errors else "warning"}: {errors} errors, {warnings} warnings'


def _grouped(findings: Sequence[Finding]) -> Iterator[list[Finding]]:
    """Yield findings that differ in their field only, as equal hosts have them."""
    groups: dict[Finding, list[Finding]] = {}
    for one in findings:
        groups.setdefault(dataclasses.replace(one, field=''), []).append(one)
    yield from groups.values()


def _finding(group: Sequence[Finding]) -> Iterator[str]:
    one = group[0]
    more = f' (and {len(group) - 1} more like it)' if len(group) > 1 else ''
    yield f'{one.level.upper()} {one.field}{more}: {one.observed}'
    yield f'    expected: {one.expected} ({one.source})'
    yield f'    advice: {one.advice}'


def _table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    table = prettytable.PrettyTable(titles)
    table.align = 'l'
    table.add_rows([list(row) for row in rows])
    return table.get_string()


def _host_table(hosts: Sequence[HostPlan]) -> str:
    titles = [
        *('host', 'guests', 'OSDs', 'reserved memory', 'reserved disk', 'disk ratio'),
        *('CPU ratio', 'of guest CPUs', 'OSD memory target'),
    ]
    return _table(
        titles,
        (
            [
                host.name,
                host.guests,
                len(host.osds),
                f'{host.reservation.reserved_host_memory_mb} MiB',
                f'{host.reservation.reserved_host_disk_mb} MiB',
                f'{host.reservation.disk_allocation_ratio:.4f}',
                f'{host.reservation.cpu_allocation_ratio:.3f}',
                f'{host.reservation.cpu_shared_set_allocation_ratio:.3f}',
                f'{host.osd_memory_target_bytes // 1024**2} MiB',
            ]
            for host in hosts
        ),
    )


def _alike(hosts: Sequence[HostPlan]) -> list[tuple[str, HostPlan]]:
    """Return one of each group of equal hosts, and how to call the group."""
    groups: dict[HostPlan, list[str]] = {}
    for host in hosts:
        groups.setdefault(dataclasses.replace(host, name=''), []).append(host.name)
    return [
        (names[0] if len(names) == 1 else f'{names[0]} and {len(names) - 1} more', host)
        for host, names in groups.items()
    ]


def _node_table(alike: Iterable[tuple[str, HostPlan]]) -> str:
    titles = [
        *('host', 'node', 'host CPUs', 'OSD CPUs', 'guest CPUs'),
        *('guests', 'after a loss', 'huge pages'),
    ]
    return _table(
        titles,
        (
            [
                name,
                node.number,
                cpu_list(node.host_cpus),
                cpu_list(node.osd_cpus),
                cpu_list(node.guest_cpus),
                node.guests,
                node.room,
                f'{node.huge_pages} x {node.huge_page_kib // 1024} MiB',
            ]
            for name, host in alike
            for node in host.nodes
        ),
    )


def _osd_table(alike: Iterable[tuple[str, HostPlan]]) -> str:
    titles = ['host', 'device', 'OSDs', 'each', 'node', 'DB device', 'DB of each']
    rows = []
    for name, host in alike:
        for device, group in itertools.groupby(host.osds, key=lambda osd: osd.device):
            osds = list(group)
            rows.append(
                [
                    name,
                    device,
                    len(osds),
                    f'{osds[0].data_bytes / 1000**4:.2f} TB',
                    cpu_list({osd.numa_node for osd in osds}),
                    osds[0].db_device or '-',
                    f'{osds[0].db_bytes / 1000**3:.1f} GB' if osds[0].db_device else '-',
                ]
            )
    return _table(titles, rows)


def _irq_table(alike: Iterable[tuple[str, HostPlan]]) -> str:
    return _table(
        ['host', 'interface', 'node', 'CPUs of its interrupts'],
        (
            [name, irq.nic, '-' if irq.numa_node is None else irq.numa_node, cpu_list(irq.cpus)]
            for name, host in alike
            for irq in host.irqs
        ),
    )


def _explanation(derived: Iterable[Derivation]) -> str:
    """Return how values were found, once for hosts with equal values."""
    of_host: dict[str, list[Derivation]] = {}
    for one in derived:
        of_host.setdefault(one.host, []).append(dataclasses.replace(one, host=''))
    hosts_of: dict[tuple[Derivation, ...], list[str]] = {}
    for host, values in of_host.items():
        hosts_of.setdefault(tuple(values), []).append(host)
    lines = []
    for derivations, hosts in hosts_of.items():
        lines.append(f'{", ".join(hosts)}:')
        lines += itertools.chain.from_iterable(map(_derivation, derivations))
    return '\n'.join(lines)


def _derivation(one: Derivation) -> Iterator[str]:
    yield f'  {one.field} = {one.value}'
    yield from _wrapped(one.formula, '      ')
    yield from _wrapped(f'= {one.numbers}', '      ')
    yield from _wrapped(f'source: {one.source}', '      ')
    if one.limit:
        yield from _wrapped(f'limit: {one.limit}', '      ')


def _affinity(rules: Iterable[AffinityRule]) -> str:
    lines = ['What is on different hosts, and by what:']
    for one in rules:
        how = one.mechanism or 'nothing can'
        lines += _wrapped(f'{one.subject}: {how}', '  ')
        if one.setting:
            lines.append(f'      {one.setting}')
        lines += _wrapped(one.limit, '      ')
    return '\n'.join(lines)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _plain(value: Any) -> Any:
    """Return a value with the types of JSON only."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, str) else value
