# SPDX-License-Identifier: Apache-2.0
"""Promote, eject and detach under claims, and continue what a dead taskmanager has begun.

A promotion holds the claim of its replica and that of the source, a detachment likewise, an
ejection that of the source. So two of them never work on one source at a time. The row of a replica
with the role PROMOTE_REPLICA stays until it is known which server is the source.

The row of a source belongs to the operation that has begun it, even if its worker has died, until a
resumption has ended it. A new request waits for that. But a source that does not answer any more
may keep the role CHANGE_SOURCE for ever, so an ejection and a detachment claim it with that role:
the ejection finds by itself how far a promotion came, and the detachment leaves the source to what
was begun.

A failover in which a replica takes over is an ejection, too, with another role: only the failover
continues it (:mod:`trove_ceph.strategies.replacement.replacement`).

What is left to do when one of them has ended is a mark of an instance, which no other operation
overwrites (:mod:`.marked_sources`).
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NoReturn, Protocol

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db import claims
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replication import fitness, group, left_replicas, new_source
from trove_ceph.strategies.replication.detachment import Detachment
from trove_ceph.strategies.replication.ejection import Ejection, give_up
from trove_ceph.strategies.replication.promotion import Promotion
from trove_ceph.strategies.replication.source_dependencies import Member, SourceDependencies
from trove_ceph.taskmanager.lost_changes import LostChanges
from trove_ceph.taskmanager.marked_sources import MarkedSources
from trove_ceph.taskmanager.replica_deletions import ReplicaDeletions
from trove_ceph.taskmanager.source_work import SourceWork

LOG = logging.getLogger(__name__)

#: What a tenant reads of a request that came too late, such as when its task was ended as lost.
_LOST = 'the source has changed meanwhile, or the task manager stopped; repeat the request'


class _SourceStoppedError(exceptions.OperationUnfinishedError):
    """The operation has ended, and its source may still be read-only.

    :ivar error: why it failed; None: it did not
    """

    def __init__(self, error: Exception | None):
        super().__init__(str(error or 'the source may be read-only'))
        self.error = error


class Change(Protocol):
    """A promotion, an ejection or a detachment."""

    def steps(self) -> list[steps.Step]:
        """Return the steps."""

    @property
    def has_stopped_source(self) -> bool:
        """Whether its source may be read-only if it fails."""

    @property
    def may_be_committed(self) -> bool:
        """Whether an earlier worker may have passed the point of no return."""

    def tasks_if_failed(self) -> Mapping[str, str]:
        """Return the tasks of its instances if it fails before the point of no return."""


class SourceChanges:
    """Promotions, ejections and detachments by this process.

    Each method returns when the operation has ended, with the tasks in Trove, and raises
    SourceNotChangedError or another error of this package when it failed.

    :ivar forget: see :meth:`.ReplicaDeletions.forget`
    :ivar handle_marks: see :meth:`.MarkedSources.start_due`
    :ivar end_lost: see :meth:`.LostChanges.end`
    """

    def __init__(self, work: SourceWork):
        self._work = work
        self._deps, self._operations, self._store = work.deps, work.operations, work.store
        self.forget = ReplicaDeletions(work).forget
        self.handle_marks = MarkedSources(work).start_due
        self.end_lost = LostChanges(work).end

    def promote(self, replica_id: str) -> None:
        """Make a replica the source, and the source its replica.

        :raises ReplicasLeftError: it is the source, but others do not follow it
        """
        with self._claimed(Role.PROMOTE_REPLICA, replica_id):
            self._promote(replica_id, is_resumed=False)

    def eject(self, source_id: str) -> None:
        """Give up a source for one of its replicas.

        :raises ReplicasLeftError: a replica is the source, but others do not follow it
        """
        is_held = False
        try:
            with self._operations.exclusively(
                Role.EJECT_SOURCE, source_id, {Role.CHANGE_SOURCE}
            ) as claim:
                is_held = True
                self._eject(claim, is_resumed=False)
        except _SourceStoppedError as stopped:
            if stopped.error is not None:
                raise stopped.error from stopped
        except exceptions.SourceNotChangedError:
            # Another ejection has the same tasks.
            ejections = (Role.EJECT_SOURCE, Role.TAKE_OVER)
            if not is_held and self._store.find_role(source_id) not in ejections:
                group.end_tasks(self._deps, group.members_of(self._deps, source_id))
            raise

    def take_over(self, source_id: str, promoted_id: str | None, demands: fitness.Demands) -> None:
        """Give up a source for a replica that has all that is known, as its failover.

        Nothing but a repetition continues what is interrupted, as long as the failover is open.

        :param promoted_id: of the replica that an interrupted call has made the source
        :raises SourceNotChangedError: no replica takes over, and none accepts writes
        :raises NewSourceSilentError: a replica is the source in Trove, and may not accept writes
        :raises TroveCephError: a replica may have taken over; repeat the call
        """
        is_held = False
        try:
            with self._operations.exclusively(
                Role.TAKE_OVER, source_id, {Role.CHANGE_SOURCE, Role.TAKE_OVER}
            ) as claim:
                is_held = True
                self._take_over(claim, promoted_id, demands)
        except _SourceStoppedError as stopped:
            if stopped.error is not None:
                raise stopped.error from stopped
        except exceptions.SourceNotChangedError as error:
            if not is_held and self._store.find_role(source_id) is Role.TAKE_OVER:
                raise exceptions.OperationUnfinishedError(
                    f'source {source_id}: another worker may still have a replica take over'
                ) from error
            raise
        except exceptions.NewSourceSilentError:
            raise
        except exceptions.ReplicasLeftError as error:
            # Its tenant reads which, as their faults.
            LOG.warning('Source %s: a replica has taken over: %s', source_id, error)

    def follow_again(self, source_id: str) -> None:
        """Have replicas follow a source again that a change of the source has left behind.

        The source accepts writes. Such are those that a refused attempt to take over has stopped.

        :raises TroveCephError: one does not; the watch repeats it with :meth:`resume_replicas`
        """
        with self._operations.exclusively(
            # That of an attempt to take over whose end could not be recorded, too.
            *(Role.CHANGE_SOURCE, source_id, {Role.CHANGE_SOURCE, Role.TAKE_OVER})
        ) as claim:
            deps = self._work.guarded(claim)
            source = deps.rows.find(source_id)
            if source is None or deps.marks.find(source_id) is not None:
                return
            # A promotion may have begun, and its worker died, since the watch has looked.
            self._check_none_begun(deps, source_id)
            group.restore_writes(deps, source_id)
            left_replicas.follow_again(deps, source)

    def resume_replicas(self, source_id: str) -> None:
        """Do so for a source that answers, unless something else changes it or its server.

        :raises TroveCephError: see :meth:`follow_again`
        """
        source = self._deps.rows.find(source_id)
        # One that is ejected has a task until its tenant gives it another server.
        if source is None or source.source_id is not None or source.task not in rules.IDLE_TASKS:
            return
        if self._store.find_role(source_id) is None and self._deps.find_task(source_id) is None:
            self.follow_again(source_id)

    def detach(self, replica_id: str) -> None:
        """Make a replica an instance of its own."""
        with self._claimed(Role.DETACH_REPLICA, replica_id):
            self._detach(replica_id, is_resumed=False)

    @contextlib.contextmanager
    def _claimed(self, role: Role, replica_id: str) -> Iterator[None]:
        """Hold the claim of a replica; end the tasks of the request if another operation has it."""
        is_held = False
        try:
            with self._operations.exclusively(role, replica_id):
                is_held = True
                yield
        except exceptions.SourceNotChangedError:
            found = None if is_held else self._deps.rows.find(replica_id)
            if found is not None:
                group.end_idle(self._deps, found.source_id or replica_id, self._store.find_role)
            raise

    @property
    def resumptions(self) -> Mapping[Role, Callable[[claims.Claim], None]]:
        """What continues the operations of workers that died, by their roles."""
        return {
            Role.PROMOTE_REPLICA: lambda claim: self._promote(claim.resource_id, is_resumed=True),
            Role.EJECT_SOURCE: functools.partial(self._eject, is_resumed=True),
            Role.DETACH_REPLICA: lambda claim: self._detach(claim.resource_id, is_resumed=True),
            Role.CHANGE_SOURCE: self._release_source,
            Role.TAKE_OVER: self._end_take_over,
        }

    def _promote(self, replica_id: str, is_resumed: bool) -> None:
        with group.answers_needed(f'promotion of replica {replica_id}'):
            source_id = self._find_source(replica_id)
            if source_id is None:
                return
            if is_resumed and not self._is_begun(source_id, replica_id):
                group.end_tasks(self._deps, group.members_of(self._deps, source_id))
                self._check_not_writable(replica_id)
                self._give_up(self._deps, source_id, replica_id)
                return
        over = {Role.CHANGE_SOURCE} if is_resumed else ()
        with self._changing(source_id, replica_id, is_resumed, over) as claim:
            deps = self._work.guarded(claim)
            with group.answers_needed(f'promotion of replica {replica_id}'):
                # Read again, since another operation may have ended meanwhile.
                source, replicas = deps.rows.find(source_id), deps.rows.list_replicas(source_id)
                candidate = next((one for one in replicas if one.instance_id == replica_id), None)
                if source is None or candidate is None:
                    self._give_up(deps, source_id, replica_id)
                    self._leave_source_again(claim, None)
                    return
                self._check_no_other(deps, candidate, replicas, is_resumed)
            promotion = Promotion(deps, candidate, source, replicas, is_resumed)
            self._run(promotion, claim, replica_id)

    def _is_begun(self, source_id: str, replica_id: str) -> bool:
        """Return whether a promotion may have changed something.

        If not, it is not resumed either, since the row may be that of an ejection.

        :raises OperationUnfinishedError: its source is being ejected
        """
        role = self._store.find_role(source_id)
        if role in (Role.EJECT_SOURCE, Role.TAKE_OVER):
            raise exceptions.OperationUnfinishedError(
                f'instance {replica_id}: its source {source_id} is being ejected'
            )
        # A promotion from a marked source is refused before it changes anything, and what handles
        # the mark has the same role.
        return role is Role.CHANGE_SOURCE and self._deps.marks.find(source_id) is None

    def _check_no_other(
        self,
        deps: SourceDependencies,
        candidate: Member,
        replicas: Sequence[Member],
        is_resumed: bool,
    ) -> None:
        """Return if no other replica that was chosen accepts writes.

        :raises OperationUnfinishedError: one does; its own promotion goes on first
        :raises GuestUnavailableError: one does not answer
        :raises SourceNotChangedError: instead of these, if nothing was begun
        """
        others = [one.instance_id for one in replicas if one != candidate]
        try:
            for one in sorted(deps.choices.find(others)):
                self._check_not_writable(one)
        except (exceptions.OperationUnfinishedError, exceptions.GuestUnavailableError) as error:
            if is_resumed:
                raise
            raise exceptions.SourceNotChangedError(
                f'replica {candidate.instance_id}: cannot be promoted: {error}'
            ) from error

    def _check_not_writable(self, replica_id: str) -> None:
        """Return if a replica that an interrupted operation has chosen accepts no writes.

        :raises OperationUnfinishedError: it does; an ejection of its source will choose it
        :raises GuestUnavailableError: its agent does not answer
        """
        if self._deps.agents.status(replica_id).accepts_writes:
            raise exceptions.OperationUnfinishedError(
                f'replica {replica_id}: accepts writes, but is no source in Trove; eject its source'
            )

    def _eject(self, claim: claims.Claim, is_resumed: bool) -> None:
        deps, source_id = self._work.guarded(claim), claim.resource_id
        with group.answers_needed(f'ejection of source {source_id}'):
            source, replicas = deps.rows.find(source_id), deps.rows.list_replicas(source_id)
            if not replicas and deps.marks.find(source_id) is SourceMark.EJECTED:
                # A worker that died has recorded the end.
                if source is not None:
                    group.end_tasks(deps, [source])
                    give_up(deps, source)
                return
            if source is None or not replicas or not (is_resumed or source.task == 'EJECTING'):
                self._give_up(deps, source_id, source_id)
                self._leave_source_again(claim, None)
                return
        self._run(Ejection(deps, source, replicas, is_resumed), claim, source_id)

    def _take_over(
        self, claim: claims.Claim, promoted_id: str | None, demands: fitness.Demands
    ) -> None:
        """Run the ejection of a source whose failover is open, or find that it has ended.

        :raises SourceNotChangedError: see :meth:`take_over`
        :raises NewSourceSilentError: see :meth:`take_over`
        """
        deps, source_id = self._work.guarded(claim), claim.resource_id
        is_resumed = claim.former_role is Role.TAKE_OVER
        with group.answers_needed(f'failover of source {source_id}'):
            source, replicas = deps.rows.find(source_id), deps.rows.list_replicas(source_id)
            promoted = None if promoted_id is None else deps.rows.find(promoted_id)
            # It may have been made the replica of another one since it took over.
            if promoted is not None and not replicas:
                if source is not None:
                    give_up(deps, source)
                new_source.check_recorded(deps, promoted)
                return
            ids = [one.instance_id for one in replicas]
            why = None
            if source is None or not replicas:
                why = 'it has no replica'
            elif not deps.rows.begin_ejection(ids) and not is_resumed:
                why = 'a replica has a task of its own'
        if why is not None:
            error = exceptions.SourceNotChangedError(f'source {source_id}: {why}')
            self._leave_source_again(claim, error)
            raise error
        assert source is not None
        ejection = Ejection(deps, source, replicas, is_resumed, demands)
        self._run(ejection, claim, None)

    def _detach(self, replica_id: str, is_resumed: bool) -> None:
        with group.answers_needed(f'detachment of replica {replica_id}'):
            source_id = self._find_source(replica_id)
            if source_id is None:
                return
        with self._changing(source_id, replica_id, is_resumed, {Role.CHANGE_SOURCE}) as claim:
            deps = self._work.guarded(claim)
            with group.answers_needed(f'detachment of replica {replica_id}'):
                replica, source = deps.rows.find(replica_id), deps.rows.find(source_id)
                if replica is None or replica.source_id != source_id:
                    self._give_up(deps, source_id, replica_id)
                    self._leave_source_again(claim, None)
                    return
            self._run(Detachment(deps, replica, source), claim, replica_id)
            self._leave_source_again(claim, None)

    def _find_source(self, replica_id: str) -> str | None:
        """Return the source of a replica; None: it has ended, or the replica is deleted."""
        found = self._deps.rows.find(replica_id)
        if found is not None and found.source_id is None:
            # It may be the source now, of instances that have the task as well.
            group.end_tasks(self._deps, group.members_of(self._deps, replica_id))
        return None if found is None else found.source_id

    @contextlib.contextmanager
    def _changing(
        self, source_id: str, replica_id: str, is_resumed: bool, over: Collection[Role]
    ) -> Iterator[claims.Claim]:
        """Hold the claim of a source while the block changes its replicas.

        :param replica_id: which is promoted or detached
        :param is_resumed: an earlier worker may have passed the point of no return
        :param over: see :meth:`.InstanceOperationStore.begin`
        """
        is_held = False
        try:
            with self._operations.exclusively(Role.CHANGE_SOURCE, source_id, over) as claim:
                is_held = True
                yield claim
        except exceptions.SourceNotChangedError as error:
            if is_resumed and not is_held:
                raise exceptions.OperationUnfinishedError(
                    f'changing source {source_id}: goes on later: {error}'
                ) from error
            # Also if another operation works on the source, which may end other tasks only.
            with group.answers_needed(f'changing source {source_id}'):
                group.end_idle(self._deps, source_id, self._store.find_role, replica_id)
            raise
        except _SourceStoppedError as stopped:
            if stopped.error is not None:
                raise stopped.error from stopped

    def _run(self, change: Change, claim: claims.Claim, instance_id: str | None) -> None:
        """Run the steps of a change, and end its tasks if it fails.

        :param instance_id: of the instance whose tenant reads why; None: of none
        """
        plan, begun = change.steps(), 0

        def note(_name: str, number: int, _count: int) -> None:
            nonlocal begun
            begun = number

        try:
            steps.run(str(change), plan, note)
        except (exceptions.ReplicasLeftError, exceptions.ClaimLostError):
            # Its end is recorded, or another worker continues it.
            raise
        except Exception as error:
            if change.may_be_committed or any(step.commits for step in plan[:begun]):
                raise exceptions.OperationUnfinishedError(
                    f'{change}: goes on as soon as possible: {error}'
                ) from error
            self._end(change, claim, instance_id, error)
            raise

    def _end(
        self, change: Change, claim: claims.Claim, instance_id: str | None, error: Exception
    ) -> None:
        """End the tasks of a change that has failed; its source accepts writes again.

        :raises _SourceStoppedError: it does not yet
        :raises OperationUnfinishedError: the database does not answer
        """
        deps, source_id = self._work.guarded(claim), claim.resource_id
        with group.answers_needed(str(change)):
            if deps.marks.find(source_id) is SourceMark.EJECTED:
                # An earlier worker was about to record another end.
                deps.marks.remove(source_id)
            deps.rows.end_tasks(change.tasks_if_failed())
            if instance_id is not None:
                group.add_fault(deps, instance_id, tenant_errors.tenant_message(error))
        if not change.has_stopped_source:
            self._leave_source_again(claim, error)
            return
        try:
            group.restore_writes(deps, source_id)
        except exceptions.ServiceUnavailableError as failure:
            LOG.warning('Source %s: may be read-only; will retry: %s', source_id, failure)
            self._leave_source(claim, error)

    def _leave_source(self, claim: claims.Claim, error: Exception | None) -> NoReturn:
        """Leave a source to a resumption, which has it accept writes if none is promoted.

        :param error: of the operation that has ended; None: it has not failed
        """
        self._store.set_role(claim, Role.CHANGE_SOURCE)
        raise _SourceStoppedError(error) from error

    def _leave_source_again(self, claim: claims.Claim, error: Exception | None) -> None:
        """Do so if another operation had left the source."""
        if claim.former_role is Role.CHANGE_SOURCE:
            self._leave_source(claim, error)

    def _release_source(self, claim: claims.Claim) -> None:
        """Have a source accept writes that an interrupted operation has left read-only.

        :raises OperationUnfinishedError: it does not yet
        """
        deps, source_id = self._work.guarded(claim), claim.resource_id
        with group.answers_needed(f'source {source_id}: may be read-only'):
            self._check_none_begun(deps, source_id)
            group.restore_writes(deps, source_id)

    @staticmethod
    def _check_none_begun(deps: SourceDependencies, source_id: str) -> None:
        """Check that no replica may have been made the source by an operation that goes on later.

        :raises OperationUnfinishedError: one may
        """
        replica_ids = [one.instance_id for one in deps.rows.list_replicas(source_id)]
        if begun := deps.choices.find(replica_ids):
            raise exceptions.OperationUnfinishedError(
                f'source {source_id}: replica {", ".join(sorted(begun))} is being promoted'
            )

    def _end_take_over(self, claim: claims.Claim) -> None:
        """End a take-over whose end could not be recorded, once its failover has ended.

        :raises OperationUnfinishedError: the failover continues it
        """
        deps, source_id = self._work.guarded(claim), claim.resource_id
        with group.answers_needed(f'take-over from source {source_id}'):
            if deps.find_task(source_id) is not None:
                raise exceptions.OperationUnfinishedError(f'source {source_id}: still fails over')
            group.end_tasks(deps, group.members_of(deps, source_id))

    def _give_up(self, deps: SourceDependencies, source_id: str, instance_id: str) -> None:
        """End the tasks of a request that does not fit the present rows any more."""
        members = group.members_of(self._deps, source_id)
        if asked := deps.rows.find(instance_id):
            members.append(asked)
        group.end_tasks(deps, members)
        group.add_fault(deps, instance_id, _LOST)
        LOG.warning('Instance %s: %s', instance_id, _LOST)
