# SPDX-License-Identifier: Apache-2.0
"""The ports of an instance that is replaced, with the real client of Neutron."""

import math

import requests
from keystoneauth1 import session
from neutronclient.v2_0 import client as neutron_client

from trove_ceph import exceptions
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.trove_adapter import (
    test_guest_config,
    test_guest_servers,
    test_replaced_instance,
)
from trove_ceph.trove_adapter import replacement_ports

RECORD = test_replaced_instance.record()


class Cloud(test_guest_servers.Cloud):
    """Neutron in memory, with the requests that only replacements make.

    :ivar refusal: what it refuses to create a port with, once it has this number of ports
    """

    def __init__(self):
        super().__init__()
        self.refusal, self.most_ports = None, math.inf

    def send(self, request, **named):
        expected = request.headers.get('If-Match', '')
        port = self.ports.get(request.url.rpartition('/')[2], {})
        if expected and expected != f'revision_number={port.get("revision_number")}':
            error = {'type': 'RevisionNumberConstraintFailed', 'message': expected, 'detail': ''}
            return self._answer(request, 412, {'NeutronError': error})
        is_creation = request.method == 'POST' and request.url.endswith('/ports')
        if is_creation and len(self.ports) >= self.most_ports:
            error = {'type': self.refusal, 'message': 'no more', 'detail': ''}
            return self._answer(request, 409, {'NeutronError': error})
        return super().send(request, **named)

    def get_ports(self, rest, query, body):
        if not rest:
            return super().get_ports(rest, query, body)
        found = self.ports.get(rest)
        return None if found is None else {'port': found}

    def put_ports(self, rest, _query, body):
        if rest not in self.ports:
            return None
        self.ports[rest] |= body['port']
        return {'port': self.ports[rest]}

    def add(self, port_id, network, **facts):
        self.ports[port_id] = {
            'id': port_id,
            'name': 'trove-instance',
            'description': '',
            'project_id': 'service',
            'network_id': network,
            'device_id': 'old-server',
            'device_owner': 'compute:nova',
            'binding:host_id': 'host-1',
            'security_groups': ['group-of-instance'],
            'admin_state_up': True,
        } | facts


