# SPDX-License-Identifier: Apache-2.0
"""The taskmanager's own calls to Neutron, beyond those of Trove."""

import ipaddress
from typing import Any

import keystoneauth1.exceptions
from neutronclient.common import exceptions as neutron_exceptions

from trove_ceph import exceptions


class Neutron:
    """A client of Neutron in one region, with the rights of one token.

    :param client: of neutronclient
    """

    def __init__(self, client: Any):
        self._client = client

    def describe(self, port_id: str) -> dict[str, Any]:
        """Return how the interface of a server with this port is configured.

        :returns: ``mac``, ``mtu`` (None: unknown), ``addresses`` with prefix lengths, ``gateway``
            (None: no default route), ``routes`` of ``destination`` and ``nexthop``,
            ``nameservers``
        :raises ServiceUnavailableError: Neutron refused, or does not answer
        """
        try:
            port = self._client.show_port(port_id)['port']
            network = self._client.show_network(port['network_id'])['network']
            subnets = {
                address['subnet_id']: self._client.show_subnet(address['subnet_id'])['subnet']
                for address in port['fixed_ips']
            }
        except (
            neutron_exceptions.NeutronClientException,
            keystoneauth1.exceptions.ClientException,
        ) as error:
            raise exceptions.ServiceUnavailableError(
                f'port {port_id}: Neutron failed at showing it with its subnets: {error}'
            ) from error
        return {
            'mac': port['mac_address'],
            'mtu': network.get('mtu'),
            'addresses': [
                _with_prefix(one['ip_address'], subnets[one['subnet_id']]['cidr'])
                for one in port['fixed_ips']
            ],
            'gateway': next((one['gateway_ip'] for one in subnets.values() if _has_gateway(one)), None),
            'routes': [
                {name: route[name] for name in ('destination', 'nexthop')}
                for one in subnets.values()
                for route in one.get('host_routes') or ()
            ],
            'nameservers': [
                server for one in subnets.values() for server in one.get('dns_nameservers') or ()
            ],
        }


def _with_prefix(address: str, cidr: str) -> str:
    return f'{address}/{ipaddress.ip_network(cidr).prefixlen}'


def _has_gateway(subnet: dict[str, Any]) -> bool:
    # Routers announce the gateway of IPv6 by themselves.
    return subnet.get('ip_version') == 4 and bool(subnet.get('gateway_ip'))
