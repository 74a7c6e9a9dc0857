# SPDX-License-Identifier: Apache-2.0
"""Statements that a server executes at one start, before it accepts connections.

They are in an init file, which needs no password. A failed statement ends the file but not the
server, so what is checked afterwards comes last. Nothing of it may be written to the binary log,
because an errant transaction would prevent this server from becoming a replica of another one.
"""

import contextlib
import typing
from collections.abc import Iterator, Sequence

from trove.common import utils
from trove.guestagent.common import operating_system
from trove.guestagent.datastore.mysql_common import service as common_service

from trove_ceph.guestagent import flushed_files, server, server_config

#: The same path in the container; not on the volume, which becomes part of backups.
PATH = '/etc/mysql/init-file.sql'
CHANGE_ID = 'init-file'
ADMIN = common_service.ADMIN_USER_NAME
#: First of all statements.
NOT_LOGGED = 'SET SESSION sql_log_bin = 0'
# A tenant's password policy may require each kind of character.
_EACH_KIND = '-Aa1'


def new_password() -> str:
    """Return a new random password, which needs no quoting."""
    return f'{utils.generate_random_password()}{_EACH_KIND}'


def account_statements(user: str, password: str) -> list[str]:
    """Return the statements that give an account of Trove a password; each is idempotent."""
    account = f"'{user}'@'localhost'"
    return [
        f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{password}'",
        f'GRANT ALL ON *.* TO {account} WITH GRANT OPTION',
        # Last, so that a successful login proves the other statements.
        f"ALTER USER {account} IDENTIFIED BY '{password}' ACCOUNT UNLOCK",
    ]


@contextlib.contextmanager
def configured(
    app: server.MySqlServer, statements: Sequence[str], options: typing.Mapping[str, str]
) -> Iterator[None]:
    """Configure the statements for the start of the server within the context.

    If that fails, the server is stopped: it may still recover its data. Without the statements it
    would serve with the accounts that they were to replace, and without the options follow the
    source of the server that was cloned.

    :param options: of mysqld, for this start only
    """
    text = ''.join(f'{statement};\n' for statement in statements)
    owner = (int(app.database_service_uid), int(app.database_service_gid))
    flushed_files.replace(PATH, text, owner)
    own = {'init_file': PATH, **options}
    app.configuration_manager.apply_system_override({server_config.SERVER_SECTION: own}, CHANGE_ID)
    try:
        yield
    except Exception:
        app.stop_db()
        remove(app)
        raise
    # The server does not read the file again before its next start.
    remove(app)


def remove(app: server.MySqlServer) -> None:
    """Remove the statements, such as those of a start that was interrupted; idempotent."""
    app.configuration_manager.remove_system_override(CHANGE_ID)
    operating_system.remove(PATH, force=True, recursive=False, as_root=True)
