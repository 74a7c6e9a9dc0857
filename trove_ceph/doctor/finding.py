# SPDX-License-Identifier: Apache-2.0
"""What a check finds."""

import dataclasses
import enum
from collections.abc import Iterable, Mapping


class Level(enum.StrEnum):
    """How bad a finding is, from the least to the worst."""

    OK = 'ok'
    WARNING = 'warning'
    #: It could not be found out; it may be an error.
    UNKNOWN = 'unknown'
    ERROR = 'error'

    @property
    def severity(self) -> int:
        """A number that grows with the level."""
        return list(Level).index(self)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding about one object.

    :param object: a pool, an option, an instance or another object
    :param command: what mends it, or shows an operator what to mend; empty if nothing is to be done
    :param check: the name of the check
    :param details: the single objects of a finding about many, for programs
    """

    level: Level
    object: str
    observed: str
    expected: str
    command: str
    check: str = ''
    details: tuple[Mapping[str, str], ...] = ()


def warning(thing: str, observed: str, expected: str, command: str) -> Finding:
    """Return a finding about what is no harm yet."""
    return Finding(Level.WARNING, thing, observed, expected, command)


def error(thing: str, observed: str, expected: str, command: str) -> Finding:
    """Return a finding about what does harm, or fails an operation."""
    return Finding(Level.ERROR, thing, observed, expected, command)


def unknown(thing: str, observed: str, expected: str, command: str) -> Finding:
    """Return a finding about what could not be found out."""
    return Finding(Level.UNKNOWN, thing, observed, expected, command)


def worst(findings: Iterable[Finding]) -> Level:
    """Return the worst level, ok if there is no finding."""
    return max((one.level for one in findings), key=lambda level: level.severity, default=Level.OK)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of their levels, the worst first, otherwise as they are."""
    return sorted(findings, key=lambda one: -one.level.severity)
