# SPDX-License-Identifier: Apache-2.0
"""Have an instance that is being deleted leave its source and its replicas.

Trove's API checks that an instance has no replicas when its deletion is requested. A promotion that
is under way then can make it the source all the same. A server that accepts writes instead of its
source, or that others follow, has what no other server has, so it is not deleted.
"""

from collections.abc import Sequence

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.roles import Role
from trove_ceph.strategies.replication import detachment, group, new_source
from trove_ceph.strategies.replication.source_dependencies import Member, SourceDependencies
from trove_ceph.taskmanager.source_work import SourceWork

LOG = logging.getLogger(__name__)

_POLL_SEC = 1
#: The tasks of a replica that goes on becoming the source, by the role of its source.
_TASKS = {
    Role.CHANGE_SOURCE: 'PROMOTING',
    Role.EJECT_SOURCE: 'EJECTING',
    Role.TAKE_OVER: 'EJECTING',
}


class _MayWriteError(exceptions.OperationUnfinishedError):
    """The replica may be the source already, so nothing else may accept writes."""


class ReplicaDeletions:
    """The deletions of sources and replicas by this process."""

    def __init__(self, work: SourceWork):
        self._work = work
        self._deps, self._operations, self._store = work.deps, work.operations, work.store

    def forget(self, instance_id: str) -> None:
        """Forget an instance that is being deleted, within :meth:`.InstanceOperations.deleting`.

        :raises DeletionRefusedError: others follow it, or it may accept writes instead of its
            source; it has another task again, with the reason as a fault
        :raises OperationUnfinishedError: it is not known whether it does, since the database does
            not answer
        :raises ServiceUnavailableError: the database or the source does not answer; it can be
            deleted
        """
        with group.answers_needed(f'deletion of instance {instance_id}'):
            found = self._deps.rows.find(instance_id)
            if found is None:
                return
            self._check_no_source(instance_id)
            is_promoted = self._store.find_role(instance_id) is Role.PROMOTE_REPLICA
            if found.source_id and is_promoted:
                self._give_up(found, found.source_id)
        detachment.forget(self._deps, found)

    def _check_no_source(self, instance_id: str) -> None:
        followers = [one.instance_id for one in self._deps.rows.list_replicas(instance_id)]
        if followers:
            raise self._refused(
                instance_id,
                'NONE',
                f'it is the source of {", ".join(followers)}; promote one of them, or delete or '
                'detach them before',
            )

    def _refused(self, instance_id: str, task: str, why: str) -> exceptions.DeletionRefusedError:
        """Show that an instance is not deleted; return the error."""
        error = exceptions.DeletionRefusedError(f'instance {instance_id}: is not deleted: {why}')
        # The tenant is told before the instance can be used again.
        group.add_fault(self._deps, instance_id, str(error))
        self._deps.rows.refuse_deletion(instance_id, task, self._find_ram_mib(instance_id))
        return error

    def _find_ram_mib(self, instance_id: str) -> int:
        """Return the memory of the flavor; 0: Nova does not tell it in two minutes."""
        found = self._deps.rows.find(instance_id)
        if found is None:
            return 0
        deadline = self._deps.deadline(self._deps.answer_sec)
        while True:
            try:
                return self._deps.find_ram_mib(found.flavor_id)
            except exceptions.ServiceUnavailableError as error:
                if not deadline.pause(_POLL_SEC):
                    LOG.error(
                        'Instance %s: is not deleted, but the quota of project %s does not count '
                        'the memory of its flavor %s any more; add it to in_use of the resource '
                        '"ram" in quota_usages: %s',
                        *(instance_id, found.project_id, found.flavor_id, error),
                    )
                    return 0

    def _give_up(self, candidate: Member, source_id: str) -> None:
        """Give up a promotion or an ejection that nothing has ended.

        :raises DeletionRefusedError: its point of no return may be behind it
        """
        candidate_id, role = candidate.instance_id, self._store.find_role(source_id)
        try:
            if role in (Role.EJECT_SOURCE, Role.TAKE_OVER):
                # It goes on with the other replicas, one of which accepts writes then.
                self._check_not_writable(self._deps, candidate_id)
                self._stop_candidate(self._deps, candidate)
            else:
                self._abandon(candidate, source_id)
        except (_MayWriteError, exceptions.SourceNotChangedError) as error:
            raise self._refused(
                candidate_id,
                _TASKS.get(role, 'NONE') if role is not None else 'NONE',
                f'it is becoming the source; repeat the deletion when that has ended: {error}',
            ) from error

    @staticmethod
    def _check_not_writable(deps: SourceDependencies, candidate_id: str) -> None:
        """Return if a replica accepts no writes, or does not tell."""
        try:
            accepts_writes = deps.agents.status(candidate_id).accepts_writes
        except exceptions.GuestUnavailableError as error:
            LOG.warning('Replica %s: is deleted while it does not answer: %s', candidate_id, error)
            return
        if accepts_writes:
            raise _MayWriteError(f'replica {candidate_id}: accepts writes')

    def _abandon(self, candidate: Member, source_id: str) -> None:
        """Have a source go on whose promoted replica is deleted before the promotion has ended.

        Trove's row of a deleted instance names no source, so a resumption would come too late. What
        does not answer is left read-only, and named in the log; it does not delay the deletion.

        :raises SourceNotChangedError: another worker continues the promotion
        """
        candidate_id = candidate.instance_id
        LOG.warning('Replica %s: is deleted while it is promoted', candidate_id)
        try:
            with self._operations.exclusively(
                Role.CHANGE_SOURCE, source_id, {Role.CHANGE_SOURCE}
            ) as claim:
                # With an error of another kind, the row of the source would be lost.
                with group.answers_needed(f'source {source_id}: may be read-only'):
                    self._let_go_on(self._work.guarded(claim), candidate, source_id)
        except _MayWriteError:
            raise
        except exceptions.OperationUnfinishedError as error:
            LOG.error('Source %s: does not go on yet: %s', source_id, error)
            # What makes the source writable does not look at the tasks.
            group.end_tasks(self._deps, self._list_others(self._deps, candidate, source_id))

    def _let_go_on(self, deps: SourceDependencies, candidate: Member, source_id: str) -> None:
        self._check_not_writable(deps, candidate.instance_id)
        members = self._list_others(deps, candidate, source_id)
        group.end_tasks(deps, members)
        self._stop_candidate(deps, candidate)
        if deps.agents.status(source_id).is_replica:
            deps.agents.detach(source_id)
        group.restore_writes(deps, source_id)
        # Our table is written before that of Trove.
        deps.replicas.promote(candidate.instance_id, source_id, keeps_source=False)
        for source in [one for one in members if one.instance_id == source_id]:
            others = [one for one in members if one != source]
            again = new_source.NewSource(deps, source)
            again.attach(others)
            again.renew(others)

    @staticmethod
    def _list_others(
        deps: SourceDependencies, candidate: Member, source_id: str
    ) -> Sequence[Member]:
        return [one for one in group.members_of(deps, source_id) if one != candidate]

    def _stop_candidate(self, deps: SourceDependencies, candidate: Member) -> None:
        """Return when a replica that is being deleted accepts no writes.

        :raises _MayWriteError: neither its agent, nor Nova, nor Ceph says so
        """
        try:
            if deps.agents.status(candidate.instance_id).accepts_writes:
                deps.agents.make_read_only(candidate.instance_id, True)
        except exceptions.GuestUnavailableError:
            if not self._is_switched_off(candidate):
                self._fence(deps, candidate)

    def _is_switched_off(self, candidate: Member) -> bool:
        """Have Nova switch a server off; return whether it is off within a while, or gone."""
        server_id = candidate.server_id
        if server_id is None:
            return True
        deadline = self._deps.deadline(self._deps.answer_sec)
        try:
            self._deps.stop_server(server_id)
            while not self._deps.is_server_off(server_id):
                if not deadline.pause(_POLL_SEC):
                    LOG.warning('Server %s: Nova does not switch it off', server_id)
                    return False
        except exceptions.ServiceUnavailableError as error:
            LOG.warning('Server %s: Nova does not answer: %s', server_id, error)
            return False
        return True

    @staticmethod
    def _fence(deps: SourceDependencies, candidate: Member) -> None:
        """Cut a server off from its volume, which is being deleted with it.

        :raises _MayWriteError: there is no proof that it cannot write any more
        """
        if candidate.volume_id is None:
            return
        try:
            deps.volumes.fence(candidate.volume_id)
        except (exceptions.StorageError, exceptions.ServiceUnavailableError) as error:
            raise _MayWriteError(
                f'replica {candidate.instance_id}: it is not known whether its server accepts '
                f'writes: {error}'
            ) from error
