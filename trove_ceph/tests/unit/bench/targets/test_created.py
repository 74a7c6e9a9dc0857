# SPDX-License-Identifier: Apache-2.0
import fixtures
import troveclient.exceptions
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench import fakes
from trove_ceph.tests.unit.bench.targets import fake_cloud
from trove_ceph_bench import trove_operations
from trove_ceph_bench.targets import created, specification

UNAVAILABLE = exceptions.TargetUnavailableError
SPEC = {
    'create': {
        'name': 'bench-fleet',
        'like': 'shop',
        'flavor': {'ram_mib': 8192, 'vcpus': 4},
        'volume_gib': 100,
        'volume_type': 'nvme',
    },
    'number': 3,
}


class Instances:
    """Trove's instances: a new one is HEALTHY after some listings, or fails."""

    def __init__(self, listed, healthy_after=1, fails=False):
        self.listed = listed
        self.requests = []
        self.deleted = []
        self.refuses_deletion = None
        self._left = healthy_after
        self._fails = fails

    def list(self, marker=None):
        for one in self.listed:
            if one.status == 'BUILD':
                self._left -= 1
                if self._left < 0:
                    one.status = 'ERROR' if self._fails else 'ACTIVE'
                    one.operating_status = 'HEALTHY'
        return list(self.listed)

    def get(self, identity):
        return next(one for one in self.listed if one.id == identity)

    def create(self, name, **parameters):
        self.requests.append((name, parameters))
        new = fleet_member(name, status='BUILD', operating_status='')
        self.listed.append(new)
        return new

    def delete(self, identity):
        if self.refuses_deletion:
            raise self.refuses_deletion
        self.deleted.append(identity)
        self.listed = [one for one in self.listed if one.id != identity]


def fleet_member(name='bench-fleet-3', **more):
    facts = {
        'operating_status': 'HEALTHY',
        'flavor': {'id': 'big'},
        'volume': {'size': 100, 'type': 'nvme'},
    }
    return fake_cloud.instance(name, **facts | more)


def start_with(*more, **script):
    """Return Trove's instances: one of a tenant, and more."""
    source = fleet_member('shop', flavor={'id': 'small'}, volume={'size': 2})
    source.addresses[0]['network'] = 'net-1'
    return Instances([source, *more], **script)


def fake_trove():
    flavors = [
        fake_cloud.resource(id='small', name='db.small', ram=1024, vcpus=1),
        fake_cloud.resource(id='big', name='db.hci', ram=8192, vcpus=4),
    ]
    groups = [fake_cloud.resource(id='group-1', name='small-pool')]
    return fake_cloud.resource(
        instances=start_with(),
        flavors=fake_cloud.resource(list=lambda: flavors),
        configurations=fake_cloud.resource(list=lambda: groups),
    )


class CreatedTargetTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph_bench.trove_operations.time.sleep', lambda sec: None)
        )
        self.notes = []
        self.inner = fakes.Target('bench-fleet-3', self.notes)
        self.trove = fake_trove()

    def target(self, **changes):
        spec = SPEC | {'create': SPEC['create'] | changes}
        operations = trove_operations.Operations(self.trove, lambda phase: None)
        return created.CreatedTarget('fleet-3', spec, self.inner, lambda: (self.trove, operations))

    def names(self):
        return [one.name for one in self.trove.instances.listed]

    def test_the_instance_exists_only_while_entered(self):
        with self.target() as target:
            self.assertEqual(['shop', 'bench-fleet-3'], self.names())
            self.assertEqual(self.inner.address, target.address)
            self.assertEqual('create', target.disclose()['kind'])
            self.assertEqual(100, target.disclose()['given']['volume_gib'])
        self.assertEqual(['shop'], self.names())
        self.assertEqual([('enter', 'bench-fleet-3'), ('leave', 'bench-fleet-3')], self.notes)

    def test_the_request(self):
        with self.target():
            ((name, parameters),) = self.trove.instances.requests
        self.assertEqual('bench-fleet-3', name)
        self.assertEqual(
            ('big', {'size': 100, 'type': 'nvme'}, 'mysql', '9.7.4', [{'net-id': 'net-1'}]),
            tuple(
                parameters[key]
                for key in ('flavor_id', 'volume', 'datastore', 'datastore_version', 'nics')
            ),
        )
        self.assertEqual({'is_public': True}, parameters['access'])

    def test_flavor_by_name(self):
        with self.target(flavor={'name': 'db.small'}):
            self.assertEqual('small', self.trove.instances.requests[0][1]['flavor_id'])

    def test_configuration_group_by_name(self):
        with self.target(configuration='small-pool'):
            self.assertEqual('group-1', self.trove.instances.requests[0][1]['configuration'])

    def test_no_such_configuration_group(self):
        error = self.assertRaises(UNAVAILABLE, self.target(configuration='big-pool').__enter__)
        self.assertIn('big-pool: Trove lists none of this name', str(error))
        self.assertEqual([], self.trove.instances.requests)

    def test_reuses_an_instance_only_with_its_configuration_group(self):
        for group, created_anew in (('group-1', 0), ('group-2', 1), (None, 1)):
            more = {'configuration': {'id': group}} if group else {}
            self.trove.instances = start_with(fleet_member(**more))
            with self.target(configuration='small-pool'):
                self.assertEqual(created_anew, len(self.trove.instances.requests), group)

    def test_no_flavor_of_that_size(self):
        target = self.target(flavor={'ram_mib': 4096, 'vcpus': 2})
        error = self.assertRaises(UNAVAILABLE, target.__enter__)
        self.assertIn('4096 MiB and 2 processors', str(error))
        self.assertEqual([], self.trove.instances.requests)

    def test_reuses_an_equal_instance_of_a_killed_run(self):
        self.trove.instances = start_with(fleet_member())
        with self.target():
            self.assertEqual([], self.trove.instances.requests)
        self.assertEqual(['shop'], self.names())

    def test_replaces_another_instance_of_the_name(self):
        for other in (
            {'volume': {'size': 2, 'type': 'nvme'}},
            {'volume': {'size': 100, 'type': 'hdd'}},
            {'flavor': {'id': 'small'}},
            {'configuration': {'id': 'group-1'}},
            {'status': 'ERROR'},
            {'operating_status': 'FAILED'},
        ):
            self.trove.instances = start_with(fleet_member(id='old', **other))
            with self.target():
                self.assertEqual(['old'], self.trove.instances.deleted)
                self.assertEqual(1, len(self.trove.instances.requests))

    def test_a_failed_creation_is_removed(self):
        self.trove.instances = start_with(fails=True)
        error = self.assertRaises(UNAVAILABLE, self.target().__enter__)
        self.assertIn('is ERROR', str(error))
        self.assertEqual(['shop'], self.names())
        self.assertEqual([], self.notes)

    def test_a_refused_creation(self):
        def create(*arguments, **parameters):
            raise troveclient.exceptions.ClientException('quota exceeded')

        self.trove.instances.create = create
        error = self.assertRaises(UNAVAILABLE, self.target().__enter__)
        self.assertIn('cannot create instance bench-fleet-3: quota exceeded', str(error))

    def test_is_removed_if_it_cannot_be_used(self):
        self.inner.fails = 'enter'
        self.assertRaises(UNAVAILABLE, self.target().__enter__)
        self.assertEqual(['shop'], self.names())

    def test_is_removed_if_its_schema_cannot_be_removed(self):
        self.inner.fails = 'leave'
        target = self.target().__enter__()
        error = self.assertRaises(UNAVAILABLE, target.__exit__, None, None, None)
        self.assertIn('still has its schema', str(error))
        self.assertEqual(['shop'], self.names())

    def test_is_removed_after_an_interruption(self):
        def interrupted():
            raise KeyboardInterrupt

        self.inner.__class__ = type('Interrupted', (fakes.Target,), {})
        self.inner.__class__.__enter__ = lambda this: interrupted()
        self.assertRaises(KeyboardInterrupt, self.target().__enter__)
        self.assertEqual(['shop'], self.names())

    def test_failed_removal(self):
        target = self.target().__enter__()
        self.trove.instances.refuses_deletion = troveclient.exceptions.Forbidden('no')
        error = self.assertRaises(UNAVAILABLE, target.__exit__, None, None, None)
        self.assertIn('bench-fleet-3 still exists; the next run', str(error))
        failure = ValueError('first')
        target.__exit__(ValueError, failure, None)

    def test_specification(self):
        target = created.from_spec('fleet-3', SPEC, specification.Settings({}))
        self.assertEqual('instance bench-fleet-3', str(target))
