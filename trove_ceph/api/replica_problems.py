# SPDX-License-Identifier: Apache-2.0
"""Why a replica does not replicate, or is not re-provisioned, in words for tenants.

The watcher records what MySQL, the agents and the storage say. That may name hosts and images,
which tenants must not see, and rarely says what to do. So this module chooses among its own
sentences.
"""

import re

from trove_ceph.db.replica_record import Observation, ReplicaRecord, ReplicaState

#: The number that begins MySQL's errors as the agents report them, or that MySQL writes in them.
_NUMBER = re.compile(r'(?:\berror|\bMY-0*|\berror_code:|\berrno)\W{0,3}(\d{4,6})\b', re.IGNORECASE)
_FRESH_CLONE = 'a fresh clone repairs it: re-provision the replica'
_MISSING_BINLOGS = (
    f'the source has deleted binary logs that the replica has not received; {_FRESH_CLONE}'
)
_UNREACHABLE = (
    'the replica cannot connect to its source; it continues by itself as soon as it can: check '
    'that the source is ACTIVE, and that the security groups let the replica reach it'
)
_REFUSED_ACCOUNT = (
    f'the source refuses the account of the replica, as after a change of its users; {_FRESH_CLONE}'
)
_DIFFERENT_DATA = (
    'a transaction of the source cannot be applied, since the data of the replica differ; '
    f'{_FRESH_CLONE}'
)
_BY_NUMBER = {
    1236: _MISSING_BINLOGS,
    13114: _MISSING_BINLOGS,
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
_BY_STATE = {
    ReplicaState.EXCHANGING: 'its volume is being replaced by a fresh clone',
    ReplicaState.CATCHING_UP: 'MySQL starts on the fresh clone',
    ReplicaState.RETURNING: 'the fresh clone cannot be used, so that it returns to its old volume',
}


def describe(record: ReplicaRecord) -> str | None:
    """Return why a replica does not replicate as it should, and what to do; None: it does."""
    if record.is_replicating:
        return _describe_errant(record)
    if record.state in _BY_STATE:
        return _BY_STATE[record.state]
    if record.observed_at is None:
        return 'not known yet; it is looked at within a minute'
    if record.is_replicating is None:
        return (
            'not known: the replica or the cloud did not answer; check that the instance is '
            'ACTIVE, and ask your operator if this does not end'
        )
    return _of_error(record.replication_error or '')


def describe_failure(record: ReplicaRecord) -> str | None:
    """Return what the last error of a re-provisioning means; None: there was none."""
    if not record.error:
        return None
    if record.state is ReplicaState.FOLLOWING:
        return (
            'the last re-provisioning failed, and the replica kept its data; request it again, and '
            'ask your operator for the reason if that fails too'
        )
    if record.state is ReplicaState.RETURNING:
        return 'the fresh clone could not be used'
    return 'the last attempt failed; it is repeated by itself'


def _of_error(error: str) -> str:
    for number in map(int, _NUMBER.findall(error)):
        if number in _BY_NUMBER:
            return f'{_BY_NUMBER[number]} (MySQL error {number})'
    numbers = _NUMBER.findall(error)
    if numbers:
        return (
            f'MySQL stopped the replication with error {numbers[0]}; if it does not continue by '
            'itself, re-provision the replica'
        )
    return 'replication has stopped; if it does not continue by itself, re-provision the replica'


def _describe_errant(observed: Observation) -> str | None:
    if not observed.errant:
        return None
    return (
        'it replicates, but has transactions of its own, which its source does not have: the '
        f'replica must not be promoted; {_FRESH_CLONE}, which discards them'
    )
