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
        pending = [
            (name, context.aio_stat(name, lambda _completion, _size, _time: None)) for name in batch
        ]
        for name, completion in pending:
            completion.wait_for_complete_and_cb()
            code = completion.get_return_value()
            if code == -errno.ENOENT:
                found.append(name)
            elif code < 0:
                raise rados.OSError('stat', errno=-code)
    return found
