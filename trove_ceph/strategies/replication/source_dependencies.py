# SPDX-License-Identifier: Apache-2.0
"""What promotion, ejection and detachment need, and the values that they exchange with Trove."""

import dataclasses
import datetime
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from trove_ceph import waiting
from trove_ceph.db import heartbeat
from trove_ceph.db.claims import Claim
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.backup import claimed
from trove_ceph.strategies.replication.replication_types import ReplicationStatus

#: The tasks that Trove's API sets for the changes of sources.
CHANGE_TASKS = ('PROMOTING', 'EJECTING', 'DETACHING')
#: The task of an ejected source, and of a new source that may not accept writes after an ejection.
EJECTION_ERROR = 'EJECTION_ERROR'
#: That of one that may not after a promotion, and of a former source that cannot be its replica.
PROMOTION_ERROR = 'PROMOTION_ERROR'
_TASKS = {
    None: 'NONE',
    SourceMark.EJECTED: EJECTION_ERROR,
    SourceMark.UNFINISHED_EJECTION: EJECTION_ERROR,
    SourceMark.UNFINISHED_PROMOTION: PROMOTION_ERROR,
}


def task_at_rest(mark: SourceMark | None) -> str:
    """Return the task of an instance on which no operation works, by its mark."""
    return _TASKS[mark]


@dataclasses.dataclass(frozen=True)
class Member:
    """A source or a replica, as Trove records it.

    :param task: the name of its task, such as NONE or PROMOTING
    :param source_id: of the instance that it follows; None: it is no replica
    :param flavor_id: the id of its flavor in Nova
    """

    instance_id: str
    project_id: str
    volume_id: str | None
    server_id: str | None
    task: str
    source_id: str | None = None
    flavor_id: str = ''


@dataclasses.dataclass(frozen=True)
class RowChange:
    """What Trove records of an instance from now on.

    :param source_id: of the instance that it follows; None: it is no replica
    :param task: the name of its task, in place of that of the operation that ends
    """

    instance_id: str
    source_id: str | None
    task: str = 'NONE'


class Rows(Protocol):
    """Trove's table of instances; each verb is one transaction.

    It raises ServiceUnavailableError when the database does not answer.
    """

    def find(self, instance_id: str) -> Member | None:
        """Return an instance; None: it is deleted."""

    def list_replicas(self, source_id: str) -> Sequence[Member]:
        """Return the replicas of an instance that are not deleted, by their ids."""

    def record(self, changes: Sequence[RowChange]) -> None:
        """Record the sources of instances and end the operation that they have as task.

        Deleted instances are left out. An instance that is being deleted keeps that task.
        """

    def begin_ejection(self, instance_ids: Collection[str]) -> bool:
        """Give instances the task of an ejection, as Trove's API does; idempotent.

        :returns: False: one has another task; nothing is changed
        """

    def end_tasks(self, tasks: Mapping[str, str]) -> None:
        """Replace the tasks of a promotion, an ejection or a detachment.

        :param tasks: the names of the tasks, by the ids of the instances
        """

    def replace_task(self, instance_id: str, before: Collection[str], after: str) -> None:
        """Replace the task of an instance if it is one of others; do nothing if it is not."""

    def refuse_deletion(self, instance_id: str, task: str, ram_mib: int) -> None:
        """Give an instance that is being deleted another task, since it is not deleted after all.

        Do nothing if it is not being deleted.

        :param task: its name
        :param ram_mib: of its flavor, which the quota of its project counts again
        """

    def add_fault(self, instance_id: str, text: str) -> None:
        """Show a tenant what happened to an instance; do nothing if it is deleted."""


class Agents(Protocol):
    """The guest agents; each verb may be repeated.

    It raises GuestUnavailableError when the agent refuses, fails or does not answer.
    """

    def status(self, instance_id: str, timeout_sec: int | None = None) -> ReplicationStatus:
        """Return the replication of a server, whether it is a source, a replica or neither.

        :param timeout_sec: after which the agent is silent; None: as is usual for short requests
        """

    def make_read_only(self, instance_id: str, read_only: bool) -> None:
        """Make a server refuse all writes, or accept them again; it stays so after a restart.

        Every commit that was acknowledged is in ``gtid_executed`` afterwards.
        """

    def wait_for_gtid(self, instance_id: str, gtid_set: GtidSet, timeout_sec: int) -> bool:
        """Return whether a server executes a GTID set within the time, at most 30 s."""

    def stop_receiving(self, instance_id: str) -> None:
        """Have a replica receive no more transactions; it applies what it has received."""

    def replica_context(self, instance_id: str, replica_id: str | None = None) -> dict[str, Any]:
        """Return how a replica follows a source, which must not be read-only."""

    def attach(self, instance_id: str, replica_context: Mapping[str, Any]) -> None:
        """Have a server follow a source, also instead of another one; it is read-only before."""

    def detach(self, instance_id: str, for_failover: bool = False) -> None:
        """Have a replica forget its source.

        :param for_failover: it stays read-only; otherwise it becomes writable
        """

    def enable_as_source(self, instance_id: str) -> None:
        """Make a server writable that follows no source."""

    def set_semi_sync(
        self, instance_id: str, as_source: bool, as_replica: bool, timeout_ms: int
    ) -> None:
        """Switch both sides of semi-synchronous replication on or off."""

    def drop_replication_users(self, instance_id: str, keep_replica_ids: Collection[str]) -> None:
        """Drop the replication users of a source, except of those replicas."""


