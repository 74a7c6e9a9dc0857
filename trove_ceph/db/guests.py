# SPDX-License-Identifier: Apache-2.0
"""The store of warm guests, of the requests for them, and of the claims on their pools."""

import dataclasses
import datetime
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph import exceptions
from trove_ceph.db import claims, guest_states, tables
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.guest_record import WAITING, GuestRecord, GuestState, PoolKey
from trove_ceph.db.guest_states import Event
from trove_ceph.db.roles import Role
from trove_ceph.db.state_machine import ABSENT
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock

DEFAULT_FRESH_SEC = 90
#: A claim tries this many guests at most; others took those that it did not get.
_CANDIDATES = 32


class GuestStore:
    """Warm guests; safe for use by several threads and processes.

    Each verb writes in one transaction. It raises ServiceUnavailableError when the database does
    not answer or lacks the tables. All times are by the clock of the database.

    :param transactions: access to the database; by default the one of Trove's configuration
    :param fresh_sec: a guest can be claimed if its agent answered at most this many seconds ago
    """

    def __init__(
        self, transactions: Transactions | None = None, fresh_sec: float = DEFAULT_FRESH_SEC
    ):
        self._transactions = transactions or Transactions()
        self._fresh = datetime.timedelta(seconds=fresh_sec)
        self.claims = claims.Claims(self._transactions)

    def now(self) -> datetime.datetime:
        """Return the time by the clock of the database."""
        return self._transactions.read_database_time()

    # Guests.

    @retry_on_deadlock
    def add(self, record: GuestRecord) -> None:
        """Add a guest that is about to be booted.

        :raises InvalidTransitionError: the record has another state than BOOTING
        """
        if record.state is not guest_states.next_state(ABSENT, Event.BOOT):
            raise exceptions.InvalidTransitionError(
                f'{record}: must begin in state "{GuestState.BOOTING}", not "{record.state}"'
            )
        with self._transactions.writing() as session:
            session.add(
                tables.GuestRow(**dataclasses.asdict(record) | {'state': str(record.state)})
            )

    def find(self, guest_id: str) -> GuestRecord | None:
        with self._transactions.reading() as session:
            row = session.get(tables.GuestRow, guest_id)
            return None if row is None else row.as_model()

    def list(
        self, pool: str | None = None, states: Collection[GuestState] | None = None
    ) -> Sequence[GuestRecord]:
        """Return guests, the oldest first.

        :param pool: of this pool only
        :param states: in these states only
        """
        row = tables.GuestRow
        query = sa.select(row).order_by(row.created_at, row.guest_id)
        if pool is not None:
            query = query.where(row.pool == pool)
        if states is not None:
            query = query.where(row.state.in_([str(state) for state in states]))
        with self._transactions.reading() as session:
            return [found.as_model() for found in session.scalars(query)]

    def pools(self) -> set[str]:
        """Return the names of the pools that have guests, in whatever state."""
        with self._transactions.reading() as session:
            return set(session.scalars(sa.select(tables.GuestRow.pool).distinct()))

    @retry_on_deadlock
    def set_server(
        self, guest_id: str, server_id: str | None, port_id: str | None, host: str | None = None
    ) -> None:
        """Record the server and the management port of a guest.

        :param host: None: leave the known one
        :raises RecordNotFoundError: the guest has no row
        """
        values = {'server_id': server_id, 'port_id': port_id}
        with self._transactions.writing() as session:
            done = self._update(session, guest_id, **values | ({'host': host} if host else {}))
        if not done:
            raise exceptions.RecordNotFoundError(f'guest {guest_id}: has no record')

    @retry_on_deadlock
    def mark_ready(self, guest_id: str, host: str | None) -> None:
        """Record that the agent of a guest has answered that it can be bound.

        :param host: of its server; None: leave the known one
        :raises InvalidTransitionError: it has been claimed or retired meanwhile
        :raises RecordNotFoundError: the guest has no row
        """
        with self._transactions.writing() as session:
            seen = {'seen_at': self._transactions.database_time(session)}
            self._move(
                session, guest_id, Event.MAKE_READY, **seen | ({'host': host} if host else {})
            )

    @retry_on_deadlock
    def mark_seen(self, guest_id: str) -> None:
        """Record that the agent of a guest has answered; do nothing if it does not wait."""
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            waiting = tables.GuestRow.state.in_([str(state) for state in WAITING])
            self._update(session, guest_id, waiting, seen_at=now)

    @retry_on_deadlock
    def mark_loading(self, guest_id: str, hot_digest: str) -> None:
        """Record that a ready guest is being made hot; no instance can claim it until it is.

        :param hot_digest: of the volume and the settings that it is to have
        :raises InvalidTransitionError: it has been claimed or retired meanwhile
        :raises RecordNotFoundError: the guest has no row
        """
        with self._transactions.writing() as session:
            self._move(session, guest_id, Event.LOAD, hot_digest=hot_digest)

    @retry_on_deadlock
    def set_volume(self, guest_id: str, volume_id: str) -> None:
        """Record the volume of a loading guest, before it is attached.

        :raises RecordNotFoundError: the guest is not loading
        """
        loading = tables.GuestRow.state == str(GuestState.LOADING)
        with self._transactions.writing() as session:
            if not self._update(session, guest_id, loading, volume_id=volume_id):
                raise exceptions.RecordNotFoundError(f'guest {guest_id}: is not loading')

    @retry_on_deadlock
    def keep_warm(self, guest_id: str) -> None:
        """Record that a loading guest waits as before, since it got no volume.

        :raises InvalidTransitionError: it has been retired meanwhile
        :raises RecordNotFoundError: the guest has no row, or has a volume
        """
        with self._transactions.writing() as session:
            without = tables.GuestRow.volume_id.is_(None)
            self._move(session, guest_id, Event.KEEP_WARM, without, hot_digest=None)

    @retry_on_deadlock
    def mark_hot(self, guest_id: str) -> None:
        """Record that the agent of a guest has answered that MySQL serves and it can be bound.

        :raises InvalidTransitionError: it has been claimed or retired meanwhile
        :raises RecordNotFoundError: the guest has no row
        """
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            self._move(session, guest_id, Event.MAKE_HOT, seen_at=now)

    @retry_on_deadlock
    def claim(
        self, key: PoolKey, instance_id: str, not_on_host: str | None = None
    ) -> GuestRecord | None:
        """Claim the ready guest that answered last, and record the request.

        Of concurrent claimants, each gets another guest.

        :param not_on_host: leave out the guests of this host, and those whose host is not known;
            None: take any
        :returns: None: no ready guest fits, or none has answered lately
        """
        # Without a host, the comparison is NULL, which is not true.
        elsewhere = [] if not_on_host is None else [tables.GuestRow.host != not_on_host]
        candidates = self._candidates(key, GuestState.READY, *elsewhere)
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            claimed = self._claim_one(session, candidates, GuestState.READY, instance_id, now)
            _add_request(session, key, claimed, now)
            return claimed

    @retry_on_deadlock
    def claim_hot(self, key: PoolKey, hot_digest: str, instance_id: str) -> GuestRecord | None:
        """Claim the hot guest that answered last, and record the request.

        Without one nothing is recorded, since :meth:`claim` follows.

        :param hot_digest: of the volume and the settings that its MySQL must have
        :returns: None: no hot guest fits, or none has answered lately
        """
        fits = tables.GuestRow.hot_digest == hot_digest
        candidates = self._candidates(key, GuestState.HOT, fits)
        if not candidates:
            return None
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            claimed = self._claim_one(session, candidates, GuestState.HOT, instance_id, now)
            if claimed is not None:
                _add_request(session, key, claimed, now)
            return claimed

    @retry_on_deadlock
    def release(self, guest_id: str, instance_id: str) -> None:
        """Record that a guest waits as before, since its instance could not be created.

        Its agent must know nothing of the instance.

        :raises InvalidTransitionError: it has been bound or retired
        :raises RecordNotFoundError: the guest has no row, another instance has it, or it has a
            volume, since it was hot
        """
        row = tables.GuestRow
        with self._transactions.writing() as session:
            warm = (row.instance_id == instance_id, row.volume_id.is_(None))
            self._move(session, guest_id, Event.RELEASE, *warm, instance_id=None)

    @retry_on_deadlock
    def mark_bound(self, guest_id: str, instance_id: str) -> None:
        """Record that a guest has the identity of the instance that claimed it; idempotent.

        The volume of a guest that was hot is that of the instance from now on.

        :raises InvalidTransitionError: the guest has been retired meanwhile
        :raises RecordNotFoundError: the guest has no row, or another instance has it
        """
        with self._transactions.writing() as session:
            ours = tables.GuestRow.instance_id == instance_id
            self._move(session, guest_id, Event.BIND, ours, volume_id=None)

    @retry_on_deadlock
    def retire(self, guest_id: str, reason: str, only_in: GuestState | None = None) -> bool:
        """Have the server, the port and the volume of a guest deleted; idempotent.

        :param reason: the first one stays
        :param only_in: do nothing if the guest is in another state by now
        :returns: whether the guest is retired now and was not before
        """
        with self._transactions.writing() as session:
            state = self._state(session, guest_id)
            if state in (None, GuestState.RETIRED) or only_in not in (None, state):
                return False
            self._move(session, guest_id, Event.RETIRE, reason=reason)
            return True

    @retry_on_deadlock
    def delete(self, guest_id: str) -> None:
        """Delete the row of a guest of which nothing is left; idempotent.

        :raises InvalidTransitionError: the guest is not retired
        """
        with self._transactions.writing() as session:
            state = self._state(session, guest_id)
            if state is None:
                return
            assert guest_states.next_state(state, Event.DELETE) == ABSENT
            row = tables.GuestRow
            session.execute(sa.delete(row).where(row.guest_id == guest_id))

    # Requests.

    def requests_since(self, pool: str, since: datetime.datetime) -> int:
        """Return how many guests of a pool were requested since a time, refused ones included."""
        row = tables.GuestRequestRow
        with self._transactions.reading() as session:
            found = session.scalar(
                sa.select(sa.func.count()).where(row.pool == pool, row.requested_at >= since)
            )
            return int(found or 0)

    @retry_on_deadlock
    def prune_requests(self, before: datetime.datetime) -> None:
        """Delete the requests that were made before a time."""
        with self._transactions.writing() as session:
            row = tables.GuestRequestRow
            session.execute(sa.delete(row).where(row.requested_at < before))

    # Pools.

    @retry_on_deadlock
    def note_configured(self, pools: Collection[str]) -> None:
        """Record that a taskmanager has pools in its configuration now."""
        row = tables.GuestPoolRow
        with self._transactions.writing() as session:
            for pool in pools:
                _ensure_pool(session, pool)
            now = self._transactions.database_time(session)
            session.execute(sa.update(row).where(row.pool.in_(pools)).values(configured_at=now))

    def configured_since(self, since: datetime.datetime) -> set[str]:
        """Return the pools that a taskmanager had in its configuration at a time or later."""
        row = tables.GuestPoolRow
        with self._transactions.reading() as session:
            return set(session.scalars(sa.select(row.pool).where(row.configured_at >= since)))

    @retry_on_deadlock
    def begin_keeping(self, pool: str, claimant: Claimant) -> Claim | None:
        """Claim a pool, to keep its guests.

        :returns: None: another live worker keeps it
        """
        with self._transactions.writing() as session:
            _ensure_pool(session, pool)
            return self.claims.claim_in(session, Role.KEEP_GUESTS, pool, claimant)

    # Internals.

    def _state(self, session: orm.Session, guest_id: str, *conditions: Any) -> GuestState | None:
        """Return the state of a guest, and lock its row where the database supports it."""
        row = tables.GuestRow
        query = sa.select(row.state).where(row.guest_id == guest_id, *conditions)
        found = session.scalar(query.with_for_update())
        return None if found is None else GuestState(found)

    def _move(
        self, session: orm.Session, guest_id: str, event: Event, *conditions: Any, **values: Any
    ) -> None:
        """Apply an event to a guest that meets the conditions, and set columns."""
        state = self._state(session, guest_id, *conditions)
        if state is None:
            raise exceptions.RecordNotFoundError(
                f'guest {guest_id}: has no record, or one of another instance'
            )
        after = guest_states.next_state(state, event)
        if after is not state:
            values |= {'state': str(after), 'updated_at': self._transactions.database_time(session)}
        if values:
            self._update(session, guest_id, **values)

    def _candidates(self, key: PoolKey, state: GuestState, *conditions: Any) -> Sequence[str]:
        """Return the ids of guests that fit; others may take them before this claimant does."""
        row = tables.GuestRow
        query = (
            sa.select(row.guest_id)
            .where(
                row.state == str(state),
                row.flavor_id == key.flavor_id,
                row.image_id == key.image_id,
                row.config_digest == key.config_digest,
                claims.is_value(row.availability_zone, key.availability_zone),
                *conditions,
            )
            .order_by(row.seen_at.desc(), row.guest_id)
            .limit(_CANDIDATES)
        )
        with self._transactions.reading() as session:
            return session.scalars(query).all()

    def _claim_one(
        self,
        session: orm.Session,
        candidates: Sequence[str],
        state: GuestState,
        instance_id: str,
        now: datetime.datetime,
    ) -> GuestRecord | None:
        """Claim the first guest that is still in a state and has answered lately."""
        for guest_id in candidates:
            if self._update(
                session,
                guest_id,
                tables.GuestRow.state == str(state),
                tables.GuestRow.seen_at >= now - self._fresh,
                state=str(guest_states.next_state(state, Event.CLAIM)),
                updated_at=now,
                instance_id=instance_id,
            ):
                row = session.get(tables.GuestRow, guest_id)
                assert row is not None
                return row.as_model()
        return None

    def _update(self, session: orm.Session, guest_id: str, *conditions: Any, **values: Any) -> bool:
        row = tables.GuestRow
        done = session.connection().execute(
            sa.update(row).where(row.guest_id == guest_id, *conditions).values(**values)
        )
        return bool(done.rowcount)


def _ensure_pool(session: orm.Session, pool: str) -> None:
    if session.get(tables.GuestPoolRow, pool) is None:
        insert(session, tables.GuestPoolRow(pool=pool))


def _add_request(
    session: orm.Session, key: PoolKey, claimed: GuestRecord | None, now: datetime.datetime
) -> None:
    guest_id = claimed and claimed.guest_id
    session.add(tables.GuestRequestRow(pool=key.pool, requested_at=now, guest_id=guest_id))
