# SPDX-License-Identifier: Apache-2.0
"""The taskmanager's own calls to Neutron, beyond those of Trove."""

import ipaddress
from typing import Any

import keystoneauth1.exceptions
from neutronclient.common import exceptions as neutron_exceptions

from trove_ceph import exceptions
from trove_ceph.guestagent import waiting_messages


class Neutron:
    """A client of Neutron in one region, with the rights of one token.

    :param client: of neutronclient
    """

    def __init__(self, client: Any):
        self._client = client

    def find_interface(self, port_id: str) -> waiting_messages.Interface:
        """Return how the interface of a server with a port is configured.

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
        return waiting_messages.Interface(
            mac=port['mac_address'],
            mtu=network.get('mtu'),
            addresses=tuple(
                _with_prefix(one['ip_address'], subnets[one['subnet_id']]['cidr'])
                for one in port['fixed_ips']
            ),
            gateway=next(filter(None, map(_gateway, subnets.values())), None),
            routes=tuple(
                waiting_messages.Route(route['destination'], route['nexthop'])
                for subnet in subnets.values()
                for route in subnet.get('host_routes') or ()
            ),
            nameservers=tuple(
                server
                for subnet in subnets.values()
                for server in subnet.get('dns_nameservers') or ()
            ),
        )


def _with_prefix(address: str, cidr: str) -> str:
    return f'{address}/{ipaddress.ip_network(cidr).prefixlen}'


def _gateway(subnet: dict[str, Any]) -> str | None:
    # Routers announce the gateway of IPv6 by themselves.
    return subnet.get('gateway_ip') if subnet.get('ip_version') == 4 else None
