# SPDX-License-Identifier: Apache-2.0
"""Start MySQL on the new server of an instance, and judge whether it ever will."""

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.attempt import Attempt
from trove_ceph.strategies.replacement.dependencies import StartState

LOG = logging.getLogger(__name__)

#: An agent that says so once may have been asked while it restarted.
_FAILURES_IN_A_ROW = 3
#: Of the text of an agent, which is not trusted.
_MAX_TEXT = 200


class Start:
    """The start of MySQL in one attempt."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self._failures = 0
        self._has_answered = False
        self._error = ''

    def run(self) -> str | None:
        """Wait until MySQL serves.

        :returns: None: it serves; otherwise why it never will
        :raises InProgressError: it does not serve yet
        """
        try:
            self._attempt.wait(self._is_decided, 'MySQL does not serve on the new server yet')
        except exceptions.InProgressError:
            if reason := self._why_hopeless():
                return reason
            raise
        return self._error if self._failures else None

    def _is_decided(self) -> bool:
        self._attempt.find_instance()
        try:
            progress = self._attempt.deps.agents.start_moved_server(self._attempt.record)
        except exceptions.GuestUnavailableError as error:
            LOG.debug('%s: its agent does not answer: %s', self._attempt.record, error)
            return False
        self._has_answered = True
        if progress.state is StartState.FAILED:
            self._failures += 1
            text = ' '.join(progress.error.split())[:_MAX_TEXT]
            self._error = text or 'the guest agent did not say why'
            return self._failures >= _FAILURES_IN_A_ROW
        self._failures = 0
        return progress.state is StartState.SERVING

    def _why_hopeless(self) -> str | None:
        record = self._attempt.record
        assert record.new_server_id is not None
        server = self._attempt.find_server(record.new_server_id)
        if server is None or server.status == 'ERROR':
            return 'the new server failed; request another failover'
        if self._has_answered or record.moved_at is None:
            return None
        silent = self._attempt.deps.store.now() - record.moved_at
        if silent > rules.ANSWER_TIMEOUT:
            return 'the guest agent of the new server does not answer; request another failover'
        return None
