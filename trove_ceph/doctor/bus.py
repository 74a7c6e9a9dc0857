# SPDX-License-Identifier: Apache-2.0
"""How far guests are from the message bus of the storage service.

The configuration tells what is meant to be; whether the broker lets the guests' user in, only the
broker tells. So the user's credentials, which stand in the file that Trove copies into each guest,
are tried on the virtual host of the storage service.
"""

import dataclasses
import ssl
from collections.abc import Sequence

import kombu
import oslo_messaging as messaging
from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.conf import storage as storage_conf
from trove_ceph.storage_service import message_keys, transport

_TIMEOUT_SEC = 10
_PORT = 5672
#: ACCESS_REFUSED and NOT_ALLOWED of AMQP 0-9-1: a wrong password, and a closed virtual host.
_REFUSALS = (403, 530)


@dataclasses.dataclass(frozen=True)
class BusFacts:
    """What the configuration says, and what the broker does.

    :param problem: why the taskmanager would refuse its configuration; None: it does not
    :param guest_file: the file with the guests' credentials
    :param is_separate: whether guests have another user than Trove's services
    :param enters: whether the broker lets the guests' user into the storage service's virtual host;
        None: it could not be found out
    :param unknown_because: why not
    """

    problem: str | None
    guest_file: str
    is_separate: bool
    enters: bool | None
    unknown_because: str = ''


def read(config_files: Sequence[str]) -> BusFacts:
    """Return the facts, from the configuration of trove-taskmanager.

    :raises InvalidConfigurationError: a file cannot be used
    """
    conf = _load(config_files)
    own, problem = None, None
    try:
        own = transport.find_url(conf)
        message_keys.KeyFile(conf.trove_ceph_storage.key_file).load()
    except (exceptions.InvalidTransportError, exceptions.KeyFileError) as error:
        problem = str(error)
    guest_conf = _load([conf.guest_config])
    guest = messaging.TransportURL.parse(guest_conf)
    common = messaging.TransportURL.parse(conf)
    facts = BusFacts(problem, conf.guest_config, _users(guest) != _users(common), None)
    if own is None:
        return dataclasses.replace(facts, unknown_because='there is no transport to try')
    try:
        enters = any(
            _enters(host, guest, own.virtual_host or '/', guest_conf.oslo_messaging_rabbit.ssl)
            for host in own.hosts
        )
    except OSError as error:
        return dataclasses.replace(facts, unknown_because=f'the broker does not answer: {error}')
    return dataclasses.replace(facts, enters=enters)


def _load(config_files: Sequence[str]) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    storage_conf.register_transport(conf)
    conf.register_opt(cfg.StrOpt('guest_config', default='/etc/trove/trove-guestagent.conf'))
    conf.register_opt(cfg.BoolOpt('ssl', default=False), group='oslo_messaging_rabbit')
    try:
        conf(args=[], default_config_files=list(config_files), default_config_dirs=[])
    except cfg.Error as error:
        raise exceptions.InvalidConfigurationError(f'{", ".join(config_files)}: {error}') from error
    return conf


def _users(url: messaging.TransportURL) -> set[str | None]:
    return {host.username for host in url.hosts}


def _enters(
    host: messaging.TransportHost, guest: messaging.TransportURL, virtual_host: str, with_tls: bool
) -> bool:
    """Return whether the broker lets one of the guests' users into a virtual host.

    :raises OSError: the broker does not answer
    """
    return any(
        _logs_in(host.hostname, host.port or _PORT, user, virtual_host, with_tls)
        for user in guest.hosts
    )


def _logs_in(
    host: str, port: int, user: messaging.TransportHost, virtual_host: str, tls: bool
) -> bool:
    connection = kombu.Connection(
        hostname=host,
        port=port,
        userid=user.username or 'guest',
        password=user.password or 'guest',
        virtual_host=virtual_host,
        connect_timeout=_TIMEOUT_SEC,
        # Whether the broker has the right certificate is not the question.
        ssl={'cert_reqs': ssl.CERT_NONE} if tls else False,
    )
    try:
        connection.connect()
    except connection.connection_errors + connection.channel_errors as error:
        if getattr(error, 'code', None) in _REFUSALS:
            return False
        raise OSError(f'{host}:{port}: {error}') from error
    finally:
        connection.release()
    return True
