# SPDX-License-Identifier: Apache-2.0
"""The records of volumes in the trash, also when the service is killed while it moves one."""

import time
import uuid

import oslo_messaging as messaging
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.storage_service import service_world

VOLUME = f'volume-{uuid.uuid4()}'


class TrashRecordsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.make_world()

    def make_world(self):
        self.world = service_world.World(VOLUME)
        # The fake cluster tells the actual time of a move.
        self.world.now = time.time()
        self.one = self.world.service()

    def trash(self, service):
        return service.endpoint.trash({}, image=self.world.image)

    def recorded(self):
        return list(self.one.lock_store.read('volumes', 'trashed/'))

    def test_no_image_is_in_the_trash_without_a_record(self):
        requests = 0
        while True:
            self.make_world()
            try:
                self.trash(self.world.service('killed', service_world.Life(requests)))
                break
            except interruption.Kill:
                requests += 1
            for trashed in self.world.storage.list_trash('volumes'):
                self.assertTrue(self.one.trash_records.has(trashed), requests)
        self.assertGreater(requests, 5)

    def test_a_record_counts_for_one_move(self):
        trashed = self.trash(self.one)
        self.assertTrue(self.one.trash_records.has(trashed))
        for later_sec in (-3600, 3600):
            entries = self.world.cluster.entries['volumes']
            (key,) = self.recorded()
            entries[key] = f'{trashed.trashed_at.timestamp() + later_sec:.0f} {VOLUME}'
            self.assertFalse(self.one.trash_records.has(trashed))

    def test_a_restored_image_has_no_record(self):
        trashed = self.trash(self.one)
        self.one.endpoint.restore({}, pool='volumes', image_id=trashed.image_id, name=VOLUME)
        self.assertEqual([], self.recorded())

    def test_a_move_without_an_answer_has_a_record(self):
        def move(image, image_id):
            self.world.storage.trash(image, image_id)
            raise exceptions.CephUnreachableError('timed out')

        self.one.storage._inner.trash = move
        error = self.assertRaises(messaging.ExpectedException, self.trash, self.one)
        self.assertIsInstance(error.exc_info[1], exceptions.CephUnreachableError)
        (trashed,) = self.world.storage.list_trash('volumes')
        self.assertTrue(self.one.trash_records.has(trashed))

    def test_old_records_are_deleted(self):
        entries = self.world.cluster.entries.setdefault('volumes', {})
        entries['trashed/gone'] = f'{self.world.now - 86401:.0f} {VOLUME}'
        entries['trashed/about-to-be-moved'] = f'{self.world.now - 86300:.0f} {VOLUME}'
        trashed = self.trash(self.one)
        expected = ['trashed/about-to-be-moved', f'trashed/{trashed.image_id}']
        self.assertEqual(sorted(expected), self.recorded())
