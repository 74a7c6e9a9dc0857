# SPDX-License-Identifier: Apache-2.0
"""Recover instances whose taskmanager died while it worked on them.

Trove keeps the request in the memory of the process. An instance would stay in BUILD for ever, in
which Trove refuses to delete it, or in SHUTDOWN. Each creation and each deletion therefore holds a
claim. Once the claim's worker is dead, another one shows an instance in BUILD as failed, unless its
server was already created (it then becomes ACTIVE by itself), tells the tenant of a rebuild that
has not ended, and resumes a deletion, a promotion, an ejection or a detachment.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.db import claims, heartbeat, instance_operations
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import queue_worker

LOG = logging.getLogger(__name__)

_FAULT = (
    'The task manager stopped while it created this instance. '
    'Delete the instance and create it again.'
)
#: The operations of dead workers that end when the instance is created or deleted. A promotion and
#: an ejection do not: even the row of a dead worker shows that a replica may be the source.
_ENDED = frozenset(
    {
        *(Role.CREATE_INSTANCE, Role.DELETE_INSTANCE, Role.REBUILD_SERVER),
        *(Role.DETACH_REPLICA, Role.CHANGE_SOURCE),
    }
)
#: During these, an instance may become a source, be a source no more, or be started anew.
_CHANGES = frozenset(
    {
        *(Role.PROMOTE_REPLICA, Role.CHANGE_SOURCE, Role.EJECT_SOURCE, Role.TAKE_OVER),
        *(Role.DETACH_REPLICA, Role.REBUILD_SERVER),
    }
)
#: The row of each is all that shows what is left to do: an error of any kind must not end it.
_KEPT_ROWS = frozenset({Role.CHANGE_SOURCE, Role.REBUILD_SERVER})
#: How long a deletion, or the creation of a replica, waits for the end of a promotion.
_PROMOTION_SEC = 300
#: Longer than the expiry of the claim of a worker that died.
_BUSY_SEC = 90
_POLL_SEC = 1


#: Ends the claim of an instance; does nothing if it has none.
EndClaim = Callable[[str], None]


class Trove(Protocol):
    """Trove's table of instances."""

    def fail_creation(self, instance_id: str, fault: str) -> bool:
        """Show an instance in BUILD as failed; return False if it is in another state."""

    def is_deleting(self, instance_id: str) -> bool:
        """Return whether the deletion of an instance has been requested, and has not ended."""

    def find_source_id(self, instance_id: str) -> str | None:
        """Return the source of a replica; None: the instance is none, or does not exist."""


