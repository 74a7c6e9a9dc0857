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
        request_id = self.end_reprovisioning()
        self.leave_snapshot(request_id)
        self.world.make_image('replica', request_id)
        self.world.add_volume(request_id, name=f'trove-{self.replica.id}')
        found = self.world.find()
        self.assertEqual({Kind.SNAPSHOT, Kind.IMAGE, Kind.VOLUME}, {one.kind for one in found})
        self.assertEqual({None}, {one.stays_because() for one in found})

    def end_reprovisioning(self):
        """End one without success, and return its id."""
        request_id = self.reprovision()
        claim = self.world.replicas.claim(self.replica.id, self.world.worker())
        self.world.replicas.fail(claim, 'of a reason')
        return request_id

    def leave_clone(self, operation_id):
        """Leave a clone of the source that Cinder does not manage, without its snapshot."""
        snapshot = self.leave_snapshot(operation_id)
        image = worlds.image_types.ImageRef('volumes', names.image_name('replica', operation_id))
        self.world.storage.clone(snapshot, image, worlds.image_types.ImageOptions())
        self.world.storage.remove_snapshot(snapshot)
        return image

    def test_finds_what_an_earlier_reprovisioning_has_left(self):
        self.world.volume['name'] = f'trove-{self.world.instance.id}'
        earlier = self.end_reprovisioning()
        self.end_reprovisioning()
        self.leave_clone(earlier)
        self.leave_snapshot(earlier)
        self.world.add_volume(earlier, name=f'trove-{self.replica.id}')
        found = self.world.find()
        self.assertEqual({Kind.SNAPSHOT, Kind.IMAGE, Kind.VOLUME}, {one.kind for one in found})
        self.assertEqual({None}, {one.stays_because() for one in found})
        (image,) = (one for one in found if one.kind is Kind.IMAGE)
        of_source = f'of a replica of instance {self.world.instance.id}'
        self.assertEqual(f're-provisioning {earlier} {of_source} has ended', image.reason)
        for one in found:
            collector = self.world.collector()
            collector.find()
            collector.remove(one)
        self.assertEqual([], self.world.found())

    def test_finds_what_the_replica_has_left_that_was_forgotten(self):
        self.world.volume['name'] = f'trove-{self.world.instance.id}'
        request_id = self.end_reprovisioning()
        self.world.replicas.remove(self.replica.id)
        self.leave_clone(request_id)
        self.remove(self.only())

    def test_leaves_clones_of_volumes_of_another_trove(self):
        self.world.volume['name'] = f'trove-{uuid.uuid4()}'
        stranger = str(uuid.uuid4())
        self.leave_clone(stranger)
        self.leave_snapshot(stranger)
        for found in self.world.find():
            self.assertIn(f'knows no instance, backup or guest {stranger}', found.stays_because())

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
