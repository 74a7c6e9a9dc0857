# SPDX-License-Identifier: Apache-2.0
"""Why a guest cannot serve an instance, or its instance does not need it; pure functions."""

import datetime
from collections.abc import Iterable, Mapping

from trove_ceph.db.guest_record import GuestRecord, GuestState, PoolKey
from trove_ceph.guestagent.waiting_messages import LoadState
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.guests.dependencies import PingAnswer, PoolSettings, ServerFacts

#: Added to the time that a binding may take; the creation retires the guest itself before.
_BIND_MARGIN = datetime.timedelta(minutes=1)
#: The states of guests that an instance has, or is about to have.
TAKEN = (GuestState.CLAIMED, GuestState.BOUND)


def why_other(guest: GuestRecord, key: PoolKey) -> str | None:
    """Return what a waiting guest has that an instance would not get now; None: nothing."""
    for what, found, expected in (
        ('image', guest.image_id, key.image_id),
        ('flavor', guest.flavor_id, key.flavor_id),
        ('availability zone', guest.availability_zone, key.availability_zone),
        ('digest of the configuration', guest.config_digest, key.config_digest),
    ):
        if found != expected:
            return f'its {what} is {found}, and that of new instances is {expected}'
    return None


def why_broken(guest: GuestRecord, server: ServerFacts | None) -> str | None:
    """Return what is wrong with the server of a waiting guest; None: nothing.

    :param server: None: there is none
    """
    if server is not None and server.status == 'ERROR':
        return f'its server is in ERROR: {server.fault or "Nova gives no reason"}'
    if server is not None and server.status == 'SOFT_DELETED':
        return f'its server {server.server_id} was deleted in Nova, which keeps it for a while'
    if server is None and guest.server_id is not None:
        return f'its server {guest.server_id} is gone'
    return None


def why_not_bindable(guest: GuestRecord, answer: PingAnswer) -> str | None:
    """Return why a waiting guest cannot be bound as its state promises; None: it can."""
    if not answer.can_bind:
        return answer.reason
    is_hot = answer.load is LoadState.SERVING
    if guest.state in (GuestState.LOADING, GuestState.HOT) and not is_hot:
        return 'its MySQL was not started'
    return None


def why_late(
    guest: GuestRecord, now: datetime.datetime, settings: PoolSettings, said: str | None
) -> str | None:
    """Return that the boot of a guest takes too long; None: it does not.

    :param said: why the agent said that it cannot be bound; None: it did not answer
    """
    if guest.state is not GuestState.BOOTING or now - guest.created_at <= settings.boot_timeout:
        return None
    return f'it was not ready {_sec(settings.boot_timeout)} s after its boot began; {_agent(said)}'


def why_load_late(
    guest: GuestRecord, now: datetime.datetime, settings: PoolSettings, said: str | None
) -> str | None:
    """Return that the load of a guest takes too long; None: it does not.

    :param said: as for :func:`why_late`
    """
    if guest.state is not GuestState.LOADING or now - guest.updated_at <= settings.load_timeout:
        return None
    return f'it was not hot {_sec(settings.load_timeout)} s after its load began; {_agent(said)}'


def why_silent(
    guest: GuestRecord, now: datetime.datetime, settings: PoolSettings, said: str | None
) -> str | None:
    """Return since when a ready or hot guest is silent, or cannot be bound; None: it can.

    :param said: as for :func:`why_late`
    """
    if guest.state not in (GuestState.READY, GuestState.HOT) or guest.seen_at is None:
        return None
    if now - guest.seen_at <= settings.unseen_limit:
        return None
    return f'it was last ready {_sec(now - guest.seen_at)} s ago; {_agent(said)}'


def is_old(guest: GuestRecord, now: datetime.datetime, settings: PoolSettings) -> bool:
    """Return whether a guest is to be replaced because of its age."""
    return now - guest.created_at > settings.max_age


def count_just_taken(
    guests: Iterable[GuestRecord], now: datetime.datetime, settings: PoolSettings
) -> int:
    """Return how many guests have replacements that must not be booted or loaded yet."""
    return sum(
        one.state in TAKEN and now - one.updated_at < settings.refill_delay for one in guests
    )


def is_overdue(guest: GuestRecord, now: datetime.datetime, settings: PoolSettings) -> bool:
    """Return whether a claimed guest should be bound by now."""
    return now - guest.updated_at > settings.bind_timeout + _BIND_MARGIN


def why_abandoned(guest: GuestRecord, instance: backup_types.Instance | None) -> str | None:
    """Return why the instance of an overdue claimed guest does not use it; None: it may."""
    if instance is None or instance.is_deleted:
        return f'instance {guest.instance_id}, which claimed it, is gone'
    if instance.server_id not in (None, guest.server_id):
        return f'instance {guest.instance_id}, which claimed it, has server {instance.server_id}'
    if instance.server_id is None and not instance.is_building:
        return f'the creation of instance {guest.instance_id}, which claimed it, failed'
    return None


def why_outlived(guest: GuestRecord, servers: Mapping[str, str | None]) -> str | None:
    """Return why the instance of a bound guest does not need it any more; None: it does.

    :param servers: see :meth:`.dependencies.Instances.list_servers`
    """
    assert guest.instance_id is not None
    if guest.instance_id not in servers:
        return f'its instance {guest.instance_id} was deleted'
    if servers[guest.instance_id] not in (None, guest.server_id):
        return f'its instance {guest.instance_id} has server {servers[guest.instance_id]}'
    return None


def _sec(duration: datetime.timedelta) -> int:
    return int(duration.total_seconds())


def _agent(said: str | None) -> str:
    return f'its agent says: {said}' if said else 'its agent does not answer'
