# SPDX-License-Identifier: Apache-2.0
"""What separates the clouds that are and should be."""

import dataclasses
import enum
from typing import Any


class Risk(enum.Enum):
    """A consequence that somebody has to agree to."""

    MOVES_DATA = 'moves data'
    LOWERS_REDUNDANCY = 'lowers redundancy'
    REVOKES_ACCESS = 'revokes access'
    PAUSES_IO = 'pauses I/O'

    @property
    def flag(self) -> str:
        """The option of the command line that agrees to it."""
        return {
            Risk.MOVES_DATA: '--yes-move-data',
            Risk.LOWERS_REDUNDANCY: '--yes-lower-redundancy',
            Risk.REVOKES_ACCESS: '--yes-revoke-access',
            Risk.PAUSES_IO: '--yes-pause-io',
        }[self]


class Kind(enum.Enum):
    """What is changed; in the order in which it is made."""

    PROFILE = 'erasure code profile'
    RULE = 'CRUSH rule'
    POOL = 'pool'
    USER = 'cephx user'
    QOS = 'QoS specs'
    TYPE = 'volume type'
    ASSOCIATION = 'datastore version'

    @property
    def system(self) -> str:
        """Which of ceph, cinder and trove has it."""
        if self in (Kind.QOS, Kind.TYPE):
            return 'cinder'
        return 'trove' if self is Kind.ASSOCIATION else 'ceph'


@dataclasses.dataclass(frozen=True)
class Change:
    """One step from what is to what should be.

    :param attribute: what of the object changes, None when it is made or removed
    :param before: the value, or the whole object when it is removed
    :param after: the value, or the whole object when it is made
    """

    kind: Kind
    name: str
    attribute: str | None
    before: Any
    after: Any
    risks: tuple[Risk, ...] = ()

    @property
    def creates(self) -> bool:
        """Whether the object is not there yet."""
        return self.attribute is None and self.after is not None

    @property
    def removes(self) -> bool:
        """Whether the object is there and no longer needed."""
        return self.attribute is None and self.after is None

    def __str__(self) -> str:
        if self.attribute is None:
            return f'{self.kind.value} {self.name}: {"create" if self.creates else "remove"}'
        return f'{self.kind.value} {self.name}: {self.attribute} {difference(self)}'

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
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
    """Something that is not a change: a note, or a problem, which forbids every change."""

    text: str
    fatal: bool = True


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything to be done, in an order that is safe.

    :param problems: why it cannot be done at all
    :param notes: what the operator should know, and need not do anything about
    """

    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    def waiting(self, accepted: frozenset[Risk]) -> list[Change]:
        """Return the changes that wait until they pause nothing, as that is not accepted."""
        return [change for change in self.changes if Risk.PAUSES_IO in set(change.risks) - accepted]

    def risky(self, accepted: frozenset[Risk] = frozenset()) -> list[Change]:
        """Return the changes with consequences that are not accepted."""
        return [change for change in self.changes if set(change.risks) - accepted]

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {
            'changes': [change.as_document() for change in self.changes],
            'problems': list(self.problems),
            'notes': list(self.notes),
        }


def difference(change: Change) -> str:
    """Return what changes, for a person to read: of sets only what comes and goes."""
    before, after = change.before, change.after
    if isinstance(after, frozenset):
        coming = [f'+ {each}' for each in sorted(after - before)]
        going = [f'- {each}' for each in sorted(before - after)]
        return '; '.join(going + coming)
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
