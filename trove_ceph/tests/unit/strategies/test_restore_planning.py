# SPDX-License-Identifier: Apache-2.0
from oslotest import base
from trove.datastore import models as datastore_models

from trove_ceph import exceptions
from trove_ceph.db import tables
from trove_ceph.db.backup_record import RecordState
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.restore import planning
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.test_restore_clone_volume import (
    SLOW,
    make_world,
    restore_request,
)
from trove_ceph.tests.unit.taskmanager import trove_database


class PlanningTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = make_world()
        self.location = self.world.records.get(self.world.backup).location

    def plan(self, prefer_copy=False, **facts):
        return planning.plan(self.world.deps(), restore_request(self.world, **facts), prefer_copy)

    def note(self, **values):
        """Change fields of our record of the backup."""
        with self.world.records._transactions.writing() as session:
            row = session.get(tables.BackupRow, self.world.backup)
            for name, value in values.items():
                setattr(row, name, value)

    def refused(self, kind=exceptions.InvalidBackupError, **facts):
        before = len(self.world.events)
        error = self.assertRaises(kind, self.plan, **facts)
        requests = self.world.events[before:]
        read_only = {'cinder GET', 'storage describe', 'storage usage'}
        self.assertTrue(set(requests) <= read_only, requests)
        if kind in tenant_errors.SHOWN_UNCHANGED:
            self.assertNotIn(self.location.pool, str(error))
        return tenant_errors.operator_message(error)

    def test_cinder_clones_within_its_pool(self):
        plan = self.plan(size_gib=5)
        self.assertEqual(
            (self.location, worlds.NVME, True), (plan.source, plan.backend.name, plan.by_cinder)
        )

    def test_restores_to_another_tier(self):
        plan = self.plan(volume_type='slow')
        self.assertEqual(
            (self.location, SLOW, False), (plan.source, plan.backend.name, plan.by_cinder)
        )

    def test_restores_from_the_vault_on_request(self):
        plan = self.plan(prefer_copy=True)
        self.assertEqual(
            (self.world.copy, worlds.NVME, False), (plan.source, plan.backend.name, plan.by_cinder)
        )

    def test_restores_from_the_vault_if_the_snapshot_is_gone(self):
        self.world.storage.remove_snapshot(self.location)
        self.assertEqual(self.world.copy, self.plan().source)

    def test_restores_from_the_vault_if_the_pool_is_gone(self):
        self.world.cluster.images[:] = [
            one for one in self.world.cluster.images if one.pool != self.location.pool
        ]
        self.assertEqual(self.world.copy, self.plan().source)

    def test_restores_from_the_snapshot_if_the_copy_is_gone_or_incomplete(self):
        self.note(copied_at=None)
        self.assertEqual(self.location, self.plan(prefer_copy=True).source)
        self.note(vault_image=None)
        self.assertEqual(self.location, self.plan(prefer_copy=True).source)

    def test_refuses_an_incomplete_copy(self):
        """Our record may call it complete."""
        metadata = self.world.storage.describe(self.world.copy.of).metadata
        self.world.storage.set_image_metadata(self.world.copy.of, dict.fromkeys(metadata))
        self.assertEqual(self.location, self.plan(prefer_copy=True).source)
        self.world.storage.remove_snapshot(self.location)
        self.assertIn(f'{self.world.copy} is incomplete', self.refused())

    def test_refuses_a_backup_without_snapshot_and_copy(self):
        self.world.storage.remove_snapshot(self.location)
        self.world.storage.remove_snapshot(self.world.copy)
        message = self.refused()
        self.assertIn(f'{self.location} is gone', message)
        self.assertIn(f'{self.world.copy} is gone', message)

    def test_fails_if_the_storage_service_is_down(self):
        strike = worlds.Strike(4, lost=True)
        self.assertRaises(
            exceptions.ServiceUnavailableError,
            planning.plan,
            self.world.deps(strike),
            restore_request(self.world),
        )

    def test_refuses_states_that_cannot_be_restored(self):
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

    def test_refuses_a_smaller_volume(self):
        self.world.records._update(self.world.backup, size_bytes=3 * 1024**3 - 1)
        self.assertIn('3 GiB, not 2', self.refused(exceptions.VolumeTooSmallError, size_gib=2))
        self.assertTrue(self.plan(size_gib=3).by_cinder)

    def test_refuses_another_datastore_version(self):
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

    def test_refuses_volume_types_outside_of_ceph(self):
        self.assertIn('no volume type gold', self.refused(volume_type='gold'))
        self.world.cinder.add_type('lvm')
        self.assertIn('volume type lvm', self.refused(volume_type='lvm'))

    def test_refuses_a_volume_beyond_the_quota(self):
        self.world.cinder.quota.limits[worlds.SERVICE, 'gigabytes'] = 5
        message = self.refused(exceptions.QuotaExceededError, size_gib=4)
        self.assertIn('gigabytes needed 4, used 2, limit 5', message)
        self.assertTrue(self.plan(size_gib=3).by_cinder)

    def test_refuses_a_full_pool(self):
        self.world.cluster.capacities[self.location.pool] = 0
        for prefer_copy in (False, True):
            message = self.refused(exceptions.NoSpaceError, prefer_copy=prefer_copy)
            self.assertIn(f'{restore_request(self.world)}: pool {self.location.pool}', message)
        # It is the pool of the new volume that counts.
        self.assertEqual(SLOW, self.plan(volume_type='slow').backend.name)

    def test_refuses_a_full_data_pool_of_an_erasure_coded_tier(self):
        """The pool of the image holds its header only."""
        pool = self.location.pool
        self.world.pools_of[pool] = [pool, 'vault-data']
        self.plan()
        self.world.cluster.capacities['vault-data'] = 0
        message = self.refused(exceptions.NoSpaceError)
        self.assertIn(f'{restore_request(self.world)}: pool vault-data: 100% filled', message)

    def test_accepts_a_volume_type_of_any_back_end(self):
        self.world.cinder.add_type('any', extra_specs={'volume_backend_name': None})
        self.assertEqual(worlds.NVME, self.plan(volume_type='any').backend.name)

    def test_refuses_a_deleted_instance_or_backup(self):
        trove_database.instance(self.world.restored.id).update(deleted=True)
        self.assertIn('was deleted', self.refused())
