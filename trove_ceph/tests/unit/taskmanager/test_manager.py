# SPDX-License-Identifier: Apache-2.0
"""Which requests are ours and which Trove's, and the notifications they send."""

import inspect
import types

import fixtures
from oslotest import base
from trove.backup.state import BackupState
from trove.common import cfg as trove_cfg
from trove.common import notification
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.strategies.backup import create, expire_unstarted
from trove_ceph.strategies.backup.options import BackupOptions
from trove_ceph.taskmanager import manager
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import contexts, trove_database

CONF = trove_cfg.CONF


class ManagerTest(contexts.ContextMixin, base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.patch('trove_ceph.taskmanager.factory.make_dependencies', lambda *_: self.world.deps())
        self.notifications = []
        notifier = types.SimpleNamespace(
            info=lambda context, event, payload: self.notifications.append((event, dict(payload)))
        )
        self.patch('trove.rpc.get_notifier', lambda **_: notifier)
        self.stock = []
        for verb in ('create_backup', 'delete_backup', 'delete_instance'):
            self.patch(f'trove.taskmanager.manager.Manager.{verb}', self._record(verb))
        self.useFixture(bus.StorageTransport(CONF))
        self.manager = manager.Manager()
        self.manager._recovery_threads = worlds.AtOnce()
        self.manager._guest_background.start = lambda: None
        self.manager._replacement_background.start = lambda: None
        self.manager._replication_watch.start = lambda: None
        self.manager._replication_background.start = lambda: None
        self.addCleanup(CONF.clear_override, 'quiesce', 'trove_ceph_backup')

    def patch(self, name, value):
        self.useFixture(fixtures.MonkeyPatch(name, value))

    def _record(self, verb):
        return lambda _manager, _context, *arguments: self.stock.append((verb, *arguments))

    def create(self, backup, driver='cinder'):
        self.manager.create_backup(
            self.context(notification.DBaaSBackupCreate),
            {'id': backup.id, 'storage_driver': driver},
            self.world.instance.id,
        )

    def delete(self, backup):
        self.manager.delete_backup(self.context(notification.DBaaSBackupDelete), backup.id)

    def delete_instance(self):
        self.manager.delete_instance(
            self.context(notification.DBaaSInstanceDelete), self.world.instance.id
        )

    def test_takes_and_deletes_a_backup(self):
        backup = self.world.add_backup()
        self.create(backup)
        self.assertEqual(BackupState.COMPLETED, trove_database.backup(backup.id).state)
        self.delete(backup)
        self.assertTrue(trove_database.backup(backup.id).deleted)
        self.assertEqual(
            ['dbaas.backup_create.end', 'dbaas.backup_delete.end'],
            [event for event, _payload in self.notifications],
        )
        self.assertEqual(backup.id, self.notifications[0][1]['backup_id'])
        self.assertEqual([], self.stock)

    def test_notifies_of_a_failure_as_an_error(self):
        """Defect 5: stock reports a failed backup as one that was taken."""
        self.world.guest.is_down = True
        backup = self.world.add_backup()
        self.assertRaises(exceptions.TroveCephError, self.create, backup)
        self.assertEqual(BackupState.FAILED, trove_database.backup(backup.id).state)
        ((event, payload),) = self.notifications
        self.assertEqual('dbaas.backup_create.error', event)
        self.assertIn('guest agent', payload['message'])

    def test_fails_if_the_cloud_cannot_be_reached(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('Keystone is down')

        self.patch('trove_ceph.taskmanager.factory.make_dependencies', fail)
        self.manager = manager.Manager()
        self.manager._recovery_threads = worlds.AtOnce()
        backup = self.world.add_backup()
        self.assertRaises(exceptions.TroveCephError, self.create, backup)
        self.assertEqual(BackupState.FAILED, trove_database.backup(backup.id).state)
        self.assertEqual(['dbaas.backup_create.error'], [event for event, _ in self.notifications])

    def test_reveals_nothing_of_the_storage_to_tenants(self):
        """Trove shows tenants the message as the fault of the instance."""

        def fail(*_arguments):
            raise exceptions.NoSpaceError('volumes-nvme/volume-1: the pool is full')

        self.patch('trove_ceph.strategies.backup.create.create_backup', fail)
        error = self.assertRaises(exceptions.TroveCephError, self.create, self.world.add_backup())
        ((_event, payload),) = self.notifications
        self.assertEqual(str(error), payload['message'])
        self.assertIn('the storage has no room for it', payload['message'])
        self.assertNotIn('volumes-nvme', payload['message'])

    def test_leaves_other_backups_to_trove(self):
        backup = self.world.add_backup()
        self.create(backup, driver='swift')
        self.world.volume['host'] = worlds.OTHER
        self.create(backup)
        self.assertEqual(['create_backup'] * 2, [verb for verb, *_ in self.stock])
        self.delete(backup)
        self.assertEqual(('delete_backup', backup.id), self.stock[-1])
        self.assertEqual([], self.notifications)
        self.assertEqual(BackupState.NEW, trove_database.backup(backup.id).state)

    def test_fails_a_backup_whose_options_trove_would_drop(self):
        self.world.volume['host'] = worlds.OTHER
        backup = self.world.add_backup()
        context = self.context(notification.DBaaSBackupCreate)
        context.notification.payload['trove_ceph'] = BackupOptions(copy=True).as_document()
        info = {'id': backup.id, 'storage_driver': 'cinder'}
        error = self.assertRaises(
            exceptions.TroveCephError,
            self.manager.create_backup,
            *(context, info, self.world.instance.id),
        )
        self.assertIn('has no option copy', str(error))
        self.assertEqual([], self.stock)
        self.assertEqual(BackupState.FAILED, trove_database.backup(backup.id).state)
        self.assertEqual(str(error), self.world.records.find(backup.id).error)
        self.assertEqual(['dbaas.backup_create.error'], [event for event, _ in self.notifications])

    def test_instances_with_other_agents_keep_stock_backups(self):
        """Even if their volumes are on a tier."""
        stock = 'trove.guestagent.datastore.mysql.manager.Manager'
        for version in (
            trove_database.foreign_version(),
            trove_database.foreign_version('stock-mysql', 'mysql', stock),
        ):
            self.stock.clear()
            self.world.instance.update(datastore_version_id=version)
            backup = self.world.add_backup()
            self.create(backup)
            self.assertEqual(['create_backup'], [verb for verb, *_ in self.stock])
            self.assertIsNone(self.world.records.find(backup.id))
            backup.update(state=BackupState.FAILED)

    def test_sends_rates_in_a_thread_of_its_own(self):
        self.assertIn('send_tier_rates', {name for name, _ in manager.Manager._periodic_tasks})
        instances = []
        self.manager._tier_settings = lambda: types.SimpleNamespace(send_due=instances.extend)
        self.manager._tier_thread = worlds.AtOnce()
        self.manager.send_tier_rates(None)
        self.assertIn(self.world.instance.id, [instance.id for instance in instances])

    def test_continues_if_the_cloud_does_not_answer(self):
        def fail(_instances):
            raise exceptions.ServiceUnavailableError('Cinder is down')

        self.manager._tier_settings = lambda: types.SimpleNamespace(send_due=fail)
        self.manager._tier_thread = worlds.AtOnce()
        self.manager.send_tier_rates(None)

    def test_counts_a_repeated_deletion_once(self):
        backup = self.world.add_backup()
        self.create(backup)
        (snapshot,) = self.world.cinder.snapshots.values()
        snapshot['status'] = 'backing-up'
        counted = []
        self.world.trove.count_backup = counted.append
        self.assertRaises(exceptions.TroveCephError, self.delete, backup)
        self.assertEqual([], counted)
        snapshot['status'] = 'available'
        self.delete(backup)
        self.assertEqual([self.world.project], counted)

    def test_resumes_the_deletion_of_an_instance(self):
        instance = trove_database.instance(self.world.instance.id)
        instance.update(task_status=InstanceTasks.DELETING)
        deleted = []

        def die(_context, _instance_id):
            raise interruption.Kill

        def delete(context, instance_id):
            self.assertTrue(context.is_admin)
            deleted.append(instance_id)
            self.world.delete_server()

        delete_but_volume = 'trove_ceph.trove_adapter.instance_deletion.delete_but_volume'
        self.patch(delete_but_volume, die)
        store = 'trove_ceph.db.instance_operations.InstanceOperationStore'
        with fixtures.MonkeyPatch(f'{store}.finish', lambda *_: None):
            self.assertRaises(interruption.Kill, self.delete_instance)
        self.assertIn(self.world.volume_image.name, self.world.images())
        self.patch(delete_but_volume, delete)
        successor = manager.Manager()
        successor._recovery_threads = worlds.AtOnce()
        successor._recover_instances()
        self.assertEqual([self.world.instance.id], deleted)
        self.assertEqual(set(), self.world.images())
        successor._recover_instances()
        self.assertEqual(1, len(deleted))

    def test_deletes_an_instance_with_a_backup(self):
        deleted = []

        def delete(context, instance_id):
            deleted.append(instance_id)
            self.world.delete_server()

        self.patch('trove_ceph.trove_adapter.instance_deletion.delete_but_volume', delete)
        backup = self.world.add_backup()
        self.create(backup)
        self.delete_instance()
        self.assertEqual([self.world.instance.id], deleted)
        self.assertEqual({self.world.volume_image.name}, self.world.images())
        self.assertEqual('dbaas.instance_delete.end', self.notifications[-1][0])
        self.delete(backup)
        self.assertEqual(set(), self.world.images())

    def test_leaves_other_instances_to_trove(self):
        self.world.volume['host'] = worlds.OTHER
        self.delete_instance()
        trove_database.instance(self.world.instance.id).update(volume_id=None)
        self.delete_instance()
        self.assertEqual([('delete_instance', self.world.instance.id)] * 2, self.stock)

    def test_periodic_tasks(self):
        names = {name for name, _task in self.manager._periodic_tasks}
        expected = {'expire_unstarted_backups', 'reclaim_space'}
        self.assertTrue(expected <= names, names)
        backup = self.world.add_backup()
        self.assertRaises(
            interruption.Kill, create.create_backup, self.world.deps(worlds.Strike(5)), backup.id
        )
        self.manager.expire_unstarted_backups(None)
        self.assertEqual(RecordState.TAKING, self.world.records.get(backup.id).state)
        self.manager.reclaim_space(None)

    def test_threads_of_the_process(self):
        """They continue the work of an earlier process on this host at once."""
        backup, other = self.world.add_backup(), self.world.add_backup()
        self.create(other)
        self.world.records.queue.request_copy(other.id)
        self.assertRaises(
            interruption.Kill, create.create_backup, self.world.deps(worlds.Strike(5)), backup.id
        )
        background = self.manager._background
        background.start = lambda: [function() for function in background._functions]
        for role in self.manager._queue_threads:
            self.manager._queue_threads[role] = worlds.AtOnce()
        self.manager._start_threads()
        self.assertEqual(RecordState.TAKEN, self.world.records.get(backup.id).state)
        self.assertEqual(RecordState.COPIED, self.world.records.get(other.id).state)

    def test_fails_a_creation_whose_taskmanager_died(self):
        instance = trove_database.add_instance(
            self.world.project, None, task_status=InstanceTasks.BUILDING
        )

        def die(_context, instance_id, _arguments, *_others):
            self.assertEqual(instance.id, instance_id)
            raise interruption.Kill

        self.patch('trove_ceph.trove_adapter.instance_creation.create', die)
        store = 'trove_ceph.db.instance_operations.InstanceOperationStore'
        self.useFixture(fixtures.MonkeyPatch(f'{store}.finish', lambda *_: None))
        self.assertRaises(
            interruption.Kill,
            self.manager.create_instance,
            self.context(notification.DBaaSInstanceCreate),
            instance.id,
            backup_id=None,
            slave_of_id=None,
        )
        # The rows stay, since a killed process deletes nothing.
        manager.Manager()._recover_instances()
        self.assertEqual(
            InstanceTasks.BUILDING_ERROR_SERVER, trove_database.instance(instance.id).task_status
        )

    def test_fails_a_backup_whose_request_was_lost(self):
        backup = self.world.add_backup()
        self.manager.expire_unstarted_backups(None)
        self.assertEqual(BackupState.NEW, trove_database.backup(backup.id).state)
        self.world.now += expire_unstarted.START_TIMEOUT.total_seconds()
        self.manager.expire_unstarted_backups(None)
        self.assertEqual(BackupState.FAILED, trove_database.backup(backup.id).state)
        self.assertIn('never begun', self.world.records.get(backup.id).error)

    def test_starts_requested_copies(self):
        backup = self.world.add_backup()
        self.create(backup)
        self.world.records.queue.request_copy(backup.id)
        for role in self.manager._queue_threads:
            self.manager._queue_threads[role] = worlds.AtOnce()
        self.manager._background.start = lambda: None
        self.manager.copy_and_verify_backups(None)
        record = self.world.records.get(backup.id)
        self.assertEqual((RecordState.COPIED, None), (record.state, record.copy_error))

    def test_keeps_warm_guests(self):
        rounds = []
        keeper = types.SimpleNamespace(keep=lambda: rounds.append('round'))
        name = 'trove_ceph.taskmanager.guest_factory.make_keeper'
        self.patch(name, lambda _conf, _context, deps: keeper if deps.worker else None)
        thread = self.manager._guest_background
        thread.start = lambda: [function() for _ in range(2) for function in thread._functions]
        self.manager._background.start = lambda: None
        self.manager._start_threads()
        self.assertEqual(['round'] * 2, rounds)

    def test_watches_replicas(self):
        started = []
        self.manager._replication_watch.start = lambda: started.append('watch')
        self.manager._background.start = lambda: None
        self.manager._start_threads()
        self.assertEqual(['watch'], started)

    def test_refuses_unknown_pools(self):
        CONF.set_override('pools', ['mysql'], 'trove_ceph_guests')
        self.addCleanup(CONF.clear_override, 'pools', 'trove_ceph_guests')
        self.assertRaises(exceptions.InvalidConfigurationError, manager.Manager)

    def test_refuses_unknown_levels(self):
        CONF.set_override('quiesce_by_datastore', {'mysql': 'deep'}, 'trove_ceph_backup')
        self.addCleanup(CONF.clear_override, 'quiesce_by_datastore', 'trove_ceph_backup')
        self.assertRaisesRegex(ValueError, 'deep', manager.Manager)
        self.assertRaises(ValueError, CONF.set_override, 'quiesce', 'deep', 'trove_ceph_backup')

    def test_refuses_a_storage_service_that_guests_can_reach(self):
        storage = self.useFixture(bus.StorageTransport(CONF))
        storage.set('transport_url', None)
        self.assertRaisesRegex(exceptions.InvalidTransportError, 'not set', manager.Manager)
        storage.set('transport_url', bus.URL)
        storage.set('key_file', '/nowhere/keys')
        self.assertRaisesRegex(exceptions.KeyFileError, '/nowhere/keys', manager.Manager)

    def test_sends_no_request_at_the_start(self):
        """Trove's profiler reads every attribute of the manager."""

        def fail(*_arguments):
            raise AssertionError('a request was sent')

        self.patch('trove_ceph.taskmanager.factory.make_dependencies', fail)
        for name, _value in inspect.getmembers(manager.Manager()):
            self.assertIsInstance(name, str)
