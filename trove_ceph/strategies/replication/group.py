# SPDX-License-Identifier: Apache-2.0
"""What promotion, ejection and detachment do alike with a source and its replicas."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.db.roles import Role
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication.replication_types import ReplicationStatus
from trove_ceph.strategies.replication.source_dependencies import (
    Member,
    RowChange,
    SourceDependencies,
    task_at_rest,
)

LOG = logging.getLogger(__name__)

#: Trove shows no more of a fault.
_MAX_FAULT = 255
_SHOWN_GTIDS = 80
#: Of one wait of a guest agent, after which progress is looked at.
_WAIT_SEC = 10
POLL_SEC = 1


@contextlib.contextmanager
def answers_needed(what: str) -> Iterator[None]:
    """Have an operation resumed later if the database or an agent does not answer.

    :raises OperationUnfinishedError: one does not
    """
    try:
        yield
    except exceptions.ServiceUnavailableError as error:
        raise exceptions.OperationUnfinishedError(f'{what}: goes on later: {error}') from error


def members_of(deps: SourceDependencies, source_id: str) -> list[Member]:
    """Return a source and its replicas."""
    source = deps.rows.find(source_id)
    return [*deps.rows.list_replicas(source_id), *filter(None, [source])]


def ask(
    deps: SourceDependencies, members: Iterable[Member]
) -> tuple[dict[str, ReplicationStatus], dict[str, str]]:
    """Return the statuses of the instances that answer, and why the others do not, by their ids."""
    found, silent = {}, {}
    for member in members:
        try:
            found[member.instance_id] = deps.agents.status(member.instance_id)
        except exceptions.GuestUnavailableError as error:
            silent[member.instance_id] = str(error)
    return found, silent


def restore_writes(deps: SourceDependencies, source_id: str) -> None:
    """Have a source accept writes that an operation has left read-only; idempotent.

    One with a mark is left to what handles that: it may be ejected, or lack commits.
    """
    source = deps.rows.find(source_id)
    if source is None or source.task == 'DELETING' or source.source_id is not None:
        return
    if deps.marks.find(source_id) is not None:
        return
    status = deps.agents.status(source_id)
    if status.is_read_only and not status.is_replica:
        deps.agents.make_read_only(source_id, False)
        LOG.info('Source %s: accepts writes again', source_id)


def wait_until_executed(deps: SourceDependencies, instance_id: str, gtids: GtidSet) -> bool:
    """Return whether a replica has executed transactions; wait for a while until it has.

    :raises GuestUnavailableError: its agent does not answer
    """
    deadline = deps.deadline(deps.catch_up_sec)
    while not _wait_for_gtid(deps, instance_id, gtids, deadline):
        if not deadline.pause(POLL_SEC):
            return False
    return True


def _wait_for_gtid(
    deps: SourceDependencies, instance_id: str, gtids: GtidSet, deadline: waiting.Deadline
) -> bool:
    """Wait once, but not long beyond a deadline; return whether the transactions are executed."""
    timeout_sec = max(1, min(_WAIT_SEC, int(deadline.left_sec)))
    return deps.agents.wait_for_gtid(instance_id, gtids, timeout_sec)


class Patience:
    """The end of a wait for replicas that execute what they have received.

    It comes when none of them has executed anything for ``catch_up_sec``.

    :param most_wait_sec: when it comes at last: a guest is not trusted, and could show progress for
        ever
    """

    def __init__(self, deps: SourceDependencies, most_wait_sec: float):
        self._deps = deps
        self._last = deps.deadline(most_wait_sec)
        self._deadline = deps.deadline(deps.catch_up_sec)
        self._executed: dict[str, GtidSet] = {}

    def is_over(self, executed: Mapping[str, GtidSet]) -> bool:
        """Return whether the end has come.

        :param executed: what replicas have executed now, by their ids
        """
        if any(gtids - self._executed.get(one, gtids) for one, gtids in executed.items()):
            self._deadline = self._deps.deadline(self._deps.catch_up_sec)
        self._executed |= executed
        return not (self._last.left_sec and self._deadline.left_sec)

    def wait(self, replica_id: str, gtids: GtidSet) -> bool:
        """Return whether a replica has executed transactions; wait until it has, but not long.

        :raises GuestUnavailableError: its agent does not answer
        """
        return _wait_for_gtid(self._deps, replica_id, gtids, self._deadline)


def wait_while_executing(
    deps: SourceDependencies, replica_id: str, most_wait_sec: float
) -> ReplicationStatus:
    """Return the status of a replica that has executed what it has received.

    Or of one that has stopped, or that :class:`Patience` gives up.

    :param replica_id: it must not receive any more
    :raises GuestUnavailableError: its agent does not answer
    """
    patience = Patience(deps, most_wait_sec)
    while True:
        found = deps.agents.status(replica_id)
        is_executing = bool(found.gtid_unexecuted) and found.is_applying
        if not is_executing or patience.is_over({replica_id: found.gtid_executed}):
            return found
        if not patience.wait(replica_id, found.gtid_known):
            deps.sleep(POLL_SEC)


def shown(gtids: GtidSet) -> str:
    """Return transactions as a tenant reads them, not all of them if there are many."""
    text = str(gtids)
    return text if len(text) <= _SHOWN_GTIDS else f'{text[:_SHOWN_GTIDS]}...'


def add_fault(deps: SourceDependencies, instance_id: str, text: str) -> None:
    """Show a tenant what happened to an instance."""
    deps.rows.add_fault(instance_id, text[:_MAX_FAULT])


def one_copy_warning(deps: SourceDependencies, member: Member) -> str | None:
    """Return a warning if the storage of an instance keeps one copy of its data; log it, too.

    It is for a replica that becomes a source, or an instance without source.
    """
    assert member.volume_id is not None
    try:
        has_one_copy = deps.volumes.has_one_copy(member.volume_id)
    except exceptions.TroveCephError as error:
        LOG.warning(
            'Instance %s: whether it has one copy is not known: %s', *(member.instance_id, error)
        )
        return None
    if not has_one_copy:
        return None
    LOG.warning('Instance %s: its storage keeps one copy of its data', member.instance_id)
    return 'Its storage keeps one copy of its data: the loss of one disk loses it.'


def free_tasks(deps: SourceDependencies, members: Iterable[Member]) -> dict[str, str]:
    """Return the tasks of instances once their promotion, ejection or detachment has ended."""
    return {one.instance_id: task_of(deps, one.instance_id) for one in members}


def task_of(deps: SourceDependencies, instance_id: str) -> str:
    """Return the task of an instance once no promotion, ejection or detachment works on it."""
    return deps.find_task(instance_id) or task_at_rest(deps.marks.find(instance_id))


def end_tasks(deps: SourceDependencies, members: Iterable[Member]) -> None:
    """End the operation that Trove shows of instances, of which nothing was changed."""
    deps.rows.end_tasks(free_tasks(deps, members))


def end_idle(
    deps: SourceDependencies,
    source_id: str,
    find_role: Callable[[str], Role | None],
    own_id: str | None = None,
) -> None:
    """End the tasks of a source and its replicas, but those that are being promoted or detached.

    Their own operations end those.

    :param find_role: returns the operation of this package on an instance; None: there is none
    :param own_id: of the replica whose operation this is; None: of none
    """
    busy = (Role.PROMOTE_REPLICA, Role.DETACH_REPLICA)
    members = members_of(deps, source_id)
    ids = {one.instance_id for one in members if find_role(one.instance_id) not in busy}
    end_tasks(deps, [one for one in members if one.instance_id in ids | {own_id}])


def move_semi_sync(
    deps: SourceDependencies, instance_id: str, as_source: bool, is_used: Callable[[], bool]
) -> None:
    """Switch semi-synchronous replication of a server to its new side, if it is used; best effort.

    If an agent does not do it, the watch over replicas does so later.

    :param is_used: asks an agent whether commits of the old source wait for a replica
    """
    try:
        if is_used():
            deps.agents.set_semi_sync(
                instance_id, as_source, not as_source, deps.semi_sync_timeout_ms
            )
    except exceptions.GuestUnavailableError as error:
        LOG.warning('Instance %s: semi-synchronous replication: %s', instance_id, error)


def drop_users(deps: SourceDependencies, source_id: str, keep: Iterable[Member]) -> None:
    """Drop the replication users of a source, except of some replicas, if its agent answers."""
    try:
        # The status has a short time limit.
        deps.agents.status(source_id)
        deps.agents.drop_replication_users(source_id, [one.instance_id for one in keep])
    except exceptions.GuestUnavailableError as error:
        LOG.warning('Source %s: keeps unused replication users: %s', source_id, error)


def drop_user_of(deps: SourceDependencies, source_id: str, replica_id: str) -> None:
    """Drop the replication user of a replica that leaves its source, if the agent answers.

    Not while the source has another replica without a row: it may have begun to follow since the
    list was read, with an account that would be dropped as well. A later change drops what is left.
    """
    others = [one for one in deps.rows.list_replicas(source_id) if one.instance_id != replica_id]
    unknown = {one.instance_id for one in others} - set(deps.replicas.known(source_id))
    if unknown:
        LOG.info(
            'Source %s: keeps the replication user of %s, since %s may be being created',
            *(source_id, replica_id, ', '.join(sorted(unknown))),
        )
        return
    drop_users(deps, source_id, others)


def check_free(deps: SourceDependencies, members: Sequence[Member]) -> None:
    """Return if no other operation works on instances.

    Trove's API has checked the task of one of them only.

    :raises SourceNotChangedError: one does, which the message names
    """
    for member in members:
        task = deps.find_task(member.instance_id)
        if task is not None:
            raise exceptions.SourceNotChangedError(
                f'instance {member.instance_id}: has the task {task}; repeat the request when it '
                'has ended'
            )


def row_of(deps: SourceDependencies, member: Member, source_id: str | None) -> RowChange:
    """Return the change of an instance that has the operation behind it."""
    return RowChange(member.instance_id, source_id, task_of(deps, member.instance_id))
