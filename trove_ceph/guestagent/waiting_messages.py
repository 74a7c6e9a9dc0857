# SPDX-License-Identifier: Apache-2.0
"""The messages between the taskmanager and a guest that waits for an instance.

The guest answers on its own topic of Trove's bus. Trove's serializer, with the guest's RPC key,
keeps the messages secret; :mod:`trove_ceph.message_auth`, with its signing key, authenticates them.

``ping``
    ``{"address": {"server": ..., "run_id": ...}, "can_bind": bool, "reason": str, "version": str,
    "load": str}``; ``load`` is a :class:`LoadState`.
``load``
    The arguments are those of :class:`Load`. The request must name the address of a ping. The
    answer is ``{"loading": true}``, or ``{"error": str}``; the guest attaches nothing itself, waits
    for the volume, and starts MySQL on it in the background. A repeated request for the same volume
    changes nothing.
``bind``
    The arguments are those of :class:`Binding`. The request must name the address of a ping, and
    is accepted once. The answer is ``{"bound": true}`` when the files of the instance are on disk,
    or ``{"error": str}``; the guest then binds no more.

A request that is refused because of its signature, times or address is answered, without a
signature, by ``{"refused": reason}``.
"""

import dataclasses
import enum
import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Any

from trove_ceph import exceptions, message_auth

#: Of the RPC interface. The minor version changes when waiting guests learn a verb, or the agents
#: of instances what a replacement of a server needs, so that no guest with an earlier agent is
#: bound.
VERSION = '1.4'

_MAC = re.compile(r'[0-9a-f]{2}(:[0-9a-f]{2}){5}')
_HOSTNAME = re.compile(r'[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?')
_UUID = re.compile(r'[0-9a-f-]{36}')
# A tag of an image.
_VERSION = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}')


class Verb(enum.StrEnum):
    """What a waiting guest does on request."""

    PING = 'ping'
    LOAD = 'load'
    BIND = 'bind'


class LoadState(enum.StrEnum):
    """Whether MySQL runs on a waiting guest."""

    #: It was not requested from this run of the agent.
    NONE = 'none'
    STARTING = 'starting'
    SERVING = 'serving'
    FAILED = 'failed'


def topic(guest_id: str) -> str:
    """Return the topic of a guest on Trove's bus."""
    return f'guestagent.{guest_id}'


def signing_keys(guest_id: str, secret: str) -> message_auth.Keys:
    """Return the keys with which the messages of one guest are signed.

    :param secret: hexadecimal, at least 32 bytes
    :raises KeyFileError: the secret is malformed
    """
    try:
        key = message_auth.Key(guest_id, bytes.fromhex(secret))
    except ValueError:
        # The message of the parser might quote the secret.
        key = message_auth.Key(guest_id, b'')
    if len(key.secret) < message_auth.KEY_BYTES:
        raise exceptions.KeyFileError(
            f'waiting_guest_key of guest {guest_id}: must be {message_auth.KEY_BYTES} bytes or '
            'more, in hexadecimal'
        )
    return message_auth.Keys(key)


@dataclasses.dataclass(frozen=True)
class Route:
    """A route of a subnet.

    :param destination: a network, such as ``10.1.0.0/16``
    """

    destination: str
    nexthop: str


@dataclasses.dataclass(frozen=True)
class Interface:
    """A network interface that is attached after the binding.

    :param mtu: in bytes; None: as the device has it
    :param addresses: with the length of their prefix; none: the guest does not configure it
    :param nameservers: of the subnets; see :mod:`.network_interface`
    """

    mac: str
    mtu: int | None
    addresses: tuple[str, ...]
    gateway: str | None
    routes: tuple[Route, ...] = ()
    nameservers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _MAC.fullmatch(self.mac):
            raise ValueError('a MAC address is malformed')
        if self.mtu is not None and not 68 <= int(self.mtu) <= 65536:
            raise ValueError('an MTU is out of range')
        for address in self.addresses:
            ipaddress.ip_interface(address)
        if self.gateway is not None:
            ipaddress.ip_address(self.gateway)
        for route in self.routes:
            ipaddress.ip_network(route.destination)
            ipaddress.ip_address(route.nexthop)


@dataclasses.dataclass(frozen=True)
class Load:
    """With what a waiting guest starts MySQL; nothing of it is secret or a tenant's.

    :param volume_id: of the data volume, a clone of a golden volume
    :param version: of the datastore version, the tag of MySQL's image
    :param contents: of my.cnf, as Trove renders it for the flavor
    """

    volume_id: str
    version: str
    contents: str = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        if not _UUID.fullmatch(self.volume_id):
            raise ValueError('the id of the volume is malformed')
        if not _VERSION.fullmatch(self.version):
            raise ValueError('the version is malformed')
        if not isinstance(self.contents, str):
            raise ValueError('the configuration is not a text')


def parse_load(arguments: Mapping[str, Any]) -> Load:
    """Return what the arguments of a request to load describe.

    :raises GuestNotBoundError: they are malformed
    """
    try:
        return Load(arguments['volume_id'], arguments['version'], arguments['contents'])
    except (KeyError, TypeError, ValueError) as error:
        raise exceptions.GuestNotBoundError(
            f'The request to load is malformed: {type(error).__name__}: {error}'
        ) from error


@dataclasses.dataclass(frozen=True)
class Binding:
    """What a waiting guest becomes.

    :param files: contents by absolute path, as cloud-init would write them; they have secrets
    :param volume_id: of the data volume, which is attached after the binding, unless the guest has
        been loaded with it
    :param hostname: one label; None: the guest keeps its own
    """

    instance_id: str
    files: Mapping[str, str] = dataclasses.field(repr=False)
    volume_id: str
    interfaces: tuple[Interface, ...]
    hostname: str | None = None

    def __post_init__(self) -> None:
        for name in (self.instance_id, self.volume_id):
            if not _UUID.fullmatch(name):
                raise ValueError('the id of the instance or of the volume is malformed')
        if self.hostname is not None and not _HOSTNAME.fullmatch(self.hostname):
            raise ValueError('the host name is malformed')
        for path, content in self.files.items():
            if not os.path.isabs(path) or os.path.normpath(path) != path:
                raise ValueError(f'{path} is not the absolute path of a file')
            if not isinstance(content, str):
                raise ValueError(f'the content of {path} is not a text')


def parse_binding(arguments: Mapping[str, Any]) -> Binding:
    """Return the binding that the arguments of a request describe.

    :raises GuestNotBoundError: they are malformed; the message has no content of a file
    """
    try:
        return Binding(
            instance_id=arguments['instance_id'],
            files=dict(arguments['files']),
            volume_id=arguments['volume_id'],
            interfaces=tuple(_parse_interface(one) for one in arguments['interfaces']),
            # A taskmanager of an earlier release sends none.
            hostname=arguments.get('hostname'),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise exceptions.GuestNotBoundError(
            f'The request to bind is malformed: {type(error).__name__}: {error}'
        ) from error


def _parse_interface(given: Mapping[str, Any]) -> Interface:
    return Interface(
        mac=given['mac'].lower(),
        mtu=given['mtu'],
        addresses=tuple(given['addresses']),
        gateway=given['gateway'],
        routes=tuple(Route(one['destination'], one['nexthop']) for one in given['routes']),
        nameservers=tuple(given['nameservers']),
    )
