# SPDX-License-Identifier: Apache-2.0
"""Lists in pages as in Trove's API: ``limit`` and ``marker`` of a request choose the page."""

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from trove.common import exception as trove_exceptions
from trove.common import pagination, wsgi

Row = TypeVar('Row')
#: When a row was created, and its id.
Position = tuple[datetime.datetime, str]


def of(
    rows: Iterable[Row],
    context: Any,
    most: int,
    position_of: Callable[[Row], Position],
    find: Callable[[str], Row | None],
) -> tuple[Sequence[Row], str | None]:
    """Return the page of a list that a request asks for, and the marker of the next page.

    The latest come first. A marker is the id of a row, after which the page begins, even if the
    list does not have that row any more, as after a deletion or a change that its filter regards.

    :param rows: of the list
    :param most: rows of a page
    :param find: returns the row of an id, which the list may lack, or None
    :raises BadRequest: the limit is not a positive number, or no row has the marker
    """
    try:
        limit = min(int(context.limit or most), most)
    except ValueError:
        limit = 0
    if limit < 1:
        raise trove_exceptions.BadRequest(message='limit: must be a positive number')
    rest = sorted(rows, key=position_of, reverse=True)
    if context.marker:
        last = find(context.marker)
        if last is None:
            raise trove_exceptions.BadRequest(message='marker: must be an id of the list')
        rest = [row for row in rest if position_of(row) < position_of(last)]
    page = rest[:limit]
    return page, position_of(page[-1])[1] if limit < len(rest) else None


def row_position(row: Any) -> Position:
    """Return the position of a row of Trove."""
    return row.created, row.id


def found_in(model: Any, project_id: str | None) -> Callable[[str], Any]:
    """Return a function that returns the row of an id in one of Trove's tables, or None.

    :param model: of the table, which keeps deleted rows
    :param project_id: whose rows are listed; None: those of all projects
    """
    of_project: dict[str, str] = {} if project_id is None else {'tenant_id': project_id}

    def find(row_id: str) -> Any:
        return next(iter(model.find_all(id=row_id, **of_project)), None)

    return find


def answer(request: Any, key: str, shown: Sequence[Any], marker: str | None) -> wsgi.Result:
    """Return the answer that has a page under a key, and a link to the next page.

    :param marker: of the next page; None: there is none
    """
    paged = pagination.SimplePaginatedDataView(request.url, key, _View({key: shown}), marker)
    return wsgi.Result(paged.data(), 200)


class _View:
    """A list in the form that Trove's pagination expects."""

    def __init__(self, content: dict[str, Any]):
        self._content = content

    def data(self) -> dict[str, Any]:
        return self._content
