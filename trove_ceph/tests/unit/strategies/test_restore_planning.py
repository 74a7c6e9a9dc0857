# SPDX-License-Identifier: Apache-2.0
from oslotest import base
from trove.datastore import models as datastore_models

from trove_ceph import exceptions
from trove_ceph.db import tables
from trove_ceph.db.backup_record import RecordState
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.restore import planning
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.test_restore_clone_volume import SLOW, make_world, wanted
from trove_ceph.tests.unit.taskmanager import trove_database


class PlanningTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = make_world()
        self.place = self.world.records.get(self.world.backup).location

    def plan(self, prefer_copy=False, **facts):
        return planning.plan(self.world.deps(), wanted(self.world, **facts), prefer_copy)

    def note(self, **values):
        """Have our own table say something of the backup."""
        with self.world.records._transactions.writing() as session:
            row = session.get(tables.BackupRow, self.world.backup)
            for name, value in values.items():
                setattr(row, name, value)

    def refused(self, kind=exceptions.InvalidBackupError, **facts):
        before = len(self.world.events)
        error = self.assertRaises(kind, self.plan, **facts)
        asked = self.world.events[before:]
        self.assertTrue(set(asked) <= {'cinder GET', 'storage describe'}, asked)
        self.assertNotIn(self.place.pool, str(error))
        return tenant_errors.operator_message(error)

    def test_in_its_pool_cinder_clones_its_snapshot(self):
        plan = self.plan(size_gib=5)
        self.assertEqual(
            (self.place, worlds.NVME, True), (plan.source, plan.backend.name, plan.by_cinder)
        )

    def test_to_another_tier(self):
        plan = self.plan(volume_type='slow')
        self.assertEqual(
            (self.place, SLOW, False), (plan.source, plan.backend.name, plan.by_cinder)
        )

    def test_from_the_vault_when_asked_for(self):
        plan = self.plan(prefer_copy=True)
        self.assertEqual(
            (self.world.copy, worlds.NVME, False), (plan.source, plan.backend.name, plan.by_cinder)
        )

    def test_from_the_vault_when_the_snapshot_is_gone(self):
        self.world.storage.remove_snapshot(self.place)
        self.assertEqual(self.world.copy, self.plan().source)

    def test_from_the_vault_when_the_pool_is_gone(self):
        self.world.cluster.images[:] = [
            one for one in self.world.cluster.images if one.pool != self.place.pool
        ]
        self.assertEqual(self.world.copy, self.plan().source)

    def test_from_the_snapshot_when_the_copy_is_gone_or_was_never_complete(self):
        self.note(copied_at=None)
        self.assertEqual(self.place, self.plan(prefer_copy=True).source)
        self.note(vault_image=None)
        self.assertEqual(self.place, self.plan(prefer_copy=True).source)

    def test_copy_that_is_not_complete(self):
        """Whatever our own table says of it."""
        metadata = self.world.storage.describe(self.world.copy.of).metadata
        self.world.storage.set_image_metadata(self.world.copy.of, dict.fromkeys(metadata))
        self.assertEqual(self.place, self.plan(prefer_copy=True).source)
        self.world.storage.remove_snapshot(self.place)
        self.assertIn(f'{self.world.copy}: is incomplete', self.refused())

    def test_neither_is_there(self):
        self.world.storage.remove_snapshot(self.place)
        self.world.storage.remove_snapshot(self.world.copy)
        message = self.refused()
        self.assertIn(f'{self.place}: is gone', message)
        self.assertIn(f'{self.world.copy}: is gone', message)

    def test_storage_service_that_is_down_is_no_reason_to_take_the_other(self):
        strike = worlds.Strike(4, lost=True)
        self.assertRaises(
            exceptions.ServiceUnavailableError,
            planning.plan,
            self.world.deps(strike),
            wanted(self.world),
        )

    def test_states_that_are_not_restored(self):
        self.note(state=str(RecordState.DAMAGED), verify_error='table shop.t: corrupt')
        self.assertIn('is damaged: table shop.t: corrupt', self.refused())
        restored = {
            RecordState.TAKEN,
            RecordState.COPIED,
            RecordState.VERIFIED,
            RecordState.SUSPECTED,
        }
        for state in set(RecordState) - restored:
            self.note(state=str(state))
            self.assertIn(f'is {state}', self.refused())

    def test_smaller_volume(self):
        self.world.records._update(self.world.backup, size_bytes=3 * 1024**3 - 1)
        self.assertIn('3 GiB, not 2', self.refused(exceptions.VolumeTooSmallError, size_gib=2))
        self.assertTrue(self.plan(size_gib=3).by_cinder)

    def test_another_datastore_version(self):
        version = datastore_models.DBDatastoreVersion.find_by(id=trove_database.datastore_version())
        newer = datastore_models.DBDatastoreVersion.create(
            datastore_id=version.datastore_id,
            name=f'9.8 of {self.world.restored.id}',
            manager='mysql',
            image_id='image',
            packages='',
            active=True,
            version='9.8',
            registry_ext='',
            repl_strategy='',
        )
        trove_database.instance(self.world.restored.id).update(datastore_version_id=newer.id)
        message = self.refused()
        self.assertIn('is of mysql 9.7', message)
        self.assertIn('of mysql 9.8', message)

    def test_volume_types_that_are_not_ceph_s(self):
        self.assertIn('no volume type gold', self.refused(volume_type='gold'))
        self.world.cinder.add_type('lvm')
        self.assertIn('volume type lvm', self.refused(volume_type='lvm'))

    def test_quota(self):
        self.world.cinder.limits[worlds.SERVICE, 'gigabytes'] = 5
        message = self.refused(exceptions.QuotaExceededError, size_gib=4)
        self.assertIn('gigabytes needed 4, used 2, limit 5', message)
        self.assertTrue(self.plan(size_gib=3).by_cinder)

    def test_volume_type_of_any_back_end(self):
        self.world.cinder.add_type('any', extra_specs={'volume_backend_name': None})
        self.assertEqual(worlds.NVME, self.plan(volume_type='any').backend.name)

    def test_instance_or_backup_that_was_deleted(self):
        trove_database.instance(self.world.restored.id).update(deleted=True)
        self.assertIn('was deleted', self.refused())
