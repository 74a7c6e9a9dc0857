# SPDX-License-Identifier: Apache-2.0
"""A value of the plan, the bounds that were considered for it, and the one that holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: The documents that the rules are from.
RED_HAT = 'Red Hat 2016'
QCT = 'QCT 2015'
TRIPLEO = 'TripleO, derived parameters'
CEPH = "Ceph's documentation"
GIVEN = 'the fleet file'


@dataclass(frozen=True)
class Bound:
    """What one rule demands of a value.

    :param rule: what is demanded, in words with the numbers of this fleet
    :param source: document and section of the rule
    """

    rule: str
    value: float
    source: str


@dataclass(frozen=True)
class Decision:
    """A value with the bound that holds and the others.

    :param unit: of the value; empty: it is a number of what its name says
    """

    name: str
    value: float
    unit: str
    binding: Bound
    others: tuple[Bound, ...] = ()

    def as_document(self) -> dict[str, Any]:
        """Return it with names as keys, for programs."""
        return {
            'name': self.name,
            'value': self.value,
            'unit': self.unit,
            'rule': self.binding.rule,
            'source': self.binding.source,
            'others': [
                {'rule': one.rule, 'value': one.value, 'source': one.source} for one in self.others
            ],
        }


def at_least(name: str, bounds: Sequence[Bound], unit: str = '') -> Decision:
    """Return the least value that all lower bounds allow; the first of equal ones holds."""
    binding = max(bounds, key=lambda bound: bound.value)
    return _decision(name, binding, bounds, unit)


def at_most(name: str, bounds: Sequence[Bound], unit: str = '') -> Decision:
    """Return the largest value that all upper bounds allow; the first of equal ones holds."""
    binding = min(bounds, key=lambda bound: bound.value)
    return _decision(name, binding, bounds, unit)


def given(name: str, value: float, bounds: Sequence[Bound], unit: str = '') -> Decision:
    """Return a value that the fleet file sets, beside what the rules demand."""
    return Decision(name, value, unit, Bound('is given', value, GIVEN), tuple(bounds))


def _decision(name: str, binding: Bound, bounds: Sequence[Bound], unit: str) -> Decision:
    others = tuple(bound for bound in bounds if bound is not binding)
    return Decision(name, binding.value, unit, binding, others)
