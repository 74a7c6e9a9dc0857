# SPDX-License-Identifier: Apache-2.0
"""Requests for which Trove's API sets a task whatever the present one is.

So the task may be that of an operation that is under way, which then would not find its own: a
replacement of the server or the volume of the instance, its creation, or its deletion. For a resize
the API looks at the task before, but an operation may begin in between.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.db.claims import Claim
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.strategies.replication.source_dependencies import Member, task_at_rest

LOG = logging.getLogger(__name__)

_REBUILD = 'the rebuild'
_UPDATING = ('UPDATING', 'UPDATING_ERROR_ACCESS')
_OPERATIONS = {'BUILDING': 'is being created or rebuilt', 'DELETING': 'is being deleted'}
_REPLACED = 'is getting another server or volume'
#: How long a request waits for the end of a promotion, an ejection or a detachment.
_CHANGE_SEC = 300
_POLL_SEC = 1
_COUNTED_SEC = 5
_REPEAT = 'repeat the request when that has ended'
#: A replica of the instance is being detached, or a promotion has not shown its choice yet.
_BUSY = ('its replicas are being changed', 'NONE')
_INTERRUPTED = (
    'the task manager stopped while it rebuilt this instance; rebuild it again, or fail it over'
)
_UNFINISHED = 'has become the source, and does not answer yet'


class Rows(Protocol):
    """The tasks of instances; see :class:`.ReplicationRows`."""

    def find(self, instance_id: str) -> Member | None: ...
    def replace_task(self, instance_id: str, before: Collection[str], after: str) -> None: ...
    def subtract_growth(
        self, instance_id: str, ram_growth_mib: int, size_gib: int | None
    ) -> None: ...
    def restore_source(self, instance_id: str, source_id: str | None) -> None: ...
    def add_fault(self, instance_id: str, text: str) -> None: ...


class FindTask(Protocol):
    """See :meth:`.OtherTasks.find`."""

    def __call__(self, instance_id: str, is_created: bool = False) -> str | None: ...


class UncheckedRequests:
    """The requests.

    :param find_task: see :meth:`.OtherTasks.find`
    :param find_mark: returns what a change of its source has left to do on an instance
    :param find_change: returns the change of a source that works on an instance, and the name of
        its task; None: there is none
    :param has_our_agent: returns whether an instance has the guest agent of this package
    :param claim_rebuild: holds the role of a rebuild of an instance while the block runs, which
        gets None if another operation works on the instance
    :param start_wait: returns the deadline of a wait of so many seconds
    """

    def __init__(
        self,
        rows: Rows,
        find_task: FindTask,
        find_mark: Callable[[str], SourceMark | None],
        find_change: Callable[[str], tuple[str, str] | None],
        has_our_agent: Callable[[str], bool],
        claim_rebuild: Callable[[str], contextlib.AbstractContextManager[Claim | None]],
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._rows = rows
        self._find_task = find_task
        self._find_mark = find_mark
        self._find_change = find_change
        self._has_our_agent = has_our_agent
        self._claim_rebuild = claim_rebuild
        self._start_wait = start_wait

    def refuse(self, instance_id: str, task: str, what: str) -> bool:
        """Refuse a request if an operation is under way, and give the task of that back.

        :param task: the name of the task of the request
        :param what: was requested, as the tenant reads it
        :returns: whether it is refused, with the reason as a fault
        :raises ServiceUnavailableError: the database does not answer
        """
        found = self._find_operation(instance_id)
        if found is not None:
            self._refuse(instance_id, task, what, *found)
        return found is not None

    def _find_operation(self, instance_id: str, is_created: bool = False) -> tuple[str, str] | None:
        """Return why an instance cannot have another operation, and its own task; None: it can.

        :param is_created: see :meth:`.OtherTasks.find`
        """
        own, mark = self._find_task(instance_id, is_created), self._find_mark(instance_id)
        if own is None and mark is None:
            return None
        # Trove would end the request without a task, so that an ejected source could be revived.
        return f'the instance {_describe(own, mark)}', own or task_at_rest(mark)

    def _refuse(self, instance_id: str, task: str, what: str, why: str, own: str) -> str:
        """Give an instance its own task back, and show why; return what was shown."""
        self._rows.replace_task(instance_id, (task,), own)
        reason = f'{what} was refused, since {why}'
        self._tell(instance_id, reason)
        return reason

    def end_creation(self, end_claim: Callable[[str], None], instance_id: str) -> None:
        """Let others work on an instance that is shown as created; best effort.

        What was refused since then has given the task of the creation back.

        :param end_claim: ends the claim of its creation
        """
        end_claim(instance_id)
        try:
            if self._find_task(instance_id) is None:
                self._rows.replace_task(instance_id, ('BUILDING',), 'NONE')
        except exceptions.ServiceUnavailableError as error:
            LOG.warning('Instance %s: may keep the task BUILDING: %s', instance_id, error)

    def check_resize(
        self, instance_id: str, what: str, ram_growth_mib: int = 0, size_gib: int | None = None
    ) -> None:
        """Refuse a resize if an operation is under way, as :meth:`refuse` does.

        Its project does not use the growth any more that Trove's API has added.

        :param ram_growth_mib: of the memory, with the new flavor
        :param size_gib: the new size of the volume; None: it keeps its size. It is refused for the
            replicas of an instance, too, with which Trove's API has requested it
        :raises ReplacementRefusedError: it is refused
        :raises ServiceUnavailableError: the database does not answer
        """
        found = self._why_not_resized(instance_id, with_source=size_gib is not None)
        if found is None:
            return
        reason = self._refuse(instance_id, 'RESIZING', what, *found)
        # Trove's API writes what the project uses when it has sent the request.
        self._start_wait(_COUNTED_SEC).pause(_COUNTED_SEC)
        self._rows.subtract_growth(instance_id, ram_growth_mib, size_gib)
        raise exceptions.ReplacementRefusedError(f'instance {instance_id}: {reason}')

    def _why_not_resized(self, instance_id: str, with_source: bool) -> tuple[str, str] | None:
        """Return why an instance cannot be resized, and the task that it has; None: it can."""
        if (operation := self._find_operation(instance_id, is_created=True)) is not None:
            return operation
        if (change := self._find_change(instance_id)) is not None:
            return f'{_subject(change[0])}; {_REPEAT}', change[1]
        row = self._rows.find(instance_id)
        source_id = None if row is None else row.source_id
        if with_source and source_id is not None:
            of_source = self._find_task(source_id, is_created=True)
            if of_source is not None:
                return f'its source {source_id} {_describe(of_source, None)}', 'NONE'
        return None

    def may_rebuild(self, instance_id: str) -> bool:
        """Return whether the server of an instance may be rebuilt now.

        A server that Nova starts anew could accept writes beside the new source. So this waits
        while the instance becomes a source, is ejected or detached, or its source is. If that does
        not end, the rebuild is refused, as by :meth:`refuse`.

        :raises ServiceUnavailableError: the database does not answer
        """
        return self._await_change(instance_id, lambda: True)

    @contextlib.contextmanager
    def rebuilding(self, instance_id: str) -> Iterator[bool]:
        """Let no change of a source begin on an instance while the block rebuilds its server.

        The block gets False if the rebuild is refused, as by :meth:`may_rebuild`. When it has
        ended, even with an error, a source is left to what has it accept writes: the agent on the
        new root disk does not know its role. And a replica has its source again: Trove forgets that
        before it attaches the replica, which can fail.

        :raises ServiceUnavailableError: the database does not answer
        """
        if not self._has_our_agent(instance_id):
            yield self.may_rebuild(instance_id)
            return
        with contextlib.ExitStack() as claims_held:

            def claim() -> bool:
                return claims_held.enter_context(self._claim_rebuild(instance_id)) is not None

            is_begun = self._await_change(instance_id, claim)
            before = self._rows.find(instance_id)
            try:
                yield is_begun
            finally:
                if is_begun and before is not None and before.source_id is not None:
                    self._rows.restore_source(instance_id, before.source_id)

    def _await_change(self, instance_id: str, begin: Callable[[], bool]) -> bool:
        deadline = self._start_wait(_CHANGE_SEC)
        while True:
            found = self._find_change(instance_id) or self._find_unfinished(instance_id)
            if found is None:
                # A change that has ended may have left a mark.
                if self.refuse(instance_id, 'BUILDING', _REBUILD):
                    return False
                if begin():
                    return True
            if not deadline.pause(_POLL_SEC):
                self._refuse_rebuild(instance_id, *(found or _BUSY))
                return False

    def _find_unfinished(self, instance_id: str) -> tuple[str, str] | None:
        """Return that the source of a replica does not accept writes yet, and the replica's task.

        Trove would make the replica an instance of its own, since it could not be attached.
        """
        row = self._rows.find(instance_id)
        source_id = None if row is None else row.source_id
        if source_id is None or self._find_mark(source_id) is None:
            return None
        return f'its source {source_id} {_UNFINISHED}', 'NONE'

    def _refuse_rebuild(self, instance_id: str, change: str, own: str) -> None:
        self._refuse(instance_id, 'BUILDING', _REBUILD, f'{_subject(change)}; {_REPEAT}', own)

    def end_interrupted_rebuild(self, claim: Claim) -> None:
        """Tell of a rebuild whose taskmanager has died, and end its task."""
        instance_id = claim.resource_id
        self._rows.restore_source(instance_id, None)
        self._rows.replace_task(
            instance_id, ('BUILDING',), task_at_rest(self._find_mark(instance_id))
        )
        self._tell(instance_id, _INTERRUPTED)

    def _tell(self, instance_id: str, reason: str) -> None:
        LOG.warning('Instance %s: %s', instance_id, reason)
        self._rows.add_fault(instance_id, reason)

    @contextlib.contextmanager
    def updating_access(self, instance_id: str) -> Iterator[None]:
        """End the task of a change of the access rules with the block, which changes them.

        Trove leaves the task if that fails, and a failover would then be refused until an operator
        resets it. So the tenant reads of the failure as a fault instead.

        :raises ServiceUnavailableError: the database does not answer
        """
        try:
            yield
        except Exception as error:
            # Trove's own handler of errors fails as well.
            LOG.warning('Instance %s: changing its access rules failed: %s', instance_id, error)
        found = self._rows.find(instance_id)
        has_failed = found is not None and found.task in _UPDATING
        # An operation may have begun if another change of the rules has ended before this one.
        own = self._find_task(instance_id)
        after = own or task_at_rest(self._find_mark(instance_id))
        before = _UPDATING if after == 'NONE' else ('NONE', *_UPDATING)
        self._rows.replace_task(instance_id, before, after)
        if has_failed:
            self._rows.add_fault(
                instance_id,
                'changing the access rules failed, so that some of the former ones may still hold; '
                'repeat the request',
            )


def _subject(change: str) -> str:
    """Return a change of a source as a clause with a subject."""
    return change if change.startswith('its ') else f'the instance {change}'


def _describe(own: str | None, mark: SourceMark | None) -> str:
    """Return what an instance does, or what became of it, and what to do.

    :param own: the task of the operation on it; None: it has a mark
    """
    if own is None and mark is SourceMark.EJECTED:
        return 'was ejected'
    why = _UNFINISHED if own is None else _OPERATIONS.get(own, _REPLACED)
    return f'{why}; {_REPEAT}'
