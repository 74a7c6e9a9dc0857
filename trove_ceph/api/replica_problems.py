# SPDX-License-Identifier: Apache-2.0
"""Why a replica does not replicate, in words that say what to do about it.

What MySQL says is shown beside them.
"""

import re

from trove_ceph.db.replica_record import ReplicaRecord, ReplicaState

#: The number that begins MySQL's errors as the agents report them, or that MySQL writes in them.
_NUMBER = re.compile(r'(?:\berror|\bMY-0*|\berror_code:|\berrno)\W{0,3}(\d{4,6})\b', re.IGNORECASE)
_FRESH_CLONE = 'a fresh clone repairs it: re-provision the replica'
_NOT_SENT = (
    'the source cannot send what the replica has not received, such as binary logs that it has '
    f'deleted; {_FRESH_CLONE}'
)
_UNREACHABLE = (
    'the replica cannot connect to its source; it continues by itself as soon as it can: check '
    'that the source is ACTIVE, and that the security groups let the replica reach it'
)
_REFUSED_ACCOUNT = (
    'the source refuses the account of the replica, as after a change of its users; the service '
    f'renews it. If that does not help, {_FRESH_CLONE}'
)
_DIFFERENT_DATA = (
    'a transaction of the source cannot be applied, since the data of the replica differ; '
    f'{_FRESH_CLONE}'
)
_BY_NUMBER = {
    1236: _NOT_SENT,
    13114: _NOT_SENT,
    1032: _DIFFERENT_DATA,
    1050: _DIFFERENT_DATA,
    1051: _DIFFERENT_DATA,
    1062: _DIFFERENT_DATA,
    1146: _DIFFERENT_DATA,
    1396: _DIFFERENT_DATA,
    1044: _REFUSED_ACCOUNT,
    1045: _REFUSED_ACCOUNT,
    1130: _REFUSED_ACCOUNT,
    1227: _REFUSED_ACCOUNT,
    2002: _UNREACHABLE,
    2003: _UNREACHABLE,
    2005: _UNREACHABLE,
    2006: _UNREACHABLE,
    2013: _UNREACHABLE,
    2026: 'the replica cannot open an encrypted connection to its source; ask your operator to '
    'check the certificates of both',
    1040: 'the source has no connection left for the replica; it continues by itself as soon as '
    'one is closed: raise max_connections of the source, or close connections',
}
_ERRANT = (
    'it replicates, but has transactions of its own, which its source does not have: the replica '
    f'must not be promoted; {_FRESH_CLONE}, which discards them'
)
_BY_STATE = {
    ReplicaState.EXCHANGING: 'its volume is being replaced by a fresh clone',
    ReplicaState.CATCHING_UP: 'MySQL starts on the fresh clone, and catches up with the source',
    ReplicaState.RETURNING: 'the fresh clone cannot be used, so that it returns to its old volume',
    ReplicaState.BLOCKED: 'its volume cannot be exchanged until your operator has repaired it: see '
    'error',
}


def describe(record: ReplicaRecord, is_stale: bool = False) -> str | None:
    """Return why a replica does not replicate as it should, and what to do; None: it does.

    :param is_stale: whether the last look at it was so long ago that it proves nothing
    """
    if record.state in _BY_STATE:
        return _BY_STATE[record.state]
    if not record.is_observed:
        return 'not known yet; it is looked at within a minute'
    if is_stale and record.state is ReplicaState.FOLLOWING:
        return (
            'not known: the cloud has not looked at it for some time, see observed_at; ask your '
            'operator if this does not end'
        )
    if record.is_replicating:
        return _of_errant(record.replication_error or '') if record.errant else None
    return _of_error(record.replication_error or 'it is not known whether it replicates')


def _of_errant(error: str) -> str:
    """Return what to do with transactions that the source does not have.

    :param error: a sentence of the watch; empty, or an error of MySQL that is over: it says nothing
    """
    return error if error and not _NUMBER.search(error) else _ERRANT


def _of_error(error: str) -> str:
    """Return what an error means.

    :param error: what MySQL says, with its number, or a sentence of the watch
    """
    numbers = [int(number) for number in _NUMBER.findall(error)]
    if not numbers:
        return error
    for number in numbers:
        if number in _BY_NUMBER:
            return f'{_BY_NUMBER[number]} (MySQL error {number})'
    return (
        f'MySQL stopped the replication with error {numbers[0]}; if it does not continue by '
        'itself, re-provision the replica'
    )
