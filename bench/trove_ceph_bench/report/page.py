# SPDX-License-Identifier: Apache-2.0
"""Render the report as one self-contained HTML page, and as Markdown."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from trove_ceph_bench import numbers, plan
from trove_ceph_bench.report import plots, reference_tables, svg, tables, timeline
from trove_ceph_bench.report.tables import Table

Data = Mapping[str, Any]

_SIZE_METRICS = ('seconds', 'gap_max_ms', *plan.COSTS)

_TEMPLATES = jinja2.PackageLoader(__package__)
_ENVIRONMENT = jinja2.Environment(
    loader=_TEMPLATES,
    autoescape=jinja2.select_autoescape(('html.j2',)),
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


@dataclasses.dataclass(frozen=True)
class Plot:
    """A plot as SVG, with a separate layout for phones if it differs."""

    svg: str
    narrow: str | None = None
    title: str = ''


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page under a heading.

    :param folded: plots that are collapsed at first
    """

    name: str
    title: str
    text: str
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    folded: Sequence[Plot] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.plots or self.folded or any(table.blocks for table in self.tables))


def html(model: Data) -> str:
    """Return the page."""
    palette = svg.Palette([variant['name'] for variant in model['variants']])
    sections = [section for section in _sections(model, palette) if not section.is_empty]
    template = _ENVIRONMENT.get_template('index.html.j2')
    style = _TEMPLATES.get_source(_ENVIRONMENT, 'style.css')[0]
    return template.render(
        model=model,
        style=style,
        palette=palette,
        verdict=tables.verdict(model),
        ratio_plots=_ratio_plots(model, palette),
        sections=sections,
        differing=reference_tables.differing(model),
        settings=[
            reference_tables.section(model, section, number)
            for number, section in enumerate(model['disclosure'])
        ],
        count=numbers.count,
    )


def markdown(model: Data) -> str:
    """Return the same tables as Markdown, for issues and mails."""
    found = [*tables.verdict(model)]
    for section in _sections(model, None):
        found += [table for table in section.tables if table.blocks]
    differing = reference_tables.differing(model)
    template = _ENVIRONMENT.get_template('report.md.j2')
    return template.render(model=model, tables=[*found, differing], cell=_markdown_cell)


def _markdown_cell(text: tables.Text) -> str:
    shown = f'{text.text} ({text.note})' if text.note else text.text
    return shown.replace('|', '\\|').replace('\n', ' ')


def _ratio_plots(model: Data, palette: svg.Palette) -> list[Plot]:
    found = []
    for key, metric in (('loads', 'tps'), ('operations', 'seconds')):
        if any(each['ratios'].get(metric) for group in model[key] for each in group['variants']):
            name = f'ratios-{key}'
            found.append(Plot(plots.ratios(model[key], metric, model['baseline'], palette, name)))
    return found


def _sections(model: Data, palette: svg.Palette | None) -> list[Section]:
    """Return all sections in order; without a palette they have no plots."""
    return [
        Section(
            'threads',
            'Sweep over threads',
            'More threads give more throughput until a resource is saturated; beyond that point '
            'only the latency grows. Bars are 95 % intervals.',
            plots=_thread_plots(model, palette) if palette else (),
        ),
        Section(
            'instances',
            'Sweep over instances',
            'The same load on each of several servers at once.',
            [tables.instances(model)],
            _instance_plots(model, palette) if palette else (),
        ),
        Section(
            'fills',
            'Sweep over the fill of the pool',
            'Public clouds promise operations per gigabyte. A pool has a number of operations for '
            'all of its data, so each gigabyte gets fewer of them the fuller it is: the writes are '
            'divided by all data in the pool. Divided by the size of the image, they show whether '
            'a pool that is nearly full is slower.',
            [tables.fills(model)],
        ),
        _timeline_section(model, palette),
        Section(
            'latency',
            'Latency',
            'Measured by sysbench, over the measured phase.',
            [tables.percentiles(model)],
        ),
        Section(
            'gaps',
            'Commit gaps',
            'A separate client commits single rows without a pause. The longest time between two '
            'acknowledged commits is the stall that a user would notice.',
            [tables.gaps(model)],
        ),
        Section(
            'operations',
            'Operations by data size',
            'An operation that copies by reference costs the same at every size; one that copies '
            'bytes does not.',
            [tables.operations(model), tables.phases(model)],
            _size_plots(model, palette) if palette else (),
        ),
        Section(
            'storage',
            'The storage below',
            'Means over the measured phase, measured by Ceph.',
            [tables.images(model), tables.volumes(model)],
        ),
        Section(
            'processors',
            'Processors',
            'A client without spare CPU time measures its own limit.',
            [tables.processors(model)],
        ),
        Section(
            'comparison',
            'Comparison with another folder',
            _comparison_text(model),
            [tables.comparison(model)],
        ),
        Section(
            'references',
            'Reference architectures',
            'Absolute figures depend on the hardware. Ratios within one system are comparable.',
            [
                reference_tables.measured(model),
                reference_tables.published_ratios(model),
                reference_tables.published_figures(model),
            ],
        ),
    ]


def _timeline_section(model: Data, palette: svg.Palette | None) -> Section:
    text = (
        'The measured phase of one repeat of each variant, the one with the median throughput; '
        'without the warm-up. Shaded: events, each in the colour of its variant.'
    )
    if palette is None:
        return Section('timeline', 'Timeline', text)
    shown = [line for line in model['timelines'] if any(each['tps'] for each in line['lines'])]
    found = [
        Plot(
            timeline.plot(each, timeline.WIDE, palette, f'timeline{number}'),
            timeline.plot(each, timeline.NARROW, palette, f'timeline{number}n'),
            each['label'],
        )
        for number, each in enumerate(shown)
    ]
    return Section('timeline', 'Timeline', text, plots=found[:1], folded=found[1:])


def _thread_plots(model: Data, palette: svg.Palette) -> list[Plot]:
    found = []
    for number, sweep in enumerate(model['thread_sweeps']):
        for kind, draw in (('tps', plots.throughput), ('stick', plots.latency_over_throughput)):
            found.append(
                Plot(draw(sweep, palette, f'threads{number}-{kind}'), title=sweep['label'])
            )
    return found


def _instance_plots(model: Data, palette: svg.Palette) -> list[Plot]:
    return [
        Plot(plots.throughput(sweep, palette, f'instances{number}'), title=sweep['label'])
        for number, sweep in enumerate(model['instance_sweeps'])
    ]


def _size_plots(model: Data, palette: svg.Palette) -> list[Plot]:
    drawn = (
        (sweep, plots.over_size(sweep, metric, palette, f'size{number}-{metric}'))
        for number, sweep in enumerate(model['size_sweeps'])
        for metric in _SIZE_METRICS
    )
    return [Plot(image, title=sweep['label']) for sweep, image in drawn if image]


def _comparison_text(model: Data) -> str:
    found = model['comparison']
    if found is None:
        return ''
    text = f'Against {found["baseline"]}.'
    for key, where in (('only_store', 'here'), ('only_baseline', 'there')):
        if found[key]:
            text += f' Only {where}: {"; ".join(found[key])}.'
    return text
