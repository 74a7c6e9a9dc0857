# SPDX-License-Identifier: Apache-2.0
"""The MySQL server of the instance: Trove's application object with our configuration."""

import configparser
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import docker
import pymysql
from oslo_log import log as logging
from pymysql.constants import ER
from sqlalchemy import event, exc
from sqlalchemy.sql.expression import text
from trove.common import cfg, constants, exception, utils
from trove.guestagent.common import guestagent_utils, operating_system
from trove.guestagent.datastore import service as base_service
from trove.guestagent.datastore.mysql import service
from trove.guestagent.datastore.mysql_common import service as common_service
from trove.guestagent.utils import docker as docker_util
from trove.guestagent.utils import mysql as mysql_util

from trove_ceph import exceptions
from trove_ceph.guestagent import flushed_files, option_files, server_config
from trove_ceph.mysql import tuning
from trove_ceph.trove_compat import backup_image

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

#: The same path in the container.
ROOT_PASSWORD_PATH = '/etc/mysql/root-password'
_PURGE_TIMEOUT_SEC = 60
_PROBE_TIMEOUT_SEC = 10
_ER_ACCOUNT_HAS_BEEN_LOCKED = 3118
_REFUSED = (ER.ACCESS_DENIED_ERROR, _ER_ACCOUNT_HAS_BEEN_LOCKED)
_SERVES_OTHERS = (*_REFUSED, ER.CON_COUNT_ERROR)
# By default PyMySQL encrypts a connection to a socket of the same machine, too, and reads all
# certificates of the system for it. That was a third of the work of an idle agent.
_UNENCRYPTED = {'ssl_disabled': True}

# Trove sends it even where it only lists users. Without LOCAL it is a transaction in the binary
# log, in spite of super_read_only, which a replica must not have. Replicas need none from their
# source: the statements about accounts that Trove sends while a server has replicas take effect
# without it.
mysql_util.FLUSH = text('FLUSH LOCAL PRIVILEGES')


