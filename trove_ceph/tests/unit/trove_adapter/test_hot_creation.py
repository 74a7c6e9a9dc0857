# SPDX-License-Identifier: Apache-2.0
"""Creations on hot guests, from the call of Trove's API to that of the guest."""

import datetime
import types
import uuid

from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context
from trove.common import notification
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.cinder import client
from trove_ceph.db.guest_record import GuestState
from trove_ceph.strategies.guests import hot_spec, hot_volume
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.tests.unit.strategies import golden_world
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import stock_creation
from trove_ceph.trove_adapter import instance_creation

CONF = trove_cfg.CONF
TASKS = 'trove.taskmanager.models.FreshInstanceTasks'
VOLUME = hot_spec.HotVolume('nvme', 1)


class Guests:
    """The warm guests, one of which is hot."""

    def __init__(self, guest, digest):
        self.guest, self.digest = guest, digest
        self.claims, self.requests, self.retired, self.warm_claims = [], [], [], []
        self.bind_error = self.claim_error = None

    def claim_hot(self, *wanted):
        self.claims.append(wanted)
        if self.claim_error:
            raise self.claim_error
        return self.guest if wanted[-1] == self.digest else None

    def can_fence(self, _volume_type):
        return True

    def claim(self, *wanted):
        self.warm_claims.append(wanted)

    def bind(self, guest, request):
        self.requests.append(request)
        if self.bind_error:
            raise self.bind_error

    def retire(self, guest, reason):
        self.retired.append(reason)


