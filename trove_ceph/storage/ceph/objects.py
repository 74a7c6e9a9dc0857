# SPDX-License-Identifier: Apache-2.0
"""The objects of a pool, one by one."""

import errno
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
    rest = list(names)
    found: list[str] = []
    while rest:
        go_on()
        batch, rest = rest[:_BATCH], rest[_BATCH:]
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
