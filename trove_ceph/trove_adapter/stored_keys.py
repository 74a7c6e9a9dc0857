# SPDX-License-Identifier: Apache-2.0
"""The keys of agents in Trove's database, and their encryption under another key.

Trove encrypts the key of each instance, and this project those of each warm guest, under
``[DEFAULT] inst_rpc_key_encr_key``. Trove itself has no way to another value of this option.
"""

import dataclasses
import enum
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import guest_record, tables
from trove_ceph.db.transactions import Transactions, retry_on_deadlock
from trove_ceph.trove_adapter import guest_keys

_INSTANCES = sa.table('instances', *map(sa.column, ('id', 'encrypted_key', 'deleted')))
_GUESTS = tables.GuestRow
# The agent of an instance has the instance's key, and that of a retired guest is never called.
_WITHOUT_USE = (guest_record.GuestState.BOUND, guest_record.GuestState.RETIRED)


class Owner(enum.StrEnum):
    """Whose agent has the key."""

    INSTANCE = 'instance'
    WARM_GUEST = 'warm guest'


class Under(enum.StrEnum):
    """Which key a stored key is encrypted under."""

    CURRENT = 'current'
    PREVIOUS = 'previous'
    NEITHER = 'neither'


@dataclasses.dataclass(frozen=True)
class StoredKey:
    """A stored key, as it was found."""

    owner: Owner
    owner_id: str
    under: Under


@retry_on_deadlock
def reencrypt(
    transactions: Transactions, previous: str, current: str, *, is_trial: bool = False
) -> tuple[StoredKey, ...]:
    """Encrypt all keys under the current key, in one transaction; return how each was found.

    Nothing is changed if one of them can be read with neither key, or in a trial. Deleted instances
    are left out, and so are guests whose key is not used any more, if neither key reads it. It can
    be repeated.

    :param previous: the value of inst_rpc_key_encr_key up to now
    :param current: its new value
    :raises ServiceUnavailableError: the database does not answer, or lacks the tables
    """
    opened = transactions.reading() if is_trial else transactions.writing()
    with opened as session:
        found = list(_read(session, previous, current, locks=not is_trial))
        is_readable = all(one.under is not Under.NEITHER for one, _ in found)
        if is_readable and not is_trial:
            for one, text in found:
                if one.under is Under.PREVIOUS:
                    _write(session, one, guest_keys.encrypt_text(text, current))
    return tuple(one for one, _ in found)


def _read(
    session: orm.Session, previous: str, current: str, *, locks: bool
) -> Iterator[tuple[StoredKey, str]]:
    """Yield each stored key with its text, which is empty if neither key reads it."""
    instances = (
        sa.select(_INSTANCES.c.id, _INSTANCES.c.encrypted_key, sa.true())
        .where(_INSTANCES.c.encrypted_key.is_not(None), _INSTANCES.c.deleted == sa.false())
        .order_by(_INSTANCES.c.id)
    )
    guests = sa.select(
        _GUESTS.guest_id, _GUESTS.encrypted_key, _GUESTS.state.not_in(_WITHOUT_USE)
    ).order_by(_GUESTS.guest_id)
    for owner, query in ((Owner.INSTANCE, instances), (Owner.WARM_GUEST, guests)):
        rows = session.execute(query.with_for_update() if locks else query).all()
        for owner_id, encrypted, is_used in rows:
            under, text = _decrypt(encrypted, previous, current)
            if is_used or under is not Under.NEITHER:
                yield StoredKey(owner, owner_id, under), text


def _decrypt(encrypted: str, previous: str, current: str) -> tuple[Under, str]:
    for under, key in ((Under.CURRENT, current), (Under.PREVIOUS, previous)):
        text = guest_keys.decrypt_text(encrypted, key)
        if text is not None:
            return under, text
    return Under.NEITHER, ''


def _write(session: orm.Session, key: StoredKey, encrypted: str) -> None:
    change: Any
    if key.owner is Owner.INSTANCE:
        change = sa.update(_INSTANCES).where(_INSTANCES.c.id == key.owner_id)
    else:
        change = sa.update(_GUESTS).where(_GUESTS.guest_id == key.owner_id)
    session.execute(change.values(encrypted_key=encrypted))
