# SPDX-License-Identifier: Apache-2.0
"""Lists in pages as in Trove's API: ``limit`` and ``marker`` of a request choose the page."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from trove.common import exception as trove_exceptions
from trove.common import pagination, wsgi

Row = TypeVar('Row')


def of(
    rows: Sequence[Row], context: Any, most: int, id_of: Callable[[Row], str]
) -> tuple[Sequence[Row], str | None]:
    """Return the page of a list that a request asks for, and the marker of the next page.

    :param most: rows of a page
    :param id_of: returns the id of a row; a marker is such an id
    :raises BadRequest: the limit is not a positive number, or no row has the marker
    """
    try:
        limit = min(int(context.limit or most), most)
    except ValueError:
        limit = 0
    if limit < 1:
        raise trove_exceptions.BadRequest(message='limit: must be a positive number')
    begin = 0
    if context.marker:
        numbers = [number for number, row in enumerate(rows) if id_of(row) == context.marker]
        if not numbers:
            raise trove_exceptions.BadRequest(message='marker: must be an id of the list')
        begin = numbers[0] + 1
    page = rows[begin : begin + limit]
    return page, id_of(page[-1]) if begin + limit < len(rows) else None


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
