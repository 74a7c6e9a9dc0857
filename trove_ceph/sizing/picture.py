# SPDX-License-Identifier: Apache-2.0
"""A picture of a cluster: its hosts with their fill, how near each limit is, and a failure."""

import io
import math
import re
from collections.abc import Iterator
from typing import Any

import matplotlib
from matplotlib import axes, figure, layout_engine, patches
from oslo_utils import units

from trove_ceph.reference_figures import BACKFILLFULL, FULL, NEARFULL
from trove_ceph.sizing import failure
from trove_ceph.sizing.cluster import Cluster
from trove_ceph.sizing.report import Report, duration

#: As wide as a desktop's window.
_WIDTH, _HEIGHT = 1280, 760
_UNITS_PER_INCH = 72
_TEXT, _MUTED, _GRID = '#1f2933', '#5a6772', '#d5dbe1'
_USED, _FREE, _LOST, _OVER = '#2f6fb0', '#e8edf2', '#c0392b', '#c0392b'
_STYLE: Any = {
    'svg.fonttype': 'none',
    'svg.hashsalt': 'trove-ceph-size',
    'font.family': 'DejaVu Sans',
    'font.size': 12,
    'axes.titlesize': 13,
    'axes.titlelocation': 'left',
    'axes.edgecolor': _GRID,
    'axes.labelcolor': _MUTED,
    'text.color': _TEXT,
    'axes.titlecolor': _TEXT,
    'xtick.color': _MUTED,
    'ytick.color': _TEXT,
    'xtick.major.size': 0,
    'ytick.major.size': 0,
}
#: Hosts and racks are named up to this number.
_MOST_LABELS = 40
#: Between racks, in widths of a host.
_GAP = 0.6
#: Width to height of the panel with the hosts.
_ASPECT = 1.6


def draw(report: Report) -> str:
    """Return the picture as an SVG document."""
    with matplotlib.rc_context(_STYLE):
        size = (_WIDTH / _UNITS_PER_INCH, _HEIGHT / _UNITS_PER_INCH)
        layout = layout_engine.ConstrainedLayoutEngine(
            w_pad=0.25, h_pad=0.15, wspace=0.02, hspace=0.02
        )
        drawn = figure.Figure(figsize=size, layout=layout, facecolor='white')
        grid = drawn.add_gridspec(2, 2, width_ratios=(1.1, 1), height_ratios=(1.55, 1))
        drawn.suptitle(_title(report.cluster), fontsize=16, x=0.016, ha='left', color=_TEXT)
        _hosts(drawn.add_subplot(grid[0, 0]), report)
        _limits(drawn.add_subplot(grid[0, 1]), report)
        _fills(drawn.add_subplot(grid[1, :]), report)
        stream = io.StringIO()
        about = {'Date': None, 'Title': _title(report.cluster)}
        drawn.savefig(stream, format='svg', metadata=about)
    # matplotlib leaves blanks at the ends of lines.
    return re.sub(r' +$', '', stream.getvalue(), flags=re.MULTILINE)


def _title(cluster: Cluster) -> str:
    design = cluster.request.design
    return (
        f'{cluster.nodes} servers with {cluster.devices_per_node} '
        f'{design.device.device_class} of {design.device.size_bytes / units.T:.3g} TB, '
        f'{design.redundancy}: {cluster.usable_bytes / units.T:,.1f} TB usable'
    )


