# SPDX-License-Identifier: Apache-2.0
"""The plots of figures over threads, instances and data size, as SVG elements.

Every function takes its part of the report's model, the page's palette and a name for the element
that is unique within the page. Plots are as wide as a phone, because text that is scaled down is
not read; a desktop shows two beside one another.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib import axes, ticker
from oslo_utils import units

from trove_ceph_bench import numbers, result_groups
from trove_ceph_bench.report import svg

WIDTH = 440

#: Largest value by smallest from which on an axis is logarithmic.
_LOG_FROM = 30
_LOG_RATIO_FROM = 4


Data = Mapping[str, Any]
#: Place on the axis, middle, low and high end.
Point = tuple[float, float, float, float]
#: What a point's figure is divided by.
Divisor = Callable[[Data], float]


def ratios(
    groups: Sequence[Data], metric: str, baseline: str, palette: svg.Palette, name: str
) -> str:
    """Return ratios to the baseline with their intervals, a block of rows for each group."""
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
        said = '; '.join(
            f'{label}, {each["variant"]}: {numbers.number(each["ratios"][metric]["value"])}'
            for label, members in rows
            for each in members
        )
        return svg.render(drawn, name, f'Ratios to {baseline}', said)


def _ratio_block(
    ax: axes.Axes,
    index: int,
    label: str,
    members: Sequence[Data],
    metric: str,
    names: Sequence[str],
    palette: svg.Palette,
) -> None:
    place = ('axes fraction', 'data')
    # On its own ground, so that the line at 1 and the grid do not run through the text.
    ground = {'facecolor': svg.SURFACE, 'edgecolor': 'none', 'pad': 1.5}
    ax.annotate(label, (0, index - 0.32), xycoords=place, va='center', fontsize=10.5, bbox=ground)
    for each in members:
        ratio = each['ratios'][metric]
        row = index - 0.12 + 0.5 * (names.index(each['variant']) + 0.5) / len(names)
        value, low, high = (ratio[key] for key in ('value', 'low', 'high'))
        errors = None if low is None else [[value - low], [high - value]]
        style = palette.style(each['variant']) | {'linestyle': 'none'}
        ax.errorbar([value], [row], xerr=errors, **style)


def throughput(sweep: Data, palette: svg.Palette, name: str) -> str:
    """Return throughput over the axis of a sweep; over instances, that of each instance too."""
    shown: dict[str, Divisor] = {'TPS': _whole}
    if sweep['axis'] == 'instances':
        shown = {
            'TPS, all instances together': _whole,
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
        return svg.render(drawn, name, title, _said(sweep, 'tps'))


def hockey_stick(sweep: Data, palette: svg.Palette, name: str) -> str:
    """Return latency against throughput; each point is a number of threads."""
    with svg.style():
        drawn = svg.new_figure(WIDTH, 400)
        panels = drawn.subplots(2, 1, sharex=True)
        for panel, metric in zip(panels, ('p95_ms', 'p99_ms'), strict=True):
            for line in sweep['lines']:
                _stick(panel, line, metric, palette)
            panel.set_title(f'{result_groups.METRICS[metric].label}, ms')
            panel.margins(x=0.08, y=0.15)
            panel.set_ylim(bottom=0)
            panel.yaxis.set_major_formatter(_plain_number)
        panels[-1].set_xlim(left=0)
        panels[-1].xaxis.set_major_formatter(_plain_number)
        panels[-1].set_xlabel('TPS; beside each point its number of threads')
        palette.legend(drawn, [line['variant'] for line in sweep['lines']])
        title = f'Latency against throughput: {sweep["label"]}'
        return svg.render(drawn, name, title, _said(sweep, 'p99_ms'))


def _stick(ax: axes.Axes, line: Data, metric: str, palette: svg.Palette) -> None:
    points = [
        (_middle(point['figures']['tps']), _middle(point['figures'][metric]), point['threads'])
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
    """Return a figure of an operation over the size of the data; None when it is not known."""
    unit, label = result_groups.METRICS[metric].unit, result_groups.METRICS[metric].label
    is_size = unit == 'bytes'
    lines = {
        line['variant']: _points(line, 'data_mib', metric, _in_mib if is_size else _whole)
        for line in sweep['lines']
    }
    if not any(lines.values()):
        return None
    with svg.style():
        drawn = svg.new_figure(WIDTH, 300)
        ax = drawn.subplots()
        for variant, points in lines.items():
            _line(ax, variant, points, palette)
        value_axis(ax, [middle for points in lines.values() for _, middle, _, _ in points])
        ax.set_xscale('log', base=2)
        ax.set_xticks(sweep['values'], [numbers.size(mib * units.Mi) for mib in sweep['values']])
        ax.xaxis.set_minor_locator(ticker.NullLocator())
        ax.margins(x=0.06)
        ax.set_xlabel('size of the data')
        ax.set_title(f'{label}, {"MiB" if is_size else unit}')
        palette.legend(drawn, [line['variant'] for line in sweep['lines']])
        title = f'{sweep["label"]}: {label.lower()} over the size of the data'
        return svg.render(drawn, name, title, _said(sweep, metric))


def value_axis(ax: axes.Axes, known: Sequence[float]) -> None:
    """Make the vertical axis logarithmic when values are of different orders, else begin at 0."""
    positive = [value for value in known if value > 0]
    if positive and max(positive) / min(positive) >= _LOG_FROM:
        if len(positive) < len(known):
            # Zero has no place on a logarithmic axis; symlog keeps it, at the bottom.
            ax.set_yscale('symlog', linthresh=min(positive) / 2, linscale=0.5)
        else:
            ax.set_yscale('log')
            ax.yaxis.set_major_locator(_log_locator(positive))
        ax.yaxis.set_minor_locator(ticker.NullLocator())
    else:
        # What was left above is a share of the values' range, which without 0 may be small.
        ax.set_ylim(0, 1.05 * ax.get_ylim()[1])
    ax.yaxis.set_major_formatter(_plain_number)


def _log_locator(values: Sequence[float]) -> ticker.Locator:
    """Mark more than the powers of ten where there are few of them."""
    is_short = max(values) / min(values) < 300
    return ticker.LogLocator(subs=(1, 2, 5) if is_short else (1,))


def _ratio_axis(ax: axes.Axes, values: Sequence[float]) -> None:
    """Make ratios of different orders as far from 1 as their inverses are."""
    reach = [*values, 1.0]
    if max(reach) / min(reach) >= _LOG_RATIO_FROM:
        ax.set_xscale('log')
        ax.xaxis.set_major_locator(_log_locator(reach))
        ax.xaxis.set_minor_locator(ticker.NullLocator())
    ax.xaxis.set_major_formatter(_plain_number)


def _whole(point: Data) -> float:
    return 1.0


def _in_mib(point: Data) -> float:
    return units.Mi


def _points(line: Data, axis: str, metric: str, divisor: Divisor) -> list[Point]:
    """Return place, middle, low and high end of a metric for each point that has it."""
    return [
        (point[axis], *(value / divisor(point) for value in _three(point['figures'][metric])))
        for point in line['points']
        if point['figures'][metric]
    ]


def _line(ax: axes.Axes, variant: str, points: Sequence[Point], palette: svg.Palette) -> None:
    below = [max(0, middle - low) for _, middle, low, _ in points]
    above = [max(0, high - middle) for _, middle, _, high in points]
    at, values = [point[0] for point in points], [point[1] for point in points]
    ax.errorbar(at, values, yerr=[below, above], elinewidth=1.1, **palette.style(variant))


def _count_axis(ax: axes.Axes, values: Sequence[int]) -> None:
    """Mark the counts that were measured; evenly doubled ones stand at even distances."""
    if max(values) / min(values) >= 8:
        ax.set_xscale('log', base=2)
        ax.xaxis.set_minor_locator(ticker.NullLocator())
    ax.set_xticks(values, [str(value) for value in values])
    ax.margins(x=0.06)


def _middle(figure: Data) -> float:
    return figure['median'] if 'median' in figure else figure['value']


def _three(figure: Data) -> tuple[float, float, float]:
    """Return middle, low and high end; the same value where there is no interval."""
    middle = _middle(figure)
    if figure['low'] is None:
        return middle, middle, middle
    return middle, figure['low'], figure['high']


def _said(sweep: Data, metric: str) -> str:
    """Return a sweep's values for those who hear the page."""
    unit = result_groups.METRICS[metric].unit
    lines = []
    for line in sweep['lines']:
        values = ', '.join(
            f'{point[sweep["axis"]]}: {numbers.in_unit(_middle(point["figures"][metric]), unit)}'
            for point in line['points']
            if point['figures'][metric]
        )
        lines.append(f'{line["variant"]}: {values}')
    named = '' if unit in ('', 'bytes', 'share') else f', {unit}'
    return f'{result_groups.METRICS[metric].label}{named} by {sweep["axis"]}. {"; ".join(lines)}'


def _plain_number(value: float, position: float) -> str:
    return f'{value:,g}'.replace(',', numbers.THIN)
