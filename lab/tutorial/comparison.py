# SPDX-License-Identifier: Apache-2.0
"""Compare the output of a command with what a page shows, apart from what differs in each run.

That are ids, times, addresses, sets of transactions, and measured figures in tables: those in the
rows or columns named in :data:`_MEASURED`. Widths and line breaks of tables do not matter.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

_ID = r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
_DIFFERENT = (
    (re.compile(rf'{_ID}(:\d+(-\d+)?)+'), '<transactions>'),
    (re.compile(rf'{_ID}|\b[0-9a-f]{{32}}\b'), '<id>'),
    (re.compile(r'\d{4}-\d\d-\d\d[T ]?\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?'), '<time>'),
    (re.compile(r'\b\d{1,3}(\.\d{1,3}){3}\b'), '<address>'),
)
_FIGURE = re.compile(r'\d+(\.\d+)?(e[+-]\d+)?([KMGTP]?i?B|s)?')
#: Fields and columns, in lower case and without spaces.
_MEASURED = re.compile(
    r'.*(_sec|_bytes|_percent)|verification|used|volume_used|took|moved|lag|lagtransactions'
    r'|lag_transactions|ownspace'
)
_BORDER = re.compile(r'^\+[-+=]+\+$')

Table = list[tuple[str, str]]


def differences(shown: Sequence[str], real: Sequence[str]) -> list[str]:
    """Return what the real output has in place of the shown one, in words; empty if nothing."""
    expected, found = list(_parts(shown)), list(_parts(real))
    problems = [
        f'the page shows {one!r}, and the command printed {other!r}'
        for one, other in zip(expected, found, strict=False)
        if one != other
    ]
    problems += [f'the command did not print {one!r}' for one in expected[len(found) :]]
    problems += [f'the page does not show {one!r}' for one in found[len(expected) :]]
    return problems


def _parts(lines: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the lines outside of tables, and the fields or columns of tables, as comparable."""
    table: list[str] = []
    borders = 0
    for line in lines:
        if not table and not _BORDER.match(line):
            yield (_comparable(line),)
            continue
        table.append(line)
        borders += bool(_BORDER.match(line))
        if borders == 3:
            yield from _cells(table)
            table, borders = [], 0
    for line in table:
        yield (line,)


def _cells(table: list[str]) -> Iterator[tuple[str, str]]:
    edges = [index for index, character in enumerate(table[0]) if character == '+']
    rows = [_cut(line, edges) for line in table if not _BORDER.match(line)]
    count = next(i for i, line in enumerate(table[1:]) if _BORDER.match(line))
    head = [''.join(parts) for parts in zip(*rows[:count], strict=True)]
    body = rows[count:]
    for name, text in _fields(body) if head == ['Field', 'Value'] else _columns(head, body):
        name = name.replace(' ', '')
        text = _comparable(text)
        if _MEASURED.fullmatch(name.lower()):
            text = _FIGURE.sub('<figure>', text)
        yield name, text


def _fields(rows: list[list[str]]) -> Table:
    """Return the fields of one resource; a row without a name continues the one before."""
    found: Table = []
    for name, value in rows:
        if name:
            found.append((name, value))
        else:
            found[-1] = (found[-1][0], found[-1][1] + value)
    return found


def _columns(head: list[str], rows: list[list[str]]) -> Table:
    """Return the columns of a list, each with the text of all its rows."""
    return [(name, ''.join(row[i] for row in rows)) for i, name in enumerate(head)]


def _cut(line: str, edges: list[int]) -> list[str]:
    """Return the cells of a line without spaces, since a line may be broken at any of them."""
    return [''.join(line[start + 1 : end].split()) for start, end in itertools.pairwise(edges)]


def _comparable(text: str) -> str:
    for pattern, replacement in _DIFFERENT:
        text = pattern.sub(replacement, text)
    return text.rstrip()
