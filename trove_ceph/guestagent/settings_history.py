# SPDX-License-Identifier: Apache-2.0
"""Proves since when the server's settings have been what they are.

A snapshot may be taken before the settings are checked if the check proves that they were the same
while the snapshot was taken. Values alone prove nothing: a setting can be changed for a moment and
changed back. So each observation has evidence of every change that there was since the server
started (:data:`trove_ceph.guestagent.backup_settings.EVIDENCE`), and two observations with the same
evidence prove that nothing was changed between them.
"""

import collections
import collections.abc
import dataclasses
import threading
import time
import typing

#: How many positions are remembered, and how far apart they are at least.
_POSITIONS = 4
_POSITION_SPACING_SEC = 20.0

Clock = collections.abc.Callable[[], float]


def raw_monotonic() -> float:
    """Return the seconds of a clock that nobody sets or slews; it may stop while we are paused."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


@dataclasses.dataclass(frozen=True)
class _Position:
    """What the server had executed at or before an instant."""

    at: float
    gtid_executed: str


class SettingsHistory:
    """Remembers the last evidence and since when it has been the same; for several threads.

    The state is lost with the process, and then nothing is proved until the second observation.
    """

    def __init__(self, clock: Clock = raw_monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._evidence: str | None = None
        self._since = 0.0
        self._positions: collections.deque[_Position] = collections.deque(maxlen=_POSITIONS)

    def observe(self, evidence: str | None, gtid_executed: str | None) -> dict[str, typing.Any]:
        """Remember what was just read, and tell how long the settings have been the same.

        Call it after the server has answered: what is told must not reach back to before an earlier
        reading began.

        :param evidence: None where the server cannot give it; then nothing is proved
        :returns: ``unchanged_sec``, at least for how long before now the evidence has been this;
            ``positions``, a list of dicts with ``age_sec`` and ``gtid_executed``, what the server
            had executed at least so long ago
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
