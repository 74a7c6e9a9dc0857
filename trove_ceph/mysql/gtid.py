# SPDX-License-Identifier: Apache-2.0
"""Sets of global transaction identifiers (GTIDs), as ``gtid_executed`` shows them."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

#: A server with a million replaced source servers would exceed it; one that is honest does not.
MOST_CHARACTERS = 1024 * 1024
#: MySQL's GTID_MAX - 1: the greatest number of a transaction.
GREATEST_NUMBER = 2**63 - 2

_UUID = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
_TAG = re.compile(r'[a-z_][a-z0-9_]{0,31}')
_INTERVAL = re.compile(r'([0-9]{1,19})(?:\s*-\s*([0-9]{1,19}))?')

#: The first and the last number of an interval.
_Interval = tuple[int, int]
#: The server's UUID and the tag, which is empty before MySQL 8.3 and by default.
_Origin = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class GtidSet:
    """A set of transactions; its text is in MySQL's normal form.

    :param origins: the intervals of each server's UUID and tag, both in order; neither empty nor
        adjacent. Use :meth:`parse` instead.
    """

    origins: tuple[tuple[_Origin, tuple[_Interval, ...]], ...] = ()

    @classmethod
    def parse(cls, text: str) -> 'GtidSet':
        """Return the set of a text such as ``UUID:1-5:9,UUID:tag:1``; empty: an empty set.

        :raises ValueError: it is not a set of GTIDs, or longer than 1 MiB
        """
        if len(text) > MOST_CHARACTERS:
            raise ValueError(
                f'a set of GTIDs of {len(text)} characters: at most {MOST_CHARACTERS} are read'
            )
        intervals: dict[_Origin, list[_Interval]] = {}
        for part in text.lower().split(','):
            if part.strip():
                for origin, interval in _parse_server(part):
                    intervals.setdefault(origin, []).append(interval)
        return cls._of(intervals)

    @property
    def count(self) -> int:
        """How many transactions it has."""
        return sum(end - start + 1 for _origin, found in self.origins for start, end in found)

    def __bool__(self) -> bool:
        return bool(self.origins)

    def __or__(self, other: 'GtidSet') -> 'GtidSet':
        joined: dict[_Origin, list[_Interval]] = {}
        for origin, intervals in (*self.origins, *other.origins):
            joined.setdefault(origin, []).extend(intervals)
        return self._of(joined)

    def __sub__(self, other: 'GtidSet') -> 'GtidSet':
        removed = dict(other.origins)
        return self._of(
            {
                origin: list(_subtract(intervals, removed.get(origin, ())))
                for origin, intervals in self.origins
            }
        )

    def written_by(self, server_uuid: str) -> 'GtidSet':
        """Return the transactions that were first committed on a server, with all tags."""
        return GtidSet(tuple(one for one in self.origins if one[0][0] == server_uuid.lower()))

    def __le__(self, other: 'GtidSet') -> bool:
        """Return whether the other set contains this one."""
        return not self - other

    def __str__(self) -> str:
        texts: dict[str, str] = {}
        for (server, tag), intervals in self.origins:
            numbers = ':'.join(
                f'{start}' if start == end else f'{start}-{end}' for start, end in intervals
            )
            texts[server] = ':'.join(filter(None, (texts.get(server, server), tag, numbers)))
        return ','.join(texts.values())

    @classmethod
    def _of(cls, intervals: Mapping[_Origin, Iterable[_Interval]]) -> 'GtidSet':
        merged = ((origin, tuple(_merge(intervals[origin]))) for origin in sorted(intervals))
        return cls(tuple((origin, found) for origin, found in merged if found))


def _parse_server(text: str) -> Iterator[tuple[_Origin, _Interval]]:
    """Yield the intervals of one server; a tag applies to those that follow it."""
    server, *parts = (part.strip() for part in text.split(':'))
    if not _UUID.fullmatch(server) or not parts:
        raise _malformed(text)
    tag, has_interval = '', True
    for part in parts:
        numbers = _INTERVAL.fullmatch(part)
        if numbers is None:
            # A tag without an interval before it or after it is no part of a set.
            if not _TAG.fullmatch(part) or not has_interval:
                raise _malformed(text)
            tag, has_interval = part, False
            continue
        start, end = int(numbers[1]), int(numbers[2] or numbers[1])
        if not 1 <= start <= end <= GREATEST_NUMBER:
            raise _malformed(text)
        has_interval = True
        yield (server, tag), (start, end)
    if not has_interval:
        raise _malformed(text)


def _malformed(text: str) -> ValueError:
    return ValueError(f'"{text.strip()[:200]}" is not a set of GTIDs, such as UUID:1-5')


def _merge(intervals: Iterable[_Interval]) -> Iterator[_Interval]:
    """Yield intervals in order, those that overlap or are adjacent as one."""
    first, last = 0, -1
    for start, end in sorted(intervals):
        if start <= last + 1:
            last = max(last, end)
            continue
        if last >= first:
            yield first, last
        first, last = start, end
    if last >= first:
        yield first, last


def _subtract(
    intervals: Iterable[_Interval], removed: tuple[_Interval, ...]
) -> Iterator[_Interval]:
    """Yield what is left of intervals; both are in order, and neither overlap."""
    position = 0
    for start, end in intervals:
        # The intervals that end before this one concern none of those that follow either.
        while position < len(removed) and removed[position][1] < start:
            position += 1
        at = position
        while at < len(removed) and removed[at][0] <= end:
            if start < removed[at][0]:
                yield start, removed[at][0] - 1
            start = removed[at][1] + 1
            at += 1
        if start <= end:
            yield start, end
