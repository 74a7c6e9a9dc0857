# SPDX-License-Identifier: Apache-2.0
"""Ask pools that may not answer, such as a pool of one copy whose OSD is lost.

A request waits until the client's time limit, which is to survive the restart of an OSD. Requests
that do not depend on the answer of such a pool wait for seconds only.
"""

import collections
import threading
from collections.abc import Callable
from concurrent import futures
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from trove_ceph import exceptions

Answer = TypeVar('Answer')

#: Much longer than an answer takes on a busy cluster.
TIMEOUT_SEC = 5.0


class SilentPools:
    """Requests to pools of one connection, with a short time limit.

    :param open_pool: opens a pool by its name
    """

    def __init__(
        self,
        open_pool: Callable[[str], AbstractContextManager[Any]],
        timeout_sec: float = TIMEOUT_SEC,
    ):
        self._open_pool = open_pool
        self._timeout_sec = timeout_sec
        self._lock = threading.Lock()
        # Requests that are late, by pool; while there is one, no other is sent.
        self._late: collections.Counter[str] = collections.Counter()

    def ask(self, pool: str, request: Callable[[Any], Answer]) -> Answer:
        """Return the answer to a request.

        :param request: called with the open pool, in another thread
        :raises CephUnreachableError: there was no answer in time, or an earlier request to this
            pool is still without answer
        """
        with self._lock:
            is_silent = bool(self._late[pool])
        if is_silent:
            raise exceptions.CephUnreachableError(f'pool {pool}: does not answer')
        answer: futures.Future[Answer] = futures.Future()
        threading.Thread(target=self._run, args=(pool, request, answer), daemon=True).start()
        try:
            return answer.result(self._timeout_sec)
        except TimeoutError as error:
            self._note(pool, 1)
            answer.add_done_callback(lambda _: self._note(pool, -1))
            raise exceptions.CephUnreachableError(
                f'pool {pool}: no answer within {self._timeout_sec} s'
            ) from error

    def _note(self, pool: str, change: int) -> None:
        with self._lock:
            self._late[pool] += change

    def _run(
        self, pool: str, request: Callable[[Any], Answer], answer: futures.Future[Answer]
    ) -> None:
        try:
            with self._open_pool(pool) as context:
                found = request(context)
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(found)
