# SPDX-License-Identifier: Apache-2.0
"""Check the existence of objects in a pool."""

import errno
import itertools
from collections.abc import Callable, Iterable

import rados

# Requests in flight at once.
_BATCH = 128


def absent(
    context: rados.Ioctx, names: Iterable[str], check_canceled: Callable[[], None] = lambda: None
) -> list[str]:
    """Return the objects that do not exist, after a request for each.

    :param check_canceled: called before each batch of requests; an exception ends the work
    """
    rest = iter(names)
    found: list[str] = []
    while batch := list(itertools.islice(rest, _BATCH)):
        check_canceled()
        for name, code in _stat(context, batch):
            if code == -errno.ENOENT:
                found.append(name)
            elif code < 0:
                raise rados.OSError('stat', errno=-code)
    return found


def _stat(context: rados.Ioctx, names: Iterable[str]) -> list[tuple[str, int]]:
    """Return the result of a request for each object, with its name."""
    pending: list[tuple[str, rados.Completion]] = []
    try:
        for name in names:
            pending.append((name, context.aio_stat(name, lambda _completion, _size, _time: None)))
    finally:
        # Of all, also after an error: librados does not keep a context that is closed while a
        # request is in flight, and its answer would touch freed memory.
        for _name, completion in pending:
            completion.wait_for_complete_and_cb()
    return [(name, completion.get_return_value()) for name, completion in pending]
