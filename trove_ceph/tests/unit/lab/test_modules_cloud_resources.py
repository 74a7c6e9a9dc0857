# SPDX-License-Identifier: Apache-2.0
"""Resources of a cloud are created once, with a fake cloud."""

import copy
import itertools
import types
from unittest import mock

import fixtures
import openstack
from oslotest import base

from trove_ceph.tests.unit.lab import plugins

cloud_resources = plugins.load('modules/cloud_resources.py', 'lab_modules_cloud_resources')

_AUTH = {
    'OS_AUTH_URL': 'http://127.0.0.1:5000/v3',
    'OS_USERNAME': 'admin',
    'OS_PASSWORD': 'x',
    'OS_PROJECT_NAME': 'admin',
    'OS_REGION_NAME': 'RegionOne',
    'OS_USER_DOMAIN_ID': 'default',
    'OS_PROJECT_DOMAIN_ID': 'default',
}
_RESOURCES = {
    'roles': ['creator'],
    'projects': ['tenant'],
    'users': [{'name': 'sue', 'password': 'pw', 'project': 'tenant', 'roles': ['creator']}],
    'services': [{'type': 'database', 'name': 'trove', 'url': 'http://10.20.0.1:8779'}],
    'flavors': [{'name': 'db.small', 'ram': 2048, 'vcpus': 2, 'disk': 5}],
    'networks': [
        {'name': 'public', 'cidr': '10.21.0.0/24', 'external': True, 'physical_network': 'ext'},
        {
            'name': 'net',
            'cidr': '10.22.0.0/24',
            'project': 'tenant',
            'gateway': None,
            'reserved': ['10.22.0.1'],
        },
    ],
    'routers': [{'name': 'r', 'project': 'tenant', 'external': 'public', 'networks': ['net']}],
    'security_groups': [{'name': 'mgmt', 'ports': [22, 3306]}],
    'keypairs': [
        {'name': 'k', 'public_key': 'ssh', 'user': 'sue', 'project': 'tenant', 'password': 'pw'}
    ],
}


class FakeCloud:
    """The SDK's methods over lists; every created object keeps its arguments."""

    def __init__(self):
        self.objects = {}
        self.assigned = set()
        self.updated = []
        self._ids = itertools.count(1)
        self.identity = self.compute = self.network = self
        self._make('project', name='admin')

    def all(self, kind):
        return self.objects.setdefault(kind, [])

    def _make(self, kind, **fields):
        thing = types.SimpleNamespace(id=f'{kind}-{next(self._ids)}', **fields)
        self.all(kind).append(thing)
        return thing

    def __getattr__(self, name):
        verb, _, kind = name.partition('_')
        if verb == 'create' and kind:
            return lambda **fields: self._make(kind, **fields)
        if verb == 'find' and kind:
            return lambda wanted, ignore_missing=True: self._find(kind, wanted, ignore_missing)
        if name.endswith('s') and not name.startswith('_'):
            return lambda **filters: self._list(name[:-1], filters)
        raise AttributeError(name)

    def _find(self, kind, name, ignore_missing):
        for thing in self.all(kind):
            if thing.name == name:
                return thing
        if not ignore_missing:
            raise openstack.exceptions.NotFoundException(f'no {kind} {name}')
        return None

    def _list(self, kind, filters):
        return [
            thing
            for thing in self.all(kind)
            if all(getattr(thing, key) == value for key, value in filters.items())
        ]

    def create_network(self, **fields):
        return self._make('network', subnet_ids=[], **fields)

    def create_subnet(self, network_id, **fields):
        subnet = self._make('subnet', network_id=network_id, **fields)
        (network,) = self._list('network', {'id': network_id})
        network.subnet_ids.append(subnet.id)
        return subnet

    def add_interface_to_router(self, router, subnet_id):
        self._make('port', device_id=router.id, fixed_ips=[{'subnet_id': subnet_id}])

    def assign_project_role_to_user(self, project, user, role):
        self.assigned.add((project.name, user.name, role.name))

    def update_endpoint(self, endpoint, url):
        endpoint.url = url


class CloudResourcesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = FakeCloud()
        self.connect = mock.Mock(return_value=self.cloud)
        self.useFixture(fixtures.MonkeyPatch('openstack.connect', self.connect))
        self.resources = copy.deepcopy(_RESOURCES)

    def _end(self, **resources):
        return plugins.run(cloud_resources, auth=_AUTH, resources=resources or self.resources)

    def _made(self, **resources):
        end = self._end(**resources)
        self.assertFalse(end.failed, end.result)
        self.assertEqual(bool(end.result['made']), end.result['changed'])
        return end.result['made']

    def test_second_run_makes_nothing(self):
        self.assertEqual(18, len(self._made()))
        before = copy.deepcopy(self.cloud.objects)
        self.assertEqual([], self._made())
        self.assertEqual(before, self.cloud.objects)

    def test_a_run_that_was_cut_off_is_completed(self):
        """Interrupted after each thing made; the next run must reach the same end."""
        self._made()
        whole = {kind: len(things) for kind, things in self.cloud.objects.items()}
        for cut in range(1, sum(whole.values())):
            self.cloud = FakeCloud()
            self.connect.return_value = self.cloud
            make, left = self.cloud._make, iter(range(cut))

            def make_or_stop(kind, make=make, left=left, **fields):
                if next(left, None) is None:
                    raise openstack.exceptions.SDKException('connection lost')
                return make(kind, **fields)

            self.cloud._make = make_or_stop
            if not self._end().failed:
                break
            self.cloud._make = make
            self._made()
            found = {kind: len(things) for kind, things in self.cloud.objects.items()}
            self.assertEqual(whole, found, cut)
            self.assertEqual({('tenant', 'sue', 'creator')}, self.cloud.assigned)
        self.assertGreater(cut, 15)

    def test_ids(self):
        ids = self._end().result['ids']
        public = self.cloud.find_network('public')
        self.assertEqual(public.id, ids['networks']['public'])
        self.assertEqual({'mgmt'}, set(ids['security_groups']))

    def test_networks(self):
        self._made()
        public, net = self.cloud.find_network('public'), self.cloud.find_network('net')
        self.assertEqual(
            (True, 'flat', 'ext'),
            (
                public.is_router_external,
                public.provider_network_type,
                public.provider_physical_network,
            ),
        )
        tenant = self.cloud.find_project('tenant')
        self.assertEqual((False, tenant.id), (net.is_router_external, net.project_id))
        first, second = self.cloud.all('subnet')
        self.assertFalse(hasattr(first, 'gateway_ip') or hasattr(first, 'allocation_pools'))
        self.assertIsNone(second.gateway_ip)
        self.assertEqual([{'start': '10.22.0.2', 'end': '10.22.0.254'}], second.allocation_pools)

    def test_moved_endpoint(self):
        self._made()
        self.resources['services'][0]['url'] = 'http://10.9.0.1:8779'
        self.assertEqual(3, len(self._made()))
        self.assertEqual({'http://10.9.0.1:8779'}, {one.url for one in self.cloud.all('endpoint')})

    def test_added_port(self):
        self._made()
        self.resources['security_groups'][0]['ports'].append(80)
        self.assertEqual(['tcp 80 in mgmt'], self._made())

    def test_key_pair_is_made_by_its_owner(self):
        self._made()
        auth = self.connect.call_args.kwargs['auth']
        self.assertEqual(
            ('sue', 'pw', 'tenant'), (auth['username'], auth['password'], auth['project_name'])
        )

    def test_kinds_that_do_not_exist(self):
        end = self._end(roles=['creator'], volumes=['v'])
        self.assertTrue(end.failed)
        self.assertIn("['volumes']", end.result['msg'])
        self.assertEqual([], self.cloud.all('role'))

    def test_failure_says_what_was_made(self):
        end = self._end(
            roles=['creator'],
            users=[{'name': 'u', 'password': 'p', 'project': 'absent', 'roles': []}],
        )
        self.assertTrue(end.failed)
        self.assertIn('no project absent', end.result['msg'])
        self.assertEqual(['role creator'], end.result['made'])


class PoolsTest(base.BaseTestCase):
    def _pools(self, cidr, *reserved):
        return [(p['start'], p['end']) for p in cloud_resources._pools(cidr, reserved)]

    def test_hole_in_the_middle(self):
        self.assertEqual(
            [('10.0.0.1', '10.0.0.2'), ('10.0.0.4', '10.0.0.6')],
            self._pools('10.0.0.0/29', '10.0.0.3'),
        )

    def test_ends_and_neighbours(self):
        self.assertEqual(
            [('10.0.0.4', '10.0.0.5')],
            self._pools('10.0.0.0/29', '10.0.0.6', '10.0.0.2', '10.0.0.1', '10.0.0.3', '10.0.0.1'),
        )

    def test_all_reserved(self):
        self.assertEqual([], self._pools('10.0.0.0/30', '10.0.0.1', '10.0.0.2'))

    def test_addresses_of_elsewhere_reserve_nothing(self):
        whole = [('10.0.0.1', '10.0.0.6')]
        for address in ('9.0.0.1', '10.0.0.0', '10.0.0.7', '11.0.0.1'):
            self.assertEqual(whole, self._pools('10.0.0.0/29', address), address)
