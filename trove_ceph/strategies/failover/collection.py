# SPDX-License-Identifier: Apache-2.0
"""Collect the facts of a round.

Trove's tables are read for all databases. Nova, Cinder and Ceph are asked only about those with a
policy whose agents are silent, and Nova about hosts that are down. The first of these services that
does not answer ends the collection, since nothing is moved then.
"""

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence

from trove_ceph import exceptions
from trove_ceph.db.failover_record import FailoverPolicy, Preference
from trove_ceph.db.replacement_record import ReplacementRecord, RequestedBy
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.failover import fleet_guards, history, verdicts
from trove_ceph.strategies.failover.dependencies import FailoverDependencies
from trove_ceph.strategies.failover.facts import HostState, RoundFacts, Signs
from trove_ceph.strategies.failover.memory import WatchMemory
from trove_ceph.strategies.policies import policy_match
from trove_ceph.strategies.replacement import rules

#: More silent databases that could be replaced are not asked about in one round: no more are moved
#: in an hour than ``most_per_hour``.
_MOST_ASKED = 100
#: How many databases that report are tried as a control until one has a client. Those whose volumes
#: are on no tier, which Cinder alone tells, do not count, but are not all tried either.
_MOST_CONTROLS = 5
_MOST_OTHERS = 100
#: Of the disabled hosts that are down, Nova is asked about so many in one round.
_MOST_DISABLED = 20
_UNREACHABLE = (exceptions.ServiceUnavailableError, exceptions.CephUnreachableError)

_Instances = Mapping[str, backup_types.Instance]


def collect(deps: FailoverDependencies, memory: WatchMemory, now: float) -> RoundFacts:
    """Return the facts of a round, and have the memory observe the reports of the agents.

    :param now: by the clock of the memory
    :raises ServiceUnavailableError: the database does not answer
    """
    policies = deps.policies.all()
    reports = deps.databases.list_reports()
    # Their servers are off until they are deleted, so that their silence says nothing.
    ejected = {one for one, mark in deps.marks.list().items() if mark is SourceMark.EJECTED}
    listed = {one.id: one for one in deps.databases.list_instances() if one.id not in ejected}
    built = {one.id: one for one in listed.values() if _is_built(one)}
    applied = _applied(policies, built)
    instances = {one.id: one for one in built.values() if _is_watched(one, reports, applied)}
    applied = {one: policy for one, policy in applied.items() if one in instances}
    memory.observe({one: reports.get(one) for one in instances}, now)
    settings, time = deps.settings, deps.watch.now()
    covered = frozenset(applied)
    silent = {one: memory.silent_sec(one, now) for one in instances}
    silent = {one: sec for one, sec in silent.items() if sec > settings.silent_sec}
    why_not = {one: _why_not(deps, instances[one], time) for one in sorted(covered & silent.keys())}
    free = [one for one, reason in why_not.items() if reason is None]
    asking = _Asking(deps, now + settings.silent_sec / 3)
    on_down_hosts = asking.find_on_down_hosts([instances[one] for one in silent] if free else ())
    # Those with a policy are held, so that they do not count against the fleet.
    others = silent.keys() - covered - set(on_down_hosts)
    on_disabled_hosts = asking.find_on_disabled_hosts([instances[one] for one in others])
    # The same ones in each round, until they are moved; not those that were stopped long ago. Last
    # those of which nothing was known in the last round, since each takes some seconds.
    free.sort(key=lambda one: (one in memory.unknown, one not in on_down_hosts, silent[one], one))
    signs = {one: Signs(reason) for one, reason in why_not.items() if reason is not None}
    signs |= {one: asking.signs_of(instances[one]) for one in free}
    control_clients = None
    if any(one.clients == () for one in signs.values()):
        reporting = [
            one
            for one in instances.values()
            if memory.is_reporting(one.id, now, settings.silent_sec) and one.volume_id is not None
        ]
        # A database with a policy is likely to be on a tier.
        reporting.sort(key=lambda one: (one.id in memory.unknown, one.id not in covered))
        control_clients = asking.find_control(reporting)
    asking.end()
    memory.note_unknown(asking.examined, asking.unknown)
    took_sec = deps.clock() - now
    if took_sec > settings.silent_sec:
        asking.failures.append(f'asking the other services took {took_sec:.0f} s')
    return RoundFacts(
        instance_ids=frozenset(instances),
        covered=covered,
        time=time,
        signs=signs,
        control_clients=control_clients,
        hosts=asking.hosts,
        on_down_hosts={*on_down_hosts, *on_disabled_hosts},
        failures=tuple(asking.failures),
        replacements=_automatic(deps, time - history.KEPT),
        maintenance=deps.watch.read().maintenance,
        prefers_replica=frozenset(
            one for one, policy in applied.items() if policy.prefer is Preference.REPLICA
        ),
    )


