# SPDX-License-Identifier: Apache-2.0
"""Creations and restores, from the call of Trove's API to the report of the guest."""

import functools
import inspect
import types
from unittest import mock

import fixtures
import oslo_db.exception
from oslotest import base
from trove.backup.state import BackupState
from trove.common import cfg as trove_cfg
from trove.common import notification
from trove.instance import models as instance_models
from trove.instance import service_status
from trove.instance.tasks import InstanceTasks
from trove.taskmanager import api as trove_api
from trove.taskmanager import manager as trove_manager
from trove.taskmanager import models as trove_models

from trove_ceph import exceptions, waiting
from trove_ceph.db import tables
from trove_ceph.strategies.restore import clone_volume, planning
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.strategies.test_restore_clone_volume import make_world, restore_request
from trove_ceph.tests.unit.taskmanager import contexts, trove_database
from trove_ceph.tests.unit.trove_adapter import stock_creation
from trove_ceph.trove_adapter import instance_creation

CONF = trove_cfg.CONF


class CreatedInstanceTest(stock_creation.StockCreation, base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.set_up(make_world())

    def option(self, name, value):
        CONF.set_override(name, value, 'trove_ceph_backup')
        self.addCleanup(CONF.clear_override, name, 'trove_ceph_backup')

    def create(self, **facts):
        self.manager.create_instance(
            self.context(notification.DBaaSInstanceCreate),
            self.world.restored.id,
            **self.request(**{'backup_id': self.world.backup} | facts),
        )

    def swift_backup(self):
        swift = types.SimpleNamespace(url='http://swift')
        self.patch('trove.common.clients.swift_client', lambda *_: swift)
        facts = {'storage_driver': 'swift', 'state': BackupState.COMPLETED, 'location': 'http://b'}
        return trove_database.add_backup(self.world.instance, **facts).id

    def row(self):
        return trove_database.instance(self.world.restored.id)

    def server_volume(self):
        """Return the volume of the server."""
        (devices,) = [arguments[3] for verb, arguments, _ in self.built if verb == '_create_server']
        return devices[0]['uuid']

    def test_restores_from_the_vault(self):
        self.option('restore_from', 'vault')
        self.create(volume_size=2)
        volume = self.world.cinder.volumes[self.server_volume()]
        self.assertEqual((volume['id'], 2), (self.row().volume_id, volume['size']))
        self.assertEqual([], self.cinder.created)
        (prepared,) = [options for verb, _, options in self.built if verb == '_guest_prepare']
        (backup_info,) = [
            one
            for verb, arguments, _ in self.built
            if verb == '_guest_prepare'
            for one in arguments
            if isinstance(one, dict) and one.get('id') == self.world.backup
        ]
        self.assertEqual('cinder', backup_info['storage_driver'])
        self.assertEqual({'ds_version': None}, prepared)
        self.assertEqual(['dbaas.instance_create.end'], [event for event, _ in self.notifications])
        # Flattening runs in the background; here it ends at once.
        self.assertIsNone(self.world.storage.describe(self.world.cinder.image(volume)).parent)
        self.assertEqual([], self.stock)

    def test_restores_within_its_pool_as_trove_does(self):
        self.create(volume_size=5)
        ((request),) = self.cinder.created
        record = self.world.records.get(self.world.backup)
        self.assertEqual(record.cinder_snapshot_id, request['snapshot_id'])
        self.assertEqual((5, 'nvme'), (request['size'], request['volume_type']))
        self.assertEqual(('made-by-cinder',) * 2, (self.server_volume(), self.row().volume_id))
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))

    def waits_sec(self):
        return [arguments[0] for verb, arguments, _ in self.built if verb == 'wait_for_instance']

    def test_waits_as_long_as_a_restore_may_take(self):
        self.create()
        self.assertEqual([CONF.restore_usage_timeout], self.waits_sec())

    def test_waits_as_long_as_a_creation_may_take(self):
        self.create(backup_id=None)
        self.assertEqual([CONF.usage_timeout], self.waits_sec())

    def test_refuses_before_anything_is_created(self):
        with self.world.records._transactions.writing() as session:
            row = session.get(tables.BackupRow, self.world.backup)
            row.state, row.verify_error = 'damaged', 'table shop.t: corrupt'
        error = self.assertRaises(exceptions.TroveCephError, self.create)
        self.assertIn('table shop.t: corrupt', str(error))
        self.assertEqual(InstanceTasks.BUILDING_ERROR_VOLUME, self.row().task_status)
        ((event, payload),) = self.notifications
        self.assertEqual('dbaas.instance_create.error', event)
        self.assertIn('table shop.t: corrupt', payload['message'])
        self.assertEqual(([], [], []), (self.built, self.cinder.created, self.stock))

    def test_fails_if_the_cloud_cannot_be_reached(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('Keystone is down')

        self.patch('trove_ceph.taskmanager.factory.make_dependencies', fail)
        self.manager = manager.Manager()
        error = self.assertRaises(exceptions.TroveCephError, self.create)
        self.assertNotIn('Keystone', str(error))
        self.assertEqual(InstanceTasks.BUILDING_ERROR_VOLUME, self.row().task_status)

    def test_sends_the_rate_to_every_new_guest(self):
        sent_to = []
        self.manager._tier_settings = lambda: types.SimpleNamespace(
            send=lambda instance: sent_to.append(instance.id)
        )
        for facts in ({}, {'backup_id': None}, {'slave_of_id': self.foreign_source()}):
            self.create(**facts)
        self.assertEqual([self.world.restored.id] * 3, sent_to)

    def test_creates_without_a_backup_of_ours_as_trove_does(self):
        for backup_id in (None, self.swift_backup()):
            self.cinder.created.clear()
            self.create(backup_id=backup_id)
            ((request),) = self.cinder.created
            self.assertNotIn('snapshot_id', request)
            self.assertEqual('made-by-cinder', self.row().volume_id)
            self.row().update(volume_id=None)
        self.assertEqual(
            ['dbaas.instance_create.end'] * 2, [event for event, _ in self.notifications]
        )
        self.assertEqual([], self.stock)

    def count_sleeps(self):
        slept = []
        clock = {'clock': lambda: sum(slept), 'sleep': slept.append}
        self.patch('trove_ceph.waiting.Deadline', functools.partial(waiting.Deadline, **clock))
        return slept

    def test_notices_a_created_volume_without_troves_intervals(self):
        slept = self.count_sleeps()
        self.cinder.creating_looks = 3
        looked_before = []

        def poll_until(look, condition, **_options):
            looked_before.append(self.cinder.looks)
            self.assertTrue(condition(look()))

        self.patch('trove.common.utils.poll_until', poll_until)
        self.create(backup_id=None)
        self.assertEqual(0.9, round(sum(slept), 1))
        self.assertEqual([4], looked_before)
        self.assertEqual('made-by-cinder', self.server_volume())

    def test_leaves_a_volume_that_cannot_be_shown_to_trove(self):
        show = self.cinder.get
        answers = [exceptions.ServiceUnavailableError('503')]

        def fail_once(volume_id):
            if answers:
                raise answers.pop()
            return show(volume_id)

        self.cinder.get = fail_once
        self.create(backup_id=None)
        self.assertEqual('made-by-cinder', self.server_volume())

    def test_leaves_a_slow_volume_to_troves_intervals(self):
        slept = self.count_sleeps()
        self.cinder.creating_looks = 40
        polled = []

        def poll_until(look, condition, **_options):
            while not condition(look()):
                polled.append(1)

        self.patch('trove.common.utils.poll_until', poll_until)
        self.create(backup_id=None)
        self.assertEqual((10.0, True), (round(sum(slept), 1), len(polled) > 0))
        self.assertEqual('made-by-cinder', self.server_volume())

    def foreign_source(self):
        """Return the id of an instance whose guest agent is not ours."""
        version = trove_database.foreign_version()
        return trove_database.add_instance(self.world.project, None, version_id=version).id

    def test_leaves_replicas_of_other_instances_to_trove(self):
        self.create(slave_of_id=self.foreign_source(), backup_id=None)
        self.assertEqual(['create_instance'], [verb for verb, *_ in self.stock])
        self.assertEqual([], self.built)

    def test_deletes_the_leftovers_of_an_interrupted_restore(self):
        request = restore_request(self.world)
        plan = planning.plan(self.world.deps(), request, prefer_copy=True)
        for step in clone_volume.VolumeClone(self.world.deps(), request, plan).steps():
            step.do()
            if step.name == 'create the image':
                break
        self.assertTrue(any('.restore.' in name for name in self.world.images()))
        self.manager.delete_instance(
            self.context(notification.DBaaSInstanceDelete), self.world.restored.id
        )
        self.assertFalse(any('.restore.' in name for name in self.world.images()))
        self.assertEqual(['delete_instance'], [verb for verb, _, _ in self.stock])

    def test_periodic_task(self):
        self.assertIn('flatten_volumes', {name for name, _ in manager.Manager._periodic_tasks})


class Clock:
    """A clock that only sleeping moves, with events at its seconds."""

    def __init__(self):
        self.now = 0
        self.events = {}

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        for second in [due for due in self.events if due <= self.now]:
            self.events.pop(second)()


class ReportTest(contexts.ContextMixin, base.BaseTestCase):
    """When the guest's report is noticed."""

    def setUp(self):
        super().setUp()
        self.world = types.SimpleNamespace(project='a project')
        self.row = trove_database.add_instance(
            self.world.project, None, server_id=None, task_status=InstanceTasks.BUILDING
        )
        self.report(service_status.ServiceStatuses.NEW)
        self.clock = Clock()
        deadline = functools.partial(waiting.Deadline, clock=self.clock, sleep=self.clock.sleep)
        self.patch('trove_ceph.waiting.Deadline', deadline)
        self.server = types.SimpleNamespace(status='BUILD')
        self.server_checks = []
        self.patch('trove.taskmanager.models.FreshInstanceTasks.nova_client', self)
        self.patch('trove.taskmanager.models.TroveInstanceCreate', mock.Mock())
        neutron = types.SimpleNamespace(list_ports=lambda **_: {'ports': []})
        self.patch('trove.common.clients.create_neutron_client', lambda *_, **__: neutron)
        context = self.context(notification.DBaaSInstanceCreate)
        self.instance = instance_creation._Instance.load(context, self.row.id)

    def patch(self, name, value):
        self.useFixture(fixtures.MonkeyPatch(name, value))

    @property
    def servers(self):
        return self

    def get(self, _server_id):
        self.server_checks.append(self.clock.now)
        return self.server

    def report(self, status):
        row = instance_models.InstanceServiceStatus.find_by(instance_id=self.row.id)
        row.set_status(status)
        row.save()

    def reports_at(self, second, status):
        self.clock.events[second] = lambda: self.report(status)

    def wait(self, timeout_sec=900):
        self.instance.wait_for_instance(timeout_sec, {'ram': 1024})
        return trove_database.instance(self.row.id).task_status

    def test_notices_a_report_within_a_second(self):
        self.reports_at(40, service_status.ServiceStatuses.BUILDING)
        self.reports_at(200.5, service_status.ServiceStatuses.HEALTHY)
        self.assertEqual(InstanceTasks.NONE, self.wait())
        self.assertEqual(201, self.clock.now)

    def test_asks_nova_seldom(self):
        self.reports_at(60, service_status.ServiceStatuses.HEALTHY)
        self.wait()
        self.assertEqual([0, 15, 30, 45], self.server_checks)

    def test_gives_up_at_the_time_limit(self):
        self.assertEqual(InstanceTasks.BUILDING_ERROR_TIMEOUT_GA, self.wait(timeout_sec=70))
        self.assertEqual(70, self.clock.now)

    def test_stops_at_a_failure_of_the_service(self):
        self.reports_at(20, service_status.ServiceStatuses.FAILED)
        self.assertEqual(InstanceTasks.BUILDING_ERROR_TIMEOUT_GA, self.wait())
        self.assertEqual(20, self.clock.now)

    def test_stops_at_a_failure_of_the_server(self):
        def fail():
            self.server.status = 'ERROR'

        self.server.fault = {'message': 'No valid host'}
        self.clock.events[20] = fail
        self.assertEqual(InstanceTasks.BUILDING_ERROR_TIMEOUT_GA, self.wait())
        self.assertEqual(30, self.clock.now)

    def test_outlasts_an_outage_of_the_database(self):
        find_by = instance_models.InstanceServiceStatus.find_by

        def fail_for_a_while(**conditions):
            if 10 <= self.clock.now < 25:
                raise oslo_db.exception.DBConnectionError()
            return find_by(**conditions)

        self.patch('trove.instance.models.InstanceServiceStatus.find_by', fail_for_a_while)
        self.patch('trove.taskmanager.models.InstanceServiceStatus.find_by', fail_for_a_while)
        self.clock.events[30] = lambda: self.report(service_status.ServiceStatuses.HEALTHY)
        self.assertEqual(InstanceTasks.NONE, self.wait())
        self.assertEqual(30, self.clock.now)

    def test_misses_no_report_that_arrives_while_it_looks(self):
        def get(_server_id):
            self.report(service_status.ServiceStatuses.HEALTHY)
            return self.server

        self.get = get
        self.assertEqual(InstanceTasks.NONE, self.wait())
        self.assertEqual(0, self.clock.now)


class TroveTest(base.BaseTestCase):
    """The private parts of Trove that a later version may change."""

    def test_create_instance_has_these_arguments(self):
        request = set(inspect.signature(trove_models.FreshInstanceTasks.create_instance).parameters)
        self.assertEqual(
            request, {*instance_creation._ARGUMENTS, 'self', 'snapshot', 'scheduler_hints'}
        )

    def test_the_api_passes_all_arguments_by_name(self):
        sent = set(inspect.signature(trove_api.API.create_instance).parameters) - {'self'}
        served = inspect.signature(trove_manager.Manager.create_instance).parameters
        self.assertTrue(sent <= set(served), sent - set(served))
        private = inspect.signature(trove_manager.Manager._create_instance).parameters
        self.assertEqual(set(served), set(private))

    def test_guest_prepare_has_the_backup_at_this_place(self):
        """A replica has one without a row in Trove's table of backups."""
        for kind in (trove_models.FreshInstanceTasks, instance_creation._Clone):
            names = list(inspect.signature(kind._guest_prepare).parameters)
            self.assertEqual('backup_info', names[6])
        code = trove_models.FreshInstanceTasks.create_instance.__code__
        self.assertIn('_guest_prepare', code.co_names)
        self.assertIn('_render_replica_config', dir(trove_models.FreshInstanceTasks))
        self.assertIn('_render_config', dir(trove_models.FreshInstanceTasks))

    def test_create_volume_is_called_for_the_volume(self):
        code = trove_models.FreshInstanceTasks._build_volume_info.__code__
        self.assertIn('_create_volume', code.co_names)