def _hosts(ax: axes.Axes, report: Report) -> None:
    """Draw each host as a box that is filled as far as its devices; racks are framed."""
    cluster, outcome = report.cluster, report.outcome
    layout = failure.topology(cluster)
    lost = outcome.lost_nodes if outcome else frozenset()
    fill = outcome.fill if outcome else cluster.fill
    has_racks = layout.nodes_per_rack is not None
    columns, rows = _block(len(layout.racks[0]))
    across = _across(len(layout.racks), columns + _GAP, rows + _GAP)
    for number, rack in enumerate(layout.racks):
        left, top = number % across * (columns + _GAP), number // across * (rows + _GAP)
        if has_racks:
            frame = patches.Rectangle(
                (left - 0.1, top - 0.1), columns + 0.1, rows + 0.1, fill=False, edgecolor=_MUTED
            )
            ax.add_patch(frame)
            if len(layout.racks) <= _MOST_LABELS:
                ax.text(left - 0.1, top - 0.17, f'rack {number}', va='bottom', fontsize=11)
        for index, node in enumerate(rack):
            corner = (left + index % columns, top + index // columns)
            _host(ax, corner, min(fill, 1), node in lost)
            if cluster.nodes <= _MOST_LABELS:
                _host_label(ax, corner, node)
    when = f'without {len(lost)} lost (red)' if lost else 'at the end of the growth'
    ax.set_title(f'Hosts {when}: {fill:.1%} full')
    ax.set_xlim(-0.2, across * (columns + _GAP))
    ax.set_ylim(math.ceil(len(layout.racks) / across) * (rows + _GAP), -0.2 - _GAP * has_racks)
    ax.set_aspect('equal', anchor='NW')
    ax.axis('off')


def _block(hosts: int) -> tuple[int, int]:
    """Return the columns and rows of the hosts of a rack."""
    rows = math.ceil(hosts / max(1, math.ceil(math.sqrt(hosts * _ASPECT))))
    return math.ceil(hosts / rows), rows


def _across(blocks: int, width: float, height: float) -> int:
    """Return the number of blocks beside each other with which all come nearest to the panel."""
    return min(
        range(1, blocks + 1),
        key=lambda across: abs(
            math.log(across * width / (math.ceil(blocks / across) * height) / _ASPECT)
        ),
    )


def _host_label(ax: axes.Axes, corner: tuple[float, float], node: int) -> None:
    background = {'facecolor': 'white', 'edgecolor': 'none', 'pad': 1.5}
    x, y = corner[0] + 0.45, corner[1] + 0.45
    ax.text(x, y, str(node), ha='center', va='center', fontsize=10, bbox=background)


def _host(ax: axes.Axes, corner: tuple[float, float], fill: float, is_lost: bool) -> None:
    x, y = corner
    if is_lost:
        style: Any = {'facecolor': 'white', 'edgecolor': _LOST, 'hatch': '////'}
        ax.add_patch(patches.Rectangle((x, y), 0.9, 0.9, **style))
        return
    ax.add_patch(patches.Rectangle((x, y), 0.9, 0.9, facecolor=_FREE))
    ax.add_patch(patches.Rectangle((x, y + 0.9 * (1 - fill)), 0.9, 0.9 * fill, facecolor=_USED))


def _limits(ax: axes.Axes, report: Report) -> None:
    """Draw how much of each limit is used."""
    rows = list(_limit_rows(report.cluster))
    for row, (_, share, _) in enumerate(rows):
        color = _OVER if share > 1 + 1e-9 else _USED
        ax.barh(row, 1, height=0.5, color=_FREE)
        ax.barh(row, min(share, 1.25), height=0.5, color=color)
    for row, (name, share, numbers) in enumerate(rows):
        ax.text(0, row - 0.32, f'{name}: {numbers}', va='bottom')
        ax.text(max(1, min(share, 1.25)) + 0.02, row, f'{share:.0%}', va='center')
    ax.axvline(1, color=_MUTED, linewidth=1.2)
    ax.set_xlim(0, 1.4)
    ax.set_ylim(len(rows) - 0.5, -0.75)
    ax.set_title('Used of each limit')
    ax.axis('off')


def _limit_rows(cluster: Cluster) -> Iterator[tuple[str, float, str]]:
    """Yield name, used share and numbers of each limit."""
    need, design, fleet = cluster.demand, cluster.request.design, cluster.request.fleet
    most = min(need.fill(cluster.nodes), key=lambda bound: bound.value)
    if most.value > 0:
        yield 'fill', cluster.fill / most.value, f'{cluster.fill:.1%} of {most.value:.1%}'
    if fleet.iops and cluster.iops:
        yield (
            f'IOPS with a lost {design.failure_domain}',
            fleet.iops / cluster.iops,
            f'{fleet.iops:,.0f} of {cluster.iops:,.0f}',
        )
    devices = min(bound.value for bound in need.most_devices_per_node())
    if devices:
        count = cluster.devices_per_node
        yield 'devices of a server', count / devices, f'{count} of {devices:g}'
    share = need.server_share()
    one = 1 / cluster.nodes
    yield 'a server in the cluster', one / share, f'{one:.1%} of {share:.0%}'
    network = max(bound.value for bound in need.network_gbit(cluster.nodes)[1:])
    yield (
        'network of a server',
        network / cluster.network_gbit,
        f'{network:.1f} of {cluster.network_gbit} Gbit/s',
    )
    hours = design.recovery.hours
    if hours and cluster.recovery_sec is not None:
        wanted = hours * 3600
        yield (
            'recovery',
            cluster.recovery_sec / wanted,
            f'{duration(cluster.recovery_sec)} of {duration(wanted)}',
        )


def _fills(ax: axes.Axes, report: Report) -> None:
    """Draw the fill in the mean and of the fullest OSD, against Ceph's own limits."""
    rows = list(_fill_rows(report))
    for row, (_, fill, fullest) in enumerate(rows):
        ax.barh(row, 1, height=0.6, color=_FREE)
        ax.barh(row, min(fill, 1), height=0.6, color=_OVER if fill >= NEARFULL else _USED)
        label = f'{fill:.1%}'
        if fullest is not None:
            ax.plot([min(fullest, 1)] * 2, [row - 0.3, row + 0.3], color=_TEXT, linewidth=2.5)
            label += f', fullest OSD {fullest:.1%}'
        ax.text(1.015, row, label, va='center')
    bottom = len(rows) - 0.5
    for name, limit, align, y in (
        ('nearfull', NEARFULL, 'right', -0.5),
        ('backfillfull', BACKFILLFULL, 'center', bottom + 0.25),
        ('full', FULL, 'left', -0.5),
    ):
        ax.plot([limit] * 2, [-0.5, bottom], color=_LOST, linewidth=1.2, linestyle=(0, (4, 3)))
        ax.text(limit, y, f'{name} {limit:.0%}', ha=align, va='bottom', color=_LOST)
    ax.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    ax.set_xlim(0, 1.3)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ['0 %', '25 %', '50 %', '75 %', '100 %'])
    ax.set_ylim(bottom + 0.3, -0.8)
    ax.spines[:].set_visible(False)
    checked = 'mean, and fullest OSD as CRUSH spreads the data' if report.check else 'mean'
    ax.set_title(f'Fill ({checked})')


def _fill_rows(report: Report) -> Iterator[tuple[str, float, float | None]]:
    """Yield a name, the mean fill, and that of the fullest OSD if CRUSH was asked."""
    cluster, outcome, check = report.cluster, report.outcome, report.check
    highest = failure.highest_fill(cluster.fill, check.before) if check else None
    yield 'all hosts', cluster.fill, highest
    if outcome:
        after = check.after if check else None
        yield (
            f'without {report.failed}',
            outcome.fill,
            failure.highest_fill(outcome.fill, after) if after else None,
        )
        if not outcome.is_even:
            yield 'rest of the rack', outcome.domain_fill, None
        return
    design = cluster.request.design
    domains = cluster.demand.domains(cluster.nodes)
    yield f'without one {design.failure_domain}', cluster.fill * domains / (domains - 1), None
