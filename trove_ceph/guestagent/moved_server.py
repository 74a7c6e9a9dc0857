# SPDX-License-Identifier: Apache-2.0
"""The start of MySQL on a volume that another server of the same instance used before.

The other server may have been killed at any instant. Its identity stays: data, accounts, UUID,
gtid_executed, replication settings. The passwords of Trove's own accounts are in files on the
volume. If these do not work, the accounts get new ones, as after a crash right after they were
written, or a tenant's change of the accounts.
"""

import configparser
import posixpath
import threading
import typing
from collections.abc import Callable

from oslo_log import log as logging
from trove.common import exception
from trove.guestagent.common import operating_system

from trove_ceph import exceptions
from trove_ceph.guestagent import init_file, server

LOG = logging.getLogger(__name__)

STARTING = 'starting'
SERVING = 'serving'
FAILED = 'failed'

_ACCOUNTS = ('root', init_file.ADMIN)


def repair_statements(root: str, admin: str) -> list[str]:
    """Return the statements that give Trove's own accounts new passwords.

    :param root: password of ``root@localhost``; remote root accounts keep theirs
    :param admin: password of Trove's administrative account
    """
    return [
        init_file.NOT_LOGGED,
        "SET SESSION sql_mode = ''",
        *init_file.account_statements('root', root),
        *init_file.account_statements(init_file.ADMIN, admin),
    ]


class MovedServer:
    """A server that has not run on this machine yet.

    :param app: Trove's application, configured for ``data_dir``
    :param data_dir: path of the data directory, the same in the container and on the host
    """

    def __init__(self, app: server.MySqlServer, data_dir: str):
        self._app = app
        self._data_dir = data_dir

    def start(self, ds_version: str | None, command: str) -> None:
        """Start the server, which recovers the data; a repetition continues.

        :raises ServerFailedError: the volume has no database, or Trove's accounts cannot be
            repaired
        """
        self._check()
        # Of an interrupted start.
        init_file.remove(self._app)
        # Otherwise, a server that refuses Trove would be waited for until the time is over.
        with self._app.status.of_existing_database():
            if self._has_passwords():
                self._app.start_db(ds_version=ds_version, command=command)
                if self._app.accepts_password():
                    return
                self._app.stop_db()
            LOG.warning('The passwords of Trove do not work on %s: new ones', self._data_dir)
            self._start_with_new_passwords(ds_version, command)

    def _check(self) -> None:
        # Trove would initialise an empty directory, which must not pass for the moved data.
        if not operating_system.exists(posixpath.join(self._data_dir, 'mysql.ibd'), as_root=True):
            raise exceptions.ServerFailedError(
                f'{self._data_dir}: has no database of MySQL 8.0 or later'
            )

    def _has_passwords(self) -> bool:
        try:
            return all(self._app.get_auth_password(file=f'{user}.cnf') for user in _ACCOUNTS)
        except (exception.UnprocessableEntity, KeyError, configparser.Error):
            # A crash may leave a file out, empty or full of zeros.
            return False

    def _start_with_new_passwords(self, ds_version: str | None, command: str) -> None:
        passwords = {user: init_file.new_password() for user in _ACCOUNTS}
        for user, password in passwords.items():
            self._app.save_password(user, password)
        statements = repair_statements(*passwords.values())
        with init_file.configured(self._app, statements, {}):
            self._app.start_db(ds_version=ds_version, command=command)
            if not self._app.accepts_password():
                raise exceptions.ServerFailedError(
                    f'{self._data_dir}: the moved server lacks the account of Trove; see its log '
                    f'for the failed statement of {init_file.PATH}'
                )


class BackgroundStart:
    """The start of the moved server in a thread, requested repeatedly by the taskmanager.

    A start that failed is reported once. The next request starts the server again.

    :param is_serving: returns whether the server is installed here and accepts clients
    :param run: runs a function in the background
    """

    def __init__(
        self,
        is_serving: Callable[[], bool],
        run: Callable[[Callable[[], None]], None] | None = None,
    ):
        self._is_serving = is_serving
        self._run_in_background = run or _start_thread
        self._mutex = threading.Lock()
        self._replacement_id: str | None = None
        self._state: str | None = None
        self._error = ''

    def request(
        self,
        replacement_id: str,
        start: Callable[[], None],
        is_done: Callable[[], bool] | None = None,
    ) -> dict[str, str]:
        """Start the server for a replacement unless that was done; do not wait for it.

        :param start: starts the server; the text of any exception becomes the error
        :param is_done: returns whether an agent that was restarted since has started the server for
            this replacement; by default, a server that serves was started for it
        :returns: ``state``, one of STARTING, SERVING and FAILED; ``error``: why it does not start
        """
        with self._mutex:
            if self._state == STARTING:
                return _answer(STARTING)
            if self._replacement_id == replacement_id and self._state is not None:
                answer = _answer(self._state, self._error)
                if self._state == FAILED:
                    self._state = None
                return answer
            # An agent that was restarted has forgotten that it started the server.
            if self._replacement_id is None and (is_done or self._is_serving)():
                self._replacement_id, self._state = replacement_id, SERVING
                return _answer(SERVING)
            self._replacement_id, self._state, self._error = replacement_id, STARTING, ''
            self._run_in_background(lambda: self._run(replacement_id, start))
            return _answer(STARTING)

    def forget(self) -> None:
        """Forget what was started; the server is stopped, so that the next request starts it.

        Do nothing while it is being started.
        """
        with self._mutex:
            if self._state != STARTING:
                self._replacement_id = self._state = None

    def _run(self, replacement_id: str, start: Callable[[], None]) -> None:
        state, error = FAILED, ''
        LOG.info('Starting the server for replacement %s', replacement_id)
        try:
            start()
            state = SERVING
            LOG.info('The server serves after replacement %s', replacement_id)
        except Exception as failure:
            error = ' '.join(str(failure).split()) or type(failure).__name__
            LOG.exception('The server does not start for replacement %s', replacement_id)
        finally:
            with self._mutex:
                self._state, self._error = state, error


def _answer(state: str, error: str = '') -> dict[str, str]:
    return {'state': state, 'error': error}


def _start_thread(function: typing.Callable[[], None]) -> None:
    threading.Thread(target=function, name='moved-server', daemon=True).start()
