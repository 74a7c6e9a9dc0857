# SPDX-License-Identifier: Apache-2.0
"""Start MySQL on the new server of an instance, and judge whether it ever will."""

import dataclasses

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.attempt import Attempt
from trove_ceph.strategies.replacement.dependencies import StartState

LOG = logging.getLogger(__name__)

#: After so many starts that failed, MySQL is left to the tenant.
_MOST_STARTS = 3
#: Of the text of an agent, which is not trusted.
_MAX_TEXT = 200
_REQUEST = 'request another failover'
_OUTDATED = (
    'the guest agent that answers is of an earlier release, and cannot take over a database; an '
    'operator must register a newer guest image'
)


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why MySQL never serves on a server.

    :param advice: what its tenant can do if the instance keeps that server; empty: nothing special
    :param is_of_image: it would not serve on any server with the present guest image
    """

    reason: str
    advice: str = ''
    is_of_image: bool = False

    def __str__(self) -> str:
        return '; '.join(filter(None, (self.reason, self.advice)))


class Start:
    """The start of MySQL in one attempt."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self._has_answered = False
        self._error: str | None = None
        self._is_outdated = False

    def run(self) -> Failure | None:
        """Wait until MySQL serves.

        :returns: None: it serves; otherwise why it never will
        :raises InProgressError: it does not serve yet
        :raises GuestUnavailableError: it did not start; the next request starts it again
        """
        try:
            self._attempt.wait(
                self._is_decided,
                'MySQL does not serve on the new server yet',
                'waits until MySQL serves on the new server',
            )
        except exceptions.InProgressError as error:
            if failure := self._why_hopeless():
                return failure
            if self._is_outdated:
                raise exceptions.InProgressError(f'{error}: {_OUTDATED}', _OUTDATED) from error
            raise
        if self._error is None:
            return None
        self._attempt.note(failed_starts=self._attempt.record.failed_starts + 1)
        if self._attempt.record.failed_starts < _MOST_STARTS:
            raise exceptions.GuestUnavailableError(
                f'{self._attempt.record}: MySQL did not start on the new server: {self._error}'
            )
        return Failure(self._error)

    def _is_decided(self) -> bool:
        self._attempt.find_instance()
        try:
            progress = self._attempt.deps.agents.start_moved_server(self._attempt.record)
        except exceptions.GuestUnavailableError as error:
            # It may be the agent of the old server, so that this decides nothing yet.
            self._is_outdated = isinstance(error, exceptions.GuestOutdatedError)
            LOG.debug('%s: its agent does not answer: %s', self._attempt.record, error)
            return False
        if not self._has_answered:
            self._has_answered = True
            self._attempt.note(answered_at=self._attempt.deps.store.now())
        if progress.state is StartState.FAILED:
            text = ' '.join(progress.error.split())[:_MAX_TEXT]
            self._error = text or 'the guest agent did not say why'
        return progress.state in (StartState.FAILED, StartState.SERVING)

    def _why_hopeless(self) -> Failure | None:
        record = self._attempt.record
        assert record.new_server_id is not None
        server = self._attempt.find_server(record.new_server_id)
        if server is None or server.status == 'ERROR':
            return Failure('the new server failed', _REQUEST)
        heard_at = record.answered_at or record.moved_at
        if self._has_answered or heard_at is None:
            return None
        silent_for = self._attempt.deps.store.now() - heard_at
        if silent_for > rules.DOWN_TIMEOUT and self._is_on_failed_host(server):
            return Failure('the host of the new server failed', _REQUEST)
        if silent_for > rules.ANSWER_TIMEOUT:
            if self._is_outdated:
                return Failure(_OUTDATED, f'then {_REQUEST}', is_of_image=True)
            return Failure('the guest agent of the new server does not answer', _REQUEST)
        return None

    def _is_on_failed_host(self, server: ServerFacts) -> bool:
        """Return whether the host of a server failed, and Nova does not move it to another one."""
        if server.host is None or server.task:
            return False
        is_down: bool = self._attempt.deps.servers.is_host_down(server.host)
        return is_down
