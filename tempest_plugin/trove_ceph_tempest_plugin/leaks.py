# SPDX-License-Identifier: Apache-2.0
"""Find what replacements of the server of a database leave in Nova, Cinder and Neutron."""

import collections
import json
import urllib.parse
from typing import Any

from trove_ceph_bench import guest_pool

#: The first one that lists attachments.
_ATTACHMENTS_VERSION = {'OpenStack-API-Version': 'volume 3.27'}


class Leaks:
    """The resources of a database beside those that it had before its server was replaced.

    :param manager: Tempest's clients of an administrator
    :param trove: Trove client of the same administrator
    :param pool: the warm guests; None: they are not accessible
    """

    def __init__(
        self, manager: Any, trove: Any, instance_id: str, pool: guest_pool.Pool | None = None
    ):
        self._manager, self._trove, self._pool = manager, trove, pool
        self._instance_id = instance_id
        self._volume_id = self._instance()['volume_id']
        self._networks = self._count_networks(self._list_ports())

    def found(self) -> list[str]:
        """Return a line for each resource that is surplus, missing, or not of the present server.

        A guest is deleted some seconds after its replacement, so repeat this before you conclude.
        """
        server_id = self._instance()['server_id']
        return sorted(
            [
                *self._wrong_servers(server_id),
                *self._wrong_volumes(),
                *self._wrong_attachments(server_id),
                *self._wrong_ports(server_id),
                *self._wrong_guests(server_id),
            ]
        )

    def _instance(self):
        return self._trove.get_resource('instances', self._instance_id)['instance']

    def _wrong_servers(self, server_id):
        listed = self._manager.servers_client.list_servers(detail=True, all_tenants=True)
        for one in listed['servers']:
            is_own = one['metadata'].get('trove_instance_id') == self._instance_id
            if is_own and one['id'] != server_id:
                yield f'Nova: server {one["id"]}'

    def _wrong_volumes(self):
        listed = self._manager.volumes_client_latest.list_volumes(
            params={'all_tenants': True, 'name': f'trove-{self._instance_id}'}
        )
        found = collections.Counter(one['id'] for one in listed['volumes'])
        return _differences('Cinder: volume', collections.Counter([self._volume_id]), found)

    def _wrong_attachments(self, server_id):
        """Return a line for each attachment, also a reserved one, which a volume does not show."""
        query = urllib.parse.urlencode({'all_tenants': True, 'volume_id': self._volume_id})
        client = self._manager.attachments_client_latest
        response, body = client.get(
            f'attachments?{query}', dict(_ATTACHMENTS_VERSION), extra_headers=True
        )
        client.expected_success(200, response.status)
        servers = collections.Counter(one['instance'] for one in json.loads(body)['attachments'])
        return _differences(
            f'Cinder: attachment of volume {self._volume_id} to server',
            collections.Counter([server_id]),
            servers,
        )

    def _wrong_ports(self, server_id):
        ports = self._list_ports()
        lines = [
            f'Neutron: port {one["id"]} is of server {one["device_id"] or "none"}, '
            f'expected {server_id}'
            for one in ports
            if one['device_id'] != server_id
        ]
        networks = self._count_networks(ports)
        return lines + _differences('Neutron: port in network', self._networks, networks)

    def _wrong_guests(self, server_id):
        """Return a line for each guest of the database that is not its server."""
        guests = self._pool.of_instance(self._instance_id) if self._pool else ()
        for one in guests:
            if (one['state'], one['server_id']) != ('bound', server_id):
                yield f'guest {one["guest_id"]} with server {one["server_id"]} is {one["state"]}'

    def _list_ports(self):
        # Trove and replacements give this name to each port of an instance, and it stays.
        name = f'trove-{self._instance_id}'
        return self._manager.ports_client.list_ports(name=name)['ports']

    @staticmethod
    def _count_networks(ports):
        return collections.Counter(one['network_id'] for one in ports)


def _differences(
    kind: str, expected: collections.Counter[Any], found: collections.Counter[Any]
) -> list[str]:
    return [
        f'{kind} {name}: found {found[name]}, expected {expected[name]}'
        for name in expected.keys() | found.keys()
        if found[name] != expected[name]
    ]
