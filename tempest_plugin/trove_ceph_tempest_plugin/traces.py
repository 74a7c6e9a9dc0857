# SPDX-License-Identifier: Apache-2.0
"""What a database consists of in each service, and what is left of it after its deletion."""

from tempest.lib import exceptions

from trove_ceph_tempest_plugin import ceph


class Traces:
    """The parts of one database, collected while it exists.

    :param manager: Tempest's clients of an administrator
    :param trove: Trove's client of the same
    :param cluster: the Ceph cluster, or None if it may not be asked
    :param pool: where the image lies, if Ceph may be asked
    """

    def __init__(self, manager, trove, instance_id: str, cluster: ceph.Ceph | None, pool: str):
        self._manager, self._trove = manager, trove
        self._cluster, self._pool = cluster, pool
        self._instance_id = instance_id
        instance = trove.get_resource('instances', instance_id)['instance']
        self.server_id = instance['server_id']
        self.volume_id = instance['volume_id']
        self._ports = self._list_ports()
        self._floating_ips = [
            ip['id']
            for port in self._ports
            for ip in manager.floating_ips_client.list_floatingips(port_id=port)['floatingips']
        ]
        self._security_groups = self._list_security_groups()

    def counts(self) -> dict[str, int]:
        """Return how many parts there are, by kind."""
        return {
            'ports': len(self._ports),
            'floating_ips': len(self._floating_ips),
            'security_groups': len(self._security_groups),
        }

    def left(self) -> list[str]:
        """Return a line for each part that still exists."""
        client = self._manager
        network_parts = (
            ('port', client.ports_client.show_port, self._ports),
            ('floating IP', client.floating_ips_client.show_floatingip, self._floating_ips),
            (
                'security group',
                client.security_groups_client.show_security_group,
                self._security_groups,
            ),
        )
        lines = [
            f'Neutron: {kind} {part}'
            for kind, show, parts in network_parts
            for part in parts
            if _exists(show, part)
        ]
        # Those, too, that came after the collection, such as a resize's.
        lines += [f'Neutron: port {port}' for port in self._list_ports()]
        lines += [f'Neutron: security group {group}' for group in self._list_security_groups()]
        if _exists(self._trove.get_resource, 'instances', self._instance_id):
            lines.append(f'Trove: instance {self._instance_id}')
        if _exists(client.servers_client.show_server, self.server_id):
            lines.append(f'Nova: server {self.server_id}')
        lines += self._left_in_cinder() + self._left_in_ceph()
        return sorted(set(lines))

    def _left_in_cinder(self):
        volumes = self._manager.volumes_client_latest
        snapshots = self._manager.snapshots_client_latest.list_snapshots(
            all_tenants=True, volume_id=self.volume_id
        )
        lines = [f'Cinder: snapshot {snapshot["id"]}' for snapshot in snapshots['snapshots']]
        if _exists(volumes.show_volume, self.volume_id):
            lines.append(f'Cinder: volume {self.volume_id}')
        return lines

    def _left_in_ceph(self):
        if not self._cluster:
            return []
        image = f'volume-{self.volume_id}'
        lines = []
        if self._cluster.find_image(self._pool, image):
            lines.append(f'Ceph: image {self._pool}/{image}')
        if self._cluster.in_trash(self._pool, image):
            lines.append(f'Ceph: image {self._pool}/{image} in the trash')
        return lines

    def _list_ports(self):
        # A port is named before it is attached and keeps its name when it is detached.
        queries = ({'device_id': self.server_id}, {'name': f'trove-{self._instance_id}'})
        found = [self._manager.ports_client.list_ports(**query)['ports'] for query in queries]
        return sorted({port['id'] for ports in found for port in ports})

    def _list_security_groups(self):
        groups = self._manager.security_groups_client.list_security_groups()['security_groups']
        return [group['id'] for group in groups if self._instance_id in group['name']]


def _exists(show, *what):
    try:
        show(*what)
    except exceptions.NotFound:
        return False
    return True
