# SPDX-License-Identifier: Apache-2.0
"""What a taskmanager remembers of a pool from round to round; it may be lost at any time."""

import dataclasses
import re
from typing import Any

from oslo_log import log as logging

from trove_ceph.db.guest_record import PoolKey
from trove_ceph.guestagent.waiting_messages import LoadState
from trove_ceph.strategies.guests.hot_spec import HotSpec
from trove_ceph.strategies.restore.golden_volume import GoldenSource

LOG = logging.getLogger(__name__)

#: A configuration changes rarely, and reading it takes requests to Nova and Glance.
_KEY_VALID_SEC = 60
_FIRST_DELAY_SEC = 30
_LONGEST_DELAY_SEC = 900
#: Longer than any pause after a failure, so that Nova chooses the host of the next boot.
_NO_REQUEST_SEC = 1800
#: What differs between two messages with the same cause: ids of objects and of requests.
_IDS = re.compile(r'(req-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')


class Backoff:
    """The pause after failures: 30 s, then twice as long each time, up to 15 min."""

    def __init__(self) -> None:
        self._delay_sec = 0.0
        self._until = 0.0

    def is_over(self, now: float) -> bool:
        """Return whether it may be tried again."""
        return now >= self._until

    def fail(self, now: float) -> None:
        """Begin a pause; several failures in one round are one."""
        if self.is_over(now):
            doubled = max(_FIRST_DELAY_SEC, 2 * self._delay_sec)
            self._delay_sec = min(doubled, _LONGEST_DELAY_SEC)
            self._until = now + self._delay_sec

    def reset(self) -> None:
        """Begin again with the shortest pause: it succeeded."""
        self._delay_sec = self._until = 0.0


@dataclasses.dataclass(frozen=True)
class HotPlan:
    """With what guests are to be loaded now.

    :param source: None: no golden volume that fits is ready
    """

    spec: HotSpec
    source: GoldenSource | None


class PoolMemory:
    """The memory of one pool.

    :param subject: the pool, as the log names it
    :ivar answered: when each agent last answered, by the clock of the keeper, by guest
    :ivar said: why each agent last said that its guest cannot be bound, by guest
    :ivar loads: what each agent last said of its MySQL, by guest
    :ivar requested: the host on which each server was requested, by guest; not if Nova chose
    """

    def __init__(self, subject: str):
        self._subject = subject
        self.backoff = Backoff()
        self.load_backoff = Backoff()
        self.answered: dict[str, float] = {}
        self.said: dict[str, str] = {}
        self.loads: dict[str, LoadState] = {}
        self.requested: dict[str, str] = {}
        self._no_request_until = 0.0
        self._plan: tuple[float, HotPlan] | None = None
        self._key: tuple[float, PoolKey] | None = None
        self._causes: dict[str, str] = {}

    def find_key(self, now: float) -> PoolKey | None:
        """Return what a guest must have, if that was read lately."""
        if self._key is None or now - self._key[0] > _KEY_VALID_SEC:
            return None
        return self._key[1]

    def keep_key(self, key: PoolKey, now: float) -> PoolKey:
        """Remember what a guest must have."""
        self._key = now, key
        return key

    def find_plan(self, now: float) -> HotPlan | None:
        """Return with what guests are to be loaded, if that was read lately."""
        if self._plan is None or now - self._plan[0] > _KEY_VALID_SEC:
            return None
        return self._plan[1]

    def keep_plan(self, plan: HotPlan, now: float) -> HotPlan:
        """Remember with what guests are to be loaded."""
        self._plan = now, plan
        return plan

    def may_request_host(self, now: float) -> bool:
        """Return whether a server may be requested on a host: none has failed there lately."""
        return now >= self._no_request_until

    def fail_requested(self, guest_id: str, now: float) -> None:
        """Leave the choice to Nova for half an hour, if the guest was requested on a host.

        So a pool fills also where its flavor fits on one host only.

        :param guest_id: of a guest whose boot failed
        """
        if self.requested.pop(guest_id, None) is not None:
            self._no_request_until = now + _NO_REQUEST_SEC

    def forget(self, guest_ids: set[str]) -> None:
        """Forget all guests but these."""
        known: tuple[dict[str, Any], ...] = (self.answered, self.said, self.loads, self.requested)
        for facts in known:
            for guest_id in facts.keys() - guest_ids:
                del facts[guest_id]

    def warn(self, what: str, error: object) -> None:
        """Log that something failed, once for each cause.

        :param what: the object of the failure, in an operator's words
        """
        cause = _IDS.sub('', str(error))
        if self._causes.get(what) != cause:
            self._causes[what] = cause
            LOG.warning('%s: %s failed; will retry: %s', self._subject, what, error)

    def succeed(self, what: str) -> None:
        """Log that something works again, if it had failed."""
        if self._causes.pop(what, None) is not None:
            LOG.info('%s: %s works again', self._subject, what)
