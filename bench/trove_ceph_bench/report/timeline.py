# SPDX-License-Identifier: Apache-2.0
"""Plot a measurement second by second, with its events."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import axes, ticker

from trove_ceph_bench import numbers
from trove_ceph_bench.report import plots, svg

#: Sizes of the plot for desktops and for phones.
WIDE = (960, 480)
NARROW = (plots.WIDTH, 520)

_PANELS = {'tps': 'TPS', 'p99_ms': 'p99 latency, ms', 'gap_max_ms': 'Largest commit gap, ms'}

#: Events of the same name within this time share one label.
_SAME_EVENT_SEC = 2


def plot(
    timeline: Mapping[str, Any], shape: tuple[int, int], palette: svg.Palette, name: str
) -> str:
    """Plot throughput, latency and gaps in stacked panels, with events shaded and labelled."""
    lines = timeline['lines']
    shown = [key for key in _PANELS if any(line[key] for line in lines)]
    with svg.style():
        drawn = svg.new_figure(*shape)
        panels = list(drawn.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0])
        for panel, key in zip(panels, shown, strict=True):
            _draw(panel, lines, key, palette)
        for line in lines:
            _shade_events(panels, line, palette)
        _label_events(panels[0], lines)
        panels[-1].set_xlabel('second of the measured phase')
        panels[-1].xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        palette.legend(drawn, [line['variant'] for line in lines], has_marker=False)
        return svg.render(drawn, name, f'Timeline: {timeline["label"]}', _description(lines))


def _draw(
    panel: axes.Axes, lines: Sequence[Mapping[str, Any]], key: str, palette: svg.Palette
) -> None:
    known = []
    for line in lines:
        # A second without a transaction has no latency, and the line has a gap there.
        points = [(second, math.nan if value is None else value) for second, value in line[key]]
        known += [value for _, value in points if not math.isnan(value)]
        style = palette.style(line['variant'], has_marker=False) | {'linewidth': 1.4}
        panel.plot([second for second, _ in points], [value for _, value in points], **style)
    panel.margins(x=0.01, y=0.1)
    plots.value_axis(panel, known)
    panel.set_title(_PANELS[key])


def _shade_events(
    panels: Sequence[axes.Axes], line: Mapping[str, Any], palette: svg.Palette
) -> None:
    color = palette.style(line['variant'])['color']
    for event in line['events']:
        for panel in panels:
            panel.axvline(event['at_sec'], color=svg.MUTED, linewidth=1, linestyle=(0, (2, 2)))
            if event['ended_sec'] is not None:
                panel.axvspan(event['at_sec'], event['ended_sec'], color=color, alpha=0.13, lw=0)


def _label_events(panel: axes.Axes, lines: Sequence[Mapping[str, Any]]) -> None:
    named: list[tuple[float, str]] = []
    for at, name in sorted(
        (each['at_sec'], each['name']) for line in lines for each in line['events']
    ):
        if not any(name == known and at - since < _SAME_EVENT_SEC for since, known in named):
            named.append((at, name))
    # Alternate between two heights, so that labels of close events do not overlap.
    for number, (at, name) in enumerate(named):
        height = 1.02 if number % 2 == 0 else 1.14
        panel.annotate(
            name, (at, height), xycoords=('data', 'axes fraction'), ha='center', fontsize=10.5
        )


def _description(lines: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for line in lines:
        gaps = [value for _, value in line['gap_max_ms'] if value is not None]
        worst = f', largest commit gap {numbers.number(max(gaps))} ms' if gaps else ''
        events = ', '.join(
            f'{event["name"]} at {numbers.number(event["at_sec"])} s' for event in line['events']
        )
        parts.append(
            f'{line["variant"]}: repeat {line["iteration"] + 1} of {line["of"]}{worst}'
            + (f'; events: {events}' if events else '')
        )
    return '. '.join(parts)
