# SPDX-License-Identifier: Apache-2.0
"""Trove's creation of an instance, on the server of a warm guest and without one."""

import datetime
import types

import fixtures
from neutronclient.common import exceptions as neutron_exceptions
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context
from trove.common import exception as trove_exceptions
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import warm_server

CONF = trove_cfg.CONF
TASKS = 'trove.taskmanager.models.FreshInstanceTasks'
NOW = datetime.datetime(2026, 1, 1)
GUEST = guest_helpers.record(
    'guest', NOW, GuestState.CLAIMED, server_id='warm-server', port_id='warm-port'
)


class Guests:
    """The warm guests."""

    def __init__(self):
        self.waiting = [GUEST]
        self.claims, self.requests, self.retired, self.released = [], [], [], []
        self.errors = {}

    def can_fence(self, volume_type):
        return volume_type == 'nvme'

    def claim(self, *wanted):
        self.claims.append(wanted)
        if 'claim' in self.errors:
            raise self.errors['claim']
        return self.waiting.pop() if self.waiting else None

    def bind(self, guest, request):
        self.requests.append(request)
        if 'bind' in self.errors:
            raise self.errors['bind']

    def release(self, guest):
        self.released.append(guest)

    def retire(self, guest, reason):
        self.retired.append(reason)


class Neutron:
    """Neutron with the ports of an instance and of a guest."""

    def __init__(self):
        self.ports = {'warm-port': {'name': 'trove-guest-guest'}}
        self.full = set()

    def create_port(self, body):
        port = dict(body['port'])
        if port['network_id'] in self.full:
            raise neutron_exceptions.IpAddressAlreadyAllocatedClient()
        port_id = f'port-{len(self.ports)}'
        self.ports[port_id] = port
        return {'port': port | {'id': port_id, 'fixed_ips': [{'subnet_id': 'subnet'}]}}

    def update_port(self, port_id, body):
        self.ports[port_id] |= body['port']

    def list_ports(self, **_filters):
        return {'ports': []}

    def create_security_group(self, body):
        return {'security_group': {'id': 'group'}}

    def create_security_group_rule(self, _rule):
        return None


class WarmServerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.guests, self.neutron, self.booted, self.prepared = Guests(), Neutron(), [], []
        self.volumes_fail = False
        self.patch('trove.common.clients.create_neutron_client', lambda *_, **__: self.neutron)
        servers = types.SimpleNamespace(
            get=lambda server_id: types.SimpleNamespace(id=server_id), create=self.boot
        )
        nova = types.SimpleNamespace(servers=servers)
        self.patch('trove.common.clients.create_nova_client', lambda *_, **__: nova)
        volumes = types.SimpleNamespace(create=self.create_volume, get=self.show_volume)
        cinder = types.SimpleNamespace(volumes=volumes)
        self.patch('trove.taskmanager.models.create_cinder_client', lambda *_: cinder)
        self.patch(f'{TASKS}._render_config', lambda *_: types.SimpleNamespace(config_contents=''))
        self.patch(f'{TASKS}.get_guest', lambda _self: types.SimpleNamespace(prepare=self.prepare))
        self.set('enable_access_check', False, 'network')
        self.set('network_isolation', False, 'network')
        self.set('management_networks', ['other', 'management'])
        self.set('management_security_groups', ['management-group'])
        row = trove_database.add_instance(
            'project', None, server_id=None, task_status=InstanceTasks.BUILDING
        )
        context = trove_context.TroveContext(project_id='project', user_id='user')
        self.instance = warm_server.WarmServerTasks.load(context, row.id)
        self.instance.guests = self.guests

    def patch(self, name, value):
        self.useFixture(fixtures.MonkeyPatch(name, value))

    def set(self, name, value, group=None):
        CONF.set_override(name, value, group)
        self.addCleanup(CONF.clear_override, name, group)

    def prepare(self, *_arguments, **options):
        self.prepared.append(options)

    def create_volume(self, **request):
        if self.volumes_fail:
            raise exceptions.ServiceUnavailableError('no room')
        return self.show_volume('volume')

    def show_volume(self, volume_id):
        return types.SimpleNamespace(id=volume_id, size=1, status='available')

    def boot(self, name, image_id, flavor_id, **request):
        self.booted.append(request)
        return types.SimpleNamespace(id='booted-server')

    def create(self, **facts):
        request = {
            'flavor': {'id': 'flavor', 'ram': 1024},
            'image_id': 'image',
            'databases': [],
            'users': [],
            'datastore_manager': 'mysql',
            'packages': '',
            'volume_size': 1,
            'backup_id': None,
            'availability_zone': 'zone',
            'root_password': None,
            'nics': [{'network_id': 'tenant'}, {'network_id': 'management'}],
            'overrides': None,
            'cluster_config': None,
            'snapshot': None,
            'volume_type': 'nvme',
            'modules': None,
            'scheduler_hints': None,
            'access': None,
            'ds_version': '9.7',
        }
        self.instance.create_instance(**request | facts)

    def server_id(self):
        return trove_database.instance(self.instance.id).compute_instance_id

    def assert_booted(self):
        self.assertEqual('booted-server', self.server_id())
        (request,) = self.booted
        tenant, management = (self.neutron.ports[nic['port-id']] for nic in request['nics'])
        self.assertEqual('tenant', tenant['network_id'])
        self.assertEqual(
            ('management', ['management-group'], f'trove-{self.instance.id}'),
            (management['network_id'], management['security_groups'], management['name']),
        )
        return request

    def test_guest_becomes_the_server(self):
        self.create()
        self.assertEqual('warm-server', self.server_id())
        self.assertEqual([], self.booted)
        (request,) = self.guests.requests
        self.assertEqual(('volume', 'db1'), (request.volume_id, request.name))
        (tenant_port,) = request.port_ids
        self.assertEqual('tenant', self.neutron.ports[tenant_port]['network_id'])
        self.assertIn(f'guest_id={self.instance.id}', '\n'.join(request.files.values()))
        self.assertEqual(self.instance.id, request.metadata['trove_instance_id'])
        # Trove finds the servers of instances by this tag.
        self.assertIn(f'trove_instance_id_{self.instance.id}', request.tags)
        self.assertEqual(1, len(self.prepared))
        self.assertEqual([], self.guests.retired)

    def test_server_has_the_tags_and_metadata_that_trove_gives(self):
        self.create()
        (bound,) = self.guests.requests
        self.guests.waiting = []
        self.create()
        (booted,) = self.booted
        # Trove 25 gives no tags; those that are given nevertheless are found after an upgrade.
        if 'tags' in booted:
            self.assertEqual(set(booted['tags']), set(bound.tags))
        self.assertIn(f'trove_instance_id_{self.instance.id}', bound.tags)
        self.assertEqual(booted['meta'], bound.metadata)

    def test_tags_that_nova_refuses(self):
        self.instance.context.user_id = 64 * 'u'
        self.create()
        (bound,) = self.guests.requests
        self.assertLessEqual(max(map(len, bound.tags)), 60)
        self.assertIn(f'trove_instance_id_{self.instance.id}', bound.tags)
        self.assertEqual(64 * 'u', bound.metadata['trove_user_id'])

    def test_trove_finds_the_management_port_when_it_deletes_the_instance(self):
        self.create()
        self.assertEqual(
            {
                'name': f'trove-{self.instance.id}',
                'description': f'Management port for trove instance {self.instance.id}',
                'security_groups': ['management-group'],
            },
            self.neutron.ports['warm-port'],
        )

    def test_claims_what_was_requested(self):
        self.create()
        version = trove_database.datastore_version()
        self.assertEqual(
            [(self.instance.id, version, 'flavor', 'image', 'zone')], self.guests.claims
        )

    def test_boots_a_server_if_no_guest_waits(self):
        self.guests.waiting = []
        self.create()
        self.assert_booted()

    def test_boots_a_server_if_the_claim_fails(self):
        for error in (exceptions.ServiceUnavailableError('no database'), ValueError('a defect')):
            self.booted.clear()
            self.guests.errors['claim'] = error
            self.create()
            self.assert_booted()

    def test_boots_a_server_with_another_port_if_the_binding_fails(self):
        self.guests.errors['bind'] = exceptions.GuestUnavailableError('no answer')
        self.create()
        request = self.assert_booted()
        self.assertNotIn('warm-port', [nic['port-id'] for nic in request['nics']])
        # The binding has retired the guest.
        self.assertEqual([], self.guests.retired)

    def test_boots_no_server_beside_a_guest_that_may_write(self):
        self.guests.errors['bind'] = exceptions.NotFencedError('it may still write')
        error = self.assertRaises(trove_exceptions.TroveError, self.create)
        self.assertIn('may still write', str(error))
        self.assertEqual([], self.booted)
        row = trove_database.instance(self.instance.id)
        self.assertEqual(InstanceTasks.BUILDING_ERROR_SERVER, row.task_status)

    def test_releases_no_guest_that_may_know_the_instance(self):
        """Such as if the process is told to exit in the middle of the binding."""
        self.guests.errors['bind'] = SystemExit()
        self.assertRaises(SystemExit, self.create)
        self.assertEqual(([], []), (self.guests.released, self.booted))

    def test_boots_a_server_if_the_port_cannot_be_changed(self):
        del self.neutron.ports['warm-port']
        self.create()
        self.assert_booted()
        self.assertEqual(['its port could not be changed'], self.guests.retired)
        self.assertEqual([], self.guests.requests)

    def assert_fails_and_releases_the_guest(self):
        self.assertRaises(trove_exceptions.TroveError, self.create)
        self.assertEqual(([GUEST], []), (self.guests.released, self.guests.retired))
        self.assertEqual([], self.guests.requests)
        # Trove deletes the ports of the failed instance by their name.
        self.assertEqual({'name': 'trove-guest-guest'}, self.neutron.ports['warm-port'])

    def test_releases_the_guest_if_the_instance_has_no_volume(self):
        self.volumes_fail = True
        self.assert_fails_and_releases_the_guest()

    def test_releases_the_guest_if_the_address_is_in_use(self):
        self.neutron.full = {'tenant'}
        self.assert_fails_and_releases_the_guest()

    def test_instances_that_need_a_server_of_their_own(self):
        for facts in (
            {'scheduler_hints': {'group': 'group'}},
            {'cluster_config': {'id': 'cluster'}},
        ):
            self.booted.clear()
            self.create(**facts)
            self.assert_booted()
        self.assertEqual([], self.guests.claims)

    def test_volume_that_cannot_be_fenced(self):
        self.create(volume_type='lvm')
        self.assertEqual([], self.guests.claims)
        self.assert_booted()

    def test_default_volume_type(self):
        self.set('cinder_volume_type', 'nvme')
        self.create(volume_type=None)
        self.assertEqual(1, len(self.guests.claims))

    def test_without_management_networks(self):
        self.set('management_networks', [])
        self.create(nics=[{'network_id': 'tenant'}])
        self.assertEqual([], self.guests.claims)
        self.assertEqual(1, len(self.booted))

    def test_with_network_isolation(self):
        self.set('network_isolation', True, 'network')
        self.patch(f'{TASKS}._get_user_nic_info', lambda *_: {})
        self.create()
        self.assertEqual([], self.guests.claims)
        self.assert_booted()

    def test_without_warm_guests(self):
        self.instance.guests = None
        self.create()
        self.assert_booted()