class MySqlServer(service.MySqlApp):
    """Trove's MySQL application; :mod:`tuning` computes all sizes."""

    #: Docker starts no program in the container to find its health (:mod:`server_status`).
    HEALTHCHECK = {'test': ['NONE']}
    #: Docker shows the environment of a container, and Trove logs it, so it has no password. The
    #: entrypoint takes an empty one as none.
    _extra_envs = {
        'MYSQL_ROOT_PASSWORD': '',
        'MYSQL_ROOT_PASSWORD_FILE': ROOT_PASSWORD_PATH,
    }
    _configuration_manager: server_config.TunedConfigurationManager | None = None

    def __init__(
        self,
        status: base_service.BaseDbStatus,
        docker_client: docker.DockerClient,
        measure: server_config.Measure,
        server_id: int,
    ):
        super().__init__(status, docker_client)
        self._measure = measure
        self._server_id = server_id

    @property
    def configuration_manager(self):
        """Trove's configuration manager for my.cnf, extended by the computed settings."""
        if self._configuration_manager is None:
            self._configuration_manager = server_config.TunedConfigurationManager(
                common_service.MYSQL_CONFIG,
                self.database_service_uid,
                self.database_service_gid,
                base_service.BaseDbApp.CFG_CODEC,
                requires_root=_needs_root_helper(),
                override_strategy=option_files.OptionFiles(
                    common_service.CNF_INCLUDE_DIR, common_service.CNF_EXT
                ),
                measure=self._measure,
                server_id=self._server_id,
            )
        return self._configuration_manager

    @classmethod
    def get_auth_password(cls, file='os_admin.cnf'):
        """Return the password of Trove's account whose file on the data volume is named.

        Trove copies the file to a temporary one first, by two commands; root need not.

        :raises UnprocessableEntity: there is no such file, or it has no password
        """
        path = cls.get_client_auth_file(file)
        try:
            content = operating_system.read_file(
                path, codec=cls.CFG_CODEC, as_root=_needs_root_helper()
            )
            return content['client']['password']
        except (KeyError, TypeError, configparser.Error) as error:
            raise exception.UnprocessableEntity(f'{path}: has no password: {error}') from error

    @classmethod
    def save_password(cls, user, password):
        """Write a password to its file, and have Trove connect with it from now on.

        Trove keeps a pool of connections with the password that it has read first.
        """
        content = {'client': {'user': user, 'password': password, 'host': 'localhost'}}
        path = cls.get_client_auth_file(f'{user}.cnf')
        flushed_files.replace(path, cls.CFG_CODEC.serialize(content))
        engine, common_service.ENGINE = common_service.ENGINE, None
        if engine is not None:
            engine.dispose()

    def get_backup_image(self, ds_version=None):
        """Return the image for stock backups of this instance's present version.

        Trove reads the version when its module is loaded, which here happens before the
        configuration is read. Its search for an image of a shorter version also passes an argument
        that its MySQL class does not accept.
        """
        if self._image_has_tag(cfg.get_configuration_property('backup_docker_image') or ''):
            return super().get_backup_image()
        return backup_image.of_version(self, ds_version or CONF.datastore_version)

    def start_db(self, *args, **kwargs):
        """Create what the container needs on the volume and the root disk, and start the server."""
        self._write_root_password()
        mount_point = CONF.get(CONF.datastore_manager).mount_point
        operating_system.ensure_directory(
            os.path.join(mount_point, 'tmp'),
            user=self.database_service_uid,
            group=self.database_service_gid,
            force=True,
            as_root=True,
        )
        super().start_db(*args, **kwargs)

    def _write_root_password(self) -> None:
        """Write the password that root of a new database gets, as it is in Trove's file."""
        try:
            password = self.get_auth_password(file='root.cnf').strip()
        except exception.UnprocessableEntity:
            # Before the container has it: an agent that was killed must find it.
            password = utils.generate_random_password()
            self.save_password('root', password)
        owner = (int(self.database_service_uid), int(self.database_service_gid))
        flushed_files.replace(ROOT_PASSWORD_PATH, password, owner)

    def upgrade(self, upgrade_info):
        """Start another version of MySQL in place of the running one.

        Unlike Trove's method, it has the image before it stops MySQL, and removes none.

        :raises ServerFailedError: there is no such image; MySQL goes on
        """
        version = upgrade_info['datastore_version']
        guestagent_utils.prevent_major_version_upgrade(CONF.datastore_version, version)
        self._ensure_image(version)
        self.stop_db()
        docker_util.remove_container(self.docker_client)
        self.start_db(update_db=True, ds_version=version)

    def _ensure_image(self, version: str) -> None:
        repository = CONF.get(CONF.datastore_manager).docker_image
        try:
            self.docker_client.images.get(f'{repository}:{version}')
            return
        except docker.errors.ImageNotFound:
            LOG.info('Pulling %s:%s', repository, version)
        try:
            self.docker_client.images.pull(repository, tag=version)
        except docker.errors.DockerException as error:
            raise exceptions.ServerFailedError(
                f'MySQL is not upgraded, and goes on: {repository}:{version} cannot be pulled: '
                f'{error}'
            ) from error

    def get_engine(self):
        """Return Trove's pool of connections, none of which leaves the guest or is encrypted."""
        engine = super().get_engine()
        if not event.contains(engine, 'do_connect', _do_not_encrypt):
            event.listen(engine, 'do_connect', _do_not_encrypt)
        return engine

    def exists_replication_source_overrides(self) -> bool:
        """Return whether the server can be a source without a restart by Trove.

        Trove looks for its own replication file only. A server that always runs with binary log and
        GTIDs does not need one.
        """
        return super().exists_replication_source_overrides() or self._logs_with_gtids()

    def apply_volume_settings(self, computed: tuning.Tuning) -> None:
        """Apply settings that depend on the volume to the running server, without a restart.

        Values of the user's configuration group are not changed. Failures are logged only, because
        the settings are in the configuration file and take effect at the next start.
        """
        options = computed.mysqld_options()
        effective = self.configuration_manager.effective
        try:
            with mysql_util.SqlClient(self.get_engine()) as client:
                for name in tuning.VOLUME_OPTIONS:
                    if str(effective(name)) != str(options[name]):
                        LOG.info('The configuration group sets %s; it is not changed', name)
                        continue
                    client.execute(f'SET GLOBAL {name} = {options[name]}')
        except exc.SQLAlchemyError as error:
            LOG.warning(
                'Applying settings for the volume failed; they take effect at the next start: %s',
                error,
            )

    def open_connection(self, timeout_sec: int) -> pymysql.connections.Connection:
        """Open a connection outside of the pool, in autocommit mode.

        A pool would share the connection and close it when it is old, which releases its locks.

        :param timeout_sec: time limit of connecting and of each statement
        :raises pymysql.MySQLError: the server does not answer
        """
        url = self.get_engine().url
        return pymysql.connect(
            unix_socket=url.query['unix_socket'],
            user=url.username,
            password=url.password or '',
            autocommit=True,
            connect_timeout=timeout_sec,
            read_timeout=timeout_sec,
            write_timeout=timeout_sec,
            **_UNENCRYPTED,
        )

    def accepts_clients(self, if_refused: bool = False) -> bool:
        """Return whether the server accepts clients from the network; it is asked by its socket.

        The entrypoint of MySQL's image prepares a new database by a server without a network, on
        the same socket.

        :param if_refused: what to return if the server refuses Trove's account, or has no
            connection left: either server may do so
        """
        # Before the server is ready there is none, and the password need not be read.
        if not os.path.exists(_socket()):
            return False
        try:
            with (
                contextlib.closing(self._connect_by_first_account()) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute('SELECT @@GLOBAL.skip_networking')
                return not cursor.fetchone()[0]
        except pymysql.MySQLError as error:
            LOG.debug('The server does not accept the client: %s', error)
            return if_refused and bool(error.args) and error.args[0] in _SERVES_OTHERS
        except (exception.TroveError, exception.ProcessExecutionError) as error:
            LOG.debug('The password of the account of Trove cannot be read: %s', error)
            return False

    def accepts_password(self) -> bool:
        """Return whether the running server accepts the password of Trove's account.

        :raises ServerFailedError: it does not answer
        """
        try:
            self._connect_by_first_account().close()
        except pymysql.MySQLError as error:
            if error.args[0] in _REFUSED:
                LOG.warning('The server refuses the account of Trove: %s', error)
                return False
            raise exceptions.ServerFailedError(f'{_socket()}: {error}') from error
        return True

    def find_error(self) -> str | None:
        """Return the last error in the log of the server, one line; None: there is none."""
        try:
            lines = docker_util.get_container_logs(self.docker_client)
        except docker.errors.DockerException as error:
            LOG.warning('The log of the server cannot be read: %s', error)
            return None
        errors = [line.strip() for line in lines if '[ERROR]' in line]
        # The last line of a server that gives up does not say why.
        reasons = [line for line in errors if not line.endswith(' Aborting')]
        return (reasons or errors or [None])[-1]

    def _connect_by_first_account(self) -> pymysql.connections.Connection:
        # Not through Trove's pool: Trove would keep it for the account that exists so early.
        user, password = self._first_account()
        return pymysql.connect(
            unix_socket=_socket(),
            user=user,
            password=password,
            connect_timeout=_PROBE_TIMEOUT_SEC,
            read_timeout=_PROBE_TIMEOUT_SEC,
            **_UNENCRYPTED,
        )

    def _first_account(self) -> tuple[str, str]:
        """Return name and password of Trove's account; of root if it is not created yet."""
        try:
            return common_service.ADMIN_USER_NAME, self.get_auth_password().strip()
        except exception.UnprocessableEntity:
            return 'root', self.get_auth_password(file='root.cnf').strip()

    def purge_binary_logs(self, budget_bytes: int) -> int:
        """Purge the oldest binary logs beyond ``budget_bytes``; return the number of purged logs.

        Expiry by time does not prevent a busy server from filling its volume. The server keeps logs
        that a connected replica still reads; the active log always stays. The server refuses the
        purge while a session holds LOCK INSTANCE FOR BACKUP; the next call tries again.
        """
        # Do not use Trove's pool: each parallel use adds a connection to it, and with several
        # connections Trove's own backups leave the server locked.
        with (
            contextlib.closing(self.open_connection(_PURGE_TIMEOUT_SEC)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute('SHOW BINARY LOGS')
            logs = [(row[0], int(row[1])) for row in cursor.fetchall()]
            keep = _first_to_keep([size for _, size in logs], budget_bytes)
            if keep == 0:
                return 0
            try:
                cursor.execute('PURGE BINARY LOGS TO %s', (logs[keep][0],))
            except pymysql.OperationalError as error:
                LOG.warning(
                    'Binary logs exceed %s bytes, and purging them failed: %s', budget_bytes, error
                )
                return 0
        LOG.warning(
            'Purged %s binary logs before %s, because all logs exceeded %s bytes',
            keep,
            logs[keep][0],
            budget_bytes,
        )
        return keep

    def _logs_with_gtids(self) -> bool:
        with mysql_util.SqlClient(self.get_engine()) as client:
            row = client.execute(
                'SELECT @@GLOBAL.log_bin, @@GLOBAL.gtid_mode, @@GLOBAL.log_replica_updates'
            ).first()
        log_bin, gtid_mode, log_replica_updates = row
        return bool(log_bin) and gtid_mode == 'ON' and bool(log_replica_updates)


@contextlib.contextmanager
def lock_wait(cursor: pymysql.cursors.Cursor, wait_sec: int, locked: str) -> Iterator[None]:
    """Bound the time that the statements of a session wait for locks.

    A statement whose client gives up first is executed nevertheless, once it gets its lock.

    :param wait_sec: less than the time limit of the connection
    :param locked: what did not end, for the message
    :raises NotQuiescedError: a statement waited longer, and was not executed
    """
    cursor.execute(f'SET SESSION lock_wait_timeout = {int(wait_sec)}')
    try:
        yield
    except pymysql.MySQLError as error:
        if error.args[:1] == (ER.LOCK_WAIT_TIMEOUT,):
            raise exceptions.NotQuiescedError(
                f'{locked} did not end within {wait_sec} s; repeat the request'
            ) from error
        raise


def _do_not_encrypt(_dialect: Any, _record: Any, _arguments: Any, options: dict[str, Any]) -> None:
    options.update(_UNENCRYPTED)


def _needs_root_helper() -> bool:
    """Return whether files of root are read and written by commands under ``sudo``.

    An agent that is root reads and writes them itself, which saves some forty commands while an
    instance is created.
    """
    return os.geteuid() != 0


def _socket() -> str:
    return os.path.join(constants.MYSQL_HOST_SOCKET_PATH, 'mysqld.sock')


def _first_to_keep(sizes: list[int], budget: int) -> int:
    """Return the index of the oldest log that fits into the budget together with all newer ones."""
    total = 0
    for index in range(len(sizes) - 1, -1, -1):
        total += sizes[index]
        if total > budget:
            return min(index + 1, len(sizes) - 1)
    return 0
