# SPDX-License-Identifier: Apache-2.0
"""The servers of an instance that is replaced, with the real client of Nova."""

import base64
import dataclasses
import datetime
import types
import uuid

import novaclient.client
import requests
from keystoneauth1 import session
from trove.common import cfg as trove_cfg

from trove_ceph import exceptions
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import (
    test_guest_config,
    test_guest_servers,
    test_replaced_instance,
)
from trove_ceph.trove_adapter import nova, replacement_servers

CONF = trove_cfg.CONF
NOW = datetime.datetime(2026, 1, 1, 12)


class Cloud(test_guest_servers.Cloud):
    """Nova in memory, with the requests that only replacements make.

    :ivar knows_zones: Nova shows in which zone a server was requested
    :ivar deleted: the deleted servers whose rows Nova still has, by id
    """

    def __init__(self):
        super().__init__()
        self.knows_zones, self.deleted = True, {}
        self.groups, self.group_failure = [], False
        setattr(self, 'get_os-server-groups', self.list_groups)

    def list_groups(self, rest, query, _body):
        assert not rest
        if self.group_failure:
            raise requests.exceptions.ConnectionError
        start = int(query.get('offset', 0))
        return {'server_groups': self.groups[start : start + 1]}

    def send(self, request, **options):
        version = request.headers.get('OpenStack-API-Version', '')
        if replacement_servers.ZONE_API_VERSION in str(version) and not self.knows_zones:
            return self._answer(request, 406, {})
        return super().send(request, **options)

    def get_servers(self, rest, query, body):
        if rest != 'detail':
            return super().get_servers(rest, query, body)
        if query.get('deleted') == 'True':
            assert query['all_tenants'] == '1'
            return {'servers': [one for one in self.deleted.values() if one['id'] == query['uuid']]}
        found = [one for one in self.servers.values() if query['tags'] in one['tags']]
        return {'servers': [] if 'marker' in query else found}