class InstanceOperations:
    """The claims on instances on which this process works.

    :param worker: the name of this process in claims
    :param heartbeat: renews the claims of this process
    :param start_wait: returns the deadline of a wait of so many seconds
    """

    def __init__(
        self,
        store: instance_operations.InstanceOperationStore,
        trove: Trove,
        worker: claims.Claimant,
        heartbeat: heartbeat.Heartbeat,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._store = store
        self._trove = trove
        self._worker = worker
        self._heartbeat = heartbeat
        self._start_wait = start_wait

    @contextlib.contextmanager
    def claimed(self, role: Role, instance_ids: Sequence[str]) -> Iterator[EndClaim]:
        """Hold the claims of instances while the block creates or deletes them.

        If the database refuses the claims, the block runs without them: an operation must not fail
        for want of a later recovery. The row of a promotion or an ejection stays as it is.

        The block gets a function that ends the claim of one of them before its own end.
        """
        begin = functools.partial(self._begin, role)
        held = {one: claim for one in instance_ids if (claim := begin(one)) is not None}

        def end(instance_id: str) -> None:
            if (claim := held.pop(instance_id, None)) is not None:
                self.finish(claim)

        try:
            yield end
        finally:
            for instance_id in list(held):
                end(instance_id)

    @contextlib.contextmanager
    def deleting(self, instance_id: str) -> Iterator[None]:
        """Hold the claim of an instance while the block deletes it, once its promotion has ended.

        The row of a promotion that nothing ends for five minutes keeps its role, since it shows
        that the replica may be the source. If the block fails then, or the process ends, the
        promotion is resumed, and after that the deletion. So is a deletion whose block raises
        OperationUnfinishedError.
        """
        claim = self._await_promotion(instance_id)
        try:
            yield
        except BaseException as error:
            is_unfinished = isinstance(error, exceptions.OperationUnfinishedError)
            if claim is None and is_unfinished:
                claim = self._begin(Role.DELETE_INSTANCE, instance_id)
            if claim is not None:
                # A deletion that has failed is not resumed.
                has_failed = isinstance(error, Exception) and not is_unfinished
                is_over = has_failed and claim.role is Role.DELETE_INSTANCE
                (self.finish if is_over else self._heartbeat.drop)(claim)
            raise
        if claim is not None:
            self.finish(claim)

    def _await_promotion(self, instance_id: str) -> claims.Claim | None:
        """Return the claim of a deletion; None: there is none, as in :meth:`claimed`."""
        deadline = self._start_wait(_PROMOTION_SEC)
        try:
            while self._store.find_role(instance_id) is Role.PROMOTE_REPLICA:
                if not deadline.pause(_POLL_SEC):
                    return self._claim_interrupted(Role.PROMOTE_REPLICA, instance_id)
            while (claim := self._begin(Role.DELETE_INSTANCE, instance_id)) is None:
                # Such as while the server of an ejected source is powered off.
                is_short = self._store.find_role(instance_id) is Role.CHANGE_SOURCE
                if not is_short or not deadline.pause(_POLL_SEC):
                    return None
        except exceptions.TroveCephError as error:
            _warn_of_no_claim(instance_id, error)
            return None
        return claim

    def await_changes(self, source_id: str) -> None:
        """Return when nothing changes which instance is the source of the replicas of another one.

        Call it when the replicas that are being created have their claims: a change that begins
        after that finds them.

        :raises ReplicaRefusedError: such an operation does not end
        :raises ServiceUnavailableError: the database does not answer
        """
        deadline = self._start_wait(_PROMOTION_SEC)
        while self._store.find_role(source_id) in _CHANGES:
            if not deadline.pause(_POLL_SEC):
                raise exceptions.ReplicaRefusedError(
                    f'instance {source_id}: it, or one of its replicas, is being promoted, '
                    'ejected, detached or rebuilt; create the replica again when that has ended'
                )

    @contextlib.contextmanager
    def exclusively(
        self, role: Role, instance_id: str, over: Collection[Role] = ()
    ) -> Iterator[claims.Claim]:
        """Hold the claim of an instance while the block works on it, and nothing else does.

        Waits until the operation of another worker, even of a dead one, has ended.

        If the block raises OperationUnfinishedError, or the process ends, the row stays, and a
        taskmanager resumes the operation.

        :param over: see :meth:`.InstanceOperationStore.begin`
        :raises SourceNotChangedError: something else worked on it for long
        :raises ServiceUnavailableError: the database does not answer
        """
        claim = self._await(role, instance_id, over)
        try:
            yield claim
        except (exceptions.OperationUnfinishedError, exceptions.ClaimLostError):
            self._heartbeat.drop(claim)
            raise
        except Exception:
            self.finish(claim)
            raise
        except BaseException:
            self._heartbeat.drop(claim)
            raise
        self.finish(claim)

    @contextlib.contextmanager
    def if_free(
        self, role: Role, instance_id: str, over: Collection[Role] = ()
    ) -> Iterator[claims.Claim | None]:
        """Hold the claim of an instance while the block works on it, and nothing else does.

        Does not wait: the block gets None if something else works on it.

        :param over: see :meth:`.InstanceOperationStore.begin`
        :raises ServiceUnavailableError: the database does not answer
        """
        claim = self._try(role, instance_id, over)
        try:
            yield claim
        except BaseException as error:
            if claim is not None:
                (self.finish if isinstance(error, Exception) else self._heartbeat.drop)(claim)
            raise
        if claim is not None:
            self.finish(claim)

    def _try(self, role: Role, instance_id: str, over: Collection[Role]) -> claims.Claim | None:
        """See :meth:`.InstanceOperationStore.begin`."""
        return self._heartbeat.acquire(
            lambda: self._store.begin(role, instance_id, self._worker, over)
        )

    def _await(self, role: Role, instance_id: str, over: Collection[Role]) -> claims.Claim:
        deadline = self._start_wait(_BUSY_SEC)
        while (claim := self._try(role, instance_id, over)) is None:
            if not deadline.pause(_POLL_SEC):
                raise exceptions.SourceNotChangedError(
                    f'instance {instance_id}: another operation works on it; repeat the request '
                    'when it has ended'
                )
        return claim

    def recover(
        self,
        resumptions: Mapping[Role, Callable[[claims.Claim], None]],
        threads: queue_worker.WorkerThreads,
    ) -> None:
        """Show interrupted creations as failed, and resume other interrupted operations.

        :param resumptions: resume an operation, in one of the threads, by their roles
        """
        interrupted = self._store.list_interrupted(self._worker)
        promoted = [one for role, one in interrupted if role is Role.PROMOTE_REPLICA]
        # A promotion that is resumed needs the claim on its source.
        needed = {(Role.CHANGE_SOURCE, self._trove.find_source_id(one)) for one in promoted}
        for role, instance_id in interrupted:
            if role is Role.CREATE_INSTANCE:
                self._fail(instance_id)
            elif role in resumptions and (role, instance_id) not in needed:
                threads.start(functools.partial(self._resume, role, instance_id, resumptions[role]))

    def _fail(self, instance_id: str) -> None:
        claim = self._store.resume(Role.CREATE_INSTANCE, instance_id, self._worker)
        if claim is None:
            return
        if self._trove.fail_creation(instance_id, _FAULT):
            LOG.warning(
                'Instance %s: its taskmanager died while it created the instance, which is now in '
                'ERROR',
                instance_id,
            )
        self._store.finish(claim)

    def _resume(self, role: Role, instance_id: str, resume: Callable[[claims.Claim], None]) -> None:
        claim = self._claim_interrupted(role, instance_id)
        if claim is None:
            return
        LOG.warning('Instance %s: resume "%s", whose taskmanager died', instance_id, role)
        try:
            resume(claim)
        # The row stays, also if this worker has lost a claim: that of the source, on which others
        # may work, or this one.
        except (exceptions.OperationUnfinishedError, exceptions.ClaimLostError) as error:
            LOG.warning('Instance %s: "%s" will be resumed again: %s', instance_id, role, error)
            self._heartbeat.drop(claim)
            return
        except Exception as error:
            if role in _KEPT_ROWS:
                LOG.exception('Instance %s: "%s" failed, and is resumed again', instance_id, role)
                self._heartbeat.drop(claim)
                return
            LOG.warning('Instance %s: "%s" failed; request it again: %s', instance_id, role, error)
        self.finish(claim)

    def _begin(self, role: Role, instance_id: str) -> claims.Claim | None:
        try:
            return self._try(role, instance_id, _ENDED)
        except exceptions.TroveCephError as error:
            _warn_of_no_claim(instance_id, error)
            return None

    def _claim_interrupted(self, role: Role, instance_id: str) -> claims.Claim | None:
        return self._heartbeat.acquire(lambda: self._store.resume(role, instance_id, self._worker))

    def finish(self, claim: claims.Claim) -> None:
        """End an operation; a replica whose deletion waits for its promotion is deleted next.

        After a rebuild, a source is left to a resumption, which has it accept writes.

        If the database does not answer, the operation is resumed when the claim has expired.
        """
        self._heartbeat.drop(claim)
        try:
            if claim.role is Role.PROMOTE_REPLICA and self._trove.is_deleting(claim.resource_id):
                self._store.hand_over(claim, Role.DELETE_INSTANCE)
            elif claim.role is Role.REBUILD_SERVER:
                self._store.hand_over(claim, Role.CHANGE_SOURCE)
            else:
                self._store.finish(claim)
        except exceptions.TroveCephError as error:
            LOG.warning('The %s is released when it expires: %s', claim, error)


class OptionalClaims:
    """Claims on instances, without which an operation goes on if a service does not answer.

    :param get_operations: returns the claims of this process, which needs the services
    """

    def __init__(self, get_operations: Callable[[], InstanceOperations]):
        self._get_operations = get_operations

    def claimed(
        self, role: Role, instance_ids: str | list[str]
    ) -> contextlib.AbstractContextManager[EndClaim]:
        """See :meth:`InstanceOperations.claimed`.

        :param instance_ids: the ids of several replicas, or one id
        """
        ids = [instance_ids] if isinstance(instance_ids, str) else instance_ids
        operations = self._find_operations(ids)
        if operations is None:
            return contextlib.nullcontext(lambda _instance_id: None)
        return operations.claimed(role, ids)

    def deleting(self, instance_id: str) -> contextlib.AbstractContextManager[None]:
        """See :meth:`InstanceOperations.deleting`."""
        operations = self._find_operations([instance_id])
        return contextlib.nullcontext() if operations is None else operations.deleting(instance_id)

    def _find_operations(self, instance_ids: Sequence[str]) -> InstanceOperations | None:
        try:
            return self._get_operations()
        except exceptions.TroveCephError as error:
            _warn_of_no_claim(', '.join(instance_ids), error)
            return None


def _warn_of_no_claim(instance_id: str, error: Exception) -> None:
    LOG.warning(
        'Instance %s: if this taskmanager dies, no other one resumes its work: %s',
        *(instance_id, error),
    )
