# SPDX-License-Identifier: Apache-2.0
"""The tables of the reference architectures and of the settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from trove_ceph_bench import numbers, result_groups
from trove_ceph_bench.report.tables import Block, Table, Text

Data = Mapping[str, Any]


def measured(model: Data) -> Table:
    """Return the ratios that the plan declares, with the published ones."""
    found = model['references']['measured']
    blocks = []
    for name in dict.fromkeys(row['name'] for row in found):
        rows = [_measured(row, model['references']) for row in found if row['name'] == name]
        blocks.append(Block(Text(name), rows))
    columns = ['Ratio', 'Of / to', 'Conditions', 'Figure', 'Measured', 'Published', 'Source']
    caption = 'Ratios of this plan and published ratios'
    return Table('measured-ratios', caption, columns, blocks, frozenset((4, 5)))


def _measured(row: Data, references: Data) -> list[Text]:
    reference, ratio = row['reference'], row['ratio']
    return [
        Text(f'{row["of"]} / {row["to"]}'),
        Text(row['where']),
        Text(result_groups.METRICS[row['metric']].label),
        Text(numbers.number(ratio and ratio['value']), numbers.interval(ratio)),
        Text(numbers.number(reference['value']), reference['from'])
        if reference
        else Text(numbers.UNKNOWN),
        Text(reference['what'], _source(references, reference)) if reference else Text(''),
    ]


def published_ratios(model: Data) -> Table:
    """Return the published ratios."""
    references = model['references']
    blocks = [
        Block(
            Text(ratio['what'], ratio['id']),
            [
                [
                    Text(', '.join(ratio['workloads'])),
                    Text(result_groups.METRICS[ratio['metric']].label),
                    Text(numbers.number(ratio['value']), ratio['from']),
                    Text(_source(references, ratio)),
                ]
            ],
        )
        for ratio in references['ratios']
    ]
    columns = ['Compared', 'Workload', 'Figure', 'Ratio', 'Source']
    caption = 'Published ratios of the workloads measured here'
    return Table('published-ratios', caption, columns, blocks, frozenset((3,)))


def published_figures(model: Data) -> Table:
    """Return the published absolute figures."""
    references = model['references']
    blocks = [
        Block(
            Text(figure['what']),
            [
                [
                    Text(', '.join(figure.get('workloads') or [figure['job']])),
                    Text(f'{figure["value"]} {figure["unit"]}'),
                    Text(figure['latency_ms'] or numbers.UNKNOWN),
                    Text(_measured_text(figure['measured'])),
                    Text(_source(references, figure)),
                ]
            ],
        )
        for figure in references['figures']
    ]
    columns = ['Set-up', 'Workload', 'Figure', 'Latency, ms', 'Measured here', 'Source']
    caption = 'Published figures, which depend on their hardware'
    return Table('published-figures', caption, columns, blocks, frozenset((2, 3)))


def _measured_text(measured: Sequence[Data]) -> str:
    """Return our own figures; those of one variant under several conditions as a range."""
    found: dict[str, list[float]] = {}
    for each in measured:
        found.setdefault(each['variant'], []).append(each['value'])
    return ', '.join(
        f'{variant} {" to ".join(dict.fromkeys(map(numbers.number, (min(values), max(values)))))}'
        for variant, values in found.items()
    )


def differing(model: Data) -> Table:
    """Return the settings in which the variants differ."""
    rows = [
        (section['name'], row)
        for section in model['disclosure']
        for row in section['rows']
        if row['differs']
    ]
    return _settings(model, 'differing', 'Settings in which the variants differ', rows)


def section(model: Data, section: Data, number: int) -> Table:
    """Return all settings of a section of the disclosure."""
    rows = [('', row) for row in section['rows']]
    return _settings(model, f'settings-{number}', section['name'], rows)


def _settings(model: Data, name: str, caption: str, rows: list[tuple[str, Data]]) -> Table:
    names = [each['name'] for each in model['variants']]
    blocks = [
        Block(
            Text(row['key'], note),
            [[Text(_value(row['values'].get(each))) for each in names]],
        )
        for note, row in rows
    ]
    return Table(name, caption, ['Setting', *names], blocks)


def _value(value: str | None) -> str:
    return numbers.UNKNOWN if value is None else value


def _source(references: Data, entry: Data) -> str:
    source = references['sources'][entry['source']]
    return f'{source["publisher"]}, {source["year"]}'