class _Asking:
    """The requests to Nova, Cinder and Ceph of one round.

    :param until: after it, by the clock of the dependencies, the others are left to later rounds;
        a round that takes too long decides nothing
    :ivar failures: why some were not answered
    :ivar examined: the ids of the databases of whose volumes Ceph was asked
    :ivar unknown: those of them of whose volumes there was no answer
    """

    def __init__(self, deps: FailoverDependencies, until: float):
        self.examined: set[str] = set()
        self.unknown: set[str] = set()
        self._error = ''
        self._deps = deps
        self._until = until
        self._asked = 0
        self.hosts: Mapping[str, HostState] = {}
        self.failures: list[str] = []

    def find_on_down_hosts(self, silent: Collection[backup_types.Instance]) -> Collection[str]:
        """Return which databases are on enabled hosts that do not report to Nova.

        :param silent: whose agents are silent; if there is none, nothing is asked
        """
        if not silent:
            return frozenset()
        try:
            self.hosts = self._deps.servers.list_hosts()
        except _UNREACHABLE as error:
            self.failures.append(str(error))
        down = fleet_guards.down_hosts(self.hosts)
        # With more of them nothing is moved.
        is_allowed = len(down) <= self._deps.settings.most_hosts_down
        return self._find_on_hosts(silent, down if is_allowed else ())

    def find_on_disabled_hosts(self, silent: Collection[backup_types.Instance]) -> Collection[str]:
        """Return which databases are on hosts that are down and that an operator has disabled.

        :param silent: whose agents are silent; if there is none, nothing is asked
        """
        disabled = fleet_guards.disabled_down_hosts(self.hosts)
        return self._find_on_hosts(silent, disabled[:_MOST_DISABLED])

    def _find_on_hosts(
        self, silent: Collection[backup_types.Instance], hosts: Collection[str]
    ) -> Collection[str]:
        servers: set[str] = set()
        try:
            for host in hosts if silent and not self.failures else ():
                servers.update(self._deps.servers.list_on_host(host))
        except _UNREACHABLE as error:
            self.failures.append(str(error))
        return frozenset(one.id for one in silent if one.server_id in servers)

    def signs_of(self, instance: backup_types.Instance) -> Signs:
        """Return the signs of a database whose server may be replaced."""
        if self.failures:
            return Signs('nothing was asked about it in this round')
        self._asked += 1
        is_late = self._asked > 1 and self._deps.clock() > self._until
        if self._asked > _MOST_ASKED or is_late:
            return Signs(is_asked=False)
        try:
            return self._ask(instance)
        except _UNREACHABLE as error:
            self.failures.append(str(error))
            return Signs(f'its signs are not known: {error}')
        except exceptions.TroveCephError as error:
            return Signs(f'its image cannot be examined: {error}')

    def _ask(self, instance: backup_types.Instance) -> Signs:
        assert instance.server_id is not None and instance.volume_id is not None
        server = self._deps.servers.find(instance.server_id)
        why_held = verdicts.why_server_held(server, self.hosts)
        if why_held is not None:
            return Signs(why_held)
        try:
            clients = self._find_clients(instance)
        except _UNREACHABLE as error:
            # Its pool may be lost, such as one with one copy. Whether Ceph answers at all is what
            # the control shows.
            return Signs(f'its signs are not known: {error}')
        return Signs(server=server, clients=clients)

    def _find_clients(self, instance: backup_types.Instance) -> tuple[str, ...] | None:
        self.examined.add(instance.id)
        try:
            return self._deps.volumes.find_clients(instance.volume_id or '')
        except _UNREACHABLE as error:
            self.unknown.add(instance.id)
            self._error = str(error)
            raise

    def end(self) -> None:
        """Have nothing be decided if there was no answer about any volume."""
        if self.unknown and self.unknown == self.examined:
            self.failures.append(self._error)

    def find_control(self, reporting: Sequence[backup_types.Instance]) -> int | None:
        """Return how many clients databases have whose agents report; None: none is on a tier.

        :param reporting: those that are likely to be on a tier, and to be answered for, first
        """
        most, tried = None, 0
        for instance in reporting[:_MOST_OTHERS]:
            if tried == _MOST_CONTROLS:
                break
            try:
                clients = self._find_clients(instance)
            except exceptions.TroveCephError:
                # Its image cannot be examined; another one may be.
                tried += 1
                continue
            if clients:
                return len(clients)
            # The server of this one may have failed a moment ago.
            tried += clients is not None
            most = most if clients is None else 0
        return most


def _is_built(instance: backup_types.Instance) -> bool:
    is_ours = instance.has_our_guest_agent
    return is_ours and not instance.is_building and not instance.is_deleting


def _is_watched(
    instance: backup_types.Instance, reports: Collection[str], applied: Collection[str]
) -> bool:
    """Return whether an instance can be silent.

    The agent of a server that has just replaced another one has not reported yet. Nor has that of
    an instance whose creation failed: without a policy it would count against the fleet, with one
    it is held for its task.

    :param reports: the ids of the instances whose agents have reported
    :param applied: the ids of those with a policy
    """
    return instance.id in reports or (instance.id in applied and instance.server_id is not None)


def _applied(
    policies: Iterable[FailoverPolicy], instances: _Instances
) -> Mapping[str, FailoverPolicy]:
    """Return the enabled policies that apply, by the ids of the instances."""
    by_target = policy_match.index(policies)
    found = {
        one.id: policy_match.policy_of(
            by_target, policy_match.Subject(one.id, one.datastore, one.version)
        )
        for one in instances.values()
    }
    return {instance_id: policy for instance_id, policy in found.items() if policy is not None}


def _why_not(
    deps: FailoverDependencies, instance: backup_types.Instance, time: datetime.datetime
) -> str | None:
    """Return why the server of an instance cannot be replaced, by Trove's tables."""
    facts = deps.databases.find_facts(instance.id)
    if facts is None or facts.server_id != instance.server_id:
        return 'its server has just been replaced'
    return rules.why_not(facts, False, time)


def _automatic(deps: FailoverDependencies, since: datetime.datetime) -> Sequence[ReplacementRecord]:
    """Return the automatic failovers that are open, or have ended since a time."""
    is_open = deps.replacements.list(is_open=True)
    ended = deps.replacements.ended_since(since, RequestedBy.AUTOMATIC)
    return [one for one in (*is_open, *ended) if one.requested_by is RequestedBy.AUTOMATIC]
