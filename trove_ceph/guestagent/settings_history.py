# SPDX-License-Identifier: Apache-2.0
"""The history of the server's settings, which proves for how long they have not changed.

A snapshot may be created before the settings are checked if the check proves that they were the
same at the time of the snapshot. Values alone prove nothing, because a setting can be changed and
changed back. So each observation has evidence of every change since the start of the server
(:data:`trove_ceph.guestagent.backup_settings.EVIDENCE`), and two observations with equal evidence
prove that nothing changed between them.
"""

import collections
import collections.abc
import dataclasses
import threading
import time
import typing

#: Number of stored positions, and the least time between them.
_POSITIONS = 4
_POSITION_SPACING_SEC = 20.0

Clock = collections.abc.Callable[[], float]


def raw_monotonic() -> float:
    """Return the seconds of a clock that is never set or slewed; it stops during a suspend."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


@dataclasses.dataclass(frozen=True)
class _Position:
    """Transactions that the server had executed at or before an instant."""

    at: float
    gtid_executed: str


class SettingsHistory:
    """The last evidence and the time since which it is unchanged; safe for several threads.

    The state is lost with the process; then nothing is proved until the second observation.
    """

    def __init__(self, clock: Clock = raw_monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._evidence: str | None = None
        self._since = 0.0
        self._positions: collections.deque[_Position] = collections.deque(maxlen=_POSITIONS)

    def observe(self, evidence: str | None, gtid_executed: str | None) -> dict[str, typing.Any]:
        """Record an observation, and return for how long the settings have not changed.

        Call it after the server has answered, so that the result does not include the time before
        an earlier observation.

        :param evidence: None: the server does not provide it, so nothing is proved
        :param gtid_executed: position of the server at the observation
        :returns: ``unchanged_sec``, the least time for which the evidence has been the same;
            ``positions``, a list of dicts with ``age_sec`` and ``gtid_executed``: transactions that
            the server had executed at that age
        """
        with self._lock:
            now = self._clock()
            if evidence is None or evidence != self._evidence:
                self._evidence, self._since = evidence, now
                self._positions.clear()
            known = [
                {'age_sec': now - one.at, 'gtid_executed': one.gtid_executed}
                for one in self._positions
            ]
            if evidence is not None and gtid_executed and self._is_position_due(now):
                self._positions.append(_Position(now, gtid_executed))
            return {'unchanged_sec': now - self._since, 'positions': known}

    def _is_position_due(self, now: float) -> bool:
        return not self._positions or now - self._positions[-1].at >= _POSITION_SPACING_SEC