class Replicas(Protocol):
    """Our table of replicas, and what it says of their sources."""

    def promote(
        self,
        source_id: str,
        candidate_id: str,
        keeps_source: bool,
        source_volume_id: str | None = None,
    ) -> None:
        """Make a replica the source of all others of its source, with its policy; idempotent.

        :param keeps_source: the old source becomes a replica; False: it is given up
        :param source_volume_id: the volume of one that becomes a replica
        """

    def remove(self, instance_id: str) -> None:
        """Remove an instance that is no replica any more; idempotent."""

    def known(self, source_id: str) -> Collection[str]:
        """Return the ids of the replicas of a source that follow it."""

    def last_known(self, source_id: str) -> GtidSet:
        """Return the transactions that a source had when its agent last answered."""

    def source_seen_at(self, source_id: str) -> datetime.datetime | None:
        """Return when that was, by the clock of the database; None: it is not known."""

    def now(self) -> datetime.datetime:
        """Return the time by that clock."""

    def note_stopped(self, instance_id: str) -> None:
        """Note durably that a replica is told to receive no more."""

    def forget_stopped(self, instance_id: str) -> None:
        """Forget that, since it receives again."""

    def note_surplus(self, instance_id: str) -> None:
        """Note durably that a replica may have commits that its source lacks."""

    def stopped(self, source_id: str) -> Collection[str]:
        """Return the replicas of a source that were told to receive no more."""

    def request(self, instance_id: str, reason: str) -> None:
        """Request that a replica gets a fresh clone of its source.

        :raises TroveCephError: it cannot have one now
        """


class Choices(Protocol):
    """Which replicas may have been made the source by a worker that died; stored durably."""

    def note(self, instance_id: str) -> None:
        """Note that a replica is about to become the source; idempotent.

        :raises SourceNotChangedError: it is being created or deleted
        """

    def forget(self, instance_id: str) -> None:
        """Forget what this worker has noted, since Trove's rows show the source."""

    def find(self, instance_ids: Collection[str]) -> set[str]:
        """Return those for which a promotion or an ejection has noted that."""


class Marks(Protocol):
    """What is left to do on instances, see :class:`.source_marks.SourceMarkStore`."""

    def set(self, instance_id: str, mark: SourceMark, /) -> None: ...
    def find(self, instance_id: str, /) -> SourceMark | None: ...
    def age_sec(self, instance_id: str, /) -> float | None: ...
    def remove(self, instance_id: str, /) -> None: ...


class Volumes(Protocol):
    """The data volumes."""

    def fence(self, volume_id: str, confirm: Callable[[], None] | None = None) -> None:
        """Return when Ceph has proved that no present client can write to a volume.

        :param confirm: raises ClaimLostError if another worker has resumed this. No client is cut
            off that has opened the image after it was called; None: there is one worker
        :raises NotFencedError: there is no proof yet; a repetition continues
        """

    def has_one_copy(self, volume_id: str) -> bool | None:
        """Return whether the storage of a volume keeps one copy of its data.

        :returns: None: it is not known, since the volume is gone or on no tier
        :raises TroveCephError: Cinder does not answer, or the tiers file cannot be used
        """

    def flatten(self, volume_id: str) -> None:
        """Have a volume flattened in the background, so that it needs no other image; idempotent.

        :raises ServiceUnavailableError: Cinder did not record that
        """

    def is_to_be_flattened(self, volume_id: str) -> bool:
        """Return whether a volume has a mark already with which it may be flattened.

        :raises ServiceUnavailableError: Cinder does not answer
        """

    def withdraw_flatten(self, volume_id: str) -> None:
        """Have a volume keep what it shares; what is copied already stays copied; idempotent.

        :raises ServiceUnavailableError: Cinder did not record that
        """


@dataclasses.dataclass(frozen=True)
class SourceDependencies:
    """The dependencies of promotion, ejection and detachment.

    :param find_task: returns the name of the task of another operation of this package on an
        instance, which Trove's API overwrites; None: there is none
    :param is_blocked: returns whether the re-provisioning of a replica waits for an operator
    :param is_reprovisioning: returns whether a replica is re-provisioned, and no operator is needed
    :param disable_failover: has no policy fail an instance over automatically
    :param stop_server: requests that Nova powers a server off
    :param find_ram_mib: returns the memory of a flavor; raises ServiceUnavailableError if Nova does
        not answer
    :param is_server_off: returns whether a server is powered off in Nova, or gone
    :param has_host_down: returns whether Nova counts the host of a server as down
    :param catch_up_sec: how long a replica may take to execute what its source has, while the
        source refuses writes
    :param answer_sec: how long a guest agent is asked again that must answer
    :param semi_sync_timeout_ms: after which a commit does not wait for a replica any longer
    """

    rows: Rows
    agents: Agents
    replicas: Replicas
    volumes: Volumes
    choices: Choices
    marks: Marks
    find_task: Callable[[str], str | None]
    is_blocked: Callable[[str], bool]
    is_reprovisioning: Callable[[str], bool]
    disable_failover: Callable[[Member], None]
    stop_server: Callable[[str], None]
    is_server_off: Callable[[str], bool]
    has_host_down: Callable[[str], bool]
    find_ram_mib: Callable[[str], int]
    catch_up_sec: float = 60
    answer_sec: float = 120
    semi_sync_timeout_ms: int = 10000
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def guarded(self, beating: heartbeat.Heartbeat, claim: Claim) -> 'SourceDependencies':
        """Return dependencies that raise ClaimLostError once the claim is lost."""
        guarded: dict[str, Any] = {
            name: claimed.Guarded(getattr(self, name), beating, claim)
            for name in ('rows', 'agents', 'replicas', 'volumes', 'choices', 'marks')
        }
        return dataclasses.replace(self, **guarded)

    def deadline(self, timeout_sec: float) -> waiting.Deadline:
        return waiting.Deadline(timeout_sec, self.clock, self.sleep)
