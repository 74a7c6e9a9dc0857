# SPDX-License-Identifier: Apache-2.0
"""Columns that show people another form of a value than programs."""

import datetime
import enum
import json
from typing import Any

from cliff import columns

from trove_ceph import times


class Optional(columns.FormattableColumn):
    """A value that may be missing."""

    def human_readable(self) -> str:
        """Return a dash for a value that is missing."""
        return '-' if self._value is None else str(self._value)


class Percent(columns.FormattableColumn):
    """A share from 0 to 1, or None."""

    def human_readable(self) -> str:
        """Return it in percent."""
        return '-' if self._value is None else f'{self._value:.1%}'


class Seconds(columns.FormattableColumn):
    """A duration in whole seconds, or None."""

    def human_readable(self) -> str:
        """Return it in the largest unit that it fills twice."""
        if self._value is None:
            return '-'
        for unit, length in (('d', 86400), ('h', 3600), ('min', 60)):
            if self._value >= 2 * length:
                return f'{self._value // length} {unit}'
        return f'{self._value} s'


class Structure(columns.FormattableColumn):
    """Dictionaries and lists."""

    def human_readable(self) -> str:
        """Return them as indented JSON."""
        return json.dumps(self._value, indent=2)


def of(value: Any) -> Any:
    """Return a value as a command shows it."""
    if isinstance(value, (dict, list, tuple)):
        return Structure(value)
    if isinstance(value, datetime.datetime):
        return times.utc_text(value)
    if isinstance(value, enum.StrEnum):
        return str(value)
    return Optional(value) if value is None else value
