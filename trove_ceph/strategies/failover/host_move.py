# SPDX-License-Identifier: Apache-2.0
"""Move the databases of a host to other hosts, one after the other, for its maintenance.

Each is moved by a forced failover, which any taskmanager carries out, and which stops MySQL first
if it serves. So a move that is interrupted loses nothing: the failover that is under way goes on,
and a repetition moves the databases that are still on the host.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from trove_ceph import exceptions, waiting
from trove_ceph.db.replacement_record import (
    FailoverCause,
    ReplacementRecord,
    ReplacementState,
    RequestedBy,
)
from trove_ceph.db.replacements import ReplacementStore
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.failover.facts import HostState
from trove_ceph.strategies.replacement import requests
from trove_ceph.strategies.replacement.dependencies import InstanceFacts

_POLL_SEC = 2


class Servers(Protocol):
    """Nova. Each verb raises ServiceUnavailableError when Nova refuses or does not answer."""

    def list_hosts(self) -> Mapping[str, HostState]:
        """Return the hosts of servers by name."""

    def list_on_host(self, host: str) -> Collection[str]:
        """Return the ids of the servers of all projects on a host."""


class Databases(Protocol):
    """Trove's tables."""

    def list_instances(self) -> Sequence[backup_types.Instance]:
        """Return the instances that are not deleted."""

    def find_facts(self, instance_id: str) -> InstanceFacts | None:
        """Return an instance, even a deleted one."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A database on the host.

    :param refused: why it cannot be moved now; None: it can
    """

    instance_id: str
    project_id: str
    refused: str | None = None


@dataclasses.dataclass(frozen=True)
class HostMove:
    """The move of the databases of one host.

    :param reason: which the tenants read
    :param timeout_sec: how long one failover may take
    :param note: told the step of the failover that is under way, when it changes
    :param start_wait: returns the deadline of a wait of so many seconds
    """

    host: str
    reason: str
    servers: Servers
    databases: Databases
    store: ReplacementStore
    timeout_sec: float
    note: Callable[[str], None] = lambda _text: None
    start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline

    def check_host(self, is_begun: bool) -> None:
        """Check that the host exists, and takes no new servers once the move begins.

        :raises RecordNotFoundError: Nova has no such host
        :raises ConsequencesNotAcceptedError: Nova would place new servers there
        """
        hosts = self.servers.list_hosts()
        if self.host not in hosts:
            raise exceptions.RecordNotFoundError(
                f'host {self.host}: Nova has no nova-compute there; it has them on '
                f'{", ".join(sorted(hosts)) or "no host"}'
            )
        if is_begun and hosts[self.host].disabled_because is None:
            raise exceptions.ConsequencesNotAcceptedError(
                f'host {self.host}: still takes new servers; first run: openstack compute service '
                f'set --disable --disable-reason maintenance {self.host} nova-compute'
            )

    def list(self) -> Sequence[Candidate]:
        """Return the databases on the host, with why some cannot be moved now."""
        on_host = set(self.servers.list_on_host(self.host))
        found = []
        for one in self.databases.list_instances():
            if one.server_id in on_host:
                try:
                    self._new_record(one.id)
                    refused = None
                except exceptions.ReplacementRefusedError as error:
                    refused = str(error)
                found.append(Candidate(one.id, one.project_id, refused))
        return sorted(found, key=lambda one: (one.project_id, one.instance_id))

    def move(self, candidate: Candidate) -> ReplacementRecord | None:
        """Move one database, and wait until it serves on another host.

        :returns: its failover, which has ended; None: it was deleted, or has left the host by
            itself, while others were moved
        :raises ReplacementRefusedError: it cannot be moved now; nothing was changed
        :raises InProgressError: its failover did not end in time; it goes on
        """
        facts = self.databases.find_facts(candidate.instance_id)
        if facts is None or facts.is_deleted:
            return None
        if facts.server_id not in self.servers.list_on_host(self.host):
            return None
        record, task = self._new_record(candidate.instance_id)
        requested = self.store.request(record, expected_task=task)
        deadline, step = self.start_wait(self.timeout_sec), None
        while True:
            found = self.store.find(requested.replacement_id)
            if found is None:
                raise exceptions.RecordNotFoundError(f'{requested}: has no record any more')
            if not found.state.is_open:
                return found
            if found.step and found.step != step:
                step = found.step
                self.note(f'instance {candidate.instance_id}: {step}')
            if not deadline.pause(_POLL_SEC):
                raise exceptions.InProgressError(
                    f'{found}: did not end within {self.timeout_sec:.0f} s; it goes on, in the '
                    f'step {found.step or found.state}: {found.error or "no error"}'
                )

    def has_left(self, ended: ReplacementRecord) -> bool:
        """Return whether a database has left the host, or was deleted."""
        if ended.state is ReplacementState.CANCELED:
            return True
        return ended.state is ReplacementState.COMPLETED and ended.new_host != self.host

    def _new_record(self, instance_id: str) -> tuple[ReplacementRecord, str]:
        facts = self.databases.find_facts(instance_id)
        if facts is None:
            raise exceptions.ReplacementRefusedError(f'instance {instance_id}: does not exist')
        record = requests.new_failover(
            facts,
            RequestedBy.OPERATOR,
            self.reason,
            True,
            FailoverCause.MAINTENANCE,
            self.store.now(),
        )
        return record, facts.task
