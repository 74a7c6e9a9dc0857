# SPDX-License-Identifier: Apache-2.0
"""The way back of a resize whose volume is fenced: a server of the former flavor.

The old server is gone by then. So the instance gets another one of its flavor, in the same way as
it would have got one of the new flavor, and the resize ends as failed.
"""

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.replacement_states import Event
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.attempt import Attempt
from trove_ceph.strategies.replacement.new_server import NewServer

LOG = logging.getLogger(__name__)


class FormerFlavor:
    """The return of one attempt to the former flavor."""

    def __init__(self, attempt: Attempt, new_server: NewServer):
        self._attempt = attempt
        self._new = new_server

    def is_due(self, error: exceptions.ServiceUnavailableError) -> bool:
        """Return whether the instance returns after an attempt that provided no server.

        If a service is down, a server of the former flavor cannot be had either; so several
        attempts are made before. A server that was chosen is waited for.
        """
        record = self._attempt.record
        # Without a guest image there is no server of any flavor.
        if not record.can_return or isinstance(error, exceptions.OperatorNeededError):
            return False
        if isinstance(error, exceptions.NoServerError):
            return True
        is_chosen = record.guest_id is not None or record.new_server_id is not None
        return not is_chosen and record.attempts + 1 >= rules.MOST_ATTEMPTS_OF_FLAVOR

    def return_to(self, reason: str) -> None:
        """Decide that the instance returns; the next attempt goes on.

        :param reason: why, for tenants
        :raises InProgressError: always
        """
        record = self._attempt.record
        LOG.error(
            '%s: flavor %s is given up, and the instance returns to flavor %s: %s',
            *(record, record.flavor_id, record.former_flavor_id, reason),
        )
        self._attempt.advance(
            Event.RETURN,
            flavor_id=record.former_flavor_id,
            returned_because=reason,
            returned_at=self._attempt.deps.store.now(),
            # They concern the server that is given up.
            answered_at=None,
            failed_starts=0,
            given_up_because=None,
        )
        raise exceptions.InProgressError(
            f'{record}: returns to flavor {record.former_flavor_id}: {reason}',
            f'returns to the former flavor: {reason}',
        )

    def give_server_up(self) -> None:
        """Delete what there is of a server of the new flavor, and prove that it cannot write.

        :raises InProgressError: Nova has not deleted it yet
        :raises NotFencedError: there is no proof yet
        """
        self._new.discard('the instance returns to its former flavor')
        self._attempt.advance(Event.MOVE)

    def tell(self) -> str | None:
        """Return why the resize has failed, when MySQL serves; None: it has not."""
        reason = self._attempt.record.returned_because
        if reason is None:
            return None
        return f'the instance serves with its former flavor again: {reason}'

    def tell_all(self, reason: str) -> str:
        """Return why MySQL does not start, with why the resize was given up before."""
        return '; '.join(filter(None, [self._attempt.record.returned_because, reason]))


def no_server(error: exceptions.ServiceUnavailableError) -> str:
    """Return that a server of the new flavor cannot be had, for tenants."""
    if isinstance(error, exceptions.NoServerError):
        return 'the cloud started no server of the new flavor'
    return f'no server of the new flavor was provided: {tenant_errors.tenant_message(error)}'
