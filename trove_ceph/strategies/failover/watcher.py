# SPDX-License-Identifier: Apache-2.0
"""Watch all databases, in one taskmanager at a time, and request automatic failovers.

The taskmanager that has claimed the watch keeps it until it dies; see :mod:`trove_ceph.db.claims`.
A round never fails: what went wrong is logged once, nothing is moved, and a later round begins to
observe anew.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim
from trove_ceph.db.replacement_record import RequestedBy
from trove_ceph.strategies.backup import claimed
from trove_ceph.strategies.failover import collection, decision, report, verdicts
from trove_ceph.strategies.failover.dependencies import FailoverDependencies
from trove_ceph.strategies.failover.facts import Decision, Finding, RoundFacts
from trove_ceph.strategies.failover.memory import WatchMemory
from trove_ceph.strategies.replacement import requests

LOG = logging.getLogger(__name__)

#: A watcher that misses more rounds was suspended.
_MISSED_ROUNDS = 3


class Watcher:
    """Watches the databases; one thread calls it.

    :param deps: of all rounds
    """

    def __init__(self, deps: FailoverDependencies):
        self._deps = deps
        self._claim: Claim | None = None
        # A watcher that was suspended for longer than an agent must be silent observes anew.
        settings = deps.settings
        self._memory = WatchMemory(max(settings.silent_sec, _MISSED_ROUNDS * settings.interval_sec))
        self._hold: str | None = None
        self._verdicts: Mapping[str, str] = {}

    def watch(self) -> None:
        """Run one round, if this taskmanager keeps the watch or can claim it."""
        try:
            claim = self._claim = self._keep_claim()
            if claim is not None:
                self._run(guarded(self._deps, claim), claim)
        except exceptions.ClaimLostError as error:
            LOG.info('%s', error)
            self._deps.heartbeat.drop(self._claim)
            self._claim = None
            self._memory.forget()
        except Exception as error:
            self._memory.forget()
            self._log_hold(f'the round failed: {error}')
            self._report_failure(error)

    def _keep_claim(self) -> Claim | None:
        if self._claim is not None:
            self._deps.heartbeat.check(self._claim)
            return self._claim
        watch, worker = self._deps.watch, self._deps.worker
        claim = self._deps.heartbeat.acquire(lambda: watch.begin_watching(worker))
        if claim is not None:
            LOG.info('Automatic failover: this taskmanager watches the databases')
            self._memory.forget()
        return claim

    def _run(self, deps: FailoverDependencies, claim: Claim) -> None:
        now = deps.clock()
        facts = collection.collect(deps, self._memory, now)
        decided = decision.decide(facts, self._memory, deps.settings, now)
        self._log(decided)
        findings = {one.instance_id: one for one in decided.findings}
        for instance_id in decided.to_replace:
            findings[instance_id] = _request(deps, findings[instance_id], facts)
        shown = dataclasses.replace(decided, findings=tuple(findings.values()))
        deps.watch.record_report(claim, report.of_decision(facts, shown))

    def _report_failure(self, error: Exception) -> None:
        if self._claim is None:
            return
        try:
            self._deps.watch.record_failure(self._claim, report.of_failure(error))
        except Exception as second:
            # Most likely the database failed, which the log has already.
            LOG.debug('Automatic failover: the round cannot be reported: %s', second)

    def _log(self, decided: Decision) -> None:
        """Log what has changed since the last round."""
        self._log_hold(decided.hold)
        verdicts = {one.instance_id: str(one.verdict) for one in decided.findings}
        for one in decided.findings:
            if self._verdicts.get(one.instance_id) != verdicts[one.instance_id]:
                LOG.info(
                    'Automatic failover: instance %s, whose agent is silent, is %s: %s',
                    *(one.instance_id, one.verdict, one.reason),
                )
        self._verdicts = verdicts

    def _log_hold(self, hold: str | None) -> None:
        if hold is not None and self._hold is None:
            LOG.warning('Automatic failover: nothing is moved: %s', hold)
        elif hold is None and self._hold is not None:
            LOG.info('Automatic failover: nothing holds it any more')
        self._hold = hold


def guarded(deps: FailoverDependencies, claim: Claim) -> FailoverDependencies:
    """Return dependencies that raise ClaimLostError instead of a request once a claim is lost."""
    changes: dict[str, Any] = {
        name: claimed.Guarded(getattr(deps, name), deps.heartbeat, claim)
        for name in ('replacements', 'marks', 'policies', 'databases', 'servers', 'volumes')
    }
    return dataclasses.replace(deps, **changes)


def _request(deps: FailoverDependencies, finding: Finding, round_facts: RoundFacts) -> Finding:
    """Request the failover of a database; return what became of it.

    Its facts are read again, since asking the other services has taken some time. The store refuses
    the request if the instance has another task by then.
    """
    server = round_facts.signs[finding.instance_id].server
    try:
        facts = deps.databases.find_facts(finding.instance_id)
        if facts is None or server is None or facts.server_id != server.server_id:
            raise exceptions.ReplacementRefusedError('its server has just been replaced')
        record = requests.new_failover(
            facts,
            RequestedBy.AUTOMATIC,
            _reason(finding),
            False,
            verdicts.cause_of(server, round_facts.hosts),
            deps.watch.now(),
            finding.instance_id in round_facts.prefers_replica,
        )
        record = deps.replacements.request(record, facts.task)
    except exceptions.ReplacementRefusedError as error:
        LOG.info('Automatic failover of instance %s: %s', finding.instance_id, error)
        return dataclasses.replace(finding, reason=f'{finding.reason}; refused: {error}')
    LOG.warning('Automatic failover: %s was requested: %s', record, finding.reason)
    return dataclasses.replace(finding, reason=f'{finding.reason}; its failover was requested')


def _reason(finding: Finding) -> str:
    """Return the reason for tenants, who see neither hosts nor clients of Ceph."""
    return (
        f'its guest agent was silent for {finding.silent_sec:.0f} s, and its volume was not in use'
    )
