# SPDX-License-Identifier: Apache-2.0
"""One request that is under way while the steps of an operation go on."""

import threading
from collections.abc import Callable
from concurrent import futures
from typing import TypeVar

Result = TypeVar('Result')


def begin(request: Callable[[], Result]) -> Callable[[], Result]:
    """Begin a request in a thread of its own.

    The thread ends with the process, and a result that nobody waits for is dropped.

    :returns: waits for the result, and raises what the request raised
    """
    result: futures.Future[Result] = futures.Future()

    def run() -> None:
        try:
            result.set_result(request())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result
