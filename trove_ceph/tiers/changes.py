# SPDX-License-Identifier: Apache-2.0
"""Changes between the observed and the desired state, and the plan that consists of them."""

import dataclasses
import enum
from typing import Any


class Risk(enum.Enum):
    """A consequence of a change that the operator has to accept."""

    MOVES_DATA = 'moves data'
    LOWERS_REDUNDANCY = 'lowers redundancy'
    REVOKES_ACCESS = 'revokes access'
    PAUSES_IO = 'pauses I/O'

    @property
    def flag(self) -> str:
        """The option of the command line that accepts it."""
        return {
            Risk.MOVES_DATA: '--yes-move-data',
            Risk.LOWERS_REDUNDANCY: '--yes-lower-redundancy',
            Risk.REVOKES_ACCESS: '--yes-revoke-access',
            Risk.PAUSES_IO: '--yes-pause-io',
        }[self]


class Kind(enum.Enum):
    """The kind of object that is changed, in the order of creation."""

    PROFILE = 'erasure code profile'
    RULE = 'CRUSH rule'
    POOL = 'pool'
    USER = 'cephx user'
    QOS = 'QoS specs'
    TYPE = 'volume type'
    ASSOCIATION = 'datastore version'

    @property
    def system(self) -> str:
        """The system that has the object: ceph, cinder or trove."""
        if self in (Kind.QOS, Kind.TYPE):
            return 'cinder'
        return 'trove' if self is Kind.ASSOCIATION else 'ceph'


@dataclasses.dataclass(frozen=True)
class Change:
    """One change from the observed to the desired state.

    :param attribute: the attribute that changes; None: the object is created or removed
    :param before: the present value; the whole object if it is removed
    :param after: the desired value; the whole object if it is created
    """

    kind: Kind
    name: str
    attribute: str | None
    before: Any
    after: Any
    risks: tuple[Risk, ...] = ()

    @property
    def creates(self) -> bool:
        """Whether the change creates the object."""
        return self.attribute is None and self.after is not None

    @property
    def removes(self) -> bool:
        """Whether the change removes the object."""
        return self.attribute is None and self.after is None

    def __str__(self) -> str:
        if self.attribute is None:
            return f'{self.kind.value} {self.name}: {"create" if self.creates else "remove"}'
        return f'{self.kind.value} {self.name}: {self.attribute} {difference(self)}'

    def as_document(self) -> dict[str, Any]:
        """Return a value for JSON."""
        return {
            'system': self.kind.system,
            'kind': self.kind.value,
            'name': self.name,
            'attribute': self.attribute,
            'from': _plain(self.before),
            'to': _plain(self.after),
            'risks': [risk.value for risk in self.risks],
        }


@dataclasses.dataclass(frozen=True)
class Finding:
    """A note for the operator, or a fatal problem that prevents all changes."""

    text: str
    fatal: bool = True


@dataclasses.dataclass(frozen=True)
class Plan:
    """All changes in a safe order.

    :param problems: what prevents all changes
    :param notes: information that requires no action
    """

    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    def waiting(self, accepted: frozenset[Risk]) -> list[Change]:
        """Return the changes that would pause I/O now, if that is not accepted."""
        return [change for change in self.changes if Risk.PAUSES_IO in set(change.risks) - accepted]

    def risky(self, accepted: frozenset[Risk] = frozenset()) -> list[Change]:
        """Return the changes with consequences that are not accepted."""
        return [change for change in self.changes if set(change.risks) - accepted]

    def as_document(self) -> dict[str, Any]:
        """Return a value for JSON."""
        return {
            'changes': [change.as_document() for change in self.changes],
            'problems': list(self.problems),
            'notes': list(self.notes),
        }


def difference(change: Change) -> str:
    """Return the difference as text; for sets, only the added and removed members."""
    before, after = change.before, change.after
    if isinstance(after, frozenset):
        added = [f'+ {each}' for each in sorted(after - before)]
        removed = [f'- {each}' for each in sorted(before - after)]
        return '; '.join(removed + added)
    return f'{_text(before)} -> {_text(after)}'


def _text(value: Any) -> str:
    if value is None or value == '':
        return 'none'
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    return str(value)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return value
