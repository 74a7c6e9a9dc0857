# SPDX-License-Identifier: Apache-2.0
"""Heartbeats: a process renews all its claims every few seconds.

A worker checks its claim before each step, and stops when the claim is no longer valid: another
worker has it, the deletion of the backup has begun, or no heartbeat could be written for so long
that another worker may have resumed its work. The clock also counts while the host is suspended.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim, Claims

LOG = logging.getLogger(__name__)

#: The part of the expiry time for which a claim is valid after its last renewal.
_VALID_PART = 0.8


def boottime() -> float:
    """Return the seconds since the boot, including suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class HeldClaim:
    """A claim of this process and the time until which it is valid."""

    def __init__(
        self, claim: Claim, clock: Callable[[], float], valid_sec: float, requested_at: float
    ):
        self.claim = claim
        self._clock = clock
        self._valid_sec = valid_sec
        self._is_lost = False
        self.renew(requested_at)

    def renew(self, requested_at: float) -> None:
        """Extend the claim after a heartbeat.

        :param requested_at: when the heartbeat was sent
        """
        self._valid_until = requested_at + self._valid_sec

    def mark_lost(self) -> None:
        """Mark the claim as lost for good."""
        self._is_lost = True

    def check(self) -> None:
        """Return if the worker may continue.

        :raises ClaimLostError: the claim is lost; the worker must change nothing any more
        """
        if self._clock() >= self._valid_until:
            self._is_lost = True
        if self._is_lost:
            raise exceptions.ClaimLostError(f'the {self.claim} is lost; the worker stops')


class Heartbeat:
    """The claims that this process holds.

    :param claims: the claims in the database
    :param interval_sec: pause between heartbeats
    :param expiry_sec: time without a heartbeat after which other workers may resume its work
    :param clock: seconds on a clock that counts suspended time
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
        self._valid_sec = expiry_sec * _VALID_PART
        self._clock = clock
        self._held: dict[Claim, HeldClaim] = {}
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def acquire(self, take: Callable[[], Claim | None]) -> Claim | None:
        """Take a claim and renew it from now on.

        The claim is valid from the time of the request, not from that of the answer, because the
        process may be suspended between them.

        :param take: requests the claim; returns None if it is refused
        """
        requested_at = self._clock()
        claim = take()
        if claim is not None:
            self.add(claim, requested_at)
        return claim

    def add(self, claim: Claim, requested_at: float | None = None) -> None:
        """Renew a claim from now on; idempotent.

        :param requested_at: when the claim was requested; None: now
        """
        requested_at = self._clock() if requested_at is None else requested_at
        held = HeldClaim(claim, self._clock, self._valid_sec, requested_at)
        with self._mutex:
            self._held.setdefault(claim, held)

    def drop(self, claim: Claim | None) -> None:
        """Renew a claim no more; idempotent. The claim is not released."""
        with self._mutex:
            if claim is not None:
                self._held.pop(claim, None)

    @contextlib.contextmanager
    def hold(self, claim: Claim) -> Iterator[None]:
        """Renew a claim while the block runs."""
        self.add(claim)
        try:
            yield
        finally:
            self.drop(claim)

    def check(self, claim: Claim) -> None:
        """Return if the worker of a claim may continue; does not access the database.

        :raises ClaimLostError: the claim is lost; the worker must change nothing any more
        """
        with self._mutex:
            held = self._held.get(claim)
        if held is not None:
            held.check()

    def beat(self) -> None:
        """Renew all claims once."""
        with self._mutex:
            held = dict(self._held)
        if not held:
            return
        requested_at = self._clock()
        renewed = self._claims.heartbeat_all(list(held))
        for claim, one in held.items():
            if claim in renewed:
                one.renew(requested_at)
                continue
            with self._mutex:
                is_held = claim in self._held
            if is_held:
                LOG.info('The %s is lost; the worker stops', claim)
                one.mark_lost()

    def start(self) -> None:
        """Start the heartbeat thread; idempotent."""
        with self._mutex:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name='trove-ceph-heartbeat', daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Stop the heartbeat thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_sec):
            try:
                self.beat()
            except Exception as error:
                # Claims stay valid for a while, and the next heartbeat may succeed.
                LOG.warning('Writing the heartbeat of this process failed: %s', error)
