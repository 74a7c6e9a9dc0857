# SPDX-License-Identifier: Apache-2.0
"""The message bus of the storage service, which guests cannot reach.

Every guest has the credentials of Trove's bus. So the service and its callers use a separate
transport, in a virtual host that these credentials do not open, and refuse to start on Trove's.
"""

import dataclasses

import oslo_messaging as messaging
from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.storage_service import message_keys

_REMEDY = (
    'configure a separate virtual host and user for the storage service, unknown to guests, or set '
    'allow_guest_transport to accept that every guest can reach it'
)


@dataclasses.dataclass(frozen=True)
class Connection:
    """The transport and the keys with which to reach the service.

    :param skew_sec: maximum difference between the clocks of service and callers
    """

    transport: messaging.Transport
    keys: message_keys.KeyFile
    skew_sec: float


def connect(conf: cfg.ConfigOpts) -> Connection:
    """Return the connection from the options of ``[trove_ceph_storage]``, without connecting.

    :raises InvalidTransportError: the service has no separate transport
    :raises KeyFileError: the key file is not usable
    """
    url = find_url(conf)
    options = conf.trove_ceph_storage
    keys = message_keys.KeyFile(options.key_file)
    keys.load()
    # Errors of the service are in signed replies; no other message may raise our exceptions.
    transport = messaging.get_rpc_transport(conf, url=url, allowed_remote_exmods=[])
    return Connection(transport, keys, options.clock_skew_sec)


def check(conf: cfg.ConfigOpts) -> None:
    """Refuse a configuration that ``connect`` would refuse.

    :raises InvalidTransportError: the service has no separate transport
    :raises KeyFileError: the key file is not usable
    """
    find_url(conf)
    message_keys.KeyFile(conf.trove_ceph_storage.key_file).load()


def find_url(conf: cfg.ConfigOpts) -> messaging.TransportURL:
    """Return the service's transport, after comparing it with ``[DEFAULT] transport_url``.

    :raises InvalidTransportError: it is not set, is invalid, or is reachable by guests
    """
    options = conf.trove_ceph_storage
    # This also registers [DEFAULT] transport_url.
    common = _parse(conf, None, '[DEFAULT] transport_url')
    if not options.transport_url:
        if options.allow_guest_transport:
            return common
        raise exceptions.InvalidTransportError(
            f'[trove_ceph_storage] transport_url: is not set; {_REMEDY}'
        )
    own = _parse(conf, options.transport_url, '[trove_ceph_storage] transport_url')
    # The default value means that the file sets none, so there is nothing to compare with.
    reason = find_overlap(own, common) if conf.transport_url != 'rabbit://' else None
    if reason and not options.allow_guest_transport:
        raise exceptions.InvalidTransportError(
            f'[trove_ceph_storage] transport_url: {reason} as [DEFAULT] transport_url, whose '
            f'credentials guests may have; {_REMEDY}'
        )
    return own


def find_overlap(own: messaging.TransportURL, other: messaging.TransportURL) -> str | None:
    """Return what two transports share that lets users of one reach the other.

    Hosts are compared by the names in the URLs: a host with two names is not recognized.

    :returns: None when they share neither a virtual host of a broker nor a user
    """
    shared = _host_names(own) & _host_names(other)
    if shared and _virtual_host(own) == _virtual_host(other):
        return f'has the same virtual host {_virtual_host(own)} on {", ".join(sorted(shared))}'
    users = {(host.username, host.password) for host in own.hosts if host.username}
    if users & {(host.username, host.password) for host in other.hosts}:
        return 'has the same user and password'
    names = {host.username for host in own.hosts if host.username}
    if shared and names & {host.username for host in other.hosts}:
        return f'has the same user on {", ".join(sorted(shared))}'
    return None


def _host_names(url: messaging.TransportURL) -> set[str]:
    return {(host.hostname or 'localhost').lower() for host in url.hosts} or {'localhost'}


def _virtual_host(url: messaging.TransportURL) -> str:
    return url.virtual_host or '/'


def _parse(conf: cfg.ConfigOpts, url: str | None, name: str) -> messaging.TransportURL:
    try:
        return messaging.TransportURL.parse(conf, url)
    except messaging.InvalidTransportURL as error:
        # The message of the error contains the URL with its password.
        raise exceptions.InvalidTransportError(f'{name}: is not a transport URL') from error
