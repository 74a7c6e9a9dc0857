# SPDX-License-Identifier: Apache-2.0
"""The first start of a server on a volume that was cloned from another instance.

The data stays: users, databases and gtid_executed. The identity of the server is replaced: it gets
a new UUID, a ``server_id`` of its own, new passwords of Trove's own accounts, and no replication
source. None of this is written to the binary log, because an errant transaction would prevent this
server from becoming a replica of its origin.

Remote root accounts, which a tenant has enabled, get an unknown password as well, unless the server
is to be a replica: it must have the accounts of its source, which it may replace one day.

A single start suffices: the server executes the statements before it accepts connections
(:mod:`~trove_ceph.guestagent.init_file`).
"""

import contextlib
import dataclasses
import posixpath

import pymysql
from oslo_log import log as logging
from trove.guestagent.common import operating_system

from trove_ceph import exceptions
from trove_ceph.guestagent import init_file, persisted_options, read_only, server, server_uuid

LOG = logging.getLogger(__name__)

#: Options of the first start only.
OPTIONS = {'skip_replica_start': 'ON'}
_TIMEOUT_SEC = 60


@dataclasses.dataclass(frozen=True)
class Passwords:
    """New passwords of Trove's accounts.

    :param root: password of ``root@localhost``
    :param admin: password of Trove's administrative account
    :param remote_root: password of remote root accounts, if the tenant enabled them; unknown to the
        tenant, who can request a new one as for any instance, but a replica
    """

    root: str = dataclasses.field(repr=False)
    admin: str = dataclasses.field(repr=False)
    remote_root: str = dataclasses.field(repr=False)


def new_passwords() -> Passwords:
    """Return new random passwords."""
    return Passwords(*(init_file.new_password() for _ in range(3)))


def statements(passwords: Passwords, is_replica: bool = False) -> list[str]:
    """Return the statements that replace the identity of a server; each is idempotent.

    :param is_replica: remote root accounts keep the passwords that they have on the source
    """
    return [
        init_file.NOT_LOGGED,
        "SET SESSION sql_mode = '', group_concat_max_len = 1048576",
        'RESET REPLICA ALL',
        *([] if is_replica else _remote_root_statements(passwords.remote_root)),
        *init_file.account_statements('root', passwords.root),
        *init_file.account_statements(init_file.ADMIN, passwords.admin),
    ]


def _remote_root_statements(password: str) -> list[str]:
    remote_accounts = (
        "SELECT GROUP_CONCAT(QUOTE(User), '@', QUOTE(Host), ' IDENTIFIED BY ', "
        f"QUOTE('{password}')) "
        "FROM mysql.user WHERE User = 'root' AND Host <> 'localhost'"
    )
    return [
        f'SET @others = ({remote_accounts})',
        "SET @statement = COALESCE(CONCAT('ALTER USER ', @others), 'DO 0')",
        'PREPARE statement FROM @statement',
        'EXECUTE statement',
    ]


class RestoredServer:
    """A server that has not run on this volume yet.

    :param app: Trove's application, configured for ``data_dir`` and stopped
    :param data_dir: path of the data directory, the same in the container and on the host
    :param is_replica: it is to follow the origin. Then my.cnf decides that it refuses writes, even
        if the origin has persisted the contrary.
    """

    def __init__(self, app: server.MySqlServer, data_dir: str, is_replica: bool = False):
        self._app = app
        self._data_dir = data_dir
        self._is_replica = is_replica

    def start(self, ds_version: str | None, command: str) -> None:
        """Start the server, which recovers the data, with a new identity.

        :raises InvalidBackupError: the volume has no database
        :raises ServerFailedError: the server recovered, but has not got its new identity
        """
        self._check()
        passwords = new_passwords()
        server_uuid.remove(self._data_dir)
        not_persisted = read_only.REPLICA_OPTIONS if self._is_replica else ()
        persisted_options.remove(self._app, self._data_dir, ('server_id', *not_persisted))
        self._app.save_password('root', passwords.root)
        self._app.save_password(init_file.ADMIN, passwords.admin)
        with init_file.configured(self._app, statements(passwords, self._is_replica), OPTIONS):
            self._app.start_db(ds_version=ds_version, command=command)
            self._verify_identity()

    def _check(self) -> None:
        # Trove would initialise an empty directory, which must not pass for restored data.
        if not operating_system.exists(posixpath.join(self._data_dir, 'mysql.ibd'), as_root=True):
            raise exceptions.InvalidBackupError(
                f'{self._data_dir}: has no database of MySQL 8.0 or later'
            )

    def _verify_identity(self) -> None:
        """Log in with the new password, and check the replication of the server."""
        try:
            with (
                contextlib.closing(self._app.open_connection(_TIMEOUT_SEC)) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute('SHOW REPLICA STATUS')
                channels = cursor.fetchall()
                cursor.execute('SELECT @@server_uuid, @@GLOBAL.gtid_executed')
                uuid, gtid_executed = cursor.fetchone()
        except pymysql.MySQLError as error:
            raise exceptions.ServerFailedError(
                f'{self._data_dir}: the restored server lacks the account of Trove: {error}; see '
                f'its log for the failed statement of {init_file.PATH}'
            ) from error
        if channels:
            raise exceptions.ServerFailedError(
                f'{self._data_dir}: the restored server still has a replication source'
            )
        LOG.info('Restored server %s has executed %s', uuid, gtid_executed.replace('\n', ''))
