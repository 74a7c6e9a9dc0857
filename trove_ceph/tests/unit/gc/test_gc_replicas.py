# SPDX-License-Identifier: Apache-2.0
"""What interrupted creations and re-provisionings of replicas leave."""

import uuid

from oslotest import base

from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db.replica_record import Requester
from trove_ceph.gc.orphan import Kind
from trove_ceph.storage import names
from trove_ceph.tests.unit.gc import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database


class ReplicasTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        volume = self.world.cinder.add_volume(worlds.worlds.SERVICE, worlds.worlds.NVME)
        self.replica = trove_database.add_instance(
            self.world.project, volume['id'], slave_of_id=self.world.instance.id
        )

    def leave_snapshot(self, operation_id):
        snapshot = self.world.volume_image.snapshot(names.snapshot_name('replica', operation_id))
        self.world.storage.create_snapshot(snapshot)
        return snapshot

    def only(self):
        (found,) = self.world.find()
        return found

    def remove(self, found):
        collector = self.world.collector()
        (again,) = collector.find()
        self.assertEqual(found.name, again.name)
        collector.remove(again)
        self.assertEqual([], self.world.found())

    def reprovision(self):
        """Begin a re-provisioning, and return its id."""
        self.world.replicas.register(
            self.replica.id,
            self.world.project,
            self.world.instance.id,
            self.replica.volume_id,
            None,
        )
        return self.world.replicas.request(self.replica.id, Requester.TENANT, 'test').request_id

    def test_finds_the_snapshot_of_a_creation_although_the_replica_lives(self):
        left = self.leave_snapshot(self.replica.id)
        found = self.only()
        self.assertEqual((Kind.SNAPSHOT, str(left)), (found.kind, found.name))
        self.assertEqual('its replicas were cloned long ago', found.reason)
        self.remove(found)

    def test_removes_a_snapshot_with_clones(self):
        left = self.leave_snapshot(self.replica.id)
        image = self.world.make_image('restore', str(uuid.uuid4()))
        self.world.storage.remove(image)
        self.world.storage.clone(left, image, worlds.image_types.ImageOptions())
        found = next(one for one in self.world.find() if one.kind is Kind.SNAPSHOT)
        self.assertIsNone(found.stays_because())

    def test_ignores_what_a_reprovisioning_uses(self):
        request_id = self.reprovision()
        self.leave_snapshot(request_id)
        self.world.make_image('replica', request_id)
        self.world.add_volume(request_id, name=f'trove-{self.replica.id}')
        self.assertEqual([], self.world.found())

    def test_finds_what_a_reprovisioning_that_ended_has_left(self):
        request_id = self.reprovision()
        claim = self.world.replicas.claim(self.replica.id, self.world.worker())
        self.world.replicas.fail(claim, 'of a reason')
        self.leave_snapshot(request_id)
        self.world.make_image('replica', request_id)
        self.world.add_volume(request_id, name=f'trove-{self.replica.id}')
        found = self.world.find()
        self.assertEqual({Kind.SNAPSHOT, Kind.IMAGE, Kind.VOLUME}, {one.kind for one in found})
        self.assertEqual({None}, {one.stays_because() for one in found})

    def test_ignores_an_image_for_a_replica_that_is_being_created(self):
        self.replica.update(volume_id=None)
        self.world.make_image('replica', self.replica.id)
        self.assertEqual([], self.world.found())

    def test_finds_an_image_beside_the_volume_of_a_replica(self):
        self.world.make_image('replica', self.replica.id)
        found = self.only()
        self.assertEqual(f'instance {self.replica.id} has another volume', found.reason)
        self.remove(found)

    def test_ignores_the_volumes_that_a_replica_has(self):
        for volume in list(self.world.cinder.volumes.values()):
            volume['name'] = f'trove-{self.replica.id}'
            volume['metadata'] = {cinder_resources.OPERATION_KEY: self.replica.id}
        self.world.volume['metadata'] = {}
        self.assertEqual([], self.world.found())
        self.reprovision()
        claim = self.world.replicas.claim(self.replica.id, self.world.worker())
        old = self.world.add_volume(self.replica.id)
        self.assertEqual(f'instance {self.replica.id} has another volume', self.only().reason)
        self.world.replicas.note(claim, old_volume_id=old['id'])
        self.assertEqual([], self.world.found())
