# SPDX-License-Identifier: Apache-2.0
"""Copies of backups in one image of a vault, created and deleted in any order."""

import time
import types
import uuid

from oslo_config import cfg
from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.conf import storage as storage_conf
from trove_ceph.conf import verification as verification_conf
from trove_ceph.db import backups, claims, heartbeat
from trove_ceph.db.roles import Role
from trove_ceph.storage import image_types, names
from trove_ceph.storage.ceph import lock_store
from trove_ceph.storage_service import factory
from trove_ceph.strategies.backup import dependencies, queue_worker, vault, volume_cleanup
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import storage
from trove_ceph.tests.unit.db import database
from trove_ceph.tests.unit.strategies import world as worlds

MIB = units.Mi
WORKER = claims.Claimant('one')
PURGE_TIMEOUT_SEC = 60


class VaultCopiesTest(contract.StorageContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.instance = str(uuid.uuid4())
        self.records = backups.BackupStore(database.with_tables(self.directory / 'records.sqlite'))
        self.dependencies = self.make_dependencies()
        # With the name of a volume: the service copies no other images.
        self.volume = image_types.ImageRef(self.pool, f'volume-{uuid.uuid4()}')
        self.storage.create_image(self.volume, 32 * MIB, image_types.ImageOptions())
        self.addCleanup(self.remove, self.volume)
        self.backups = []
        self.addCleanup(self.remove_vault)

    def make_dependencies(self):
        conf = cfg.ConfigOpts()
        storage_conf.register(conf)
        verification_conf.register(conf)
        path = self.directory / 'storage.conf'
        pools = f'{self.pool},{self.second_pool}'
        path.write_text(f'[trove_ceph_storage]\nceph_conf = {self.cluster.conf}\npools = {pools}\n')
        conf(['--config-file', str(path)])
        service = factory.make(conf.trove_ceph_storage, conf.trove_ceph_verification, 'one')
        self.addCleanup(self.forget_jobs)
        service.start()
        self.addCleanup(service.stop)
        bus = types.SimpleNamespace(served=service, events=[], now=0, sleep=time.sleep)
        return dependencies.BackupDependencies(
            storage=worlds.Storage(bus, worlds.Strike(None)),
            cinder=None,
            records=self.records,
            trove=None,
            servers=None,
            guest=None,
            find_image=None,
            pools_of=None,
            worker=WORKER,
            heartbeat=heartbeat.Heartbeat(self.records.claims, 5, 45),
            vault=lambda: self.second_pool,
        )

    def forget_jobs(self):
        for pool in (self.pool, self.second_pool):
            with self.cluster.pool(pool) as context:
                context.set_namespace(lock_store.NAMESPACE)
                context.remove_object(lock_store.OBJECT)

    def remove_vault(self):
        for owner in (self.instance, *self.backups):
            self.remove(image_types.ImageRef(self.second_pool, names.image_name('vault', owner)))

    def remove(self, image):
        """Remove an image with its snapshots; nothing if it is gone."""
        try:
            facts = self.storage.describe(image)
        except exceptions.NotFoundError:
            return
        for snapshot in facts.snapshots:
            self.storage.remove_snapshot(image.snapshot(snapshot.name))
        self.storage.remove(image)

    def back_up(self, *offsets):
        """Write a MiB at each offset, and return the id of a backup."""
        with self.storage.open_writer(self.volume) as writer:
            for offset in offsets:
                writer.write(offset * MIB, self.data(MIB)).result()
        backup_id = str(uuid.uuid4())
        snapshot = self.volume.snapshot(names.snapshot_name('backup', backup_id))
        self.storage.create_snapshot(snapshot)
        claim = self.records.begin_taking(backup_id, self.instance, 'project', WORKER)
        self.records.record_location(claim, snapshot, 'volume', 32 * MIB)
        self.records.record_taken(claim, snapshot.name, 'cinder', 1.0, copy=True)
        self.backups.append(backup_id)
        return backup_id

    def copy(self, backup_id):
        """Copy a backup, and return its base and the moved bytes."""
        queue_worker.run_job(self.dependencies, Role.COPY, self.records.get(backup_id))
        found = self.records.get(backup_id)
        self.assertIsNone(found.copy_error)
        self.assert_whole()
        return found.copy_base_id, found.moved_bytes

    def delete(self, backup_id):
        record = self.records.get(backup_id)
        vault.remove_copy(self.dependencies, backup_id, record.copy)
        self.storage.remove_snapshot(record.location)
        self.records.delete(self.records.begin_deleting(backup_id, WORKER))
        self.backups.remove(backup_id)
        self.assert_whole()

    def assert_whole(self):
        copied = [one for one in map(self.records.get, self.backups) if one.copied_at]
        for record in copied:
            self.assertEqual(self.content(record.location), self.content(record.copy))
        shared = {one.copy.name for one in copied}
        if shared:
            self.assertEqual(shared, set(self.snapshot_names(copied[0].copy.of)))

    def test_copies_and_deletes_in_any_order(self):
        first = self.back_up(0, 10, 20)
        self.assertEqual((None, 3 * MIB), self.copy(first))
        used_bytes = self.records.get(first).used_bytes
        self.assertTrue(3 * MIB <= used_bytes <= 12 * MIB, used_bytes)
        second, third = self.back_up(10, 30), self.back_up(20)
        # The image is at the third when the second comes.
        self.assertEqual((first, 3 * MIB), self.copy(third))
        self.assertEqual((first, 2 * MIB), self.copy(second))
        fourth = self.back_up(0)
        self.assertEqual((third, MIB), self.copy(fourth))
        for backup in (first, third):
            self.delete(backup)
        fifth = self.back_up(5)
        self.assertEqual((fourth, MIB), self.copy(fifth))
        for backup in (fourth, second, fifth):
            self.delete(backup)
        (trashed,) = self.records.trashed_images()
        self.assertEqual(names.image_name('vault', self.instance), trashed.name)
        # The first pass requests the purge, and a later one finds the image gone.
        deadline = time.monotonic() + PURGE_TIMEOUT_SEC
        while self.records.trashed_images() and time.monotonic() < deadline:
            volume_cleanup.purge_trashed(self.dependencies)
            time.sleep(0.1)
        self.assertEqual([], self.records.trashed_images())
