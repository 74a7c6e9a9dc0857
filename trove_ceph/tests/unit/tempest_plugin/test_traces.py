# SPDX-License-Identifier: Apache-2.0
"""Tests of the search for resources that a deleted database leaves."""

import types

from oslotest import base
from tempest.lib import exceptions

from trove_ceph_tempest_plugin import traces

INSTANCE, SERVER, VOLUME = 'i-1', 's-1', 'v-1'


class FakeCloud:
    """Fake services with the resources of two databases."""

    def __init__(self):
        self.ports = {
            'p-1': {'device_id': SERVER, 'name': f'trove-{INSTANCE}'},
            'p-2': {'device_id': 'another', 'name': 'trove-i-2'},
        }
        self.floating_ips = {'f-1': 'p-1', 'f-2': 'p-2'}
        self.groups = {'g-1': f'trove_sg-{INSTANCE}', 'g-2': 'trove_sg-i-2'}
        self.servers, self.volumes, self.instances = {SERVER}, {VOLUME}, {INSTANCE}
        self.snapshots, self.images, self.trash = [], {f'volume-{VOLUME}'}, set()
        services = {
            'ports_client': {'list_ports': self._list_ports, 'show_port': self._shown(self.ports)},
            'floating_ips_client': {
                'list_floatingips': self._list_floating_ips,
                'show_floatingip': self._shown(self.floating_ips),
            },
            'security_groups_client': {
                'list_security_groups': self._list_groups,
                'show_security_group': self._shown(self.groups),
            },
            'servers_client': {'show_server': self._shown(self.servers)},
            'volumes_client_latest': {'show_volume': self._shown(self.volumes)},
            'snapshots_client_latest': {'list_snapshots': self._list_snapshots},
        }
        for name, verbs in services.items():
            setattr(self, name, types.SimpleNamespace(**verbs))

    @staticmethod
    def _shown(known):
        def show(part):
            if part not in known:
                raise exceptions.NotFound(part)

        return show

    def _list_ports(self, **query):
        return {
            'ports': [
                {'id': name} | port
                for name, port in self.ports.items()
                if query.items() <= port.items()
            ]
        }

    def _list_floating_ips(self, port_id):
        found = [{'id': ip} for ip, port in self.floating_ips.items() if port == port_id]
        return {'floatingips': found}

    def _list_groups(self):
        found = [{'id': key, 'name': name} for key, name in self.groups.items()]
        return {'security_groups': found}

    def _list_snapshots(self, all_tenants, volume_id):
        found = [{'id': s} for s, volume in self.snapshots if volume == volume_id and all_tenants]
        return {'snapshots': found}

    def get_resource(self, kind, instance_id):
        self._shown(self.instances)(instance_id)
        return {'instance': {'server_id': SERVER, 'volume_id': VOLUME}}

    def find_image(self, pool, name):
        return (pool, name) if name in self.images else None

    def in_trash(self, pool, name):
        return name in self.trash

    def delete_all(self):
        for kind in (self.servers, self.volumes, self.instances, self.images):
            kind.clear()
        for known, part in ((self.ports, 'p-1'), (self.floating_ips, 'f-1'), (self.groups, 'g-1')):
            del known[part]


class TracesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = FakeCloud()

    def _traces(self, cluster=True):
        return traces.Traces(
            self.cloud, self.cloud, INSTANCE, self.cloud if cluster else None, 'fast'
        )

    def test_finds_all_resources_of_an_existing_database(self):
        found = self._traces()
        self.assertEqual({'ports': 1, 'floating_ips': 1, 'security_groups': 1}, found.counts())
        self.assertEqual(
            [
                'Ceph: image fast/volume-v-1',
                'Cinder: volume v-1',
                'Neutron: floating IP f-1',
                'Neutron: port p-1',
                'Neutron: security group g-1',
                'Nova: server s-1',
                'Trove: instance i-1',
            ],
            found.remaining(),
        )

    def test_ignores_resources_of_other_databases(self):
        found = self._traces()
        self.cloud.delete_all()
        self.assertEqual([], found.remaining())
        self.assertEqual(['p-2'], list(self.cloud.ports))

    def test_port_created_after_the_collection(self):
        found = self._traces()
        self.cloud.delete_all()
        self.cloud.ports['p-3'] = {'device_id': '', 'name': f'trove-{INSTANCE}'}
        self.assertEqual(['Neutron: port p-3'], found.remaining())

    def test_snapshot_that_blocks_the_deletion_of_the_volume(self):
        found = self._traces()
        self.cloud.delete_all()
        self.cloud.volumes.add(VOLUME)
        self.cloud.snapshots = [('n-1', VOLUME), ('n-2', 'another')]
        self.assertEqual(['Cinder: snapshot n-1', 'Cinder: volume v-1'], found.remaining())

    def test_volume_that_the_instance_has_no_longer(self):
        found = self._traces()
        self.assertEqual(
            ['Cinder: volume v-1', 'Ceph: image fast/volume-v-1'], found.remaining_volume()
        )
        self.cloud.volumes.clear()
        self.cloud.images.clear()
        self.assertEqual([], found.remaining_volume())

    def test_image_in_the_trash(self):
        found = self._traces()
        self.cloud.delete_all()
        self.cloud.trash.add(f'volume-{VOLUME}')
        self.assertEqual(['Ceph: image fast/volume-v-1 in the trash'], found.remaining())

    def test_without_access_to_ceph(self):
        found = self._traces(cluster=False)
        self.assertNotIn('Ceph', ' '.join(found.remaining()))
