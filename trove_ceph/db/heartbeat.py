# SPDX-License-Identifier: Apache-2.0
"""Heartbeats: a process shows every few seconds that it is alive, for all claims that it holds.

A worker asks its claim before each step whether it is still good. It is not when another worker has
it, when the deletion of the backup has begun, or when no heartbeat could be written for so long
that another worker may have taken over: then the work ends. The time is that of a clock that counts
while the machine is suspended.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim, Claims

LOG = logging.getLogger(__name__)

#: Of the expiry time, after which a claim that could not be renewed is no good.
_SAFE_PART = 0.8


def boottime() -> float:
    """Return the seconds since the boot, suspends included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class HeldClaim:
    """A claim of this process, as long as it is good."""

    def __init__(
        self, claim: Claim, clock: Callable[[], float], good_for_sec: float, asked_at: float
    ):
        self.claim = claim
        self._clock = clock
        self._good_for_sec = good_for_sec
        self._is_lost = False
        self.renewed(asked_at)

    def renewed(self, asked_at: float) -> None:
        """Note that a heartbeat was written.

        :param asked_at: when the request was sent
        """
        self._good_until = asked_at + self._good_for_sec

    def lose(self) -> None:
        """Note that it is another worker's, or that its work is to end."""
        self._is_lost = True

    def check(self) -> None:
        """Return if the worker may carry on.

        :raises ClaimLostError: it may not, and must leave everything as it is
        """
        if self._clock() >= self._good_until:
            self._is_lost = True
        if self._is_lost:
            raise exceptions.ClaimLostError(f'the {self.claim} is lost, so the work ends')


class Heartbeat:
    """The claims that this process holds.

    :param claims: where they are written down
    :param interval_sec: between heartbeats
    :param expiry_sec: after which others take over what shows no life
    """

    def __init__(
        self,
        claims: Claims,
        interval_sec: float,
        expiry_sec: float,
        clock: Callable[[], float] = boottime,
    ):
        self._claims = claims
        self._interval_sec = interval_sec
        self._good_for_sec = expiry_sec * _SAFE_PART
        self._clock = clock
        self._held: dict[Claim, HeldClaim] = {}
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def acquire(self, take: Callable[[], Claim | None]) -> Claim | None:
        """Take a claim, and write heartbeats for it from now on.

        A worker that is suspended before it has the answer counts as silent since it asked.

        :param take: asks for the claim; returns None where there is none to be had
        """
        asked_at = self._clock()
        claim = take()
        if claim is not None:
            self.add(claim, asked_at)
        return claim

    def add(self, claim: Claim, asked_at: float | None = None) -> None:
        """Write heartbeats for a claim from now on; nothing where they are written already.

        :param asked_at: when it was asked for; None: just now
        """
        asked_at = self._clock() if asked_at is None else asked_at
        held = HeldClaim(claim, self._clock, self._good_for_sec, asked_at)
        with self._mutex:
            self._held.setdefault(claim, held)

    def drop(self, claim: Claim | None) -> None:
        """Write no more heartbeats for a claim; harmless when repeated. It is not released."""
        with self._mutex:
            if claim is not None:
                self._held.pop(claim, None)

    @contextlib.contextmanager
    def hold(self, claim: Claim) -> Iterator[None]:
        """Write heartbeats for a claim while the block runs."""
        self.add(claim)
        try:
            yield
        finally:
            self.drop(claim)

    def check(self, claim: Claim) -> None:
        """Return if the worker of a claim may carry on; asks nobody.

        :raises ClaimLostError: it may not, and must leave everything as it is
        """
        with self._mutex:
            held = self._held.get(claim)
        if held is not None:
            held.check()

    def beat(self) -> None:
        """Write one heartbeat for all claims; nothing where there are none."""
        with self._mutex:
            held = dict(self._held)
        if not held:
            return
        asked_at = self._clock()
        kept = self._claims.heartbeat_all(list(held))
        for claim, one in held.items():
            if claim in kept:
                one.renewed(asked_at)
                continue
            with self._mutex:
                is_held = claim in self._held
            if is_held:
                LOG.info('The %s is lost: its work ends', claim)
                one.lose()

    def start(self) -> None:
        """Write heartbeats in a thread of its own from now on; harmless when repeated."""
        with self._mutex:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name='trove-ceph-heartbeat', daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_sec):
            try:
                self.beat()
            except Exception as error:
                # Claims stay good for a while, and the next heartbeat may be written.
                LOG.warning('The heartbeat of this process could not be written: %s', error)
