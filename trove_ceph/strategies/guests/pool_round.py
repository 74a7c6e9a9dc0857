# SPDX-License-Identifier: Apache-2.0
"""One round of keeping a pool, as steps that observe before they act.

The record of a guest precedes its port and its server, whose names contain its id. So after any
interruption the next round finds them, and finishes or deletes them.
"""

import datetime
import functools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db.guest_record import WAITING, GuestRecord, GuestState, PoolKey
from trove_ceph.strategies.backup import background
from trove_ceph.strategies.guests import each_guest, fitness, hot_round, pool_size
from trove_ceph.strategies.guests.dependencies import (
    KeeperDependencies,
    PingAnswer,
    ServerFacts,
    guest_name,
)
from trove_ceph.strategies.guests.pool_memory import PoolMemory
from trove_ceph.strategies.guests.pool_spec import PoolSpec
from trove_ceph.strategies.guests.spread import Spread

LOG = logging.getLogger(__name__)

#: The states of a guest that waits and has been ready.
_BOOTED = (GuestState.READY, GuestState.LOADING, GuestState.HOT)
#: A failure that the log shows until a guest is ready.
_BOOT = 'booting a guest'
#: An agent that does not answer holds up its thread for some seconds.
_PINGS_AT_ONCE = 16
#: Of the text of an agent, which is not trusted.
_MAX_TEXT = 200


