# SPDX-License-Identifier: Apache-2.0
"""The tables of the report as rows of text, for all output formats."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trove_ceph_bench import numbers, result_groups
from trove_ceph_bench.report.groups import IMAGE_METRICS

Data = Mapping[str, Any]
#: Returns the cells of one variant.
Row = Callable[[Data], list['Text']]

#: Verdicts on speed.
_SPEED = {'better': 'faster', 'worse': 'slower'}
#: The columns of the costs of operations.
_COSTS = {
    'space_bytes': 'Space',
    'moved_bytes': 'Moved',
    'changed_bytes': 'Changed',
    'out_of_service_ms': 'Out of service, ms',
    'lost_commits': 'Lost commits',
}


@dataclasses.dataclass(frozen=True)
class Text:
    """One cell of a table.

    :param note: smaller text after the text
    :param tone: for a ratio ``better``, ``worse`` or ``open``, with ``up`` or ``down``
    :param variant: the variant whose colour marks the text
    """

    text: str
    note: str = ''
    tone: str = ''
    variant: str | None = None


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows that share a heading."""

    head: Text
    rows: Sequence[Sequence[Text]]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; the first column holds the headings of the blocks.

    :param numeric: positions of the columns that hold numbers
    """

    name: str
    caption: str
    columns: Sequence[str]
    blocks: Sequence[Block]
    numeric: frozenset[int] = frozenset()


def verdict(model: Data) -> list[Table]:
    """Return the tables with the verdicts on loads and on operations."""
    found = (
        _verdict(model, 'loads', 'tps', 'Transactions per second, mean ± 95 % interval'),
        _verdict(model, 'operations', 'seconds', 'Wall time in seconds, mean ± 95 % interval'),
    )
    return [table for table in found if table.blocks]


def _verdict(model: Data, key: str, metric: str, caption: str) -> Table:
    names, baseline = [each['name'] for each in model['variants']], model['baseline']
    shown = [
        name
        for name in names
        if any(each['variant'] == name for group in model[key] for each in group['variants'])
    ]
    columns = ['Load' if key == 'loads' else 'Operation']
    for name in shown:
        columns.append(name)
        if baseline and name != baseline:
            columns.append(f'{name} / {baseline}')
    blocks = []
    for group in model[key]:
        by_name = {each['variant']: each for each in group['variants']}
        row = []
        for name in shown:
            each = by_name.get(name)
            row.append(_figure(each, metric))
            if baseline and name != baseline:
                row.append(_ratio(each, metric, _SPEED))
        blocks.append(Block(_head(group['label']), [row]))
    if baseline:
        caption += f', and its ratio to {baseline}'
    return Table(f'verdict-{key}', caption, columns, blocks, frozenset(range(1, len(columns))))


def percentiles(model: Data) -> Table:
    """Return the latency distribution of every load."""
    metrics = ('avg_ms', 'p50_ms', 'p95_ms', 'p99_ms', 'p99.9_ms')
    return _by_variant(
        'percentiles',
        'Latency of transactions in ms: means over the repeats, and the maximum of all',
        model['loads'],
        ['Average', 'p50', 'p95', 'p99', 'p99.9', 'Maximum', 'p99 ratio'],
        lambda each: [
            *(_figure(each, metric) for metric in metrics),
            Text(_largest(each['figures']['max_ms'])),
            _ratio(each, 'p99_ms'),
        ],
    )


def gaps(model: Data) -> Table:
    """Return the largest gaps between two acknowledged commits."""
    return _by_variant(
        'gaps',
        'Time between two acknowledged commits of a single-row committer, in ms',
        [group for group in model['loads'] if _any_known([group], 'gap_max_ms')],
        ['Largest gap: median of repeats', 'Worst repeat', 'p99 of commits', 'Ratio'],
        lambda each: [
            Text(numbers.number((each['figures']['gap_max_ms'] or {}).get('median'))),
            Text(_largest(each['figures']['gap_max_ms'])),
            _figure(each, 'commit_p99_ms'),
            _ratio(each, 'gap_max_ms'),
        ],
    )


def operations(model: Data) -> Table:
    """Return the time and costs of operations, by size of the data.

    Columns of what no operation has measured are left out.
    """
    groups = model['operations']
    columns: list[tuple[str, Callable[[Data], Text]]] = [
        ('Wall time, s', lambda each: _figure(each, 'seconds')),
        ('Ratio', lambda each: _ratio(each, 'seconds', _SPEED)),
    ]
    if _any_known(groups, 'gap_max_ms'):
        columns += [
            ('Largest commit gap, ms: median (range)', lambda each: _figure(each, 'gap_max_ms')),
            ('Gap ratio', lambda each: _ratio(each, 'gap_max_ms')),
        ]
    columns += [
        (title, functools.partial(_figure, metric=metric))
        for metric, title in _COSTS.items()
        if _any_known(groups, metric)
    ]
    if _any_known(groups, 'writer_before'):
        columns.append(('Commits/s before and during', _writer))
    columns.append(('Succeeded', _succeeded))
    return _by_variant(
        'operations',
        'Operations: wall time, stall of commits, and costs',
        groups,
        [title for title, _ in columns],
        lambda each: [cell(each) for _, cell in columns],
    )


def _succeeded(each: Data) -> Text:
    failed = each['failed_attempts']
    note = f'{failed} failed before' if failed else ''
    return Text(f'{each["counted"]} of {each["repeats"]}', note)


def _writer(each: Data) -> Text:
    return Text(' → '.join(_figure(each, key).text for key in ('writer_before', 'writer_during')))


def phases(model: Data) -> Table:
    """Return the time of each phase of the operations."""
    blocks = []
    for group in model['operations']:
        rows = [
            [_variant(each['variant']), Text(name), Text(numbers.figure(figure, 's'))]
            for each in group['variants']
            for name, figure in each['phases'].items()
        ]
        if rows:
            blocks.append(Block(_head(group['label']), rows))
    columns = ['Conditions', 'Variant', 'Phase', 'Time, s']
    return Table('phases', 'Phases of operations', columns, blocks, frozenset((3,)))


def instances(model: Data) -> Table:
    """Return throughput by the number of instances, in total and per instance."""
    sweeps = model['instance_sweeps']
    counts = sorted({value for sweep in sweeps for value in sweep['values']})
    blocks = []
    for sweep in sweeps:
        rows = []
        for line in sweep['lines']:
            found = {point['instances']: point['figures']['tps'] for point in line['points']}
            rows.append(
                [
                    _variant(line['variant']),
                    *(_divided(found.get(count), count) for count in counts),
                ]
            )
        blocks.append(Block(_head(sweep['label']), rows))
    return Table(
        'instances',
        'TPS by the number of instances: total and per instance',
        ['Load', 'Variant', *map(str, counts)],
        blocks,
        frozenset(range(2, 2 + len(counts))),
    )


def fills(model: Data) -> Table:
    """Return writes per GiB of pool and image, throughput and latency by how full the pool is."""
    blocks = []
    for sweep in model['fill_sweeps']:
        rows = [
            [
                _variant(line['variant']),
                Text(f'{point["fill_percent"]:g}'),
                *(
                    Text(numbers.figure(figure, result_groups.METRICS[metric].unit))
                    for metric, figure in point['figures'].items()
                ),
            ]
            for line in sweep['lines']
            for point in line['points']
        ]
        blocks.append(Block(_head(sweep['label']), rows))
    columns = [
        'Load',
        'Variant',
        'Pool, % full',
        'Writes per GiB of the pool',
        'Writes per GiB of the image',
        'TPS',
        'p99, ms',
    ]
    caption = 'Writes per second and GiB by how full the pool is'
    return Table('fills', caption, columns, blocks, frozenset(range(2, 7)))


def images(model: Data) -> Table:
    """Return the figures of the RBD image below."""
    return _by_variant(
        'images',
        'The RBD image below, during the measured phase',
        [group for group in model['loads'] if _any_known([group], 'write_iops')],
        [
            'Reads/s',
            'Writes/s',
            'Read MiB/s',
            'Written MiB/s',
            'Read latency, ms',
            'Write latency, ms',
            'IOPS per GiB',
            'Writes per GiB',
        ],
        lambda each: [_figure(each, metric) for metric in IMAGE_METRICS],
    )


def volumes(model: Data) -> Table:
    """Return the fio figures of the volumes without MySQL."""
    blocks = []
    for job in dict.fromkeys(row['job'] for row in model['volumes']):
        rows = [
            [
                _variant(row['variant']),
                Text(numbers.number(row['iops'])),
                Text(numbers.number(row['mib_s'])),
                *(
                    Text(numbers.number((row['latency_ms'] or {}).get(key)))
                    for key in ('avg', 'p99', 'p99.9', 'p99.99')
                ),
                Text(numbers.number((row['flush_ms'] or {}).get('p99'))),
            ]
            for row in model['volumes']
            if row['job'] == job
        ]
        blocks.append(Block(Text(job), rows))
    columns = ['Job', 'Variant', 'IOPS', 'MiB/s', 'Average, ms', 'p99, ms', 'p99.9, ms']
    columns += ['p99.99, ms', 'Flush p99, ms']
    caption = 'The volume without MySQL, by fio'
    return Table('volumes', caption, columns, blocks, frozenset(range(2, len(columns))))


def processors(model: Data) -> Table:
    """Return the CPU use of client, server and host."""
    return _by_variant(
        'processors',
        'CPU use: cores of client and server, and share of the whole host',
        [group for group in model['loads'] if _any_known([group], 'host_busy')],
        ['Client cores', 'Server cores', 'Host busy'],
        lambda each: [
            _figure(each, metric) for metric in ('client_cores', 'server_cores', 'host_busy')
        ],
    )


def comparison(model: Data) -> Table:
    """Return the comparison of these results with another folder's."""
    found = model['comparison'] or {'rows': []}
    blocks = []
    for label in dict.fromkeys(row['label'] for row in found['rows']):
        rows = [
            [
                _variant(row['variant']),
                Text(
                    result_groups.METRICS[row['metric']].label,
                    result_groups.METRICS[row['metric']].unit,
                ),
                Text(numbers.figure(row['of'], result_groups.METRICS[row['metric']].unit)),
                Text(numbers.figure(row['to'], result_groups.METRICS[row['metric']].unit)),
                _ratio_text(row['ratio'], row['verdict']),
            ]
            for row in found['rows']
            if row['label'] == label
        ]
        blocks.append(Block(_head(label), rows))
    columns = ['Cell', 'Variant', 'Figure', 'Now', 'Baseline', 'Ratio']
    caption = 'These results compared with the baseline folder, unpaired'
    return Table('comparison', caption, columns, blocks, frozenset((3, 4)))


