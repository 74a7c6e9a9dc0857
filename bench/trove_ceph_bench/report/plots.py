# SPDX-License-Identifier: Apache-2.0
"""Plot figures over threads, instances and data size, as SVG elements.

Every function takes its part of the report's model, the page's palette, and a name for the element
that is unique within the page. Plots are as wide as a phone, because scaled-down text is not
readable; a desktop shows two side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib import axes, ticker
from oslo_utils import units

from trove_ceph_bench import numbers, result_groups
from trove_ceph_bench.report import svg

WIDTH = 440

#: An axis is logarithmic from this ratio of the largest to the smallest value.
_LOG_FROM = 30
_LOG_RATIO_FROM = 4


Data = Mapping[str, Any]
#: Position on the axis, center, low and high end.
Point = tuple[float, float, float, float]
#: Returns the divisor of a point's figure.
Divisor = Callable[[Data], float]


def ratios(
    groups: Sequence[Data], metric: str, baseline: str, palette: svg.Palette, name: str
) -> str:
    """Plot ratios to the baseline with their intervals, a block of rows for each group."""
    rows = [
        (group['label'], [each for each in group['variants'] if each['ratios'].get(metric)])
        for group in groups
    ]
    rows = [(label, members) for label, members in rows if members]
    names = list(dict.fromkeys(each['variant'] for _, members in rows for each in members))
    with svg.style():
        drawn = svg.new_figure(WIDTH, 74 + len(rows) * (26 + 15 * len(names)))
        ax = drawn.subplots()
        ax.axvline(1, color=svg.MUTED, linewidth=1.2)
        for index, (label, members) in enumerate(rows):
            _ratio_block(ax, index, label, members, metric, names, palette)
        ax.set_ylim(len(rows) - 0.5, -0.6)
        ax.set_yticks([])
        ax.spines['left'].set_visible(False)
        _ratio_axis(
            ax, [each['ratios'][metric]['value'] for _, members in rows for each in members]
        )
        ax.margins(x=0.06)
        ax.set_xlabel(f'{result_groups.METRICS[metric].label}: ratio to {baseline}')
        palette.legend(drawn, names)
        description = '; '.join(
            f'{label}, {each["variant"]}: {numbers.number(each["ratios"][metric]["value"])}'
            for label, members in rows
            for each in members
        )
        return svg.render(drawn, name, f'Ratios to {baseline}', description)


def _ratio_block(
    ax: axes.Axes,
    index: int,
    label: str,
    members: Sequence[Data],
    metric: str,
    names: Sequence[str],
    palette: svg.Palette,
) -> None:
    # The background keeps the line at 1 and the grid from crossing the text.
    ax.annotate(
        label,
        (0, index - 0.32),
        xycoords=('axes fraction', 'data'),
        va='center',
        fontsize=10.5,
        bbox={'facecolor': svg.SURFACE, 'edgecolor': 'none', 'pad': 1.5},
    )
    for each in members:
        ratio = each['ratios'][metric]
        row = index - 0.12 + 0.5 * (names.index(each['variant']) + 0.5) / len(names)
        value, low, high = (ratio[key] for key in ('value', 'low', 'high'))
        errors = None if low is None else [[value - low], [high - value]]
        style = palette.style(each['variant']) | {'linestyle': 'none'}
        ax.errorbar([value], [row], xerr=errors, **style)


def throughput(sweep: Data, palette: svg.Palette, name: str) -> str:
    """Plot throughput over the axis of a sweep; over instances, also per instance."""
    shown: dict[str, Divisor] = {'TPS': _undivided}
    if sweep['axis'] == 'instances':
        shown = {
            'TPS, all instances together': _undivided,
            'TPS for each instance': lambda point: point['instances'],
        }
    with svg.style():
        drawn = svg.new_figure(WIDTH, 400)
        panels = drawn.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for panel, (title, divisor) in zip(panels, shown.items(), strict=True):
            for line in sweep['lines']:
                points = _points(line, sweep['axis'], 'tps', divisor)
                _line(panel, line['variant'], points, palette)
            panel.set_title(title)
            panel.set_ylim(bottom=0)
            panel.yaxis.set_major_formatter(_plain_number)
        _count_axis(panels[-1], sweep['values'])
        panels[-1].set_xlabel(sweep['axis'])
        palette.legend(drawn, [line['variant'] for line in sweep['lines']])
        title = f'Throughput over {sweep["axis"]}: {sweep["label"]}'
        return svg.render(drawn, name, title, _description(sweep, 'tps'))


def latency_over_throughput(sweep: Data, palette: svg.Palette, name: str) -> str:
    """Plot latency over throughput; each point is a number of threads."""
    with svg.style():
        drawn = svg.new_figure(WIDTH, 400)
        panels = drawn.subplots(2, 1, sharex=True)
        for panel, metric in zip(panels, ('p95_ms', 'p99_ms'), strict=True):
            for line in sweep['lines']:
                _latency_line(panel, line, metric, palette)
            panel.set_title(f'{result_groups.METRICS[metric].label}, ms')
            panel.margins(x=0.08, y=0.15)
            panel.set_ylim(bottom=0)
            panel.yaxis.set_major_formatter(_plain_number)
        panels[-1].set_xlim(left=0)
        panels[-1].xaxis.set_major_formatter(_plain_number)
        panels[-1].set_xlabel('TPS; each point shows its number of threads')
        palette.legend(drawn, [line['variant'] for line in sweep['lines']])
        title = f'Latency over throughput: {sweep["label"]}'
        return svg.render(drawn, name, title, _description(sweep, 'p99_ms'))


def _latency_line(ax: axes.Axes, line: Data, metric: str, palette: svg.Palette) -> None:
    points = [
        (_center(point['figures']['tps']), _center(point['figures'][metric]), point['threads'])
        for point in line['points']
        if point['figures']['tps'] and point['figures'][metric]
    ]
    tps, latency, threads = zip(*points, strict=True) if points else ((), (), ())
    ax.plot(tps, latency, **palette.style(line['variant']))
    for x, y, count in zip(tps, latency, threads, strict=True):
        ax.annotate(
            str(count),
            (x, y),
            xytext=(0, 6),
            textcoords='offset points',
            ha='center',
            fontsize=10,
            color=svg.MUTED,
        )


def over_size(sweep: Data, metric: str, palette: svg.Palette, name: str) -> str | None:
    """Plot a figure of an operation over the size of the data; return None if it is unknown."""
    unit, label = result_groups.METRICS[metric].unit, result_groups.METRICS[metric].label
    is_size = unit == 'bytes'
    lines = {
        line['variant']: _points(line, 'data_mib', metric, _in_mib if is_size else _undivided)
        for line in sweep['lines']
    }
    if not any(lines.values()):
        return None
    with svg.style():
        drawn = svg.new_figure(WIDTH, 300)
        ax = drawn.subplots()
        for variant, points in lines.items():
            _line(ax, variant, points, palette)
        value_axis(ax, [center for points in lines.values() for _, center, _, _ in points])
        ax.set_xscale('log', base=2)
        ax.set_xticks(sweep['values'], [numbers.size(mib * units.Mi) for mib in sweep['values']])
        ax.xaxis.set_minor_locator(ticker.NullLocator())
        ax.margins(x=0.06)
        ax.set_xlabel('size of the data')
        ax.set_title(f'{label}, {"MiB" if is_size else unit}')
        palette.legend(drawn, [line['variant'] for line in sweep['lines']])
        title = f'{sweep["label"]}: {label.lower()} over the size of the data'
        return svg.render(drawn, name, title, _description(sweep, metric))


def value_axis(ax: axes.Axes, known: Sequence[float]) -> None:
    """Make the vertical axis logarithmic if the values span orders of magnitude, else from 0."""
    positive = [value for value in known if value > 0]
    if positive and max(positive) / min(positive) >= _LOG_FROM:
        if len(positive) < len(known):
            # A logarithmic axis cannot show 0; symlog shows it at the bottom.
            ax.set_yscale('symlog', linthresh=min(positive) / 2, linscale=0.5)
        else:
            ax.set_yscale('log')
            ax.yaxis.set_major_locator(_log_locator(positive))
        ax.yaxis.set_minor_locator(ticker.NullLocator())
    else:
        # The margin is a share of the range of values, which without 0 may be small.
        ax.set_ylim(0, 1.05 * ax.get_ylim()[1])
    ax.yaxis.set_major_formatter(_plain_number)


def _log_locator(values: Sequence[float]) -> ticker.Locator:
    """Return a locator with more marks than powers of ten if the axis spans few of these."""
    is_short = max(values) / min(values) < 300
    return ticker.LogLocator(subs=(1, 2, 5) if is_short else (1,))


def _ratio_axis(ax: axes.Axes, values: Sequence[float]) -> None:
    """Make the axis logarithmic for large ratios, so that inverse ratios are symmetric to 1."""
    reach = [*values, 1.0]
    if max(reach) / min(reach) >= _LOG_RATIO_FROM:
        ax.set_xscale('log')
        ax.xaxis.set_major_locator(_log_locator(reach))
        ax.xaxis.set_minor_locator(ticker.NullLocator())
    ax.xaxis.set_major_formatter(_plain_number)


def _undivided(point: Data) -> float:
    return 1.0


def _in_mib(point: Data) -> float:
    return units.Mi


def _points(line: Data, axis: str, metric: str, divisor: Divisor) -> list[Point]:
    """Return position, center, low and high end of a metric for each point that has it."""
    return [
        (point[axis], *(value / divisor(point) for value in _extent(point['figures'][metric])))
        for point in line['points']
        if point['figures'][metric]
    ]


def _line(ax: axes.Axes, variant: str, points: Sequence[Point], palette: svg.Palette) -> None:
    below = [max(0, center - low) for _, center, low, _ in points]
    above = [max(0, high - center) for _, center, _, high in points]
    at, values = [point[0] for point in points], [point[1] for point in points]
    ax.errorbar(at, values, yerr=[below, above], elinewidth=1.1, **palette.style(variant))


def _count_axis(ax: axes.Axes, values: Sequence[int]) -> None:
    """Mark the measured counts; use a logarithmic axis if they span a factor of 8 or more."""
    if max(values) / min(values) >= 8:
        ax.set_xscale('log', base=2)
        ax.xaxis.set_minor_locator(ticker.NullLocator())
    ax.set_xticks(values, [str(value) for value in values])
    ax.margins(x=0.06)


def _center(figure: Data) -> float:
    return figure['median'] if 'median' in figure else figure['value']


def _extent(figure: Data) -> tuple[float, float, float]:
    """Return center, low and high end; all the same if there is no interval."""
    center = _center(figure)
    if figure['low'] is None:
        return center, center, center
    return center, figure['low'], figure['high']


def _description(sweep: Data, metric: str) -> str:
    """Return a sweep's values as text for screen readers."""
    unit = result_groups.METRICS[metric].unit
    lines = []
    for line in sweep['lines']:
        values = ', '.join(
            f'{point[sweep["axis"]]}: {numbers.in_unit(_center(point["figures"][metric]), unit)}'
            for point in line['points']
            if point['figures'][metric]
        )
        lines.append(f'{line["variant"]}: {values}')
    named = '' if unit in ('', 'bytes', 'share') else f', {unit}'
    return f'{result_groups.METRICS[metric].label}{named} by {sweep["axis"]}. {"; ".join(lines)}'


def _plain_number(value: float, position: float) -> str:
    return f'{value:,g}'.replace(',', numbers.THIN)