class PoolRound:
    """One round of one pool.

    :param pool: the name of the pool
    :param spec: None: the pool is no longer configured
    """

    def __init__(
        self, deps: KeeperDependencies, pool: str, spec: PoolSpec | None, memory: PoolMemory
    ):
        self._deps = deps
        self._pool = pool
        self._spec = spec
        self._memory = memory
        self._spread = Spread(deps, pool, memory)

    def steps(self) -> list[steps.Step]:
        """Return the steps, each of which is useful if another one fails.

        Nothing is undone: what an interrupted round leaves, the next one continues.
        """
        hot = []
        if self._spec is not None:
            hot = hot_round.HotRound(self._deps, self._pool, self._spec, self._memory).steps()
        return [
            steps.Step('asking agents', self._ask),
            steps.Step('retiring unfit guests', self._retire_unfit),
            steps.Step('retiring guests on disabled hosts', self._retire_on_disabled_hosts),
            steps.Step('following claimed guests', self._follow_claimed),
            steps.Step('following bound guests', self._follow_bound),
            steps.Step('adjusting the size', self._adjust),
            steps.Step('creating ports', self._create_ports),
            steps.Step('creating servers', self._create_servers),
            # Last but one, because it takes the longest.
            *hot,
            steps.Step('deleting retired guests', self._delete_retired),
        ]

    # Health.

    def _ask(self) -> None:
        guests = self._list(*WAITING)
        self._memory.forget({one.guest_id for one in guests})
        due = [one for one in guests if self._is_due(one)]
        for start in range(0, len(due), _PINGS_AT_ONCE):
            asked = [
                (one, background.begin(functools.partial(self._ping, one)))
                for one in due[start : start + _PINGS_AT_ONCE]
            ]
            for guest, wait in asked:
                if (answer := wait()) is not None:
                    self._note(guest, answer)

    def _is_due(self, guest: GuestRecord) -> bool:
        if guest.server_id is None:
            return False
        answered = self._memory.answered.get(guest.guest_id)
        # A silent guest is asked in each round, so that all are heard when the bus works again.
        if answered is None or guest.state in (GuestState.BOOTING, GuestState.LOADING):
            return True
        return self._deps.clock() - answered >= self._deps.settings.ping_interval_sec

    def _ping(self, guest: GuestRecord) -> PingAnswer | None:
        try:
            answer = self._deps.agents.ping(guest)
        except exceptions.ClaimLostError:
            raise
        except exceptions.TroveCephError as error:
            # Expected while the guest boots. The reason of a retirement tells of others.
            LOG.debug('%s: its agent did not answer: %s', guest, error)
            return None
        self._memory.answered[guest.guest_id] = self._deps.clock()
        return answer

    def _note(self, guest: GuestRecord, answer: PingAnswer) -> None:
        self._memory.loads[guest.guest_id] = answer.load
        reason = fitness.why_not_bindable(guest, answer)
        if reason is not None:
            self._memory.said[guest.guest_id] = _shortened(reason)
            # A ready guest that cannot be bound any more is treated as a silent one.
            if guest.state in (GuestState.BOOTING, GuestState.LOADING):
                self._deps.store.mark_seen(guest.guest_id)
            return
        self._memory.said.pop(guest.guest_id, None)
        try:
            self._mark_bindable(guest)
        except (exceptions.InvalidTransitionError, exceptions.RecordNotFoundError):
            LOG.debug('%s: was claimed or retired meanwhile', guest)
            return
        if guest.state is GuestState.LOADING:
            self._memory.load_backoff.reset()
            self._memory.succeed(hot_round.LOADING)
            LOG.info('%s: is hot', guest)
        if guest.state is GuestState.BOOTING:
            self._memory.backoff.reset()
            self._memory.succeed(_BOOT)
            LOG.info('%s: is ready, with version %s', guest, _shortened(answer.version))

    def _mark_bindable(self, guest: GuestRecord) -> None:
        if guest.state in (GuestState.LOADING, GuestState.HOT):
            self._deps.store.mark_hot(guest.guest_id)
        else:
            self._deps.store.mark_ready(guest.guest_id, guest.host)

    def _retire_unfit(self) -> None:
        guests = self._list(*WAITING)
        if not guests:
            return
        if self._spec is None:
            for guest in guests:
                self._retire(guest, f'pool {self._pool} is no longer configured')
            return
        now = self._deps.store.now()
        servers = self._deps.servers.list_servers()
        each_guest.for_each(guests, lambda guest: self._judge(guest, servers, now))
        self._retire_silent(now)
        # Last, because it depends on more services.
        try:
            key = self._key()
        except exceptions.GuestsNotAllowedError as error:
            for guest in self._list(*WAITING):
                self._retire(guest, str(error))
            raise
        for guest in self._list(*WAITING):
            if reason := fitness.why_other(guest, key):
                self._retire(guest, reason)

    def _judge(
        self,
        guest: GuestRecord,
        servers: Mapping[str, Sequence[ServerFacts]],
        now: datetime.datetime,
    ) -> None:
        named = servers.get(guest_name(guest.guest_id), ())
        server = next((one for one in named if one.server_id == guest.server_id), None)
        if server is None and guest.server_id is not None:
            # The list may be incomplete while a cell of Nova does not answer.
            server = self._deps.servers.find_server(guest.server_id)
        if server is not None and server.host not in (None, guest.host):
            self._deps.store.set_server(
                guest.guest_id, server.server_id, guest.port_id, server.host
            )
        reason = fitness.why_broken(guest, server) or fitness.why_late(
            guest, now, self._deps.settings, self._said(guest)
        )
        if reason is None:
            return
        self._retire(guest, reason)
        if guest.state is GuestState.BOOTING:
            self._fail_boot(guest, reason)

    def _retire_silent(self, now: datetime.datetime) -> None:
        """Retire silent guests: all of them, or one at a time if no agent of the pool answers.

        If none answers, the message bus may be the cause, and new guests would be as silent.
        """
        guests = self._deps.store.list(self._pool)
        ready = [one for one in guests if one.state in (GuestState.READY, GuestState.HOT)]
        silent = {
            one.guest_id: reason
            for one in ready
            if (reason := fitness.why_silent(one, now, self._deps.settings, self._said(one)))
        }
        if len(silent) == len(ready) and any(
            one.state in (GuestState.BOOTING, GuestState.RETIRED) for one in guests
        ):
            return
        candidates = [one for one in ready if one.guest_id in silent]
        for guest in candidates if len(silent) < len(ready) else candidates[:1]:
            self._retire(guest, silent[guest.guest_id])

    def _retire_on_disabled_hosts(self) -> None:
        """Retire what an instance would have to leave again when the host is switched off."""
        placed = [one for one in self._list(*WAITING) if one.host is not None]
        if not placed:
            return
        disabled = self._deps.servers.list_disabled_hosts()
        for guest in placed:
            if guest.host in disabled:
                self._retire(guest, f'host {guest.host} is disabled in Nova')

    # Guests that instances have.

    def _follow_claimed(self) -> None:
        now = self._deps.store.now()
        each_guest.for_each(
            [
                one
                for one in self._list(GuestState.CLAIMED)
                if fitness.is_overdue(one, now, self._deps.settings)
            ],
            self._follow_overdue,
        )

    def _follow_overdue(self, guest: GuestRecord) -> None:
        assert guest.instance_id is not None
        if self._is_replaced(guest):
            # The replacement binds or retires the guests that it has claimed, and may take longer.
            return
        instance = self._deps.trove.find_instance(guest.instance_id)
        if reason := fitness.why_abandoned(guest, instance):
            self._retire(guest, reason)
        elif instance is not None and instance.server_id is not None:
            # The taskmanager that bound it died before it recorded that.
            self._deps.store.mark_bound(guest.guest_id, guest.instance_id)

    def _follow_bound(self) -> None:
        bound = self._list(GuestState.BOUND)
        if not bound:
            return
        ids = [one.instance_id for one in bound if one.instance_id is not None]
        servers = self._deps.trove.list_servers(ids)
        for guest in bound:
            reason = fitness.why_outlived(guest, servers)
            if reason and not self._is_replaced(guest):
                # Its server is gone already, or is deleted now, with what else has its name.
                self._retire(guest, reason)

    def _is_replaced(self, guest: GuestRecord) -> bool:
        """Return whether the server of a guest's instance is being replaced."""
        return guest.instance_id is not None and self._deps.is_replacing(guest.instance_id)

    # Size.

    def _adjust(self) -> None:
        if self._spec is None:
            return
        store, settings = self._deps.store, self._deps.settings
        now = store.now()
        since = now - settings.demand_window
        size = pool_size.wanted_size(
            store.requests_since(self._pool, since),
            settings.demand_share,
            settings.least,
            settings.most,
        )
        guests = store.list(self._pool)
        booted = [one for one in guests if one.state in _BOOTED]
        newest = {one.host: one.guest_id for one in booted if one.state is GuestState.READY}
        # The old ones first, then those that are not hot, and of these the newest of a host last.
        ready = sorted(
            booted,
            key=lambda one: (
                not fitness.is_old(one, now, settings),
                one.state is not GuestState.READY,
                newest.get(one.host) == one.guest_id,
            ),
        )
        counts = pool_size.Counts(
            booting=sum(one.state is GuestState.BOOTING for one in guests),
            ready=len(ready),
            old=sum(fitness.is_old(one, now, settings) for one in ready),
            retired=sum(one.state is GuestState.RETIRED for one in guests),
        )
        change = pool_size.change(size, settings.most, counts)
        for guest in ready[: change.retire]:
            is_old = fitness.is_old(guest, now, settings)
            self._retire(guest, 'it is too old' if is_old else f'the pool needs only {size}')
        boot = change.boot - fitness.count_just_taken(guests, now, settings)
        if boot > 0 and self._may_boot():
            self._record(boot, self._key(), now)

    def _record(self, count: int, key: PoolKey, now: datetime.datetime) -> None:
        for _ in range(count):
            self._deps.store.add(
                GuestRecord(
                    guest_id=str(uuid.uuid4()),
                    pool=self._pool,
                    state=GuestState.BOOTING,
                    flavor_id=key.flavor_id,
                    image_id=key.image_id,
                    config_digest=key.config_digest,
                    availability_zone=key.availability_zone,
                    created_at=now,
                    updated_at=now,
                    encrypted_key=self._deps.servers.make_keys(),
                )
            )

    # Ports and servers.

    def _create_ports(self) -> None:
        waiting = [one for one in self._list(GuestState.BOOTING) if one.port_id is None]
        self._boot_each(waiting, self._create_port)

    def _create_port(self, guest: GuestRecord) -> None:
        found = self._deps.servers.list_ports(guest.guest_id)
        port_id = found[0] if found else self._deps.servers.create_port(guest.guest_id)
        self._deps.store.set_server(guest.guest_id, guest.server_id, port_id)

    def _create_servers(self) -> None:
        waiting = [
            one
            for one in self._list(GuestState.BOOTING)
            if one.server_id is None and one.port_id is not None
        ]
        if not waiting or not self._may_boot():
            return
        servers = self._deps.servers.list_servers()
        self._boot_each(waiting, lambda guest: self._create_server(guest, servers))

    def _create_server(
        self, guest: GuestRecord, servers: Mapping[str, Sequence[ServerFacts]]
    ) -> None:
        found = servers.get(guest_name(guest.guest_id), ())
        if found:
            server_id = found[0].server_id
        else:
            try:
                host = self._spread.find_host(guest)
            except exceptions.InProgressError:
                # The next round boots it.
                return
            assert self._spec is not None
            server_id = self._deps.servers.create_server(self._spec, guest, host)
            LOG.info('%s: server %s boots on %s', guest, server_id, host or 'any host')
        self._deps.store.set_server(guest.guest_id, server_id, guest.port_id)

    def _boot_each(
        self, guests: Iterable[GuestRecord], action: Callable[[GuestRecord], None]
    ) -> None:
        """Stop at the first failure: the others have the same cause, such as a quota."""
        if self._spec is None or not self._may_boot():
            return
        for guest in guests:
            try:
                action(guest)
            except exceptions.ClaimLostError:
                raise
            except exceptions.TroveCephError as error:
                self._fail_boot(guest, error)
                return

    def _may_boot(self) -> bool:
        return self._memory.backoff.is_over(self._deps.clock())

    def _fail_boot(self, guest: GuestRecord, error: object) -> None:
        now = self._deps.clock()
        self._memory.backoff.fail(now)
        self._memory.fail_requested(guest.guest_id, now)
        self._memory.warn(_BOOT, error)

    def _delete_retired(self) -> None:
        retired = self._list(GuestState.RETIRED)
        if retired:
            servers = self._deps.servers.list_servers()
            each_guest.for_each(retired, lambda guest: self._delete(guest, servers))

    def _delete(self, guest: GuestRecord, servers: Mapping[str, Sequence[ServerFacts]]) -> None:
        found = {one.server_id for one in servers.get(guest_name(guest.guest_id), ())}
        # The server of a guest that was claimed may have the name of an instance.
        if guest.server_id is not None and self._deps.servers.find_server(guest.server_id):
            found.add(guest.server_id)
        for server_id in found:
            try:
                self._deps.servers.delete_server(server_id)
            except exceptions.InProgressError as error:
                LOG.info('%s: %s', guest, error)
        if found:
            # The next round finds whether they are gone.
            return
        if guest.hot_digest is not None:
            self._deps.hot.remove(guest)
        ports = {*self._deps.servers.list_ports(guest.guest_id), guest.port_id} - {None}
        self._deps.servers.delete_ports(sorted(filter(None, ports)))
        # RabbitMQ keeps the queues of an agent that is gone.
        self._deps.forget_agent(guest.guest_id)
        self._deps.store.delete(guest.guest_id)
        LOG.info('%s: what it had is deleted', guest)

    # Internals.

    def _list(self, *states: GuestState) -> Sequence[GuestRecord]:
        return self._deps.store.list(self._pool, states)

    def _key(self) -> PoolKey:
        assert self._spec is not None
        now = self._deps.clock()
        return self._memory.find_key(now) or self._memory.keep_key(
            self._deps.servers.pool_key(self._spec), now
        )

    def _said(self, guest: GuestRecord) -> str | None:
        return self._memory.said.get(guest.guest_id)

    def _retire(self, guest: GuestRecord, reason: str) -> None:
        if self._deps.store.retire(guest.guest_id, reason, only_in=guest.state):
            LOG.info('%s: is retired: %s', guest, reason)


def _shortened(text: str) -> str:
    """Return the text of an agent as one line, for the log and the record."""
    return ' '.join(text.split())[:_MAX_TEXT] or 'nothing'