class HotCreationTest(stock_creation.StockCreation, base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.set_up(golden_world.make_world())
        self.set('hot', 1, 'trove_ceph_guests')
        self.set('hot_volume', 'nvme:1', 'trove_ceph_guests')
        self.set('network_isolation', False, 'network')
        self.set('management_networks', ['management'])
        self.networks = [{'port-id': 'tenant-port'}, {'port-id': 'warm-port'}]
        self.patch(f'{TASKS}._prepare_networks_for_instance', self.prepare_networks)
        self.patch(f'{TASKS}._create_port', lambda *_, **__: 'new-port')
        self.patch(f'{TASKS}.get_injected_files', lambda *_, **__: {})
        self.neutron_errors = []
        neutron = types.SimpleNamespace(update_port=self.update_port)
        self.patch(f'{TASKS}.neutron_client', neutron)
        record = guest_helpers.record(
            str(uuid.uuid4()),
            datetime.datetime(2026, 1, 1),
            GuestState.CLAIMED,
            server_id='hot-server',
            port_id='warm-port',
        )
        self.volumes = hot_volume.HotVolumes(self.world.deps(), None)
        self.patch('trove_ceph.taskmanager.guest_factory.make_hot_volumes', lambda *_: self.volumes)
        spec = hot_spec.HotSpec(VOLUME, golden_world.VERSION, '[mysqld]')
        volume_id = self.volumes.create(record, spec, self.volumes.find_source(spec))
        record = type(record)(**vars(record) | {'volume_id': volume_id})
        self.guests = Guests(record, spec.digest)
        self.manager._find_warm_guests = lambda: self.guests

    def set(self, name, value, group=None):
        CONF.set_override(name, value, group)
        self.addCleanup(CONF.clear_override, name, group)

    def prepare_networks(self, *_arguments, **_options):
        # As in Trove, which creates the management port first.
        instance_creation._Instance._create_port(
            _arguments[0], {'network_id': 'management'}, ['group'], is_mgmt=True
        )
        return list(self.networks)

    def update_port(self, _port_id, _body):
        if self.neutron_errors:
            raise self.neutron_errors.pop()

    def create(self, **facts):
        request = {'ds_version': golden_world.VERSION, 'volume_size': 1, 'image_id': 'image'}
        self.manager.create_instance(
            self.context(notification.DBaaSInstanceCreate),
            self.world.new.id,
            **self.request(**request | facts),
        )

    def row(self):
        return trove_database.instance(self.world.new.id)

    def backup_info(self):
        (arguments,) = [one for verb, one, _ in self.built if verb == '_guest_prepare']
        return arguments[5]

    def booted(self):
        return [one for verb, one, _ in self.built if verb == '_create_server']

    def test_guest_and_volume_become_those_of_the_instance(self):
        self.create()
        row = self.row()
        self.assertEqual(
            (self.guests.guest.volume_id, 'hot-server'), (row.volume_id, row.compute_instance_id)
        )
        volume = self.world.cinder.volumes[row.volume_id]
        self.assertEqual(f'trove-{row.id}', volume['name'])
        self.assertIsNone(self.world.storage.describe(self.world.cinder.image(volume)).parent)
        (request,) = self.guests.requests
        self.assertEqual(
            (row.volume_id, ('tenant-port',), True),
            (request.volume_id, request.port_ids, request.is_hot),
        )
        clone = {'id': row.id, 'storage_driver': 'cinder', 'location': 'cinder://'}
        self.assertEqual(clone | {'is_hot': True, 'volume_gib': 1}, self.backup_info())
        self.assertEqual(([], [], []), (self.booted(), self.cinder.created, self.guests.retired))
        self.assertEqual(['dbaas.instance_create.end'], [event for event, _ in self.notifications])

    def test_claims_what_was_requested(self):
        self.create(availability_zone='zone')
        version = trove_database.datastore_version()
        self.assertEqual(
            [(self.world.new.id, version, '1', 'image', 'zone', self.guests.digest)],
            self.guests.claims,
        )

    def test_instance_with_a_larger_volume(self):
        self.row().update(volume_size=16)
        self.create(volume_size=16)
        self.world.cinder.work()
        self.assertEqual(1, len(self.guests.requests))
        self.assertEqual(16, self.world.cinder.volumes[self.row().volume_id]['size'])
        self.assertEqual(16, self.backup_info()['volume_gib'])

    def test_volume_that_cinder_does_not_extend(self):
        self.world.cinder.failing = 'extend'
        self.create(volume_size=2)
        self.assert_ordinary(asked=True)
        self.assertEqual(1, len(self.guests.retired))

    def assert_ordinary(self, asked=False):
        """Assert that the instance has a volume and a server of its own."""
        self.assertEqual(1, len(self.booted()))
        self.assertEqual('made-by-cinder', self.row().volume_id)
        self.assertIsNone(self.backup_info())
        self.assertEqual([], self.guests.requests)
        self.assertEqual(asked, bool(self.guests.claims))

    def test_instances_that_no_hot_guest_fits(self):
        group = 'trove.common.server_group.ServerGroup.build_scheduler_hint'
        self.patch(group, lambda *_: {'group': 'group'})
        for facts in (
            {'volume_size': 17},
            {'volume_type': 'other'},
            {'root_password': 'secret'},
            {'overrides': {'max_connections': 10}},
            {'locality': 'affinity'},
            {'cluster_config': {'id': 'cluster'}},
        ):
            self.built.clear()
            self.row().update(volume_id=None)
            self.create(**facts)
            self.assert_ordinary()

    def test_other_settings_of_the_server(self):
        self.create(ds_version='9.7.5')
        self.assert_ordinary(asked=True)

    def test_off(self):
        self.set('hot', 0, 'trove_ceph_guests')
        self.create()
        self.assert_ordinary()

    def test_default_volume_type(self):
        self.set('cinder_volume_type', 'nvme')
        self.create(volume_type=None)
        self.assertEqual(1, len(self.guests.requests))

    def test_with_network_isolation(self):
        self.set('network_isolation', True, 'network')
        self.create()
        self.assert_ordinary()

    def test_claim_that_fails(self):
        for error in (exceptions.ServiceUnavailableError('no database'), ValueError('a defect')):
            self.built.clear()
            self.row().update(volume_id=None)
            self.guests.claim_error = error
            self.create()
            self.assert_ordinary(asked=True)

    def refuse_to_describe(self, times):
        """Have Cinder refuse to change some volumes."""
        left = [exceptions.ServiceUnavailableError('Cinder refuses')] * times

        def refuse(*_arguments):
            if left:
                raise left.pop()

        self.patch('trove_ceph.cinder.client.Cinder.describe_volume', refuse)

    def test_volume_that_cannot_be_taken(self):
        self.refuse_to_describe(1)
        self.create()
        self.assert_ordinary(asked=True)
        self.assertEqual(1, len(self.guests.retired))

    def test_volume_that_cannot_be_taken_leaves_a_golden_clone(self):
        self.set('sizes_gib', golden_world.SIZES_GIB, 'trove_ceph_golden')
        self.refuse_to_describe(1)
        self.create()
        self.assertNotIn(self.row().volume_id, ('made-by-cinder', self.guests.guest.volume_id))
        self.assertEqual([], self.cinder.created)
        self.assertEqual(1, len(self.guests.retired))

    def test_database_fails_while_the_volume_is_taken(self):
        """An instance that stays in BUILD cannot be deleted."""
        self.refuse_to_describe(1)

        def refuse(*_arguments):
            raise exceptions.ServiceUnavailableError('no database')

        self.patch('trove_ceph.strategies.guests.hot_volume.HotVolumes.take_back', refuse)
        self.assertRaises(exceptions.ServiceUnavailableError, self.create)
        self.assertEqual(InstanceTasks.BUILDING_ERROR_VOLUME, self.row().task_status)

    def test_volume_that_can_neither_be_taken_nor_given_back(self):
        """A clone of a golden volume would find it, although it is deleted with the guest."""
        self.set('sizes_gib', golden_world.SIZES_GIB, 'trove_ceph_golden')
        describe = client.Cinder.describe_volume
        done = []

        def break_off(*arguments):
            if not done:
                # Cinder has changed the volume, but the answer is lost.
                done.append(describe(*arguments))
            raise exceptions.ServiceUnavailableError('Cinder does not answer')

        self.patch('trove_ceph.cinder.client.Cinder.describe_volume', break_off)
        self.create()
        self.assert_ordinary(asked=True)
        self.assertEqual(1, len(self.guests.retired))
        left = self.guests.guest.volume_id
        self.assertEqual(f'trove-{self.row().id}', self.world.cinder.volumes[left]['name'])
        # The guest has it still, and the deletion of the guest takes it away.
        self.assertTrue(self.volumes.remove(self.guests.guest))
        self.assertNotIn(left, self.world.cinder.volumes)
        self.assertEqual('made-by-cinder', self.row().volume_id)

    def test_guest_that_cannot_be_bound(self):
        self.guests.bind_error = exceptions.GuestUnavailableError('no answer')
        self.create()
        self.assertEqual('made-by-cinder', self.row().volume_id)
        ((*_, volumes, _zone, nics, _files, _hints),) = self.booted()
        self.assertEqual('made-by-cinder', volumes[0]['uuid'])
        self.assertEqual(['tenant-port', 'new-port'], [one['port-id'] for one in nics])
        self.assertIsNone(self.backup_info())
        # The guest is deleted with it.
        self.assertIn(self.guests.guest.volume_id, self.world.cinder.volumes)

    def test_guest_that_cannot_be_bound_leaves_a_golden_clone(self):
        self.set('sizes_gib', golden_world.SIZES_GIB, 'trove_ceph_golden')
        self.guests.bind_error = exceptions.GuestUnavailableError('no answer')
        self.create()
        volume_id = self.row().volume_id
        self.assertNotIn(volume_id, ('made-by-cinder', self.guests.guest.volume_id))
        self.assertEqual([], self.cinder.created)
        ((*_, volumes, _zone, _nics, _files, _hints),) = self.booted()
        self.assertEqual(volume_id, volumes[0]['uuid'])
        self.assertEqual(
            {'id': self.world.new.id, 'storage_driver': 'cinder', 'location': 'cinder://'},
            self.backup_info(),
        )

    def test_port_that_cannot_be_changed(self):
        self.neutron_errors.append(exceptions.ServiceUnavailableError('Neutron refuses'))
        self.create()
        self.assertEqual(['its port could not be changed'], self.guests.retired)
        self.assertEqual([], self.guests.requests)
        self.assertEqual('made-by-cinder', self.row().volume_id)
        self.assertEqual(1, len(self.booted()))

    def test_restores_take_no_hot_guest(self):
        self.let_backups_be_restored()
        self.create(backup_id='a backup')
        self.assertEqual([], self.guests.claims)

    def test_datastore_version_of_an_instance(self):
        version = instance_creation.version_id(
            trove_context.TroveContext(is_admin=True), self.world.new.id
        )
        self.assertEqual(trove_database.datastore_version(), version)
