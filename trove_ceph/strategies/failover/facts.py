# SPDX-License-Identifier: Apache-2.0
"""The facts of one round of the watcher, and the operator's settings."""

import dataclasses
import datetime
import enum
from collections.abc import Collection, Mapping, Sequence

from trove_ceph.db.replacement_record import ReplacementRecord


@dataclasses.dataclass(frozen=True)
class FailoverSettings:
    """The operator's settings; see :mod:`trove_ceph.conf.failover`."""

    interval_sec: float = 10
    silent_sec: float = 90
    rounds: int = 3
    most_silent_share: float = 0.3
    most_hosts_down: int = 1
    most_per_hour: int = 10
    pause: datetime.timedelta = datetime.timedelta(hours=1)
    replace_hung: bool = False


@dataclasses.dataclass(frozen=True)
class ServerState:
    """A server as Nova shows it.

    :param status: such as ACTIVE or SHUTOFF
    :param task_state: what Nova is doing with it; None: nothing
    :param is_locked: somebody has locked it
    :param stopped_by: the user who requested its last stop; empty: Nova noticed that it had
        stopped; None: Nova records no stop
    """

    server_id: str
    status: str
    task_state: str | None = None
    host: str | None = None
    is_locked: bool = False
    stopped_by: str | None = None


@dataclasses.dataclass(frozen=True)
class HostState:
    """A host of servers as Nova shows it.

    :param is_up: its nova-compute reports to Nova, and is not forced down
    :param disabled_because: why somebody has disabled it, which may be empty; None: it is enabled,
        or Nova itself has disabled it
    """

    is_up: bool
    disabled_because: str | None = None


@dataclasses.dataclass(frozen=True)
class Signs:
    """What is known of a database whose agent is silent.

    :param why_not: why its server cannot be replaced now; then nothing else was asked
    :param is_asked: False: a later round asks, since others are asked first
    :param server: None: Nova has none with its id
    :param clients: the addresses that have its image open in Ceph; None: it is on no tier
    """

    why_not: str | None = None
    is_asked: bool = True
    server: ServerState | None = None
    clients: tuple[str, ...] | None = None


class Verdict(enum.StrEnum):
    """What a round says of a database whose agent is silent."""

    #: Its server must not be replaced, whatever the signs say.
    HELD = 'held'
    #: A sign is missing, or contradicts the others.
    UNCLEAR = 'unclear'
    #: All signs say that its server failed.
    SUSPECT = 'suspect'


@dataclasses.dataclass(frozen=True)
class Finding:
    """The verdict on one database, with its reason for operators.

    :param silent_sec: for how long the watcher has seen no report of the agent
    :param rounds: in how many rounds in a row all signs agreed
    """

    instance_id: str
    verdict: Verdict
    reason: str
    silent_sec: float = 0
    rounds: int = 0


@dataclasses.dataclass(frozen=True)
class RoundFacts:
    """The facts of one round.

    :param instance_ids: all instances that could be replaced if they had a policy; not those that
        were ejected
    :param covered: those of them with a policy
    :param prefers_replica: those of these whose policy prefers that a replica takes over
    :param signs: of the covered instances whose agents are silent
    :param hosts: by name; empty if no agent of a covered instance is silent
    :param on_down_hosts: the silent instances, with or without a policy, whose hosts do not report
        to Nova; if more enabled hosts do not than may, only those on disabled hosts
    :param control_clients: how many clients a database has whose agent reports; None: there is none
    :param failures: the services that did not answer in this round, with their errors
    :param replacements: automatic ones that are open, or have ended within the last day
    :param maintenance: why an operator holds all automatic failovers; None: none does
    :param time: by the clock of the database, like the times of replacements
    """

    instance_ids: Collection[str]
    covered: Collection[str]
    time: datetime.datetime
    signs: Mapping[str, Signs] = dataclasses.field(default_factory=dict)
    hosts: Mapping[str, HostState] = dataclasses.field(default_factory=dict)
    on_down_hosts: Collection[str] = frozenset()
    control_clients: int | None = None
    failures: Sequence[str] = ()
    replacements: Sequence[ReplacementRecord] = ()
    maintenance: str | None = None
    prefers_replica: Collection[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Decision:
    """What a round decides.

    :param hold: why no database at all is moved; None: no guard objects
    :param findings: of the covered instances whose agents are silent, those that failed first
    :param to_replace: the instances to replace now
    :param used: how many automatic failovers count towards the hourly limit
    """

    hold: str | None
    findings: tuple[Finding, ...]
    to_replace: tuple[str, ...]
    reporting: int
    silent: int
    used: int
