# SPDX-License-Identifier: Apache-2.0
"""The servers and ports of guests, with the real clients of Nova and Neutron."""

import base64
import datetime
import io
import json
import types
import urllib.parse

import glanceclient.exc
import novaclient.client
import requests
from keystoneauth1 import session
from neutronclient.v2_0 import client as neutron_client
from trove.common import cfg as trove_cfg
from trove.datastore import models as datastore_models
from trove.taskmanager import models as trove_models

from trove_ceph import exceptions
from trove_ceph.db import transactions
from trove_ceph.strategies.guests import hot_spec, pool_spec
from trove_ceph.strategies.guests.dependencies import GuestResource, ResourceKind
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import test_guest_config
from trove_ceph.trove_adapter import guest_config, guest_keys, guest_servers, nova

CONF = trove_cfg.CONF
POOLS = ('mysql/9.7:small', 'mysql/9.7:7:zone')
NETWORK = 'management'


class Cloud(requests.adapters.BaseAdapter):
    """Nova and Neutron in memory.

    :ivar services: the services nova-compute, as Nova shows them, by host
    """

    def __init__(self):
        super().__init__()
        self.servers, self.ports, self.requests = {}, {}, []
        self.flavors = {'7': 'small'}
        self.failure = None
        self.services = {}
        setattr(self, 'get_os-services', self.list_services)

    def send(self, request, **_kwargs):
        parsed = urllib.parse.urlparse(request.url)
        query = dict(urllib.parse.parse_qsl(parsed.query))
        kind, _, rest = parsed.path.partition('/v3/service')[2].strip('/').partition('/')
        if kind == 'v2.0':
            kind, _, rest = rest.partition('/')
        body = json.loads(request.body) if request.body else None
        self.requests.append((request.method, kind, rest, query, body))
        if self.failure:
            return self._answer(request, self.failure, {'forbidden': {'message': 'Quota exceeded'}})
        found = getattr(self, f'{request.method.lower()}_{kind}')(rest, query, body)
        if found is None:
            return self._answer(request, 404, {})
        return self._answer(request, 200, found)

    def close(self):
        pass

    @staticmethod
    def _answer(request, status, body):
        answer = requests.Response()
        answer.status_code, answer.url, answer.request = status, request.url, request
        answer.headers['Content-Type'] = 'application/json'
        answer.raw = io.BytesIO(json.dumps(body).encode())
        return answer

    def list_services(self, _rest, query, _body):
        assert query['binary'] == 'nova-compute'
        if 'host' not in query:
            return {'services': list(self.services.values())}
        found = self.services.get(query['host'])
        return {'services': [] if found is None else [found]}

    def get_servers(self, rest, query, _body):
        if rest != 'detail':
            return {'server': self.servers[rest]} if rest in self.servers else None
        prefix = query['name'].removeprefix('^')
        found = [one for one in self.servers.values() if one['name'].startswith(prefix)]
        return {'servers': [] if 'marker' in query else found}

    def post_servers(self, rest, _query, body):
        if rest.endswith('/action'):
            assert body == {'forceDelete': None}
            return {} if self.servers.pop(rest.partition('/')[0], None) else None
        server = body['server'] | {'id': f'server-{len(self.servers)}', 'status': 'BUILD'}
        self.servers[server['id']] = server
        return {'server': server}

    def get_flavors(self, rest, query, _body):
        flavors = [{'id': one, 'name': name, 'ram': 2048} for one, name in self.flavors.items()]
        if rest == 'detail':
            assert query['is_public'] == 'None'
            return {'flavors': flavors}
        return next(({'flavor': one} for one in flavors if one['id'] == rest), None)

    def get_ports(self, _rest, query, _body):
        return {
            'ports': [
                one
                for one in self.ports.values()
                if all(one[name] == value for name, value in query.items())
            ]
        }

    def post_ports(self, _rest, _query, body):
        port = body['port'] | {'id': f'port-{len(self.ports)}'}
        self.ports[port['id']] = port
        return {'port': port}

    def delete_ports(self, rest, _query, _body):
        return {} if self.ports.pop(rest.removesuffix('.json'), None) else None


class Images:
    """Glance.

    :ivar properties: those of each image
    :ivar answers: whether it answers a request
    """

    def __init__(self):
        self.known = {'image'}
        self.properties = {}
        self.answers = True

    def get(self, image_id):
        if not self.answers:
            raise glanceclient.exc.InvalidEndpoint('no answer')
        if image_id not in self.known:
            raise glanceclient.exc.HTTPNotFound()
        return self.properties


