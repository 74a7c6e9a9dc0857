# SPDX-License-Identifier: Apache-2.0
"""Promote a replica: it becomes the source, and the old source becomes its replica.

The old source refuses writes before the replica accepts any, and the replica accepts them only when
it has executed all that the old source has. So no acknowledged commit is lost, and no two servers
accept writes at a time. Nothing restarts.

What can fail is tried before the point of no return, and undone: the old source accepts writes
again. From there on the promotion goes on to its end with each instance that answers. Where a
promotion was interrupted, the servers show: Trove's rows change last, in one transaction.

A replica whose re-provisioning is blocked does not hinder it: it is recorded as a replica of the
new source, and its re-provisioning has it follow that one once an operator has repaired it.
"""

from collections.abc import Mapping, Sequence

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.steps import Step
from trove_ceph.strategies.replication import group, new_source, observation
from trove_ceph.strategies.replication.replication_types import ReplicationStatus
from trove_ceph.strategies.replication.source_dependencies import (
    Member,
    SourceDependencies,
)

LOG = logging.getLogger(__name__)


class Promotion:
    """The promotion of one replica.

    :param is_resumed: another worker began it, and may have passed the point of no return
    """

    def __init__(
        self,
        deps: SourceDependencies,
        candidate: Member,
        source: Member,
        replicas: Sequence[Member],
        is_resumed: bool = False,
    ):
        self._deps = deps
        self._source = source
        self._others = [one for one in replicas if one.instance_id != candidate.instance_id]
        self._new = new_source.NewSource(deps, candidate)
        self._is_resumed = is_resumed
        self._is_committed: bool | None = None if is_resumed else False
        self._has_surplus = False
        self._has_begun = is_resumed
        self._has_marked_volume = False

    @property
    def members(self) -> list[Member]:
        """All instances that have the task of the promotion."""
        return [self._source, self._new.member, *self._others]

    def __str__(self) -> str:
        return f'promotion of replica {self._candidate_id}'

    @property
    def has_stopped_source(self) -> bool:
        """Whether its source may be read-only if it fails."""
        return self._has_begun

    @property
    def may_be_committed(self) -> bool:
        """Whether an earlier worker may have passed the point of no return."""
        return self._is_committed is not False

    def tasks_if_failed(self) -> Mapping[str, str]:
        """Return the tasks of its instances if it fails before the point of no return."""
        return group.free_tasks(self._deps, self.members)

    def steps(self) -> list[Step]:
        """Return the steps."""
        return [
            Step('find how far an interrupted promotion came', self._find_progress),
            # Of an interrupted promotion, an undo must begin with the first failure.
            Step('check that the replica can become the source', self._check, undo=self._go_back),
            Step('wait until the replica is close to the source', self._come_close),
            Step('have the volume flattened', self._flatten, undo=self._share_again),
            Step('make the source read-only', self._stop_writes),
            Step('wait until the replica has all transactions', self._catch_up),
            Step('have the replica follow no more', self._stop_following),
            Step('make the replica the source', self._accept_writes, commits=True),
            Step('have the other replicas follow it', self._attach_others),
            Step('have the old source follow it', self._attach_old_source),
            Step('drop replication users that no replica needs', self._drop_users),
            Step('record the new source', self._record),
            Step('request fresh clones for replicas that do not follow', self._renew),
        ]

    @property
    def _candidate_id(self) -> str:
        return self._new.member.instance_id

    def _observe(self) -> tuple[ReplicationStatus, ReplicationStatus]:
        """Return the candidate and the source; the candidate first, since the source has more."""
        return (
            self._deps.agents.status(self._candidate_id),
            self._deps.agents.status(self._source.instance_id),
        )

    def _find_progress(self) -> None:
        """Find whether the worker that began it has passed the point of no return.

        :raises GuestUnavailableError: neither server tells
        """
        if self._is_committed is not None:
            return
        try:
            candidate = self._deps.agents.status(self._candidate_id)
        except exceptions.GuestUnavailableError:
            # It may accept writes, unless the source shows that it has not come to that.
            source = self._deps.agents.status(self._source.instance_id)
            self._is_committed = source.is_read_only
        else:
            self._is_committed = candidate.accepts_writes

    def _check(self) -> None:
        if self._is_committed:
            return
        self._check_present()
        blocked = [one for one in self._others if self._deps.is_blocked(one.instance_id)]
        group.check_free(self._deps, [one for one in self.members if one not in blocked])
        if self._source.source_id is not None:
            raise self._refused(
                f'its source {self._source.instance_id} is itself a replica; promote that one first'
            )
        if self._deps.marks.find(self._source.instance_id) is not None:
            raise self._refused(
                f'its source {self._source.instance_id} has not accepted writes yet; eject that one'
            )
        candidate, source = self._observe()
        if source.is_replica:
            # It would follow on while it refuses writes, and could not accept them again.
            raise self._refused(
                f'its source {self._source.instance_id} follows another server; stop that first'
            )
        if lost := observation.lost_by_source(candidate, source):
            raise self._refused(
                f'its source has lost {lost.count} transactions that it has; detach it to keep '
                'them, or re-provision it, which discards them'
            )
        is_stopped = self._is_resumed and not candidate.is_replica
        if not candidate.follows(source) and not is_stopped:
            raise self._refused(
                f'it does not follow its source {self._source.instance_id}; re-provision it first'
            )
        if errant := candidate.gtid_executed - source.gtid_executed:
            raise self._refused(
                f'it has {errant.count} transactions that its source lacks; re-provision it first'
            )
        if candidate.sql_error:
            raise self._refused(
                f'it does not apply transactions; re-provision it first: {candidate.sql_error}'
            )

    def _check_present(self) -> None:
        """Return if Trove does not delete the replica."""
        found = self._deps.rows.find(self._candidate_id)
        if found is None or found.task == 'DELETING':
            raise self._refused('it is being deleted')

    def _flatten(self) -> None:
        # Before the point of no return, since Cinder may not answer.
        volume_id = self._new.member.volume_id
        assert volume_id is not None
        self._has_marked_volume = not self._deps.volumes.is_to_be_flattened(volume_id)
        self._deps.volumes.flatten(volume_id)

    def _share_again(self) -> None:
        """Have a replica that is not promoted need no more space than before."""
        # Who continues the promotion of another worker does not know who has marked it.
        if not self._has_marked_volume or self.may_be_committed:
            return
        assert self._new.member.volume_id is not None
        self._deps.volumes.withdraw_flatten(self._new.member.volume_id)

    def _come_close(self) -> None:
        """Wait while the source still accepts writes, which then refuses them for a short time."""
        if self._is_committed:
            return
        candidate, source = self._observe()
        if candidate.is_replica and not source.is_read_only:
            self._wait(source.gtid_executed)

    def _stop_writes(self) -> None:
        if self._is_committed:
            return
        self._check_present()
        self._has_begun = True
        if not self._deps.agents.status(self._source.instance_id).is_read_only:
            self._deps.agents.make_read_only(self._source.instance_id, True)

    def _go_back(self) -> None:
        """Have the source accept writes, and the replica follow it again."""
        if not self._has_begun or self.may_be_committed:
            return
        agents, source_id = self._deps.agents, self._source.instance_id
        if agents.status(source_id).is_read_only:
            agents.make_read_only(source_id, False)
        if not agents.status(self._candidate_id).is_replica:
            agents.attach(self._candidate_id, agents.replica_context(source_id, self._candidate_id))

    def _catch_up(self) -> None:
        if self._is_committed:
            return
        candidate, source = self._observe()
        if candidate.is_replica:
            self._wait(source.gtid_executed)

    def _wait(self, gtids: GtidSet) -> None:
        if not group.wait_until_executed(self._deps, self._candidate_id, gtids):
            raise self._refused(
                f'it did not catch up with its source {self._source.instance_id} within '
                f'{self._deps.catch_up_sec:.0f} s; repeat the request when it lags less'
            )

    def _stop_following(self) -> None:
        if self._is_committed:
            return
        self._check_present()
        candidate, source = self._observe()
        # Since the wait, the source may have been made writable by an administrator.
        missing = source.gtid_executed - candidate.gtid_executed
        if missing or not source.is_read_only:
            raise self._refused(
                f'its source {self._source.instance_id} accepted writes meanwhile; repeat the '
                'request'
            )
        if candidate.is_replica:
            self._deps.agents.detach(self._candidate_id, for_failover=True)

    def _accept_writes(self) -> None:
        # Before its first commit, which waits until a replica has connected.
        self._move_semi_sync(self._candidate_id, as_source=True)
        # A replica that did not answer at first, and was taken for the new source, may have all to
        # do yet: the next attempt finds it.
        self._new.accept_writes(may_follow=False)

    def _move_semi_sync(self, instance_id: str, as_source: bool) -> None:
        agents, source_id = self._deps.agents, self._source.instance_id
        group.move_semi_sync(
            *(self._deps, instance_id, as_source),
            is_used=lambda: agents.status(source_id).semi_sync_source,
        )

    def _attach_others(self) -> None:
        # What is re-provisioned was blocked at the check.
        free = []
        for member in self._others:
            if self._deps.find_task(member.instance_id) != 'MIGRATING':
                free.append(member)
            else:
                LOG.warning(
                    'Replica %s: follows the new source %s when its re-provisioning goes on',
                    *(member.instance_id, self._candidate_id),
                )
        self._new.attach(free)

    def _attach_old_source(self) -> None:
        if self._new.has_failed:
            # What the new source lacks of it is known when it answers, and is received then.
            self._new.attach([self._source])
            return
        try:
            source = self._deps.agents.status(self._source.instance_id)
            new = self._deps.agents.status(self._candidate_id)
        except exceptions.GuestUnavailableError:
            # It cannot be attached either, with the reason.
            surplus = GtidSet()
        else:
            surplus = source.gtid_executed - new.gtid_executed
        if not surplus:
            # Before it applies anything, since a replica that waits would wait in vain.
            self._move_semi_sync(self._source.instance_id, as_source=False)
            self._new.attach([self._source])
            return
        self._has_surplus = True
        if not source.is_read_only:
            # Such as by an administrator since its last look.
            self._stop_old_source()
        self._new.failures[self._source.instance_id] = (
            f'it has {surplus.count} transactions that the new source lacks, and stays read-only; '
            f'detach it to keep them, or re-provision it, which discards them: {surplus}'
        )

    def _stop_old_source(self) -> None:
        try:
            self._deps.agents.make_read_only(self._source.instance_id, True)
        except exceptions.GuestUnavailableError as error:
            LOG.error(
                'Instance %s: accepts writes beside the new source %s: %s',
                *(self._source.instance_id, self._candidate_id, error),
            )

    def _followers(self) -> list[Member]:
        """Return the instances that are replicas of the new source from now on."""
        return [*self._others, self._source]

    def _drop_users(self) -> None:
        self._new.drop_users(self._followers())

    def _record(self) -> None:
        new_id, followers = self._candidate_id, self._followers()
        self._deps.replicas.promote(
            *(self._source.instance_id, new_id),
            keeps_source=True,
            source_volume_id=self._source.volume_id,
        )
        self._new.mark(SourceMark.UNFINISHED_PROMOTION)
        for instance_id in self._new.failures.keys() - {new_id}:
            # The watch has it follow if the fresh clone is refused.
            self._deps.replicas.note_stopped(instance_id)
            if self._new.has_failed:
                # It follows the new source as soon as that serves, and may have more until then.
                self._deps.replicas.note_surplus(instance_id)
        if self._has_surplus:
            self._deps.replicas.note_surplus(self._source.instance_id)
        changes = [group.row_of(self._deps, self._new.member, None)]
        changes += [group.row_of(self._deps, one, new_id) for one in followers]
        self._deps.rows.record(changes)
        # An instance has one fault.
        told = {
            instance_id: [f'promotion of {new_id}: {why}']
            for instance_id, why in self._new.failures.items()
        }
        if warning := group.one_copy_warning(self._deps, self._new.member):
            told.setdefault(new_id, ['source since its promotion']).append(
                f'{warning} Promote a replica on another volume type, or keep backups in the vault'
            )
        for instance_id, facts in told.items():
            group.add_fault(self._deps, instance_id, '. '.join(facts))
        LOG.info(
            'Instance %s: is the source of %d replicas instead of %s',
            *(new_id, len(followers), self._source.instance_id),
        )

    def _renew(self) -> None:
        # What the old source alone has is discarded only on request.
        self._new.renew(self._others if self._has_surplus else self._followers())
        self._new.check()

    def _refused(self, why: str) -> exceptions.SourceNotChangedError:
        return exceptions.SourceNotChangedError(
            f'replica {self._candidate_id}: cannot be promoted: {why}'
        )
