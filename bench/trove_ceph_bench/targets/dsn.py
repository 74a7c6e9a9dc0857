# SPDX-License-Identifier: Apache-2.0
"""Target: any reachable MySQL server, named by a DSN."""

import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pymysql
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph_bench import model
from trove_ceph_bench.targets import database, rbd_image, specification

LOG = logging.getLogger(__name__)

DEFAULT_PORT = 3306


def from_spec(name: str, spec: Mapping[str, Any], settings: specification.Settings) -> 'DsnTarget':
    """Return the target of a valid specification.

    :raises InvalidPlanError: the DSN is invalid, or the password is missing
    """
    try:
        address = _address(spec['dsn'], _password(spec, settings.environment))
    except ValueError as error:
        raise exceptions.InvalidPlanError(f'target {name}: {error}') from error
    return DsnTarget(name, address, rbd_image.image(spec))


class DsnTarget:
    """A server that the benchmark does not manage; it only creates its own schema in it.

    :param address: address with the name of the schema to create
    """

    def __init__(
        self,
        name: str,
        address: model.Address,
        image: model.Image | None = None,
        connect: Callable[..., pymysql.connections.Connection] = pymysql.connect,
    ):
        self.name = name
        self.address = address
        self.image = image
        self._server = database.Server(address, connect)

    def __enter__(self) -> 'DsnTarget':
        try:
            for stale in self._server.list_leftovers():
                LOG.warning('Removing schema %s, left by an earlier run', stale)
                self._server.ensure_no_schema(stale)
            self._server.create_schema(self.address.database)
        except exceptions.TargetUnavailableError as error:
            raise exceptions.TargetUnavailableError(f'target {self.name}: {error}') from error
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._server.ensure_no_schema(self.address.database)
        except exceptions.TargetUnavailableError as error:
            message = (
                f'target {self.name}: cannot remove schema {self.address.database}; '
                f'the next run removes it: {error}'
            )
            if not exception or exception[0] is None:
                raise exceptions.TargetUnavailableError(message) from error
            LOG.error('%s', message)

    def disclose(self) -> dict[str, Any]:
        return {
            'kind': 'dsn',
            'server': str(self._server),
            'mysql': database.disclose(self._server),
            'ceph': rbd_image.disclose(self.image),
        }

    def cpu_sec(self) -> float | None:
        return None

    def restart(self) -> bool:
        return False


def _address(dsn: str, password: str) -> model.Address:
    parts = urllib.parse.urlsplit(dsn)
    if parts.password is not None:
        raise ValueError(
            'the DSN must not hold a password; name it with password_env or password_file'
        )
    if parts.path not in ('', '/'):
        raise ValueError(
            f'the DSN names database {parts.path[1:]}, but the benchmark creates its own; remove it'
        )
    query = urllib.parse.parse_qs(parts.query)
    socket = query.pop('unix_socket', [None])[0]
    if query:
        raise ValueError(f'the DSN has unknown parameters: {", ".join(sorted(query))}')
    if not parts.username or not (parts.hostname or socket):
        raise ValueError('the DSN must have the form mysql://user@host:port')
    return model.Address(
        user=urllib.parse.unquote(parts.username),
        password=password,
        database=database.new_name(),
        host=parts.hostname or '127.0.0.1',
        port=parts.port or DEFAULT_PORT,
        unix_socket=socket,
    )


def _password(spec: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    if 'password_env' in spec and 'password_file' in spec:
        raise ValueError('password_env and password_file are mutually exclusive')
    if 'password_env' in spec:
        name = spec['password_env']
        if name not in environment:
            raise ValueError(f'the environment variable {name} is not set; it holds the password')
        return environment[name]
    if 'password_file' in spec:
        path = Path(spec['password_file'])
        try:
            return path.read_text().rstrip('\n')
        except OSError as error:
            raise ValueError(f'cannot read the password: {error}') from error
    return ''
