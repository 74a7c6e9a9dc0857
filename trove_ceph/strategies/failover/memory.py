# SPDX-License-Identifier: Apache-2.0
"""What the watcher remembers from round to round; it may be lost at any time.

Silence is measured by the watcher's own clock, from one change of an agent's last report to the
next. So no clock of another host matters, and a watcher that starts, or that was suspended, first
observes for as long as an agent must be silent.
"""

import dataclasses
from collections.abc import Collection, Mapping


@dataclasses.dataclass
class _Agent:
    report: float | None
    changed_at: float
    has_changed: bool = False


class WatchMemory:
    """The memory of one watcher.

    :param longest_gap_sec: after a longer time between two rounds everything is forgotten
    :ivar unknown: the ids of the databases of whose volumes Ceph did not answer when last asked
    """

    def __init__(self, longest_gap_sec: float):
        self._longest_gap_sec = longest_gap_sec
        self._observed_at: float | None = None
        self._agents: dict[str, _Agent] = {}
        self._rounds: dict[str, int] = {}
        self.unknown: set[str] = set()

    def note_unknown(self, examined: Collection[str], unknown: Collection[str]) -> None:
        """Take note of whose volumes Ceph was asked about, and for which of them in vain."""
        self.unknown = (self.unknown - set(examined)) | set(unknown)

    def observe(self, reports: Mapping[str, float | None], now: float) -> None:
        """Take note of the last report of each agent.

        :param reports: a value that changes with each report, by instance; None: there was none
        """
        if self._observed_at is not None and now - self._observed_at > self._longest_gap_sec:
            self.forget()
        self._observed_at = now
        for instance_id in self._agents.keys() - reports.keys():
            del self._agents[instance_id]
        for instance_id, report in reports.items():
            agent = self._agents.setdefault(instance_id, _Agent(report, now))
            if agent.report != report:
                # Trove forgets the last report when the instance gets another server.
                self._agents[instance_id] = _Agent(report, now, has_changed=report is not None)

    def silent_sec(self, instance_id: str, now: float) -> float:
        """Return for how long no report of an agent was seen; 0 if it is not known."""
        agent = self._agents.get(instance_id)
        return 0 if agent is None else now - agent.changed_at

    def is_reporting(self, instance_id: str, now: float, silent_sec: float) -> bool:
        """Return whether a report of an agent arrived during this watch, and lately."""
        agent = self._agents.get(instance_id)
        return agent is not None and agent.has_changed and now - agent.changed_at <= silent_sec

    def count_rounds(self, suspects: Collection[str]) -> None:
        """Count a round for each suspect, and begin again for all others."""
        self._rounds = {one: self._rounds.get(one, 0) + 1 for one in suspects}

    def rounds(self, instance_id: str) -> int:
        """Return in how many rounds in a row an instance was a suspect."""
        return self._rounds.get(instance_id, 0)

    def forget(self) -> None:
        """Forget everything: silence must be observed anew."""
        self._agents.clear()
        self._rounds.clear()
        self._observed_at = None
