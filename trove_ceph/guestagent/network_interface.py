# SPDX-License-Identifier: Apache-2.0
"""Network interfaces that are attached to a running guest: files of systemd-networkd, by MAC.

The files outlast a reboot; cloud-init configures only the interfaces that a server had when it was
created. They are written before the interface is attached, so that networkd configures it at once.

The guest reaches the control plane by the interface that it had before, perhaps by its default
route, or in a network that a tenant's routes name. So a tenant's network changes no route that the
guest uses already:

- Its routes are in a table of their own. The table serves packets from the interface's addresses,
  and packets of containers on docker's bridge, such as the database's answers. Routes of the main
  table come first, except its default route.
- In the main table its default route has a high metric, for a guest that has no other one.
- Its name servers are not used: the guest resolves only names of the control plane.

IPv6 addresses are used at once, without the detection of duplicates. Neutron gives an address to
one port, so another machine has it only if it had the port before: after a failover the old server
may still run on a host that does not hear of its deletion. It is fenced, and must give way. But its
answer would have the kernel mark the address as a duplicate for ever, or the link-local one of the
same MAC address, without which no router is found.

A kernel that checks the return path strictly (``rp_filter=1``) drops packets to a container, since
the main table has another default route. The distributions that use networkd check it loosely.
"""

import ipaddress
import socket
from collections.abc import Iterable, Iterator

import psutil

from trove_ceph import exceptions, waiting
from trove_ceph.guestagent.waiting_messages import Interface
from trove_ceph.host import commands

DIRECTORY = '/etc/systemd/network'
#: In the order of their names, the first file that matches an interface configures it.
_NAME = '05-trove-ceph-{}.network'
#: Table, metric, and priority of rules of the first interface; higher than those of others.
_BASE = 20480
_RULES = 4
_BRIDGE = 'docker0'
_ANYWHERE = ('0.0.0.0/0', '::/0')
_POLL_SEC = 0.5

#: Makes systemd-networkd read its files again, and configure the interfaces that they match.
RELOAD = ('networkctl', 'reload')

Section = tuple[str, dict[str, object]]


def path_of(interface: Interface) -> str:
    """Return the path of the file that configures an interface."""
    return f'{DIRECTORY}/{_NAME.format(interface.mac.replace(":", ""))}'


def render(interface: Interface, index: int) -> str:
    """Return the content of the file that configures an interface.

    :param index: of the interface among those of the guest that have such files, from 0
    """
    sections = [
        *_link_sections(interface, _BASE + index),
        *_route_sections(interface, _BASE + index),
    ]
    sections += _rule_sections(interface, _BASE + index, _BASE + _RULES * index)
    return '\n'.join(_render(name, settings) for name, settings in sections)


def find_obstacle() -> str | None:
    """Return why interfaces cannot be configured here; None: they can."""
    try:
        commands.run('systemctl', 'is-active', '--quiet', 'systemd-networkd.service')
    except exceptions.StorageCommandError as error:
        return f'systemd-networkd, which would configure the interfaces, does not run: {error}'
    return None


def wait_until_ready(interfaces: Iterable[Interface], deadline: waiting.Deadline) -> None:
    """Wait until the interfaces are attached and have their addresses.

    :raises InterfaceNotReadyError: one was not ready in time
    """
    for interface in interfaces:
        while (missing := _find_missing(interface)) is not None:
            if not deadline.pause(_POLL_SEC):
                raise exceptions.InterfaceNotReadyError(missing)


def _find_missing(interface: Interface) -> str | None:
    found = next(
        (
            addresses
            for addresses in psutil.net_if_addrs().values()
            if any(
                one.family == psutil.AF_LINK and one.address == interface.mac for one in addresses
            )
        ),
        None,
    )
    if found is None:
        return f'No interface with the MAC address {interface.mac} was attached in time'
    present = {
        ipaddress.ip_address(one.address.partition('%')[0])
        for one in found
        if one.family in (socket.AF_INET, socket.AF_INET6)
    }
    expected = {ipaddress.ip_interface(one).ip for one in interface.addresses}
    if expected - present:
        absent = ', '.join(sorted(str(one) for one in expected - present))
        return f'Interface {interface.mac} did not get the address {absent} in time'
    return None


def _link_sections(interface: Interface, table: int) -> Iterator[Section]:
    yield 'Match', {'MACAddress': interface.mac, 'Type': 'ether'}
    if interface.mtu is not None:
        yield 'Link', {'MTUBytes': interface.mtu}
    yield from _network_sections(interface, table)
    for address in interface.addresses:
        # The networks of tenants may have the addresses of the management network.
        settings = {'Address': address, 'RouteMetric': _BASE}
        if ipaddress.ip_interface(address).version == 6:
            settings['DuplicateAddressDetection'] = 'none'
        yield 'Address', settings


def _network_sections(interface: Interface, table: int) -> Iterator[Section]:
    if all(ipaddress.ip_interface(one).version == 4 for one in interface.addresses):
        yield 'Network', {'DHCP': 'no', 'IPv6AcceptRA': 'no'}
        return
    # Of the link-local address, which the kernel makes: no probes.
    yield 'Network', {'DHCP': 'no', 'IPv6AcceptRA': 'yes', 'IPv6DuplicateAddressDetection': 0}
    # Routers announce the gateway of IPv6. The addresses are known.
    yield (
        'IPv6AcceptRA',
        {
            'RouteTable': table,
            'DHCPv6Client': 'no',
            'UseAutonomousPrefix': 'no',
            'UseDNS': 'no',
        },
    )


def _route_sections(interface: Interface, table: int) -> Iterator[Section]:
    for gateway in _gateways(interface):
        default = {'Gateway': gateway, 'GatewayOnLink': 'yes'}
        yield 'Route', default | {'Metric': table}
        yield 'Route', default | {'Table': table}
    for route in interface.routes:
        if route.destination not in _ANYWHERE:
            settings = {'Destination': route.destination, 'Gateway': route.nexthop}
            yield 'Route', settings | {'GatewayOnLink': 'yes', 'Table': table}


def _rule_sections(interface: Interface, table: int, priority: int) -> Iterator[Section]:
    main = {'Table': 'main', 'SuppressPrefixLength': 0}
    own = {'Table': table}
    addresses = [ipaddress.ip_interface(one).ip for one in interface.addresses]
    selectors: list[tuple[int, dict[str, object]]] = [
        (priority, {'From': address}) for address in addresses
    ]
    selectors += [
        (priority + 2, {'IncomingInterface': _BRIDGE, 'Family': f'ipv{version}'})
        for version in sorted({address.version for address in addresses})
    ]
    for first, selector in selectors:
        yield 'RoutingPolicyRule', selector | main | {'Priority': first}
        yield 'RoutingPolicyRule', selector | own | {'Priority': first + 1}


def _gateways(interface: Interface) -> list[str]:
    """Return the gateways to everywhere, without duplicates."""
    found = [] if interface.gateway is None else [interface.gateway]
    found += [one.nexthop for one in interface.routes if one.destination in _ANYWHERE]
    return list(dict.fromkeys(found))


def _render(name: str, settings: dict[str, object]) -> str:
    lines = [f'[{name}]', *(f'{key}={value}' for key, value in settings.items())]
    return '\n'.join(lines) + '\n'
