# SPDX-License-Identifier: Apache-2.0
"""The new server of an instance: a warm guest that is bound, or a server that Nova boots.

One server at a time may get the volume. Its id is in the record before a guest gets the volume,
and a server that Nova booted is found by its mark. Only when that server is deleted, and Ceph has
proved again that no process can write, the record is cleared and another server is chosen.
"""

from collections.abc import Sequence

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestRecord, GuestState
from trove_ceph.db.replacement_record import FailoverCause, ReplacementKind
from trove_ceph.db.replacement_states import Event
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.attempt import Attempt

LOG = logging.getLogger(__name__)

#: In the faults of servers that no host took, or that failed on each host that Nova tried.
_NO_ROOM = ('No valid host was found', 'Exceeded maximum number of retries')


class NewServer:
    """The server that the instance gets."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt

    def claim_guest(self) -> None:
        """Claim a warm guest for a resize, while the old server still runs.

        :raises ReplacementRefusedError: none fits
        """
        if self._attempt.record.guest_id is None and self._claim() is None:
            raise exceptions.ReplacementRefusedError(
                f'instance {self._attempt.record.instance_id}: no warm guest of flavor '
                f'{self._attempt.record.flavor_id} is ready'
            )

    def release_guest(self, reason: str) -> None:
        """Retire the guest that was claimed before the fence; idempotent."""
        guest_id = self._attempt.record.guest_id
        if guest_id is not None:
            self._attempt.deps.guests.retire(guest_id, reason)
            self._attempt.note(guest_id=None)

    def provide(self) -> None:
        """Give the volume and the ports to a server, and wait until it runs.

        :raises InProgressError: it does not run yet
        :raises NotFencedError: another server may still write to the volume
        :raises NoServerError: Nova has none of this flavor at present; no server has the volume
        :raises TroveCephError: it cannot be had now; no server has the volume
        """
        try:
            if not self._has_bound_guest() and not self._bind_guest():
                self._boot()
        except exceptions.ServiceUnavailableError:
            self._find_needs_again()
            raise

    def _find_needs_again(self) -> None:
        """Note the guest image that replaces the one that was noted before the fence.

        :raises OperatorNeededError: there is none, or the flavor does not exist any more
        """
        record = self._attempt.record
        if record.guest_id is not None or record.new_server_id is not None:
            return
        servers = self._attempt.deps.servers
        try:
            image_id = servers.find_image(record)
            if image_id != record.image_id:
                LOG.warning('%s: guest image %s replaces %s', record, image_id, record.image_id)
                # Counted anew: the guests of the new image may be bound.
                self._attempt.note(image_id=image_id, attempts=0)
            # Without its new flavor, a resize returns to the former one.
            if not record.can_return:
                servers.check_flavor(record)
        except exceptions.ReplacementRefusedError as error:
            raise exceptions.OperatorNeededError(str(error), str(error)) from error

    def show(self) -> None:
        """Make the server that of the instance."""
        self._attempt.deps.instances.show_server(self._attempt.record)
        self._attempt.advance(Event.SHOW, moved_at=self._attempt.deps.store.now())

    def discard(self, reason: str, is_reused: bool = True) -> None:
        """Delete the guest or the servers that were chosen; idempotent.

        :param is_reused: whether another server will get the volume
        :raises InProgressError: Nova has not deleted them yet
        :raises NotFencedError: there is no proof yet that they cannot write
        """
        record, deps = self._attempt.record, self._attempt.deps
        LOG.warning('%s: the new server is discarded: %s', record, reason)
        if record.guest_id is not None:
            deps.guests.retire(record.guest_id, reason)
        found = {one.server_id for one in deps.servers.find_booted(record)}
        if record.new_server_id is not None:
            found.add(record.new_server_id)
        chosen = sorted(found)
        # All of them before the fence, which would cut off any that is left.
        for server_id in chosen:
            self._attempt.delete_server(server_id)
        if chosen and is_reused:
            self._attempt.prove_free(chosen)
        elif chosen:
            self._attempt.detach(chosen)
        deps.network.delete(deps.network.find_created(record))
        self._attempt.note(
            guest_id=None,
            new_server_id=None,
            new_host=None,
            new_management_port_id=None,
            chosen_at=None,
        )

    def tidy(self) -> None:
        """Delete what is left of other servers than the new one; idempotent."""
        record, deps = self._attempt.record, self._attempt.deps
        for one in deps.servers.find_booted(record):
            # A request whose answer was lost may have come true late.
            if one.server_id != record.new_server_id:
                self._attempt.delete_server(one.server_id)
        ports = {*record.old_management_port_ids, *deps.network.find_created(record)}
        deps.network.delete(sorted(ports - {record.new_management_port_id}))
        deps.guests.retire_old(record)

    # Warm guests.

    def _has_bound_guest(self) -> bool:
        """Return whether a guest is bound; discard one whose binding was interrupted."""
        record = self._attempt.record
        if record.guest_id is None:
            return False
        guest = self._attempt.deps.guests.find(record.guest_id)
        state = None if guest is None else guest.state
        if record.new_server_id is None and state is GuestState.CLAIMED:
            # Its binding has not begun.
            return False
        if state is GuestState.BOUND and record.new_server_id is not None:
            server = self._attempt.find_server(record.new_server_id)
            if server is not None and server.status == 'ACTIVE':
                return True
        self.discard(f'the binding of guest {record.guest_id} was interrupted')
        return False

    def _bind_guest(self) -> bool:
        """Return whether a guest was bound; if not, no guest has the volume."""
        if self._is_to_stay_in_group():
            return False
        if self._is_booting() and not self._gives_boot_up():
            return False
        record, deps = self._attempt.record, self._attempt.deps
        if record.guest_id is None and not rules.may_claim_guest(record.attempts):
            return False
        guest = self._claim()
        if guest is None:
            return False
        self._attempt.drop_gone_ports()
        request = deps.instances.bind_request(self._attempt.record)
        deps.agents.renew_queues(record.instance_id)
        self._attempt.note(
            new_server_id=guest.server_id, new_host=guest.host, chosen_at=deps.store.now()
        )
        try:
            deps.guests.bind(guest, request, self._attempt.confirm_claim)
        except exceptions.ClaimLostError:
            raise
        except exceptions.TroveCephError as error:
            self.discard(f'{guest} was not bound: {error}')
            return False
        return True

    def _is_to_stay_in_group(self) -> bool:
        """Return whether the server must be in the server group of its instance, as no guest is.

        A database whose host works can wait for the boot; one that has failed takes a guest.
        """
        record = self._attempt.record
        return record.cause is FailoverCause.MAINTENANCE and self._attempt.deps.servers.is_in_group(
            record
        )

    def _claim(self) -> GuestRecord | None:
        record = self._attempt.record
        not_on = record.old_host if record.kind is ReplacementKind.FAILOVER else None
        guest = self._attempt.deps.guests.claim(record, not_on)
        if guest is not None and record.guest_id != guest.guest_id:
            self._attempt.note(guest_id=guest.guest_id)
        return guest

    # Servers that Nova boots.

    def _is_booting(self) -> bool:
        record = self._attempt.record
        if record.guest_id is not None:
            return False
        return record.new_management_port_id is not None or record.new_server_id is not None

    def _gives_boot_up(self) -> bool:
        """Return whether a guest is to be tried; give up a server that Nova refuses to boot."""
        record = self._attempt.record
        if record.attempts < rules.MOST_GUESTS or not rules.may_claim_guest(record.attempts):
            return False
        if record.new_server_id is not None or self._attempt.deps.servers.find_booted(record):
            return False
        self.discard('Nova refuses to boot it')
        return True

    def _boot(self) -> None:
        record = self._attempt.record
        server_id = self._find_booted()
        if server_id is None:
            if record.new_server_id is not None:
                self.discard(f'server {record.new_server_id} is gone')
            server_id = self._request_boot()
        if record.new_server_id != server_id:
            self._attempt.note(new_server_id=server_id)
        self._attempt.wait(
            lambda: self._is_active(server_id),
            f'server {server_id} boots',
            'waits until the new server has booted',
        )

    def _find_booted(self) -> str | None:
        """Return the server that was booted before, if there is one.

        :raises ServiceUnavailableError: it is not the one to have; it was discarded
        """
        record = self._attempt.record
        found = [
            one
            for one in self._attempt.deps.servers.find_booted(record)
            if self._attempt.find_server(one.server_id) is not None
        ]
        if len(found) > 1:
            self.discard('several servers were booted, because an answer was lost')
            raise exceptions.ServiceUnavailableError(f'{record}: Nova booted several servers')
        if not found:
            return None
        (booted,) = found
        if booted.flavor_id not in (None, record.flavor_id):
            # A request from before the return, whose answer was lost, has come true late.
            self.discard(f'server {booted.server_id} has another flavor')
            raise exceptions.ServiceUnavailableError(f'{record}: Nova booted a late server')
        return booted.server_id

    def _request_boot(self) -> str:
        deps = self._attempt.deps
        self._attempt.drop_gone_ports()
        deps.agents.renew_queues(self._attempt.record.instance_id)
        port_id = deps.network.create_management_port(self._attempt.record)
        self._attempt.note(new_management_port_id=port_id, chosen_at=deps.store.now())
        host = self._choose_host()
        self._attempt.confirm_claim()
        server_id = deps.servers.boot(self._attempt.record, host)
        LOG.info('%s: server %s boots', self._attempt.record, server_id)
        return server_id

    def _choose_host(self) -> str | None:
        """Return the host on which Nova must place the server; None: Nova chooses."""
        choices = self._list_choices()
        return choices[min(self._attempt.record.attempts, len(choices) - 1)]

    def _list_choices(self) -> Sequence[str | None]:
        """Return the host that each attempt requests; None: Nova chooses, as after the last.

        Nova cannot be told to avoid a host, and its first choice is often the old one, where the
        deletion of the old server has made room. So other hosts are requested at first. But only
        Nova knows which hosts take such a server, and a cloud may have many others. So Nova
        chooses before all hosts are requested, and again at the end.
        """
        others = self._list_other_hosts()
        first = rules.MOST_HOSTS_FIRST
        if len(others) <= first:
            return [*others, None]
        return [*others[:first], None, *others[first:], None]

    def _list_other_hosts(self) -> Sequence[str]:
        """Return the hosts that a failover prefers to the old one."""
        record = self._attempt.record
        if record.kind is not ReplacementKind.FAILOVER or record.old_host is None:
            return ()
        return self._attempt.deps.servers.find_other_hosts(record)

    def _is_active(self, server_id: str) -> bool:
        """Return whether a server runs; discard it if it never will.

        :raises ServiceUnavailableError: it was discarded
        """
        self._attempt.find_instance()
        server = self._attempt.find_server(server_id)
        if reason := self._why_useless(server) or self._why_misplaced(server):
            text = f'{self._attempt.record}: {reason}'
            if not _is_without_room(server):
                self.discard(reason)
                raise exceptions.ServiceUnavailableError(text)
            # A discard that takes long would forget the verdict; the return discards the server.
            if not self._attempt.record.can_return:
                self.discard(reason)
            raise exceptions.NoServerError(text)
        if server is None or server.status != 'ACTIVE':
            return False
        self._attempt.note(new_host=server.host)
        return True

    def _why_useless(self, server: ServerFacts | None) -> str | None:
        if server is None:
            return 'the server that Nova booted is gone'
        if server.status == 'ACTIVE':
            return None
        if server.status == 'ERROR':
            return f'server {server.server_id} failed: {server.fault}'
        chosen_at = self._attempt.record.chosen_at
        if chosen_at and self._attempt.deps.store.now() - chosen_at > rules.BOOT_TIMEOUT:
            return f'server {server.server_id} has not become ACTIVE, but is {server.status}'
        return None

    def _why_misplaced(self, server: ServerFacts | None) -> str | None:
        """Return why a server must be on another host; None: it need not.

        The old host is good enough if there is no other one, or if none of them takes the server.
        """
        record = self._attempt.record
        if server is None or server.host is None or server.host != record.old_host:
            return None
        if all(one is None for one in self._list_choices()[record.attempts :]):
            return None
        return f'Nova placed server {server.server_id} on {server.host}, as the old server'


def _is_without_room(server: ServerFacts | None) -> bool:
    """Return whether Nova shows that no host took or started a server, or it boots for too long."""
    if server is None or server.status == 'ACTIVE':
        return False
    return server.status != 'ERROR' or any(text in server.fault for text in _NO_ROOM)