class ReplacementServersTest(test_guest_config.ConfigTestCase):
    def setUp(self):
        super().setUp()
        self.set('network_isolation', False, 'network')
        self.set('management_networks', ['management'])
        self.cloud, self.images = Cloud(), test_guest_servers.Images()
        http = requests.Session()
        http.mount('http://', self.cloud)
        cloud = session.Session(cinder_http.Token('service', 'admin'), session=http)
        self.servers = replacement_servers.ReplacementServers(
            novaclient.client.Client(nova.API_VERSION, session=cloud),
            novaclient.client.Client(replacement_servers.ZONE_API_VERSION, session=cloud),
            types.SimpleNamespace(images=self.images),
            lambda: NOW,
        )
        self.instance = trove_database.add_instance(f'project-{uuid.uuid4()}', 'volume')
        self.record = self.new_record()

    def new_record(self, **values):
        facts = {
            'flavor_id': '7',
            'version_id': trove_database.datastore_version(),
            'new_management_port_id': 'new-management',
        }
        return test_replaced_instance.record(self.instance.id, **facts | values)

    def add_server(self, **facts):
        self.cloud.servers['old-server'] = {
            'id': 'old-server',
            'name': 'db1',
            'status': 'ACTIVE',
            'pinned_availability_zone': None,
            'OS-EXT-AZ:availability_zone': 'nova',
            'OS-EXT-SRV-ATTR:host': 'host-1',
        } | facts

    # Needs.

    def needs(self, **values):
        found = self.servers.find_needs(self.new_record(**values))
        return found.availability_zone, found.image_id

    def test_needs_of_a_server_that_was_requested_in_no_zone(self):
        self.add_server()
        self.assertEqual((None, 'image'), self.needs())

    def test_needs_of_a_server_in_a_zone(self):
        self.add_server(pinned_availability_zone='east')
        self.assertEqual(('east', 'image'), self.needs())

    def test_nova_that_does_not_show_the_requested_zone(self):
        self.cloud.knows_zones = False
        self.add_server()
        self.assertEqual((None, 'image'), self.needs())
        self.add_server(**{'OS-EXT-AZ:availability_zone': 'east'})
        self.assertEqual(('east', 'image'), self.needs())

    def test_needs_of_a_server_that_was_requested_on_a_host(self):
        for zone, expected in (('east:host-1', 'east'), ('nova:host-1', None), ('nova', None)):
            self.add_server(pinned_availability_zone=zone)
            self.assertEqual((expected, 'image'), self.needs())
        # Where there are zones, hosts in none are not the same as any host.
        self.add_service('up', 0, 'host-2', zone='east')
        self.assertEqual(('nova', 'image'), self.needs())

    def test_other_hosts(self):
        for host, state, zone, status in (
            ('host-1', 'up', 'east', 'enabled'),
            ('host-2', 'up', 'east', 'enabled'),
            ('host-3', 'down', 'east', 'enabled'),
            ('host-4', 'up', 'east', 'disabled'),
            ('host-5', 'up', 'west', 'enabled'),
        ):
            self.add_service(state, 0, host, zone, status)
        found = self.servers.find_other_hosts
        record = self.new_record(old_host='host-1')
        self.assertEqual({'host-2', 'host-5'}, set(found(record)))
        east = self.new_record(old_host='host-1', availability_zone='east')
        self.assertEqual(['host-2'], found(east))
        orders = {
            tuple(found(self.new_record(old_host='host-1', replacement_id=f'{one}')))
            for one in range(20)
        }
        self.assertEqual(2, len(orders))

    def test_host_that_is_down(self):
        self.add_service('down', 0, 'host-1')
        # The message bus of Nova may have failed.
        self.assertFalse(self.servers.is_host_down('host-1'))
        self.add_service('up', 0, 'host-2')
        found = [self.servers.is_host_down(one) for one in ('host-1', 'host-2', 'unknown')]
        self.assertEqual([True, False, False], found)

    def test_needs_of_a_server_that_is_archived(self):
        for self.cloud.knows_zones in (True, False):
            self.assertEqual((None, 'image'), self.needs())

    def test_needs_of_a_server_that_is_deleted(self):
        zones = {'pinned_availability_zone': 'east', 'OS-EXT-AZ:availability_zone': 'east'}
        self.add_server(status='DELETED', **zones)
        self.cloud.deleted['old-server'] = self.cloud.servers.pop('old-server')
        self.cloud.deleted['other'] = {'id': 'other', 'pinned_availability_zone': 'west'}
        for self.cloud.knows_zones in (True, False):
            self.assertEqual(('east', 'image'), self.needs())

    def test_image_whose_agent_is_too_old(self):
        for version in ('1.3', '0.9', '2.0', 'new'):
            self.images.properties = {'trove_ceph_agent': version}
            self.assert_refused(f'has trove_ceph_agent={version}, expected 1.4')
        # An image without the property may have any agent.
        for properties in ({'trove_ceph_agent': '1.4'}, {'trove_ceph_agent': '1.10'}, {}):
            self.images.properties = properties
            self.assertEqual((None, 'image'), self.needs())

    def assert_refused(self, text):
        error = self.assertRaises(exceptions.ReplacementRefusedError, self.needs)
        self.assertIn(text, str(error))

    def test_refuses_what_no_server_can_be_booted_from(self):
        self.set('volume_rootdisk_support', True)
        self.assert_refused('volume_rootdisk_support')
        self.set('volume_rootdisk_support', False)
        self.set('management_networks', [])
        self.assert_refused('management_networks of trove-taskmanager is empty')
        self.set('management_networks', ['management'])
        self.images.known.clear()
        self.assert_refused('there is no guest image of its datastore version 9.7')
        self.cloud.flavors.clear()
        self.assert_refused('its flavor 7: does not exist any more')

    def test_nova_that_does_not_answer(self):
        self.cloud.failure = 503
        for verb, *arguments in (
            (self.servers.find_needs,),
            (self.servers.check_flavor,),
            (self.servers.find_booted,),
            (self.servers.find_other_hosts,),
            (self.servers.boot, None),
        ):
            self.assertRaises(exceptions.ServiceUnavailableError, verb, self.record, *arguments)
        self.assertRaises(exceptions.ServiceUnavailableError, self.servers.is_host_down, 'host-1')
        self.assertRaises(exceptions.ServiceUnavailableError, self.servers.find, 'old-server')
        self.assertRaises(exceptions.ServiceUnavailableError, self.delete)

    def test_glance_that_does_not_answer(self):
        self.images.answers = False
        self.assertRaises(exceptions.ServiceUnavailableError, self.servers.find_needs, self.record)

    # Servers.

    def test_finds_a_server(self):
        self.add_server()
        found = self.servers.find('old-server')
        self.assertEqual(('ACTIVE', 'host-1', ''), (found.status, found.host, found.task))
        self.add_server(**{'OS-EXT-STS:task_state': 'powering-off'})
        self.assertEqual('powering-off', self.servers.find('old-server').task)
        self.add_server(status='DELETED')
        self.assertIsNone(self.servers.find('old-server'))
        self.assertIsNone(self.servers.find('other'))

    def delete(self, since=None):
        self.servers.request_deletion('old-server', since)

    def test_deletes_at_once(self):
        """Nova may be configured to keep deleted servers, with their volumes, for a while."""
        self.add_server()
        for _again in range(2):
            self.delete()
            self.assertEqual({}, self.cloud.servers)

    def add_service(self, state, age_sec, host='host-1', zone='nova', status='enabled'):
        reported_at = NOW - datetime.timedelta(seconds=age_sec)
        self.cloud.services[host] = {
            'host': host,
            'state': state,
            'zone': zone,
            'status': status,
            'updated_at': reported_at.isoformat(timespec='microseconds'),
        }

    def test_deletes_nothing_while_nova_does_not_know_whether_the_host_works(self):
        """A host that returns would unbind the ports, which the new server has by then."""
        self.add_server()
        self.add_service('up', age_sec=26)
        error = self.assertRaises(exceptions.InProgressError, self.delete)
        self.assertIn('server old-server: its host host-1 last reported to Nova 26 s', str(error))
        self.assertIn('old-server', self.cloud.servers)

    def test_deletes_when_nova_knows_whether_the_host_works(self):
        for state, age_sec in (('up', 25), ('up', 0), ('down', 26), ('down', 3600)):
            self.add_server()
            self.add_service(state, age_sec)
            self.delete()
            self.assertEqual({}, self.cloud.servers, (state, age_sec))

    def test_deletes_when_the_host_has_reported_since_the_failover_was_requested(self):
        self.add_server()
        self.add_service('up', age_sec=5)
        for since_sec in (3, 5):
            since = NOW - datetime.timedelta(seconds=since_sec)
            self.assertRaises(exceptions.InProgressError, self.delete, since)
        self.delete(NOW - datetime.timedelta(seconds=6))
        self.assertEqual({}, self.cloud.servers)

    def test_deletes_from_a_host_of_which_nova_shows_no_state(self):
        """Nova shows neither for a host in a cell that does not answer."""
        unknown = {'host': 'host-1', 'binary': 'nova-compute', 'status': 'UNKNOWN'}
        for service in (None, unknown, unknown | {'state': 'up', 'updated_at': None}):
            self.add_server()
            self.cloud.services['host-1'] = service
            self.delete()
            self.assertEqual({}, self.cloud.servers, service)

    def test_deletes_a_server_that_is_on_no_host(self):
        self.add_server(**{'OS-EXT-SRV-ATTR:host': None})
        self.delete()
        self.assertEqual({}, self.cloud.servers)

    def test_boots_what_trove_would_boot(self):
        server_id = self.servers.boot(self.record, None)
        request = self.cloud.servers[server_id]
        self.assertEqual(('db1', 'image', '7'), self.identity(request))
        self.assertEqual([{'port': 'port'}, {'port': 'new-management'}], request['networks'])
        user_data = base64.b64decode(request['user_data']).decode()
        self.assertIn('write_files', user_data)
        self.assertIn(f'trove_instance_id_{self.instance.id}', request['tags'])
        self.assertEqual(self.instance.id, request['metadata']['trove_instance_id'])

    def test_boots_on_a_host(self):
        server_id = self.servers.boot(self.record, 'host-2')
        request = self.cloud.servers[server_id]
        # A zone with a host would bypass the filters of the scheduler.
        self.assertEqual(('host-2', None), (request['host'], request.get('availability_zone')))

    # Server groups.

    def add_group(self, policy, *members, name='another'):
        self.cloud.groups.append(
            {'id': f'group-{name}', 'name': name, 'policy': policy, 'members': list(members)}
        )

    def add_hosts(self, *hosts):
        for host in hosts:
            self.add_service('up', 0, host)

    def hint(self, host):
        self.servers.boot(self.record, host)
        method, *_rest, body = self.cloud.requests[-1]
        self.assertEqual('POST', method)
        return body.get('os:scheduler_hints', {}).get('group')

    def test_group_of_an_instance(self):
        self.assertFalse(self.servers.is_in_group(self.record))
        self.add_group('anti-affinity', 'server-of-another')
        self.add_group('affinity', 'old-server')
        self.assertTrue(self.servers.is_in_group(self.record))
        self.cloud.groups[1] = {**self.cloud.groups[0], 'name': f'locality_{self.instance.id}'}
        self.assertTrue(self.servers.is_in_group(self.record))
        del self.cloud.groups[1]
        self.assertFalse(self.servers.is_in_group(self.record))

    def add_relative(self, **values):
        row = trove_database.add_instance(self.instance.tenant_id, 'other-volume')
        row.update(compute_instance_id=f'server-of-{row.id}', **values)
        server = {'id': row.compute_instance_id, 'OS-EXT-SRV-ATTR:host': 'host-2'}
        self.cloud.servers[row.compute_instance_id] = {'status': 'ACTIVE', **server}
        return row

    def test_group_of_a_replica_whose_old_server_is_gone(self):
        """The group has the name of the source, or of the instance that was the source once."""
        source = self.add_relative()
        self.instance.update(slave_of_id=source.id)
        self.add_group('anti-affinity', name=f'locality_{source.id}')
        self.assertTrue(self.servers.is_in_group(self.record))
        self.cloud.groups.clear()
        self.add_group(
            'anti-affinity', self.add_relative(slave_of_id=source.id).compute_instance_id
        )
        self.assertTrue(self.servers.is_in_group(self.record))

    def test_new_server_is_kept_apart_from_the_other_members(self):
        replica = self.add_relative(slave_of_id=self.instance.id)
        self.add_hosts('host-1', 'host-2', 'host-3')
        for policy in ('anti-affinity', 'soft-anti-affinity'):
            self.cloud.groups.clear()
            self.add_group(policy, replica.compute_instance_id, 'old-server', 'gone')
            self.assertEqual('group-another', self.hint('host-3'))
            for one in range(9):
                record = self.new_record(old_host='host-1', replacement_id=f'{one}')
                self.assertEqual(['host-3', 'host-2'], self.servers.find_other_hosts(record))

    def test_group_does_not_prevent_a_boot(self):
        replica = self.add_relative(slave_of_id=self.instance.id)
        self.add_group('anti-affinity', replica.compute_instance_id)
        # Nova would refuse it there, and Nova may find no other host.
        for host in ('host-2', None):
            self.assertIsNone(self.hint(host))
        self.cloud.groups[0]['policy'] = 'affinity'
        self.assertIsNone(self.hint('host-3'))

    def test_groups_that_nova_does_not_show(self):
        self.add_hosts('host-1', 'host-2')
        self.cloud.group_failure = True
        self.assertRaises(exceptions.ServiceUnavailableError, self.servers.is_in_group, self.record)
        self.assertEqual(['host-1', 'host-2'], sorted(self.servers.find_other_hosts(self.record)))
        self.assertIsNone(self.hint('host-2'))

    def identity(self, request):
        return request['name'], request['imageRef'], request['flavorRef']

    def test_booted_server_keeps_the_volume(self):
        self.servers.boot(self.record, None)
        (body,) = (body for method, *_rest, body in self.cloud.requests if method == 'POST')
        (volume,) = (
            one
            for one in body['server']['block_device_mapping_v2']
            if one['source_type'] == 'volume'
        )
        self.assertEqual(('volume', False), (volume['uuid'], volume['delete_on_termination']))

    def test_finds_what_it_has_booted(self):
        """Other servers of the instance have the same tag: the old one, and a bound guest."""
        tag = f'trove_instance_id_{self.instance.id}'
        self.add_server(tags=[tag], metadata={})
        self.assertEqual([], self.servers.find_booted(self.record))
        server_id = self.servers.boot(self.record, None)
        (found,) = self.servers.find_booted(self.record)
        self.assertEqual(server_id, found.server_id)
        other = self.new_record(replacement_id='other')
        self.assertEqual([], self.servers.find_booted(other))
        self.cloud.servers[server_id]['status'] = 'DELETED'
        self.assertEqual([], self.servers.find_booted(self.record))

    def test_finds_the_flavor_of_what_it_has_booted(self):
        server_id = self.servers.boot(self.record, None)
        other = dataclasses.replace(self.record, flavor_id='other')
        (found,) = self.servers.find_booted(other)
        self.assertEqual(self.record.flavor_id, found.flavor_id)
        # As an earlier release has booted it.
        del self.cloud.servers[server_id]['metadata'][replacement_servers.FLAVOR_KEY]
        (found,) = self.servers.find_booted(self.record)
        self.assertIsNone(found.flavor_id)

    def test_boots_nothing_for_a_deleted_instance(self):
        self.instance.update(deleted=True)
        self.assertRaises(exceptions.ReplacementCanceledError, self.servers.boot, self.record, None)
        self.assertEqual({}, self.cloud.servers)
