# SPDX-License-Identifier: Apache-2.0
"""Make a replica the source, and have the others follow it."""

from collections.abc import Callable, Iterable

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.strategies.replication import group
from trove_ceph.strategies.replication.source_dependencies import Member, SourceDependencies

LOG = logging.getLogger(__name__)

_POLL_SEC = 2
#: A replica connects within a second, or it has an error.
_CONNECT_SEC = 30


class NewSource:
    """A replica that becomes the source of the others.

    Nothing here raises because a guest agent does not answer: the source has changed, and which
    instances do not follow it is told at the end.

    :ivar failures: why an instance does not follow, by its id; of the new source itself: why it may
        not accept writes
    """

    def __init__(self, deps: SourceDependencies, member: Member):
        self._deps = deps
        self.member = member
        self.failures: dict[str, str] = {}

    @property
    def has_failed(self) -> bool:
        """Whether the agent of the new source did not answer, so that none can follow it."""
        return self.member.instance_id in self.failures

    def mark(self, if_silent: SourceMark) -> None:
        """Mark the new source if its agent did not answer; otherwise, remove the mark that it has.

        Call it before the new source is recorded. A resumption that makes another replica the
        source leaves the mark to what handles it.
        """
        if self.has_failed:
            self._deps.marks.set(self.member.instance_id, if_silent)
        else:
            self._deps.marks.remove(self.member.instance_id)

    def accept_writes(self, may_follow: bool) -> None:
        """Make the server writable, once it follows no source; ask its agent for a while.

        :param may_follow: if it follows a source, it is told to follow none
        :raises OperationUnfinishedError: it follows a source, and must not
        """
        self._insist(lambda: self._accept_writes(may_follow))

    def _accept_writes(self, may_follow: bool) -> None:
        instance_id = self.member.instance_id
        found = self._deps.agents.status(instance_id)
        if found.is_replica:
            if not may_follow:
                raise exceptions.OperationUnfinishedError(
                    f'replica {instance_id}: still follows its source, so it may lack what that '
                    'has; goes on later'
                )
            self._deps.agents.detach(instance_id, for_failover=True)
        # Also if it accepts writes: an agent that was interrupted has not done all of it.
        self._deps.agents.enable_as_source(instance_id)

    def _insist(self, ask: Callable[[], object]) -> None:
        """Ask the agent of the new source until it answers, but not for ever."""
        deadline = self._deps.deadline(self._deps.answer_sec)
        while True:
            try:
                ask()
                return
            except exceptions.GuestUnavailableError as error:
                if not deadline.pause(_POLL_SEC):
                    LOG.error('Source %s: does not answer: %s', self.member.instance_id, error)
                    self.failures[self.member.instance_id] = str(error)
                    return

    def attach(self, members: Iterable[Member]) -> None:
        """Have instances follow the new source, each that answers."""
        for member in members:
            replica_id = member.instance_id
            if not self.has_failed:
                self._insist(lambda: self._deps.agents.status(self.member.instance_id))
            if self.has_failed:
                self.failures[replica_id] = 'the new source does not answer'
                continue
            try:
                self._attach(replica_id)
            except exceptions.GuestUnavailableError as error:
                LOG.error(
                    'Replica %s: does not follow the new source %s: %s',
                    *(replica_id, self.member.instance_id, error),
                )
                self.failures[replica_id] = str(error)

    def _attach(self, replica_id: str) -> None:
        agents = self._deps.agents
        source = agents.status(self.member.instance_id)
        found = agents.status(replica_id)
        # An interrupted ejection may have stopped it receiving.
        if found.follows(source) and found.is_replicating:
            return
        agents.attach(replica_id, agents.replica_context(self.member.instance_id, replica_id))
        deadline = self._deps.deadline(_CONNECT_SEC)
        while not (found := agents.status(replica_id)).is_replicating:
            if not deadline.pause(_POLL_SEC):
                error = found.io_error or found.sql_error or 'does not connect'
                raise exceptions.GuestUnavailableError(f'replica {replica_id}: {error}')

    def drop_users(self, members: Iterable[Member]) -> None:
        """Drop the replication users of the new source that no replica needs."""
        if not self.has_failed:
            group.drop_users(self._deps, self.member.instance_id, members)

    def renew(self, members: Iterable[Member]) -> None:
        """Request a fresh clone for each replica that does not follow."""
        for member in members:
            reason = self.failures.get(member.instance_id)
            if reason is None or self.has_failed:
                continue
            try:
                self._deps.replicas.request(
                    member.instance_id, f'it does not follow its new source: {reason}'
                )
            except exceptions.TroveCephError as error:
                LOG.warning(
                    'Replica %s: does not follow its new source, and cannot be re-provisioned '
                    'now: %s',
                    *(member.instance_id, error),
                )

    def check(self) -> None:
        """Return if all instances follow.

        :raises NewSourceSilentError: the new source may not accept writes
        :raises ReplicasLeftError: some do not follow, which the message names
        """
        if self.has_failed:
            raise _silent(self.member, self.failures[self.member.instance_id])
        if self.failures:
            left = '; '.join(f'{one}: {why}' for one, why in sorted(self.failures.items()))
            raise exceptions.ReplicasLeftError(
                f'instance {self.member.instance_id}: is the source now, but '
                f'{len(self.failures)} of the others do not follow it: {left}'
            )


def check_recorded(deps: SourceDependencies, member: Member) -> None:
    """Return if the agent of a new source has answered.

    :raises NewSourceSilentError: it has not, so that the new source may not accept writes
    """
    mark = deps.marks.find(member.instance_id)
    if mark is not None and mark.is_unfinished:
        raise _silent(member, f'it has the mark {mark}')


def _silent(member: Member, why: str) -> exceptions.NewSourceSilentError:
    return exceptions.NewSourceSilentError(
        f'instance {member.instance_id}: is the source now, but its agent does not answer. It '
        f'accepts writes as soon as it does; if its server has failed, eject it: {why}'
    )
