# SPDX-License-Identifier: Apache-2.0
"""Decide which databases to fail over: a pure function of the facts of a round and the memory.

Nothing is decided in doubt. A database is moved only if all signs have agreed for several rounds in
a row, no guard of the fleet objects, and the hourly limit is not reached. A round in which a guard
objects begins the count again.
"""

import dataclasses
from collections.abc import Collection

from trove_ceph.strategies.failover import fleet_guards, history, verdicts
from trove_ceph.strategies.failover.facts import (
    Decision,
    FailoverSettings,
    Finding,
    RoundFacts,
    Verdict,
)
from trove_ceph.strategies.failover.memory import WatchMemory


def decide(
    facts: RoundFacts, memory: WatchMemory, settings: FailoverSettings, now: float
) -> Decision:
    """Decide which databases to replace, and count this round in the memory.

    :param memory: has observed the reports of this round
    :param now: by the clock of the memory
    """
    findings = [_finding(instance_id, facts, memory, settings, now) for instance_id in facts.signs]
    reporting = sum(
        memory.is_reporting(one, now, settings.silent_sec) for one in facts.instance_ids
    )
    silent = fleet_guards.silent_of(facts, findings, memory, settings, now)
    suspects = [one.instance_id for one in findings if one.verdict is Verdict.SUSPECT]
    hold = fleet_guards.why_hold(facts, silent, reporting, settings)
    if hold is None and suspects:
        hold = fleet_guards.why_no_control(facts)
    memory.count_rounds(suspects if hold is None else ())
    findings.sort(key=lambda one: (-one.silent_sec, one.instance_id))
    ready = [
        one.instance_id for one in findings if memory.rounds(one.instance_id) >= settings.rounds
    ]
    used = history.used_of_limit(facts.replacements, facts.time)
    allowed = max(0, settings.most_per_hour - used)
    late = frozenset(ready[allowed:])
    return Decision(
        hold,
        tuple(_counted(one, memory, late, settings) for one in findings),
        tuple(ready[:allowed]),
        reporting,
        len(silent),
        used,
    )


def _finding(
    instance_id: str,
    facts: RoundFacts,
    memory: WatchMemory,
    settings: FailoverSettings,
    now: float,
) -> Finding:
    """Return the verdict on one database."""
    paused = history.why_paused(instance_id, facts.replacements, facts.time, settings.pause)
    if paused is not None:
        verdict, reason = Verdict.HELD, paused
    else:
        verdict, reason = verdicts.judge(facts.signs[instance_id], facts.hosts, settings)
    return Finding(instance_id, verdict, reason, memory.silent_sec(instance_id, now))


def _counted(
    finding: Finding, memory: WatchMemory, late: Collection[str], settings: FailoverSettings
) -> Finding:
    """Return a finding with its rounds, and with the hourly limit if that delays it."""
    reason = finding.reason
    if finding.instance_id in late:
        reason += f'; waits, since {settings.most_per_hour} automatic failovers an hour are allowed'
    return dataclasses.replace(finding, reason=reason, rounds=memory.rounds(finding.instance_id))
