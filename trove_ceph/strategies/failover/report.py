# SPDX-License-Identifier: Apache-2.0
"""What a round found, as ``trove-ceph-manage failover status`` shows it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from trove_ceph.strategies.failover.facts import Decision, Finding, RoundFacts

#: The report is written in each round.
_MOST_FINDINGS = 200


def of_decision(facts: RoundFacts, decision: Decision) -> Mapping[str, Any]:
    """Return the report of a round, in the types of JSON."""
    return {
        'hold': decision.hold,
        'databases': len(facts.instance_ids),
        'covered': len(facts.covered),
        'reporting': decision.reporting,
        'silent': decision.silent,
        'moved_within_hour': decision.used,
        'findings': [_finding(one) for one in decision.findings[:_MOST_FINDINGS]],
        'left_out': max(0, len(decision.findings) - _MOST_FINDINGS),
    }


def of_failure(error: Exception) -> Mapping[str, Any]:
    """Return the report of a round that an error has ended."""
    return {'hold': f'the last round failed: {error}'}


def _finding(finding: Finding) -> Mapping[str, Any]:
    shown = dataclasses.asdict(finding)
    return shown | {'verdict': str(finding.verdict), 'silent_sec': int(finding.silent_sec)}