class ReplacementPortsTest(test_guest_config.ConfigTestCase):
    def setUp(self):
        super().setUp()
        self.set('management_networks', ['other', 'management'])
        self.set('management_security_groups', [])
        self.cloud = Cloud()
        http = requests.Session()
        http.mount('http://', self.cloud)
        self.ports = replacement_ports.ReplacementPorts(
            neutron_client.Client(
                session=session.Session(cinder_http.Token('service', 'admin'), session=http)
            )
        )
        self.cloud.add('agent', 'management', created_at='2026-01-01T00:00:01Z')
        self.cloud.add('second', 'tenant-2', created_at='2026-01-01T00:00:03Z')
        self.cloud.add('first', 'tenant-1', created_at='2026-01-01T00:00:02Z')

    def assert_found(self, instance, management):
        found = self.ports.find_ports(RECORD)
        self.assertEqual((instance, management), (found.instance, found.management))

    def unbind(self, *port_ids):
        for port_id in port_ids:
            self.cloud.ports[port_id]['device_id'] = ''

    def test_finds_the_ports_of_the_old_server(self):
        self.cloud.add('foreign', 'tenant-1', device_id='other')
        self.cloud.add('unused', 'tenant-1', device_id='')
        self.assert_found(('first', 'second'), ('agent',))

    def test_finds_the_ports_of_a_server_that_is_gone(self):
        self.cloud.add('foreign', 'tenant-1', device_id='', name='trove-other')
        self.cloud.add('used', 'tenant-1', device_id='other')
        self.unbind('agent', 'first', 'second')
        self.assert_found(('first', 'second'), ('agent',))

    def test_finds_the_ports_that_a_server_has_lost(self):
        """A failed host that comes back unbinds the ports of an instance, but not the new one."""
        self.unbind('first', 'second')
        self.assert_found(('first', 'second'), ('agent',))

    def test_leaves_a_port_of_another_project_with_the_name(self):
        """It would connect a server to the network of another tenant."""
        self.unbind('agent', 'first', 'second')
        self.cloud.ports['second']['project_id'] = 'project'
        self.cloud.add('foreign', 'tenant-3', device_id='', project_id='other')
        self.assert_found(('first', 'second'), ('agent',))

    def test_cuts_off_the_agent(self):
        for _again in range(2):
            self.ports.cut_off(['agent', 'gone'])
            self.assertFalse(self.cloud.ports['agent']['admin_state_up'])
        self.assertTrue(self.cloud.ports['first']['admin_state_up'])

    def test_frees_ports_that_a_lost_host_still_has(self):
        """Nova's local deletion of a server leaves them bound."""
        for _again in range(2):
            self.ports.free(['first'], ['old-server'])
            port = self.cloud.ports['first']
            self.assertEqual(
                ('', '', None), (port['device_id'], port['device_owner'], port['binding:host_id'])
            )
        changes = [one for one in self.cloud.requests if one[0] == 'PUT']
        self.assertEqual(1, len(changes))

    def test_takes_no_port_from_another_server(self):
        """A worker that was suspended may come late."""
        self.cloud.ports['first']['device_id'] = 'new-server'
        before = dict(self.cloud.ports['first'])
        self.ports.free(['first'], ['old-server'])
        self.assertEqual(before, self.cloud.ports['first'])

    def test_takes_no_port_that_another_server_gets_meanwhile(self):
        show = self.cloud.get_ports

        def bind(rest, query, body):
            found = show(rest, query, body)
            if rest:
                found = {'port': dict(found['port'])}
                self.cloud.ports[rest] |= {'device_id': 'new-server', 'revision_number': 8}
            return found

        self.cloud.ports['first']['revision_number'] = 7
        self.cloud.get_ports = bind
        self.assertRaises(
            exceptions.ServiceUnavailableError, self.ports.free, ['first'], ['old-server']
        )
        self.assertEqual('new-server', self.cloud.ports['first']['device_id'])

    def test_ports_that_a_tenant_has_deleted(self):
        self.assertEqual(['gone'], self.ports.find_gone(['gone', 'first']))
        self.ports.free(['gone', 'first'], ['old-server'])
        self.assertEqual('', self.cloud.ports['first']['device_id'])

    def test_creates_one_management_port(self):
        """Trove finds it by its name when it deletes the instance."""
        port_id = self.ports.create_management_port(RECORD)
        port = self.cloud.ports[port_id]
        self.assertEqual(('trove-instance', 'management'), (port['name'], port['network_id']))
        self.assertEqual(['group-of-instance'], port['security_groups'])
        self.assertEqual(port_id, self.ports.create_management_port(RECORD))
        other = test_replaced_instance.record(replacement_id='other')
        self.assertNotEqual(port_id, self.ports.create_management_port(other))

    def test_management_port_has_the_configured_groups(self):
        self.set('management_security_groups', ['configured'])
        port_id = self.ports.create_management_port(RECORD)
        self.assertEqual(['configured'], self.cloud.ports[port_id]['security_groups'])

    def assert_takes_the_place_of_the_old_port(self, refusal):
        record = test_replaced_instance.record(old_management_port_ids=('agent',))
        self.cloud.refusal, self.cloud.most_ports = refusal, len(self.cloud.ports)
        port_id = self.ports.create_management_port(record)
        port = self.cloud.ports[port_id]
        self.assertEqual(['group-of-instance'], port['security_groups'])
        self.assertEqual({'first', 'second', port_id}, set(self.cloud.ports))

    def test_network_has_no_other_address(self):
        self.assert_takes_the_place_of_the_old_port('IpAddressGenerationFailure')

    def test_quota_has_no_other_port(self):
        self.assert_takes_the_place_of_the_old_port('OverQuota')

    def test_no_port_is_left(self):
        self.cloud.refusal, self.cloud.most_ports = 'OverQuota', 0
        self.assertRaises(exceptions.NoPortError, self.ports.create_management_port, RECORD)
        self.assertIn('agent', self.cloud.ports)

    def test_groups_of_an_instance_without_management_port(self):
        """A full network took the place of the old port before the new one was created."""
        record = test_replaced_instance.record(
            old_management_port_ids=('agent',), port_ids=('first', 'gone')
        )
        self.cloud.refusal, self.cloud.most_ports = 'OverQuota', 0
        self.assertRaises(exceptions.NoPortError, self.ports.create_management_port, record)
        self.assertNotIn('agent', self.cloud.ports)
        self.cloud.most_ports = math.inf
        port = self.cloud.ports[self.ports.create_management_port(record)]
        self.assertEqual(['group-of-instance'], port['security_groups'])

    def test_no_management_network(self):
        self.set('management_networks', [])
        self.assertEqual([], self.ports.find_created(RECORD))

    def test_takes_the_port_of_a_guest(self):
        facts = {'name': 'trove-guest-1', 'security_groups': ['default']}
        self.cloud.add('of-guest', 'management', **facts)
        self.ports.take_guest_port('of-guest', 'instance', ['first'])
        port = self.cloud.ports['of-guest']
        self.assertEqual('trove-instance', port['name'])
        self.assertEqual(['group-of-instance'], port['security_groups'])

    def test_deletes_ports(self):
        for _again in range(2):
            self.ports.delete(['agent'])
            self.assertEqual({'first', 'second'}, set(self.cloud.ports))

    def test_neutron_that_does_not_answer(self):
        self.cloud.failure = 503
        for verb, *arguments in (
            (self.ports.find_ports, RECORD),
            (self.ports.cut_off, ['agent']),
            (self.ports.free, ['first'], ['old-server']),
            (self.ports.find_gone, ['first']),
            (self.ports.create_management_port, RECORD),
            (self.ports.delete, ['agent']),
        ):
            self.assertRaises(exceptions.ServiceUnavailableError, verb, *arguments)