def _by_variant(
    name: str, caption: str, groups: Iterable[Data], columns: Sequence[str], row: Row
) -> Table:
    """Return a table with a block for each group and a row for each of its variants."""
    blocks = [
        Block(
            _head(group['label']),
            [[_variant(each['variant']), *row(each)] for each in group['variants']],
        )
        for group in groups
    ]
    # A ratio is followed by its interval, so it is aligned left.
    numeric = frozenset(
        number for number, column in enumerate(columns, 2) if 'ratio' not in column.lower()
    )
    return Table(name, caption, ['Conditions', 'Variant', *columns], blocks, numeric)


def _head(label: str) -> Text:
    first, _, rest = label.partition(' · ')
    return Text(first, rest)


def _variant(name: str) -> Text:
    return Text(name, variant=name)


def _figure(each: Data | None, metric: str) -> Text:
    figure = each['figures'][metric] if each else None
    return Text(numbers.figure(figure, result_groups.METRICS[metric].unit))


def _ratio(each: Data | None, metric: str, phrases: Mapping[str, str] | None = None) -> Text:
    if each is None or metric not in each['ratios']:
        return Text('')
    return _ratio_text(each['ratios'][metric], each['verdicts'][metric], phrases)


def _ratio_text(ratio: Data | None, verdict: str, phrases: Mapping[str, str] | None = None) -> Text:
    if ratio is None:
        return Text(numbers.UNKNOWN)
    tone = 'open'
    if verdict in ('better', 'worse'):
        tone = f'{verdict} {"up" if ratio["value"] > 1 else "down"}'
    phrase = (phrases or {}).get(verdict, verdict)
    note = ', '.join(part for part in (numbers.interval(ratio), phrase) if part)
    return Text(numbers.number(ratio['value']), note, tone)


def _largest(figure: Data | None) -> str:
    return numbers.number(figure['high'] if figure else None)


def _divided(figure: Data | None, count: int) -> Text:
    if figure is None:
        return Text(numbers.UNKNOWN)
    return Text(numbers.plus_minus(figure), f'{numbers.number(figure["value"] / count)} each')


def _any_known(groups: Iterable[Data], metric: str) -> bool:
    return any(each['figures'][metric] for group in groups for each in group['variants'])
