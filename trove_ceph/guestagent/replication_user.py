# SPDX-License-Identifier: Apache-2.0
"""The accounts of replicas on their source: one for each, renewed whenever the replica attaches.

The statements are in the binary log, where MySQL writes the hash of a password only. They are so
written that a replica that lacks an account, or has it already, applies them without an error.
"""

import re
import secrets
from collections.abc import Collection

import pymysql

from trove_ceph.guestagent import server

PREFIX = 'slave_'
# Trove lists no users if one of them has a name of more than 16 characters.
_ID_DIGITS = 10
# MySQL accepts up to 32 characters as password of a replication source.
_PASSWORD_BYTES = 20
# A tenant's password policy may require each kind of character.
_EACH_KIND = '-Aa1'
# Accounts of Trove's own strategies have eight digits.
_NAME = re.compile(f'{PREFIX}[0-9a-f]{{{_ID_DIGITS}}}', re.ASCII)
# Of a replica that Trove attaches by itself, as after a rebuild: it does not tell which one.
_UNKNOWN = re.compile(f'{PREFIX}t[0-9a-f]{{{_ID_DIGITS - 1}}}', re.ASCII)
# A session that holds the lock of a backup has statements about accounts wait.
_WAIT_SEC = 30
_LOCKED = 'A lock of the server, such as that of a backup,'


def name_of(replica_id: str | None) -> str:
    """Return the name of the account of a replica; None: a new random name."""
    if replica_id is None:
        return f'{PREFIX}t{secrets.token_hex(_ID_DIGITS)[: _ID_DIGITS - 1]}'
    name = f'{PREFIX}{replica_id.replace("-", "")[:_ID_DIGITS].lower()}'
    if not _NAME.fullmatch(name):
        raise ValueError(f'{replica_id!r:.100} is not the id of an instance')
    return name


def ensure(cursor: pymysql.cursors.Cursor, replica_id: str | None) -> dict[str, str]:
    """Create or renew the account of a replica, which is required to use TLS.

    A replica that is connected stays connected.

    :returns: ``name`` and ``password``
    :raises NotQuiescedError: a lock of the server does not end; repeating is safe
    """
    name, password = name_of(replica_id), f'{secrets.token_urlsafe(_PASSWORD_BYTES)}{_EACH_KIND}'
    with server.lock_wait(cursor, _WAIT_SEC, _LOCKED):
        cursor.execute(
            "CREATE USER IF NOT EXISTS %s@'%%' IDENTIFIED BY %s REQUIRE SSL", (name, password)
        )
        cursor.execute(
            "ALTER USER IF EXISTS %s@'%%' IDENTIFIED BY %s REQUIRE SSL "
            'PASSWORD EXPIRE NEVER ACCOUNT UNLOCK',
            (name, password),
        )
        cursor.execute("GRANT REPLICATION SLAVE ON *.* TO %s@'%%'", (name,))
    return {'name': name, 'password': password}


def drop_others(cursor: pymysql.cursors.Cursor, keep_replica_ids: Collection[str]) -> list[str]:
    """Drop the accounts of all replicas except of those; return the names of the dropped ones.

    The account of a replica that Trove has attached by itself stays while that is connected.

    :raises NotQuiescedError: a lock of the server does not end; repeating is safe
    """
    kept = {name_of(replica_id) for replica_id in keep_replica_ids}
    cursor.execute("SELECT User FROM mysql.user WHERE Host = '%%' AND User LIKE %s", ('slave\\_%',))
    found = {name for (name,) in cursor.fetchall()}
    unknown = set(filter(_UNKNOWN.fullmatch, found))
    if unknown:
        unknown -= _connected(cursor)
    dropped = sorted({*filter(_NAME.fullmatch, found), *unknown} - kept)
    with server.lock_wait(cursor, _WAIT_SEC, _LOCKED):
        for name in dropped:
            cursor.execute("DROP USER IF EXISTS %s@'%%'", (name,))
    return dropped


def _connected(cursor: pymysql.cursors.Cursor) -> set[str]:
    """Return the names of the accounts by which replicas receive transactions now."""
    cursor.execute('SHOW PROCESSLIST')
    return {
        user
        for _id, user, _host, _schema, command, *_ in cursor.fetchall()
        if command.startswith('Binlog')
    }