class GuestServersTest(test_guest_config.ConfigTestCase):
    def setUp(self):
        super().setUp()
        trove_database.datastore_version()
        self.set('management_networks', [NETWORK])
        self.set('network_isolation', False, 'network')
        self.set('management_security_groups', ['group'])
        self.cloud, self.images = Cloud(), Images()
        self.now = transactions.utcnow()
        http = requests.Session()
        http.mount('http://', self.cloud)
        cloud = session.Session(cinder_http.Token('service', 'admin'), session=http)
        self.specs = pool_spec.parse(POOLS)
        self.servers = guest_servers.GuestServers(
            self.specs,
            novaclient.client.Client(nova.API_VERSION, session=cloud),
            neutron_client.Client(session=cloud),
            types.SimpleNamespace(images=self.images),
            now=lambda: self.now,
        )

    def request_key(self, flavor='7', image='image', zone=None, version_id=None):
        version_id = version_id or trove_database.datastore_version()
        return self.servers.request_key(version_id, flavor, image, zone)

    def guest(self, **values):
        keys = {'encrypted_key': self.servers.make_keys(), 'port_id': 'port'}
        return guest_helpers.record('guest-id', None, **keys | values)

    # What fits.

    def test_guest_of_a_pool_fits_a_request(self):
        key = self.servers.pool_key(self.specs[0])
        self.assertEqual(('7', 'image', None), (key.flavor_id, key.image_id, key.availability_zone))
        self.assertEqual(POOLS[0], key.pool)
        self.assertEqual(key, self.request_key())
        self.assertEqual(key, self.request_key(zone=''))

    def test_settings_are_those_of_a_new_instance(self):
        """Except for Trove's server_id, which the agent overrides."""
        found = self.servers.start_settings(self.specs[0])
        self.assertEqual('9.7', found.version)
        self.assertIn('[mysqld]', found.contents)
        digest = self.digest(found.contents)
        self.assertEqual(digest, self.digest(self.render('an instance', 2048)))
        self.assertNotEqual(digest, self.digest(self.render('an instance', 512)))

    def render(self, instance_id, ram):
        """Return the configuration that Trove renders for an instance."""
        version_id = trove_database.datastore_version()
        version = datastore_models.DatastoreVersion.load_by_uuid(version_id)
        instance = types.SimpleNamespace(id=instance_id, datastore_version=version)
        flavor = {'id': '7', 'name': 'small', 'ram': ram}
        return trove_models.FreshInstanceTasks._render_config(instance, flavor).config_contents

    def digest(self, contents):
        return hot_spec.HotSpec(hot_spec.HotVolume('nvme', 1), '9.7', contents).digest

    def test_settings_of_a_flavor_that_is_gone(self):
        self.cloud.flavors.clear()
        self.assertRaises(
            exceptions.InvalidConfigurationError, self.servers.start_settings, self.specs[0]
        )

    def test_request_in_a_zone(self):
        key = self.servers.pool_key(self.specs[1])
        self.assertEqual(('zone', POOLS[1]), (key.availability_zone, key.pool))
        self.assertEqual(key, self.request_key(zone='zone'))
        self.assertIsNone(self.request_key(zone='other'))

    def test_requests_without_a_pool(self):
        self.assertIsNone(self.request_key(flavor='8'))
        self.assertIsNone(self.request_key(version_id=trove_database.foreign_version()))

    def test_request_asks_nova_once(self):
        self.request_key()
        self.cloud.requests.clear()
        self.request_key()
        self.assertEqual([], self.cloud.requests)

    def test_request_after_the_flavor_was_created_anew(self):
        self.assertIsNotNone(self.request_key(flavor='7'))
        self.cloud.flavors = {'8': 'small'}
        self.now += datetime.timedelta(seconds=61)
        self.assertIsNone(self.request_key(flavor='7'))
        self.assertEqual('8', self.request_key(flavor='8').flavor_id)

    def test_request_with_another_image(self):
        """The API has found a newer image than the keeper."""
        self.assertNotEqual(self.servers.pool_key(self.specs[0]), self.request_key(image='new'))

    def test_configuration_is_part_of_the_key(self):
        before = self.servers.pool_key(self.specs[0])
        for name, value in (
            ('management_networks', ['another']),
            ('management_security_groups', ['another']),
            ('nova_keypair', 'another'),
            ('use_nova_server_config_drive', True),
            ('controller_address', '192.0.2.1'),
        ):
            known = CONF[name]
            self.set(name, value)
            self.assertNotEqual(before, self.servers.pool_key(self.specs[0]), name)
            self.set(name, known)
        self.assertEqual(before, self.servers.pool_key(self.specs[0]))

    def test_pools_that_cannot_be_kept(self):
        for text, expected in (
            ('mysql/9.7:huge', 'no flavor with the name or id huge'),
            ('mysql/1.0:small', '1.0'),
            ('nothing/9.7:small', 'nothing'),
        ):
            (spec,) = pool_spec.parse([text])
            error = self.assertRaises(
                exceptions.InvalidConfigurationError, self.servers.pool_key, spec
            )
            self.assertIn(expected, str(error))
        self.images.known.clear()
        self.assertRaises(
            exceptions.InvalidConfigurationError, self.servers.pool_key, self.specs[0]
        )

    def test_configurations_without_warm_guests(self):
        for name, value, group in (
            ('network_isolation', True, 'network'),
            ('volume_rootdisk_support', True, None),
            ('management_networks', [], None),
        ):
            self.set(name, value, group)
            error = self.assertRaises(
                exceptions.InvalidConfigurationError, self.servers.pool_key, self.specs[0]
            )
            self.assertIn(name, str(error))
            self.assertRaises(exceptions.InvalidConfigurationError, self.request_key)

    # Servers.

    def test_boots_a_server(self):
        self.set('nova_keypair', 'key')
        guest = self.guest(availability_zone='zone')
        server_id = self.servers.create_server(self.specs[0], guest, None)
        created = self.cloud.servers[server_id]
        data = base64.b64decode(created.pop('user_data')).decode()
        keys = guest_keys.decrypt(guest.encrypted_key)
        version = test_guest_config.version()
        self.assertEqual(guest_config.user_data('guest-id', keys, version), data)
        self.assertEqual(
            {
                'id': server_id,
                'status': 'BUILD',
                'name': 'trove-guest-guest-id',
                'imageRef': 'image',
                'flavorRef': 'flavor',
                'networks': [{'port': 'port'}],
                'availability_zone': 'zone',
                'key_name': 'key',
                'min_count': 1,
                'max_count': 1,
                'metadata': {
                    'trove_ceph_guest_id': 'guest-id',
                    'trove_ceph_guest_pool': guest_helpers.POOL,
                },
            },
            created,
        )

    def test_boots_a_server_on_a_host(self):
        server_id = self.servers.create_server(self.specs[0], self.guest(), 'host-2')
        request = self.cloud.servers[server_id]
        # A zone with a host would bypass the filters of the scheduler.
        self.assertEqual(('host-2', None), (request['host'], request.get('availability_zone')))

    def test_other_hosts(self):
        for host, zone in (('host-1', 'east'), ('host-2', 'east'), ('host-3', 'west')):
            self.cloud.services[host] = {
                'host': host,
                'state': 'up',
                'status': 'enabled',
                'zone': zone,
            }
        self.assertEqual(set(), self.servers.list_disabled_hosts())
        found = self.servers.find_other_hosts
        self.assertEqual({'host-2', 'host-3'}, set(found(self.guest(), 'host-1')))
        self.assertEqual(3, len(found(self.guest(), None)))
        east = self.guest(availability_zone='east')
        self.assertEqual(['host-2'], found(east, 'host-1'))
        for host in ('host-2', 'host-3'):
            self.cloud.services[host] |= {'status': 'disabled', 'disabled_reason': 'new disks'}
        # No other host of the zone of the third works.
        self.assertEqual({'host-2'}, self.servers.list_disabled_hosts())
        self.assertEqual([], found(east, 'host-1'))
        self.cloud.services['host-2']['disabled_reason'] = 'AUTO: Connection to libvirt lost'
        self.assertEqual(set(), self.servers.list_disabled_hosts())

    def test_lists_and_finds_servers(self):
        known = {'name': 'trove-guest-a', 'OS-EXT-SRV-ATTR:host': 'host'}
        self.cloud.servers = {
            '1': known | {'id': '1', 'status': 'ACTIVE'},
            '2': known | {'id': '2', 'status': 'ERROR', 'fault': {'message': 'no host'}},
            '3': known | {'id': '3', 'status': 'DELETED'},
            '4': {'id': '4', 'name': 'db1', 'status': 'ACTIVE'},
        }
        found = self.servers.list_servers()
        self.assertEqual(['trove-guest-a'], list(found))
        self.assertEqual(
            [('1', 'ACTIVE', 'host', ''), ('2', 'ERROR', 'host', 'no host')],
            [(one.server_id, one.status, one.host, one.fault) for one in found['trove-guest-a']],
        )
        self.assertIsNone(self.servers.find_server('3'))
        self.assertEqual('db1', self.servers.find_server('4').name)
        self.servers.delete_server('4')
        self.servers.delete_server('4')
        self.assertIsNone(self.servers.find_server('4'))

    def test_deletes_a_server_that_nova_keeps_for_a_while(self):
        """Until it is deleted it has the port, and the volume of a hot guest."""
        self.cloud.servers = {'1': {'id': '1', 'name': 'db1', 'status': 'SOFT_DELETED'}}
        self.assertEqual('SOFT_DELETED', self.servers.find_server('1').status)
        self.servers.delete_server('1')
        self.assertEqual({}, self.cloud.servers)

    def test_deletes_no_server_while_nova_does_not_know_whether_its_host_works(self):
        self.cloud.servers = {
            '1': {'id': '1', 'name': 'db1', 'status': 'ACTIVE', 'OS-EXT-SRV-ATTR:host': 'host'}
        }
        service = {'host': 'host', 'state': 'up', 'updated_at': '2026-01-01T12:00:00.000000'}
        self.cloud.services['host'] = service
        error = self.assertRaises(exceptions.InProgressError, self.servers.delete_server, '1')
        self.assertIn('server 1: its host host last reported', str(error))
        self.assertIn('1', self.cloud.servers)
        service['state'] = 'down'
        self.servers.delete_server('1')
        self.assertEqual({}, self.cloud.servers)

    def test_refusal_of_nova(self):
        self.cloud.failure = 403
        for verb, arguments in (
            (self.servers.create_server, (self.specs[0], self.guest(), None)),
            (self.servers.find_other_hosts, (self.guest(), 'host')),
            (self.servers.list_disabled_hosts, ()),
            (self.servers.list_servers, ()),
            (self.servers.list_resources, ()),
            (self.servers.find_server, ('1',)),
            (self.servers.delete_server, ('1',)),
            (self.servers.list_ports, ('guest-id',)),
            (self.servers.create_port, ('guest-id',)),
            (self.servers.delete_ports, (['port'],)),
            (self.servers.pool_key, (self.specs[0],)),
        ):
            error = self.assertRaises(exceptions.ServiceUnavailableError, verb, *arguments)
            self.assertIn('failed: ', str(error))

    def test_glance_that_does_not_answer(self):
        self.images.answers = False
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.servers.pool_key, self.specs[0]
        )
        self.assertIn('finding its image and its flavor failed: no answer', str(error))

    # Ports.

    def test_ports(self):
        port_id = self.servers.create_port('guest-id')
        port = {'id': port_id, 'name': 'trove-guest-guest-id', 'network_id': NETWORK}
        port['description'] = 'Management port for warm guest guest-id'
        self.assertEqual(port | {'security_groups': ['group']}, self.cloud.ports[port_id])
        # A tenant can choose any name.
        self.cloud.ports['x'] = port | {'id': 'x', 'network_id': 'of a tenant'}
        self.assertEqual([port_id], self.servers.list_ports('guest-id'))
        self.servers.delete_ports([port_id])
        self.servers.delete_ports([port_id])
        self.assertEqual(['x'], list(self.cloud.ports))

    def test_lists_servers_and_ports_of_guests(self):
        times = {'created': '2026-01-01T10:00:00Z'}

        def guest(guest_id):
            metadata = {guest_servers.GUEST_KEY: guest_id}
            return {'name': f'trove-guest-{guest_id}', 'metadata': metadata}

        self.cloud.servers = {
            '1': times | guest('a') | {'id': '1', 'status': 'ACTIVE'},
            '2': times | guest('b') | {'id': '2', 'status': 'DELETED'},
            # The database of a tenant, who has called it so.
            '3': times | guest('a') | {'id': '3', 'status': 'ACTIVE', 'metadata': {}},
        }
        self.cloud.ports = {
            one: {'id': one, 'name': name, 'network_id': network, 'created_at': times['created']}
            for one, name, network in (
                ('x', 'trove-guest-c', NETWORK),
                ('y', 'trove-guest-d', 'of a tenant'),
                ('z', 'trove-instance', NETWORK),
            )
        }
        created_at = datetime.datetime(2026, 1, 1, 10, tzinfo=datetime.UTC)
        server = GuestResource(ResourceKind.SERVER, '1', 'trove-guest-a', created_at)
        port = GuestResource(ResourceKind.PORT, 'x', 'trove-guest-c', created_at)
        self.assertEqual([server, port], self.servers.list_resources())
        self.assertEqual(['a', 'c'], [server.guest_id, port.guest_id])
        self.set('management_networks', [])
        self.assertEqual([server], self.servers.list_resources())

    def test_port_without_security_groups(self):
        self.set('management_security_groups', [])
        self.assertNotIn('security_groups', self.cloud.ports[self.servers.create_port('guest-id')])
