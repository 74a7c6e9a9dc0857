# SPDX-License-Identifier: Apache-2.0
"""MySQL on a guest that waits, started before the guest has an instance.

It runs on a clone of a golden volume, with nothing of a tenant: Trove's accounts have random
passwords that only this guest knows. The instance that gets the guest replaces them, and the
``server_id``, while the server runs; see :func:`adopt`. Nothing of this is written to the binary
log, so the instance begins without transactions.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.guestagent import init_file, restored_server, server, server_config
from trove_ceph.guestagent.waiting_messages import Load, LoadState
from trove_ceph.mysql import tuning

LOG = logging.getLogger(__name__)

_TIMEOUT_SEC = 60
#: Options of the running server that an adoption sets, and a fact about them.
_SET = frozenset({'server_id', server_config.TUNED_VOLUME, *tuning.VOLUME_OPTIONS})


class Manager(Protocol):
    """The guest manager, before the guest has an instance."""

    def start_without_instance(self, load: Load) -> None:
        """Mount the volume and start the server on it; raises anything."""

    def is_serving_without_instance(self) -> bool:
        """Return whether the server accepts clients."""


class HotServer:
    """The server of a waiting guest; it is started once.

    :param make_manager: returns the guest manager; called at the first request, since its
        configuration is that of the guest
    :param run: runs a function in the background
    """

    def __init__(
        self,
        make_manager: Callable[[], Manager],
        run: Callable[[Callable[[], None]], None] | None = None,
    ):
        self._make_manager = make_manager
        self._run_in_background = run or _start_thread
        self._mutex = threading.Lock()
        self._manager: Manager | None = None
        self._volume_id: str | None = None
        self._state = LoadState.NONE
        self._error = ''

    @property
    def state(self) -> LoadState:
        """Whether the server was started."""
        return self._state

    def request(self, load: Load) -> None:
        """Start the server in the background, unless that was done.

        :raises GuestNotBoundError: it was started on another volume
        """
        with self._mutex:
            if self._volume_id not in (None, load.volume_id):
                raise exceptions.GuestNotBoundError(
                    f'This guest has volume {self._volume_id}, not volume {load.volume_id}'
                )
            if self._state is not LoadState.NONE:
                return
            self._volume_id, self._state = load.volume_id, LoadState.STARTING
        self._run_in_background(lambda: self._start(load))

    def find_obstacle(self) -> str | None:
        """Return why the guest cannot be bound because of the server; None: it can."""
        if self._state is LoadState.NONE:
            return None
        if self._state is not LoadState.SERVING:
            return f'its MySQL is {self._state}{": " if self._error else ""}{self._error}'
        assert self._manager is not None
        return None if self._manager.is_serving_without_instance() else 'its MySQL does not serve'

    def check(self, volume_id: str) -> None:
        """Check that an instance with a volume can be bound.

        :raises GuestNotBoundError: the guest has another volume, or its server is not ready
        """
        if self._volume_id is None:
            return
        if self._volume_id != volume_id or self._state is not LoadState.SERVING:
            raise exceptions.GuestNotBoundError(
                f'This guest has volume {self._volume_id}, on which MySQL is {self._state}; it '
                f'cannot be bound to an instance with volume {volume_id}'
            )

    def _start(self, load: Load) -> None:
        LOG.info('Starting MySQL %s on volume %s', load.version, load.volume_id)
        state, error = LoadState.FAILED, ''
        try:
            self._manager = self._make_manager()
            self._manager.start_without_instance(load)
            state = LoadState.SERVING
            LOG.info('MySQL serves on volume %s', load.volume_id)
        except Exception as failure:
            error = ' '.join(str(failure).split()) or type(failure).__name__
            LOG.exception('MySQL does not start on volume %s', load.volume_id)
        finally:
            with self._mutex:
                self._state, self._error = state, error


def adopt(app: server.MySqlServer, server_id: int, configure: Callable[[], None]) -> bool:
    """Make a running server that of this instance without a restart; return whether it is now.

    If not, such as after a reboot or with other settings, it is to be stopped and started as the
    server of any clone.

    :param server_id: of the instance
    :param configure: writes the configuration of the instance
    """
    try:
        if not app.accepts_password():
            return False
        before = _settings(app)
        configure()
        after = _settings(app)
        if differing := _differing(before, after):
            LOG.warning(
                'The server is started again, since it runs with other values of %s',
                ', '.join(differing),
            )
            return False
        _replace_identity(app, server_id, _volume_statements(before, after))
        return app.accepts_password()
    except Exception as error:
        # Whatever it is, the server can be started again with a new identity.
        LOG.warning('The server is started again, since it cannot be adopted: %s', error)
        return False


def _settings(app: server.MySqlServer) -> Mapping[str, Mapping[str, Any]]:
    """Return the options in the configuration files, by their sections."""
    found: Mapping[str, Mapping[str, Any]] = app.configuration_manager.parse_configuration()
    return found


def _differing(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the names of options that differ, except for those that :func:`adopt` sets."""
    names = set()
    for section in {*before, *after}:
        old, new = before.get(section, {}), after.get(section, {})
        names |= {name for name in {*old, *new} if old.get(name) != new.get(name)}
    return sorted(name for name in names if name.replace('-', '_') not in _SET)


def _volume_statements(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the statements for options that differ because the volume was extended."""
    section = server_config.SERVER_SECTION
    old, new = before.get(section, {}), after.get(section, {})
    changed = (one for one in tuning.VOLUME_OPTIONS if old.get(one) != new.get(one))
    return [f'SET GLOBAL {name} = {new[name]}' for name in changed]


def _replace_identity(
    app: server.MySqlServer, server_id: int, more_statements: Sequence[str]
) -> None:
    passwords = restored_server.new_passwords()
    with (
        contextlib.closing(app.open_connection(_TIMEOUT_SEC)) as connection,
        connection.cursor() as cursor,
    ):
        for statement in (*identity_statements(passwords, server_id), *more_statements):
            cursor.execute(statement)
        cursor.execute('SELECT @@server_uuid, @@GLOBAL.gtid_executed')
        uuid, gtid_executed = cursor.fetchone()
    app.save_password('root', passwords.root)
    app.save_password(init_file.ADMIN, passwords.admin)
    LOG.info('Adopted server %s has executed %s', uuid, gtid_executed.replace('\n', ''))


def identity_statements(passwords: restored_server.Passwords, server_id: int) -> list[str]:
    """Return the statements that make a running server that of an instance."""
    return [
        init_file.NOT_LOGGED,
        "SET SESSION sql_mode = ''",
        f'SET GLOBAL server_id = {server_id}',
        *init_file.account_statements('root', passwords.root),
        *init_file.account_statements(init_file.ADMIN, passwords.admin),
    ]


def _start_thread(function: Callable[[], None]) -> None:
    threading.Thread(target=function, name='hot-server', daemon=True).start()
