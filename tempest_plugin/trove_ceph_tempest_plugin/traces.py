# SPDX-License-Identifier: Apache-2.0
"""Find the resources of a database in all services, and those left after its deletion."""

from tempest.lib import exceptions

from trove_ceph_tempest_plugin import ceph


class Traces:
    """The resources of one database, collected while it exists.

    :param manager: Tempest's clients of an administrator
    :param trove: Trove client of the same administrator
    :param cluster: the Ceph cluster, or None if it is not accessible
    :param pool: the pool of the image, if Ceph is accessible
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
        """Return the number of network resources, by kind."""
        return {
            'ports': len(self._ports),
            'floating_ips': len(self._floating_ips),
            'security_groups': len(self._security_groups),
        }

    def remaining(self) -> list[str]:
        """Return a line for each resource that still exists."""
        client = self._manager
        network_resources = (
            ('port', client.ports_client.show_port, self._ports),
            ('floating IP', client.floating_ips_client.show_floatingip, self._floating_ips),
            (
                'security group',
                client.security_groups_client.show_security_group,
                self._security_groups,
            ),
        )
        lines = [
            f'Neutron: {kind} {identity}'
            for kind, show, identities in network_resources
            for identity in identities
            if _exists(show, identity)
        ]
        # Also those created after the collection, for example by a resize.
        lines += [f'Neutron: port {port}' for port in self._list_ports()]
        lines += [f'Neutron: security group {group}' for group in self._list_security_groups()]
        if _exists(self._trove.get_resource, 'instances', self._instance_id):
            lines.append(f'Trove: instance {self._instance_id}')
        if _exists(client.servers_client.show_server, self.server_id):
            lines.append(f'Nova: server {self.server_id}')
        return sorted({*lines, *self.remaining_volume()})

    def remaining_volume(self) -> list[str]:
        """Return a line for the volume of the collection, and one for each part of it."""
        return self._remaining_in_cinder() + self._remaining_in_ceph()

    def _remaining_in_cinder(self):
        volumes = self._manager.volumes_client_latest
        snapshots = self._manager.snapshots_client_latest.list_snapshots(
            all_tenants=True, volume_id=self.volume_id
        )
        lines = [f'Cinder: snapshot {snapshot["id"]}' for snapshot in snapshots['snapshots']]
        if _exists(volumes.show_volume, self.volume_id):
            lines.append(f'Cinder: volume {self.volume_id}')
        return lines

    def _remaining_in_ceph(self):
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
        # Trove names a port before it attaches it, and the name stays after a detachment.
        queries = ({'device_id': self.server_id}, {'name': f'trove-{self._instance_id}'})
        found = [self._manager.ports_client.list_ports(**query)['ports'] for query in queries]
        return sorted({port['id'] for ports in found for port in ports})

    def _list_security_groups(self):
        groups = self._manager.security_groups_client.list_security_groups()['security_groups']
        return [group['id'] for group in groups if self._instance_id in group['name']]


def _exists(show, *identity):
    try:
        show(*identity)
    except exceptions.NotFound:
        return False
    return True
