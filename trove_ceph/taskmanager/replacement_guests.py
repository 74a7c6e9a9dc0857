# SPDX-License-Identifier: Apache-2.0
"""The warm guests as a replacement of a server sees them."""

from collections.abc import Callable, Collection

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db import guests
from trove_ceph.db.guest_record import GuestRecord, GuestState
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.strategies.guests.bind import BindRequest
from trove_ceph.taskmanager import warm_guests
from trove_ceph.trove_adapter import guest_config

LOG = logging.getLogger(__name__)


class ReplacementGuests:
    """The warm guests of replacements; see :class:`.replacement.dependencies.Guests`.

    :param warm: None: there are no pools
    :param take_port: see :meth:`.ReplacementPorts.take_guest_port`
    """

    def __init__(
        self,
        store: guests.GuestStore,
        warm: warm_guests.WarmGuests | None,
        take_port: Callable[[str, str, Collection[str]], None],
    ):
        self._store = store
        self._warm = warm
        self._take_port = take_port

    def claim(self, record: ReplacementRecord, not_on: str | None) -> GuestRecord | None:
        """Claim a guest for a replacement, or return the one that it has claimed; None: none fits.

        :param not_on: the host whose guests are left out
        """
        if (claimed := self._find_claimed(record, not_on)) is not None:
            return claimed
        if self._warm is None or guest_config.why_refused():
            return None
        assert record.version_id is not None
        assert record.flavor_id is not None
        assert record.image_id is not None
        try:
            return self._warm.claim(
                record.instance_id,
                record.version_id,
                record.flavor_id,
                record.image_id,
                record.availability_zone,
                not_on,
            )
        except exceptions.InvalidConfigurationError as error:
            LOG.warning('%s: warm guests are not used: %s', record, error)
            return None

    def _find_claimed(self, record: ReplacementRecord, not_on: str | None) -> GuestRecord | None:
        """Return the guest that the replacement has claimed; retire those that do not fit it."""
        found = None
        for guest in self._store.list(states=[GuestState.CLAIMED]):
            if guest.instance_id != record.instance_id:
                continue
            # The taskmanager that claimed it died before it recorded that, or it was claimed for an
            # earlier replacement.
            needed = (record.flavor_id, record.image_id)
            # A hot guest that a creation has claimed has another volume.
            is_warm = guest.volume_id is None
            is_elsewhere = not_on is None or guest.host != not_on
            if (guest.flavor_id, guest.image_id) == needed and is_elsewhere and is_warm:
                found = guest
            else:
                self.retire(guest.guest_id, f'{record} needs another guest')
        return found

    def bind(self, guest: GuestRecord, request: BindRequest, check: Callable[[], None]) -> None:
        """Bind a claimed guest; on failure it is retired and cannot write to the volume.

        :param check: called before each request; raises ClaimLostError
        :raises NotFencedError: it failed, and the guest may still write to the volume
        :raises TroveCephError: it failed; the volume and the ports are free for another server
        """
        if self._warm is None:
            raise exceptions.ServiceUnavailableError(
                f'{guest}: this taskmanager has no pools of warm guests in its configuration'
            )
        assert guest.port_id is not None
        try:
            self._take_port(guest.port_id, request.instance_id, request.port_ids)
        except exceptions.TroveCephError:
            self.retire(guest.guest_id, 'its port could not be changed')
            raise
        self._warm.bind(guest, request, check)

    def find(self, guest_id: str) -> GuestRecord | None:
        """Return a guest; None: it was deleted."""
        return self._store.find(guest_id)

    def retire(self, guest_id: str, reason: str) -> None:
        """Have a guest deleted; idempotent."""
        self._store.retire(guest_id, reason)

    def retire_old(self, record: ReplacementRecord) -> None:
        """Retire the guest that the deleted old server was, if it was one; idempotent."""
        for guest in self._store.list(states=[GuestState.BOUND]):
            if guest.server_id == record.old_server_id:
                self.retire(guest.guest_id, f'the server of {guest.instance_id} was replaced')
