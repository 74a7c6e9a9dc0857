# SPDX-License-Identifier: Apache-2.0
"""Why no database at all is moved; pure functions.

When many databases look failed at once, it is more likely that what lies between them and the
watcher failed: a switch, the message bus, the conductor, Nova or Ceph. Replacing servers would then
help none of them, and interrupt those that serve.

A host that fails takes all its databases with it, which may be half of a small cloud. They have one
cause, and Nova names it: its nova-compute does not report either. So only the number of such hosts
is limited, and not that of their databases. Of a host that is disabled in Nova an operator knows. A
failure of the message bus or of the management network silences several hosts. One host alone that
is cut off from that network has its images open in Ceph, so that its databases are not moved. One
that is cut off from Ceph as well serves no more, and each of its databases is fenced first.
"""

from collections.abc import Collection, Mapping, Sequence

from trove_ceph.strategies.failover.facts import (
    FailoverSettings,
    Finding,
    HostState,
    RoundFacts,
    Verdict,
)
from trove_ceph.strategies.failover.memory import WatchMemory

#: A database that cannot be replaced and is silent for longer says nothing of the fleet.
_STALE_SEC = 86400
#: A network that fails silences all hosts, which fill the log and the report otherwise.
_MOST_NAMED = 10


def down_hosts(hosts: Mapping[str, HostState]) -> Sequence[str]:
    """Return the hosts that do not report to Nova, but those that an operator has disabled.

    :param hosts: by name
    """
    return sorted(
        name for name, host in hosts.items() if not host.is_up and host.disabled_because is None
    )


def disabled_down_hosts(hosts: Mapping[str, HostState]) -> Sequence[str]:
    """Return the hosts that do not report to Nova, and that an operator has disabled.

    :param hosts: by name
    """
    return sorted(
        name for name, host in hosts.items() if not host.is_up and host.disabled_because is not None
    )


def silent_of(
    facts: RoundFacts,
    findings: Collection[Finding],
    memory: WatchMemory,
    settings: FailoverSettings,
    now: float,
) -> frozenset[str]:
    """Return the instances whose silence counts against the fleet.

    Not counted are those that are held for a reason of their own, and those that no failover
    concerns and that have been silent for longer than a day.
    """
    verdicts = {one.instance_id: one.verdict for one in findings}

    def counts(instance_id: str) -> bool:
        verdict = verdicts.get(instance_id)
        silent_sec = memory.silent_sec(instance_id, now)
        if silent_sec <= settings.silent_sec or verdict is Verdict.HELD:
            return False
        return verdict is Verdict.SUSPECT or silent_sec <= _STALE_SEC

    return frozenset(filter(counts, facts.instance_ids))


def why_hold(
    facts: RoundFacts, silent: Collection[str], reporting: int, settings: FailoverSettings
) -> str | None:
    """Return why no database is moved in this round; None: no guard objects.

    :param silent: the instances whose silence counts against the fleet
    :param reporting: how many agents report
    """
    if facts.maintenance is not None:
        return f'maintenance: {facts.maintenance or "no reason"}'
    if facts.failures:
        return f'not all signs are known: {"; ".join(facts.failures)}'
    if not silent:
        return None
    # First, since nothing is asked about the databases of so many hosts, so that the agents there
    # would look silent for no reason.
    down = down_hosts(facts.hosts)
    if len(down) > settings.most_hosts_down:
        return (
            f'{len(down)} hosts do not report to Nova, more than {settings.most_hosts_down}: '
            f'{_names(down)}; repair them or what connects them, or disable in Nova those that '
            'failed'
        )
    unexplained = len(set(silent).difference(facts.on_down_hosts))
    counted = unexplained + reporting
    if unexplained > max(1, settings.most_silent_share * counted):
        return (
            f'the agents of {unexplained} of {counted} databases are silent, more than the share '
            f'{settings.most_silent_share:g}, on hosts that report to Nova; look for a common '
            'cause, such as the message bus or a switch'
        )
    if not reporting:
        return 'no other agent reports, so that the message bus or the conductor may have failed'
    return None


def _names(hosts: Sequence[str]) -> str:
    left_out = len(hosts) - _MOST_NAMED
    named = ', '.join(hosts[:_MOST_NAMED])
    return f'{named} and {left_out} more' if left_out > 0 else named


def why_no_control(facts: RoundFacts) -> str | None:
    """Return why the absence of clients in Ceph proves nothing in this round; None: it does."""
    if facts.control_clients is None:
        return 'no database that reports is on a tier, so that Ceph\'s list cannot be checked'
    if not facts.control_clients:
        return (
            'Ceph shows no client of a database whose agent reports, so that its lists of clients '
            'prove nothing'
        )
    return None
