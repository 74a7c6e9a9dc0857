# SPDX-License-Identifier: Apache-2.0
"""The first start of a server on a volume that was made from another instance's.

The data stays as it is: users, databases, and the transactions that it says it has. What is of the
server is made anew: its UUID, Trove's own accounts and their passwords, no source that it would
replicate from. Nothing of that is logged. A transaction that only this server has would keep it
from ever being a replica of where it comes from.

One start does it, so that nobody waits for two: the server runs the statements of an init file
before it lets anybody in. A statement that fails ends the file and not the server, so the account
that is used afterwards comes last.
"""

import contextlib
import dataclasses
import posixpath
from collections.abc import Iterator

import pymysql
from oslo_log import log as logging
from trove.common import utils
from trove.guestagent.common import operating_system
from trove.guestagent.datastore.mysql_common import service as common_service

from trove_ceph import exceptions
from trove_ceph.guestagent import server, server_config

LOG = logging.getLogger(__name__)

#: The same path in the container, and not on the volume, which becomes part of backups.
INIT_FILE = '/etc/mysql/restored.sql'
CHANGE_ID = 'restored'
ADMIN = common_service.ADMIN_USER_NAME
#: While these hold, the server only finds out who it is.
OPTIONS = {'init_file': INIT_FILE, 'skip_replica_start': 'ON'}
_TIMEOUT_SEC = 60
# A tenant may have a policy of passwords that asks for each kind of character.
_EACH_KIND = '-Aa1'


@dataclasses.dataclass(frozen=True)
class Passwords:
    """New ones of Trove's accounts.

    :param root: of the container itself
    :param remote_root: of root from elsewhere, where the tenant had that; known to nobody until the
        tenant asks for a new one, as for any instance
    """

    root: str = dataclasses.field(repr=False)
    admin: str = dataclasses.field(repr=False)
    remote_root: str = dataclasses.field(repr=False)


def new_passwords() -> Passwords:
    """Return passwords that are in use nowhere."""
    return Passwords(*(f'{utils.generate_random_password()}{_EACH_KIND}' for _ in range(3)))


def statements(passwords: Passwords) -> list[str]:
    """Return what makes a server its own; each may be repeated."""
    others = (
        "SELECT GROUP_CONCAT(QUOTE(User), '@', QUOTE(Host), ' IDENTIFIED BY ', "
        f"QUOTE('{passwords.remote_root}')) "
        "FROM mysql.user WHERE User = 'root' AND Host <> 'localhost'"
    )
    return [
        'SET SESSION sql_log_bin = 0',
        "SET SESSION sql_mode = '', group_concat_max_len = 1048576",
        'RESET REPLICA ALL',
        f'SET @others = ({others})',
        "SET @statement = COALESCE(CONCAT('ALTER USER ', @others), 'DO 0')",
        'PREPARE statement FROM @statement',
        'EXECUTE statement',
        *_account('root', passwords.root),
        *_account(ADMIN, passwords.admin),
    ]


def _account(user: str, password: str) -> list[str]:
    account = f"'{user}'@'localhost'"
    return [
        f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{password}'",
        f'GRANT ALL ON *.* TO {account} WITH GRANT OPTION',
        # Last, so that who can log in has all the rest as well.
        f"ALTER USER {account} IDENTIFIED BY '{password}' ACCOUNT UNLOCK",
    ]


class RestoredServer:
    """One server that has not run on this volume yet.

    :param app: configured for ``data_dir``, and stopped
    :param data_dir: as the container sees it, which is as the host does
    """

    def __init__(self, app: server.MySqlServer, data_dir: str):
        self._app = app
        self._data_dir = data_dir

    def start(self, ds_version: str | None, command: str) -> None:
        """Recover what is there, and let the server be one of its own.

        :raises InvalidBackupError: there is no database on the volume
        :raises ServerFailedError: it recovered, and is not its own
        """
        self._check()
        passwords = new_passwords()
        self._forget_identity()
        self._app.save_password('root', passwords.root)
        self._app.save_password(ADMIN, passwords.admin)
        with self._settings(passwords):
            self._app.start_db(ds_version=ds_version, command=command)
            self._prove()

    def _check(self) -> None:
        # An empty directory would be initialised, and taken for what was restored.
        if not operating_system.exists(posixpath.join(self._data_dir, 'mysql.ibd'), as_root=True):
            raise exceptions.InvalidBackupError(
                f'{self._data_dir}: has no database of MySQL 8.0 or later'
            )

    def _forget_identity(self) -> None:
        path = posixpath.join(self._data_dir, 'auto.cnf')
        operating_system.remove(path, force=True, recursive=False, as_root=True)

    @contextlib.contextmanager
    def _settings(self, passwords: Passwords) -> Iterator[None]:
        """Give the server the init file for its first start alone."""
        manager = self._app.configuration_manager
        self._write_init_file(passwords)
        manager.apply_system_override({server_config.SERVER_SECTION: OPTIONS}, CHANGE_ID)
        try:
            yield
        finally:
            # It is not read again before the next start.
            manager.remove_system_override(CHANGE_ID)
            operating_system.remove(INIT_FILE, force=True, recursive=False, as_root=True)

    def _write_init_file(self, passwords: Passwords) -> None:
        text = ''.join(f'{statement};\n' for statement in statements(passwords))
        operating_system.write_file(INIT_FILE, text, as_root=True)
        operating_system.chown(
            INIT_FILE,
            self._app.database_service_uid,
            self._app.database_service_gid,
            recursive=False,
            as_root=True,
        )

    def _prove(self) -> None:
        """Log in with the new password, and see what the server thinks of itself."""
        try:
            with (
                contextlib.closing(self._app.connect_alone(_TIMEOUT_SEC)) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute('SHOW REPLICA STATUS')
                channels = cursor.fetchall()
                cursor.execute('SELECT @@server_uuid, @@GLOBAL.gtid_executed')
                uuid, gtid_executed = cursor.fetchone()
        except pymysql.MySQLError as error:
            raise exceptions.ServerFailedError(
                f'{self._data_dir}: the restored server has no account of ours: {error}; its log '
                f'tells which statement of {INIT_FILE} failed'
            ) from error
        if channels:
            raise exceptions.ServerFailedError(
                f'{self._data_dir}: the restored server would still replicate from elsewhere'
            )
        LOG.info('Restored server %s has executed %s', uuid, gtid_executed.replace('\n', ''))
