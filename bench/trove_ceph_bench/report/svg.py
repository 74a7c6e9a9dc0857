# SPDX-License-Identifier: Apache-2.0
"""Render matplotlib figures as SVG elements for an HTML page.

Text stays text, in the page's font; colours are the page's CSS variables, so that a plot follows
light and dark mode; identifiers are unique, because several plots share one document.
"""

import html
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib import figure, lines

_UNITS_PER_INCH = 72

#: Placeholder colours, replaced by the page's CSS variables when the SVG is written.
TEXT = '#010101'
MUTED = '#020202'
GRID = '#030303'
SURFACE = '#040404'
_VARIABLES = {TEXT: 'text', MUTED: 'muted', GRID: 'grid', SURFACE: 'surface'}

#: One for each colour of the page's palette, ``--v0`` and so on; further variants reuse them.
MARKERS = ('o', 's', '^', 'D', 'v', 'P')

_STYLE: Any = {
    'svg.fonttype': 'none',
    'svg.hashsalt': 'trove-ceph-bench',
    'font.family': 'DejaVu Sans',
    'font.size': 11.5,
    'axes.titlesize': 11.5,
    'axes.titlelocation': 'left',
    'axes.labelsize': 11.5,
    'axes.edgecolor': GRID,
    'axes.labelcolor': MUTED,
    'axes.titlecolor': TEXT,
    'axes.facecolor': 'none',
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.grid': True,
    'axes.axisbelow': True,
    'grid.color': GRID,
    'grid.linewidth': 0.8,
    'text.color': TEXT,
    'xtick.color': MUTED,
    'ytick.color': MUTED,
    'xtick.major.size': 0,
    'ytick.major.size': 0,
    'xtick.minor.size': 0,
    'ytick.minor.size': 0,
    'legend.frameon': False,
    'legend.handlelength': 1.6,
    'legend.borderaxespad': 0,
    'legend.borderpad': 0,
    'lines.linewidth': 1.8,
    'lines.markersize': 5,
    'lines.solid_joinstyle': 'round',
    'figure.facecolor': 'none',
}


class Palette:
    """Colour and marker of each variant, the same in every plot and table of a page.

    :param variants: names, in order
    """

    def __init__(self, variants: Sequence[str]):
        self._number = {name: number for number, name in enumerate(variants)}

    def number(self, variant: str) -> int:
        """Return the number of a variant's colour in the page's palette."""
        return self._number[variant] % len(MARKERS)

    def style(self, variant: str, has_marker: bool = True) -> dict[str, Any]:
        """Return matplotlib's style of a variant's line."""
        number = self.number(variant)
        marker = MARKERS[number] if has_marker else ''
        return {'color': _color(number), 'marker': marker, 'label': variant}

    def legend(self, drawn: figure.Figure, names: Sequence[str], has_marker: bool = True) -> None:
        """Draw a legend with the variants above the plot."""
        handles = [lines.Line2D([], [], **self.style(name, has_marker)) for name in names]
        columns = 3 if max(map(len, names), default=0) < 16 else 1
        drawn.legend(handles=handles, loc='outside upper left', ncols=columns, labelcolor=TEXT)


@contextmanager
def style() -> Iterator[None]:
    """Draw figures in the page's style."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: int, height: int) -> figure.Figure:
    """Return an empty figure; sizes in user units, with text 11.5 units high."""
    size = (width / _UNITS_PER_INCH, height / _UNITS_PER_INCH)
    return figure.Figure(figsize=size, layout='constrained')


def render(drawn: figure.Figure, name: str, title: str, description: str) -> str:
    """Return a figure as an ``svg`` element with a title and a description for screen readers.

    :param name: unique within the page
    """
    stream = io.StringIO()
    with style():
        drawn.savefig(stream, format='svg', transparent=True, metadata={'Date': None})
    text = stream.getvalue()
    text = text[text.index('<svg') :]
    text = re.sub(r'<metadata>.*?</metadata>', '', text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf'\g<1>{name}-', text)
    text = text.replace('xlink:href', 'href')
    text = _use_page_colors(text)
    # The layout was computed with a wide font, so the page's own font fits.
    text = re.sub(r"'DejaVu Sans'[^;\"]*", 'var(--sans)', text)
    view_box = re.search(r'viewBox="([^"]+)"', text)
    assert view_box is not None
    opening = (
        f'<svg viewBox="{view_box[1]}" role="img" '
        f'aria-labelledby="{name}-title" aria-describedby="{name}-desc">\n'
        f'<title id="{name}-title">{html.escape(title)}</title>\n'
        f'<desc id="{name}-desc">{html.escape(description)}</desc>'
    )
    return opening + text[text.index('>') + 1 :].rstrip()


def _color(number: int) -> str:
    """Return the placeholder of a colour of the palette."""
    return f'#0a0a{number:02x}'


def _use_page_colors(text: str) -> str:
    for placeholder, variable in _VARIABLES.items():
        text = text.replace(placeholder, f'var(--{variable})')
    for number in range(len(MARKERS)):
        text = text.replace(_color(number), f'var(--v{number})')
    return text
