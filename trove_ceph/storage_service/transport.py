# SPDX-License-Identifier: Apache-2.0
"""The message bus of the storage service, which is not the one that guests can reach.

Every guest holds the credentials of Trove's bus. So service and callers have a transport of their
own, in a virtual host that these credentials do not open, and refuse to start on Trove's.
"""

import dataclasses

import oslo_messaging as messaging
from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.storage_service import message_keys

_REMEDY = (
    'give the storage service a virtual host and a user of its own, which guests do not know, or '
    'set allow_guest_transport to accept that every guest can reach it'
)


@dataclasses.dataclass(frozen=True)
class Connection:
    """What the service is reached by.

    :param skew_sec: by how much the clocks of service and callers may differ
    """

    transport: messaging.Transport
    keys: message_keys.KeyFile
    skew_sec: float


def connect(conf: cfg.ConfigOpts) -> Connection:
    """Return the connection that ``[trove_ceph_storage]`` describes; nobody is asked yet.

    :raises InvalidTransportError: the service has no transport of its own
    :raises KeyFileError: there are no keys to sign with
    """
    url = find_url(conf)
    options = conf.trove_ceph_storage
    keys = message_keys.KeyFile(options.key_file)
    keys.load()
    # Exceptions of the other side are within signed replies; no class of ours is made of others.
    transport = messaging.get_rpc_transport(conf, url=url, allowed_remote_exmods=[])
    return Connection(transport, keys, options.clock_skew_sec)


def check(conf: cfg.ConfigOpts) -> None:
    """Refuse a configuration that ``connect`` would refuse.

    :raises InvalidTransportError: the service has no transport of its own
    :raises KeyFileError: there are no keys to sign with
    """
    find_url(conf)
    message_keys.KeyFile(conf.trove_ceph_storage.key_file).load()


def find_url(conf: cfg.ConfigOpts) -> messaging.TransportURL:
    """Return the service's transport, after a comparison with ``[DEFAULT] transport_url``.

    :raises InvalidTransportError: it is not set, not a transport, or what guests can reach
    """
    options = conf.trove_ceph_storage
    # Registers [DEFAULT] transport_url, too.
    common = _parse(conf, None, '[DEFAULT] transport_url')
    if not options.transport_url:
        if options.allow_guest_transport:
            return common
        raise exceptions.InvalidTransportError(
            f'[trove_ceph_storage] transport_url: is not set; {_REMEDY}'
        )
    own = _parse(conf, options.transport_url, '[trove_ceph_storage] transport_url')
    # Without one of its own in the file, there is nothing to compare with.
    reason = find_overlap(own, common) if conf.transport_url != 'rabbit://' else None
    if reason and not options.allow_guest_transport:
        raise exceptions.InvalidTransportError(
            f'[trove_ceph_storage] transport_url: {reason} as [DEFAULT] transport_url, whose '
            f'credentials guests may hold; {_REMEDY}'
        )
    return own


def find_overlap(own: messaging.TransportURL, other: messaging.TransportURL) -> str | None:
    """Say what two transports have in common that lets users of one reach the other.

    Hosts are compared by the names in the URLs: one that has two names is not recognized.

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
        # Its message has the URL, and so the password.
        raise exceptions.InvalidTransportError(f'{name}: is no URL of a transport') from error
