# SPDX-License-Identifier: Apache-2.0
"""Columns whose values people read in another form than programs do."""

from collections.abc import Mapping
from typing import Any

from cliff import columns
from osc_lib.cli import format_columns

_UNITS = ('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')


class Bytes(columns.FormattableColumn):
    """A number of bytes."""

    def human_readable(self) -> str:
        value, unit = float(self._value), 0
        while value >= 1024 and unit < len(_UNITS) - 1:
            value, unit = value / 1024, unit + 1
        return f'{value:.4g} {_UNITS[unit]}'


class Seconds(columns.FormattableColumn):
    """A number of seconds."""

    def human_readable(self) -> str:
        return f'{self._value:.0f} s' if self._value >= 100 else f'{self._value:.3g} s'


class Unknown(columns.FormattableColumn):
    """A value that is missing or not known."""

    def human_readable(self) -> str:
        return ''


class Pairs(columns.FormattableColumn):
    """A dictionary, shown without the values that are 0 or missing."""

    def human_readable(self) -> str:
        shown = (f'{name}={value}' for name, value in (self._value or {}).items() if value)
        return ', '.join(shown)


class Findings(columns.FormattableColumn):
    """The findings of a verification, one line each."""

    def human_readable(self) -> str:
        lines = []
        for name, value in (self._value or {}).items():
            if isinstance(value, dict):
                value = Pairs(value)
            shown = of(name, value)
            if isinstance(shown, columns.FormattableColumn):
                shown = shown.human_readable()
            if shown:
                lines.append(f'{name}: {shown}')
        return '\n'.join(lines)


class Words(columns.FormattableColumn):
    """A list of words."""

    def human_readable(self) -> str:
        return ', '.join(self._value or ())


class Runs(columns.FormattableColumn):
    """The runs of a policy, one line per instance."""

    def human_readable(self) -> str:
        lines = []
        for run in self._value or ():
            line = f'{run["instance_id"]} {run["state"]}, was due {run["due_at"]}'
            if run['error']:
                line += f', attempt {run["attempts"]}: {run["error"]}'
            if run['retry_at']:
                line += f'; next attempt at {run["retry_at"]}'
            lines.append(line)
        return '\n'.join(lines)


class Replicas(columns.FormattableColumn):
    """The replicas of a source, one line each."""

    def human_readable(self) -> str:
        return '\n'.join(map(_replica_line, self._value or ()))


class Minutes(columns.FormattableColumn):
    """A number of minutes, in the largest unit that divides it."""

    def human_readable(self) -> str:
        for length, unit in ((10080, 'w'), (1440, 'd'), (60, 'h')):
            if self._value % length == 0:
                return f'{self._value // length}{unit}'
        return f'{self._value}m'


def _replica_line(replica: Mapping[str, Any]) -> str:
    line = f'{replica["name"]} ({replica["id"]}): {replica["state"]}'
    if replica['lag_sec'] is not None:
        line += f', {Seconds(replica["lag_sec"]).human_readable()} behind'
    return f'{line}; {replica["problem"]}' if replica['problem'] else line


def of(name: str, value: Any) -> Any:
    """Return a value of a resource as a command shows it."""
    if value is None:
        return Unknown(value)
    if name.endswith('_bytes'):
        return Bytes(value)
    # A throughput per second is no duration.
    if name.endswith('_sec') and not name.endswith('_per_sec'):
        return Seconds(value)
    if name == 'keep':
        return Pairs(value)
    if name == 'defaults':
        return format_columns.DictColumn(value)
    if name == 'replicas':
        return Replicas(value)
    if name == 'verification':
        return Findings(value)
    if name == 'interval_min':
        return Minutes(value)
    if name == 'runs':
        return Runs(value)
    return Words(value) if name in ('places', 'damaged_backups') else value
