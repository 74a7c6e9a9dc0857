# SPDX-License-Identifier: Apache-2.0
"""The objects of a pool, one by one."""

import errno
import itertools
from collections.abc import Callable, Iterable

import rados

# Asked for at once.
_BATCH = 128


def absent(
    context: rados.Ioctx, names: Iterable[str], go_on: Callable[[], None] = lambda: None
) -> list[str]:
    """Ask for each of the objects, and return those that are not there.

    :param go_on: called before each hundred or so; it may raise what ends it
    """
    rest = iter(names)
    found: list[str] = []
    while batch := list(itertools.islice(rest, _BATCH)):
        go_on()
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
