# SPDX-License-Identifier: Apache-2.0
"""Start MySQL of a replica on another volume, and judge whether it follows its source.

A server that was switched off starts MySQL by itself on whatever volume it has, which may be a
clone that still has the UUID of the source. So a replica counts as following only if it follows
the server that its source is, under a UUID of its own.
"""

from collections.abc import Callable
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db import replacement_record
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.strategies.replication import reprovision_rules as rules
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.reprovision_attempt import Attempt

LOG = logging.getLogger(__name__)

#: Of the text of an agent, which is not trusted.
_MAX_TEXT = 200
#: So many looks in a row may find no server, although the agent says that it serves.
_MOST_UNSEEN = 5


class Start:
    """The start of MySQL in one attempt, on the fresh clone or on the old volume."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self._contexts: dict[str, Any] = {}
        self._is_serving = self._has_answered = self._was_attached = False
        self._is_source_silent = False
        self._error: str | None = None
        # Why the replica could not be attached; it may still connect by itself.
        self._attach_error: str | None = None
        # How many looks in a row have found no server that is said to serve.
        self._unseen = 0

    def catch_up(self) -> str | None:
        """Wait until the replica follows on the fresh clone, and has the position of its source.

        The position is that which the source had when the exchange began.

        :returns: None: it has caught up; otherwise why it never will
        :raises InProgressError: it has not caught up yet
        :raises GuestUnavailableError: it did not start, or does not follow; a retry may succeed
        """
        return self._run(self._has_caught_up, 'it has not caught up with its source yet')

    def start_on_old_volume(self) -> str | None:
        """Wait until MySQL serves on the old volume, and have it follow if its source answers.

        :returns: None: it serves; otherwise why it never will
        :raises InProgressError: it does not serve yet
        :raises GuestUnavailableError: it did not start; the next request starts it again
        """
        reason = self._run(self._serves_old_data, 'MySQL does not serve on the old volume yet')
        if reason is None:
            self._follow_as_before()
        return reason

    def _run(self, is_done: Callable[[], bool], what: str) -> str | None:
        def is_decided() -> bool:
            self._attempt.find_instance()
            self._attempt.refresh()
            try:
                return self._error is not None or is_done()
            except exceptions.GuestUnavailableError as error:
                LOG.debug('%s: %s', self._attempt.record, error)
                return False

        try:
            self._attempt.wait(is_decided, what)
        except exceptions.InProgressError:
            if reason := self._why_hopeless():
                return reason
            # Otherwise it would wait for ever for what does not come by itself.
            if self._attach_error is not None:
                return self._count_failure(self._attach_error)
            if self._unseen > _MOST_UNSEEN:
                return self._count_failure('MySQL ended after its start')
            raise
        return None if self._error is None else self._count_failure(self._error)

    # The fresh clone.

    def _has_caught_up(self) -> bool:
        record, agents = self._attempt.record, self._attempt.deps.agents
        self._is_source_silent = True
        source = agents.status(record.source_id)
        self._is_source_silent = False
        status = self._find_status(source)
        if status is None:
            self._has_started(self._start_clone)
            self._unseen = self._unseen + 1 if self._is_serving else 0
            return self._error is not None
        self._unseen = 0
        is_following = status.is_replicating and status.source_uuid == source.server_uuid
        if not is_following and not self._was_attached:
            # The password of its replication user is new since another attempt started it.
            context = self._replica_context()
            self._was_attached = True
            try:
                agents.attach(record.instance_id, context)
            except exceptions.GuestUnavailableError as error:
                # The next look finds whether it connects, and what MySQL says.
                self._attach_error = f'it does not connect to its source: {error}'[:_MAX_TEXT]
            return False
        if is_following:
            self._attach_error = None
        self._error = _error_of(status)
        return self._error is not None or (is_following and self._has_all(source, status))

    def _has_all(self, source: ReplicationStatus, status: ReplicationStatus) -> bool:
        """Return whether the replica has what it must have, as far as its source has it.

        A source that replaced a dead one may lack transactions for ever.
        """
        target = self._attempt.record.target_gtid
        assert target is not None
        missing = GtidSet.parse(target) - status.gtid_executed
        return not missing or missing - source.gtid_executed == missing

    def _find_status(self, source: ReplicationStatus) -> ReplicationStatus | None:
        """Return the status of the replica; None: MySQL must be started on the clone."""
        try:
            status = self._attempt.deps.agents.status(self._attempt.record.instance_id)
        except exceptions.GuestUnavailableError:
            # MySQL is stopped or starts.
            return None
        self._note_answer()
        if status.server_uuid == source.server_uuid:
            # Docker has started it on the clone. Its agent starts it again, with an own identity.
            return None
        return status if status.is_replica or self._is_serving else None

    def _start_clone(self) -> StartProgress:
        record = self._attempt.record
        assert record.request_id is not None
        return self._attempt.deps.agents.start_replica(
            record.instance_id, record.request_id, self._replica_context()
        )

    def _replica_context(self) -> Any:
        # The password of the replication user is new with each request.
        record = self._attempt.record
        if record.source_id not in self._contexts:
            self._contexts[record.source_id] = self._attempt.deps.agents.replica_context(
                record.source_id, record.instance_id
            )
        return self._contexts[record.source_id]

    # The old volume.

    def _serves_old_data(self) -> bool:
        return self._has_started(self._start_old)

    def _start_old(self) -> StartProgress:
        record = self._attempt.record
        # The agent knows the id of the request as that of the start on the clone.
        return self._attempt.deps.agents.start_on_old_volume(
            record.instance_id, f'{record.request_id}.return'
        )

    def _follow_as_before(self) -> None:
        agents, record = self._attempt.deps.agents, self._attempt.record
        try:
            # It fails sooner, if the source is silent, than a request for the account would.
            agents.status(record.source_id)
            agents.attach(record.instance_id, self._replica_context())
        except exceptions.GuestUnavailableError as error:
            # The replica serves as well as before, and the watch of replicas sees the rest.
            LOG.warning('%s: does not follow on its old volume: %s', record, error)

    # Both.

    def _has_started(self, start: Callable[[], StartProgress]) -> bool:
        """Have the agent start MySQL, or tell how far it is; return whether it is decided."""
        progress = start()
        self._note_answer()
        if progress.state is StartState.FAILED:
            text = ' '.join(progress.error.split())[:_MAX_TEXT]
            self._error = text or 'the guest agent did not say why'
            self._attempt.note(failed_starts=self._attempt.record.failed_starts + 1)
        self._is_serving = progress.state is StartState.SERVING
        return progress.state in (StartState.FAILED, StartState.SERVING)

    def _count_failure(self, error: str) -> str | None:
        record = self._attempt.record
        if record.failed_starts >= rules.MOST_STARTS:
            return error
        raise exceptions.GuestUnavailableError(f'{record}: MySQL does not follow: {error}')

    def _note_answer(self) -> None:
        if not self._has_answered:
            self._has_answered = True
            self._attempt.note(answered_at=self._attempt.deps.store.now())

    def _why_hopeless(self) -> str | None:
        if self._attempt.find_server().status == 'ERROR':
            return 'its server failed'
        answered_at = self._attempt.record.answered_at
        if self._has_answered or answered_at is None:
            return None
        silent_for = self._attempt.deps.store.now() - answered_at
        if self._is_source_silent:
            # The replica is not asked without its source.
            timeout = rules.ANSWER_TIMEOUT if self._is_source_moving() else rules.SOURCE_TIMEOUT
            return 'its source does not answer' if silent_for > timeout else None
        if silent_for > rules.ANSWER_TIMEOUT:
            return 'its guest agent does not answer'
        return None

    def _is_source_moving(self) -> bool:
        source = self._attempt.deps.instances.find(self._attempt.record.source_id)
        return source is not None and source.task in replacement_record.TASKS


def _error_of(status: ReplicationStatus) -> str | None:
    if status.sql_state is ThreadState.OFF and status.sql_error:
        return f'it does not apply transactions: {status.sql_error}'[:_MAX_TEXT]
    if status.io_state is ThreadState.OFF and status.io_error:
        return f'it does not receive transactions: {status.io_error}'[:_MAX_TEXT]
    return None
