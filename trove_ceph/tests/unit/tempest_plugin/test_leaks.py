# SPDX-License-Identifier: Apache-2.0
"""Tests of the search for what replacements of a server leave."""

import json
import types
import urllib.parse

from oslotest import base

from trove_ceph_bench import guest_pool
from trove_ceph_tempest_plugin import leaks

INSTANCE, VOLUME = 'i-1', 'v-1'
NAME = f'trove-{INSTANCE}'


def port(port_id, network, server, name=NAME):
    return {'id': port_id, 'network_id': network, 'device_id': server, 'name': name}


def attachment(server, volume=VOLUME, status='attached'):
    return {'instance': server, 'volume_id': volume, 'status': status}


def guest(guest_id, state, server, instance=INSTANCE):
    return {'guest_id': guest_id, 'state': state, 'server_id': server, 'instance_id': instance}


class FakeCloud:
    """Fake services with the resources of two databases; the first one is replaced."""

    def __init__(self):
        self.instance = {'server_id': 'old', 'volume_id': VOLUME}
        self.servers = {'old': INSTANCE, 's-2': 'i-2', 'no database': None}
        self.volumes = {VOLUME: NAME, 'v-2': 'trove-i-2'}
        self.attachments = [attachment('old'), attachment('s-2', 'v-2')]
        self.ports = [
            port('p-1', 'private', 'old'),
            port('m-1', 'management', 'old'),
            port('p-2', 'private', 's-2', 'trove-i-2'),
        ]
        self.guests = [guest('g-2', 'bound', 's-2', 'i-2')]
        services = {
            'ports_client': {'list_ports': self._list_ports},
            'servers_client': {'list_servers': self._list_servers},
            'volumes_client_latest': {'list_volumes': self._list_volumes},
            'attachments_client_latest': {
                'get': self._list_attachments,
                'expected_success': self.assert_status,
            },
        }
        for name, verbs in services.items():
            setattr(self, name, types.SimpleNamespace(**verbs))

    def get_resource(self, kind, instance_id):
        assert (kind, instance_id) == ('instances', INSTANCE)
        return {'instance': dict(self.instance)}

    def _list_ports(self, name):
        return {'ports': [one for one in self.ports if one['name'] == name]}

    def _list_servers(self, detail, all_tenants):
        assert detail and all_tenants
        return {
            'servers': [
                {'id': one, 'metadata': {'trove_instance_id': owner} if owner else {}}
                for one, owner in self.servers.items()
            ]
        }

    def _list_volumes(self, params):
        assert params['all_tenants']
        found = [{'id': one} for one, name in self.volumes.items() if name == params['name']]
        return {'volumes': found}

    def _list_attachments(self, url, headers, extra_headers):
        assert headers == {'OpenStack-API-Version': 'volume 3.27'} and extra_headers
        path, _, query = url.partition('?')
        wanted = dict(urllib.parse.parse_qsl(query))
        assert path == 'attachments' and wanted['all_tenants']
        found = [one for one in self.attachments if one['volume_id'] == wanted['volume_id']]
        return types.SimpleNamespace(status=200), json.dumps({'attachments': found})

    @staticmethod
    def assert_status(expected, status):
        assert expected == status

    def replace(self):
        """Give the first database another server, as a failover does that leaves nothing."""
        self.instance['server_id'] = 'new'
        del self.servers['old']
        self.servers['new'] = INSTANCE
        self.attachments[0] = attachment('new')
        self.ports[:2] = [port('p-1', 'private', 'new'), port('m-3', 'management', 'new')]
        self.guests.append(guest('g-1', 'bound', 'new'))


class LeaksTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = FakeCloud()
        self.leaks = leaks.Leaks(
            self.cloud, self.cloud, INSTANCE, guest_pool.Pool(lambda: self.cloud.guests)
        )

    def test_clean_replacement_leaves_nothing(self):
        self.assertEqual([], self.leaks.found())
        self.cloud.replace()
        self.assertEqual([], self.leaks.found())

    def test_without_access_to_the_guests(self):
        unaware = leaks.Leaks(self.cloud, self.cloud, INSTANCE)
        self.cloud.replace()
        self.cloud.guests.append(guest('g-3', 'claimed', 's-3'))
        self.assertEqual([], unaware.found())

    def test_server_that_was_not_deleted(self):
        self.cloud.replace()
        self.cloud.servers['old'] = INSTANCE
        self.assertEqual(['Nova: server old'], self.leaks.found())

    def test_volume_besides(self):
        self.cloud.replace()
        self.cloud.volumes['v-3'] = NAME
        self.assertEqual(['Cinder: volume v-3: found 1, expected 0'], self.leaks.found())

    def test_lost_volume(self):
        self.cloud.replace()
        del self.cloud.volumes[VOLUME]
        self.assertEqual(['Cinder: volume v-1: found 0, expected 1'], self.leaks.found())

    def test_attachment_that_was_only_reserved(self):
        self.cloud.replace()
        self.cloud.attachments.append(attachment('s-3', status='reserved'))
        self.assertEqual(
            ['Cinder: attachment of volume v-1 to server s-3: found 1, expected 0'],
            self.leaks.found(),
        )

    def test_second_attachment_to_the_same_server(self):
        self.cloud.replace()
        self.cloud.attachments.append(attachment('new'))
        self.assertEqual(
            ['Cinder: attachment of volume v-1 to server new: found 2, expected 1'],
            self.leaks.found(),
        )

    def test_management_port_of_the_old_server(self):
        self.cloud.replace()
        self.cloud.ports.append(port('m-1', 'management', ''))
        self.assertEqual(
            [
                'Neutron: port in network management: found 2, expected 1',
                'Neutron: port m-1 is of server none, expected new',
            ],
            self.leaks.found(),
        )

    def test_tenants_port_that_was_unbound(self):
        self.cloud.replace()
        self.cloud.ports[0] = port('p-1', 'private', '')
        self.assertEqual(['Neutron: port p-1 is of server none, expected new'], self.leaks.found())

    def test_lost_port(self):
        self.cloud.replace()
        del self.cloud.ports[0]
        self.assertEqual(
            ['Neutron: port in network private: found 0, expected 1'], self.leaks.found()
        )

    def test_guests_that_the_instance_does_not_have(self):
        self.cloud.replace()
        self.cloud.guests += [
            guest('g-3', 'claimed', 's-3'),
            guest('g-4', 'retired', 's-4'),
            guest('g-5', 'bound', 'old'),
        ]
        self.assertEqual(
            [
                'guest g-3 with server s-3 is claimed',
                'guest g-4 with server s-4 is retired',
                'guest g-5 with server old is bound',
            ],
            self.leaks.found(),
        )
