# SPDX-License-Identifier: Apache-2.0
"""One request that runs in the background while the steps of an operation continue."""

import threading
from collections.abc import Callable
from concurrent import futures
from typing import TypeVar

Result = TypeVar('Result')


def begin(request: Callable[[], Result]) -> Callable[[], Result]:
    """Start a request in a thread of its own.

    The thread ends with the process. A result that no caller waits for is dropped.

    :returns: a function that waits for the result, and raises what the request raised
    """
    result: futures.Future[Result] = futures.Future()

    def run() -> None:
        try:
            result.set_result(request())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result
