# SPDX-License-Identifier: Apache-2.0
"""The volumes of a replica that is re-provisioned, in Cinder, Ceph and our tables."""

import contextlib
import dataclasses
import itertools
import types

from oslotest import base
from trove.quota.models import Quota

from trove_ceph import exceptions, steps
from trove_ceph.db.replica_record import Requester
from trove_ceph.strategies.backup import instance_deletion, volume_cleanup
from trove_ceph.strategies.replication import clones, dependencies
from trove_ceph.taskmanager import replica_volumes
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import replication_world
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.test_replica_creation import created
from trove_ceph.tests.unit.taskmanager import trove_database


def make_world():
    """Return a world whose replica is to be re-provisioned."""
    world = replication_world.ReplicationWorld(replicas_on='replica')
    created(world)
    (world.replica_id,) = world.replicas
    instance = trove_database.instance(world.replica_id)
    instance.update(task_status=trove_database.InstanceTasks.NONE)
    world.old_id = instance.volume_id
    world.store.register(world.replica_id, world.project, world.instance.id, world.old_id, None)
    world.record = world.store.request(world.replica_id, Requester.TENANT, 'it grew')
    return world


def make_clones(world, strike=None):
    """Return the clones of a new taskmanager."""
    deps = world.replication_deps(strike)
    return replica_volumes.ReplicaClones(deps.backup, deps.tiers, deps.policies, deps.limits)


class ReplicaVolumesCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = make_world()
        self.replica_id, self.old_id = self.world.replica_id, self.world.old_id
        self.record = self.world.record
        self.instance = trove_database.instance(self.replica_id)
        self.deps = self.world.deps()
        self.clones = make_clones(self.world)
        self.detached = []
        self.volumes = replica_volumes.ReplicaVolumes(
            self.deps, lambda *arguments: self.detached.append(arguments)
        )

    def images(self):
        """Return the images of replicas."""
        return self.world.images(replication_world.REPLICA_POOL) - {self.world.vault.name}


class CloneInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """A clone for a replica whose volume has been extended."""

    def make_world(self):
        world = make_world()
        world.deps().cinder.extend_volume(world.old_id, 2)
        world.cinder.work()
        return world

    def make_operation(self, world, strike=None):
        clones = make_clones(world, strike)
        # As a re-provisioning makes and gives up a clone.
        return [
            steps.Step(
                'clone the source',
                lambda: clones.create(world.record),
                undo=lambda: clones.remove(world.record),
            )
        ]

    def check_done(self, world):
        world.cinder.work()
        (volume,) = [
            one
            for one in world.cinder.volumes.values()
            if one['id'] not in (world.volume['id'], world.old_id)
        ]
        old = world.cinder.volumes[world.old_id]
        self.assertEqual(
            ('available', worlds.SERVICE, f'trove-{world.replica_id}', old['size'], old['type']),
            tuple(volume[name] for name in ('status', 'project', 'name', 'size', 'type')),
        )
        facts = world.storage.describe(world.cinder.image(volume))
        self.assertEqual(world.volume_image, facts.parent.of)
        self.check_no_more(world, {facts.image.name})

    def check_undone(self, world):
        world.cinder.work()
        self.assertEqual({world.volume['id'], world.old_id}, set(world.cinder.volumes))
        self.check_no_more(world, set())

    def check_no_more(self, world, made):
        volume_cleanup.reclaim(world.deps())
        others = {world.facts_of(world.replica_id).image.name, world.vault.name}
        self.assertEqual(made, world.images(replication_world.REPLICA_POOL) - others)
        self.assertEqual({world.volume_image.name}, world.images())
        self.assertEqual([], world.snapshots())
        self.assertEqual([], world.trash())
        self.assertEqual(world.cinder.true_usage(), world.cinder.quota.counted())
        # Ceph keeps the snapshot of each clone, and no other.
        kept = world.storage.describe(world.volume_image).snapshots
        self.assertEqual(1 + len(made), len(kept))

    def test_removal_is_interrupted_at_each_request(self):
        for error, lost in ((interruption.Kill, False), (exceptions.TroveCephError, True)):
            for number in itertools.count():
                world = self.make_world()
                make_clones(world).create(world.record)
                strike = worlds.Strike(number, after=not lost, lost=lost)
                with contextlib.suppress(error):
                    make_clones(world, strike).remove(world.record)
                if not strike.struck:
                    self.assertGreater(number, 5)
                    break
                make_clones(world).remove(world.record)
                with interruption.annotated(f'lost={lost} at request {number}'):
                    self.check_undone(world)


class ReplicaClonesTest(ReplicaVolumesCase):
    def test_creates_a_clone_on_the_tier_of_the_replica(self):
        new_id = self.clones.create(self.record)
        volume = self.world.cinder.volumes[new_id]
        self.assertEqual(
            ('available', f'trove-{self.replica_id}', 'nvme-replica'),
            tuple(volume[name] for name in ('status', 'name', 'type')),
        )
        facts = self.world.storage.describe(self.world.cinder.image(volume))
        self.assertEqual(self.world.volume_image, facts.parent.of)
        self.assertEqual([], self.snapshots())
        self.assertEqual(new_id, self.clones.create(self.record))
        self.assertEqual(2, len(self.images()))

    def test_creates_a_clone_on_the_tier_of_the_policy(self):
        self.world.policies.set(self.world.instance.id, replica_volume_type='nvme')
        volume = self.world.cinder.volumes[self.clones.create(self.record)]
        self.assertEqual('nvme', volume['type'])
        self.assertEqual('volumes', self.world.cinder.image(volume).pool)
        self.assertEqual([], self.snapshots())

    def test_clone_of_a_present_volume_on_another_tier_for_data(self):
        """Without a policy it would stay there."""
        self.world.tiers = replication_world.tiers()
        self.world.policies.set(self.world.instance.id, replica_volume_type='nvme-replica')
        self.world.cinder.volumes[self.old_id]['type'] = 'nvme'
        volume = self.world.cinder.volumes[self.clones.create(self.record)]
        self.assertEqual('nvme-replica', volume['type'])

    def snapshots(self):
        found = self.world.storage.describe(self.world.volume_image).snapshots
        return [one.name for one in found if not one.removed]

    def test_clone_is_as_large_as_the_present_volume(self):
        self.world.cinder.volumes[self.old_id]['size'] += 2
        new_id = self.clones.create(self.record)
        sizes = [self.world.cinder.volumes[one]['size'] for one in (self.old_id, new_id)]
        self.assertEqual(sizes[0], sizes[1])

    def test_refuses_a_clone_that_the_quota_of_the_project_does_not_allow(self):
        self.world.cinder.volumes[self.world.volume['id']]['size'] = 5
        self.world.cluster.get(self.world.volume_image).resize(5 << 30)
        limit = Quota.create(tenant_id=self.world.project, resource='volumes', hard_limit=3)
        self.addCleanup(limit.delete)
        self.assertIn('needs 4 GiB more of the quota of volumes', self.refusal())
        limit.update(hard_limit=-1)
        self.assertEqual(5, self.volumes.find_size_gib(self.clones.create(self.record)))

    def test_present_volume_that_cinder_does_not_have(self):
        del self.world.cinder.volumes[self.old_id]
        new_id = self.clones.create(self.record)
        self.assertEqual('nvme-replica', self.world.cinder.volumes[new_id]['type'])

    def test_refuses_a_source_without_a_volume(self):
        trove_database.instance(self.world.instance.id).update(volume_id=None)
        error = self.assertRaises(
            exceptions.ReprovisioningRefusedError, self.clones.create, self.record
        )
        self.assertIn('does not exist, or is on no tier', str(error))

    def test_refuses_a_type_that_is_not_for_replicas(self):
        self.world.cinder.add_type('other')
        self.world.cinder.volumes[self.old_id]['type'] = 'other'
        self.assertRaises(exceptions.ReprovisioningRefusedError, self.clones.create, self.record)

    def refusal(self):
        """Return why no clone is made; nothing is left."""
        error = self.assertRaises(
            exceptions.ReprovisioningRefusedError, self.clones.create, self.record
        )
        self.assertEqual((1, []), (len(self.images()), self.snapshots()))
        return str(error)

    def test_refuses_a_policy_whose_tier_is_gone(self):
        self.world.cinder.add_type('tape')
        self.world.policies.set(self.world.instance.id, replica_volume_type='tape')
        self.assertIn('set another one, or default', self.refusal())

    def test_refuses_a_source_whose_settings_lose_commits(self):
        answer = {'reasons': [{'object': 'sync_binlog', 'remedy': 'set it to 1'}]}
        self.world.guest.check_backup_settings = lambda: answer
        self.assertIn('cannot be cloned while it serves', self.refusal())

    def test_refuses_a_source_whose_settings_change_meanwhile(self):
        digests = iter('ab')
        self.world.guest.check_backup_settings = lambda: {
            'reasons': [],
            'settings_id': next(digests),
        }
        self.assertIn('settings of its server were changed', self.refusal())

    def test_takes_no_snapshot_again_that_was_not_checked(self):
        image = self.world.volume_image
        snapshot = clones.SharedSnapshot(self.deps, image, self.record.request_id)
        snapshot.ensure()
        old = self.world.storage.describe(image).find_snapshot(snapshot.ref.name)
        self.clones.create(self.record)
        # Ceph keeps a removed snapshot that has a clone.
        kept = self.world.storage.describe(image).snapshots
        self.assertNotIn(old.snapshot_id, [one.snapshot_id for one in kept])

    def test_refuses_a_source_that_is_too_deep(self):
        deps = self.world.replication_deps()
        self.clones = replica_volumes.ReplicaClones(
            deps.backup, deps.tiers, deps.policies, dependencies.Limits(clone_depth=0)
        )
        self.assertIn('operator can flatten', self.refusal())

    def test_refuses_a_pool_that_is_full(self):
        self.world.cluster.capacities[replication_world.REPLICA_POOL] = 0
        shown = self.refusal()
        self.assertIn(f'{self.replica_id} of instance', shown)
        self.assertIn('the storage has no room for it', shown)
        self.assertNotIn(replication_world.REPLICA_POOL, shown)

    def test_refuses_if_the_quota_is_used_up(self):
        self.world.cinder.quota.limits[worlds.SERVICE, 'volumes'] = 2
        self.assertIn("the database service's own quota of volumes", self.refusal())

    def test_refuses_if_the_quota_does_not_allow_the_size_of_the_replica(self):
        volume = self.world.cinder.volumes[self.old_id]
        volume['size'] += 2
        self.world.cinder.quota.limits[worlds.SERVICE, 'per_volume_gigabytes'] = volume['size'] - 1
        self.assertIn("the database service's own quota of volumes", self.refusal())

    def test_needs_no_room_for_a_clone_that_exists(self):
        new_id = self.clones.create(self.record)
        self.world.cinder.quota.limits[worlds.SERVICE, 'volumes'] = 3
        self.world.cluster.capacities[replication_world.REPLICA_POOL] = 0
        self.assertEqual(new_id, self.clones.create(self.record))

    def test_removes_the_clone_only(self):
        for _again in range(2):
            self.clones.create(self.record)
            self.clones.remove(self.record)
            self.clones.remove(self.record)
            self.world.cinder.work()
            self.assertEqual(1, len(self.images()))
            self.assertEqual([], self.snapshots())
            self.assertIn(self.old_id, self.world.cinder.volumes)


class VolumesTest(ReplicaVolumesCase):
    def test_deletes_the_old_volume_of_an_instance_that_lives(self):
        new_id = self.clones.create(self.record)
        self.instance.update(volume_id=new_id)
        self.assertFalse(self.volumes.is_discarded(self.old_id))
        for _again in range(2):
            self.volumes.discard(self.old_id, self.record)
        self.assertTrue(self.volumes.is_discarded(self.old_id))
        volume_cleanup.reclaim(self.deps)
        self.world.cinder.work()
        self.assertNotIn(self.old_id, self.world.cinder.volumes)
        self.assertIn(new_id, self.world.cinder.volumes)
        self.assertEqual(1, len(self.images()))

    def test_keeps_the_volume_that_the_instance_has(self):
        self.volumes.discard(self.old_id, self.record)
        volume_cleanup.reclaim(self.deps)
        self.world.cinder.work()
        self.assertIn(self.old_id, self.world.cinder.volumes)

    def test_volume_that_cannot_be_read(self):
        def found(volume_id):
            return self.volumes.can_be_read(volume_id), self.volumes.is_gone(volume_id)

        self.assertEqual((True, False), found(self.old_id))
        # Its pool may answer again.
        describe = self.volumes._deps.storage.describe

        def fail(_image, with_usage=False):
            raise exceptions.CephUnreachableError('the pool does not answer')

        self.volumes._deps.storage.describe = fail
        self.assertEqual((False, False), found(self.old_id))
        self.volumes._deps.storage.describe = describe
        image = self.world.cinder.image(self.world.cinder.volumes[self.old_id])
        self.world.storage.trash(image, self.world.storage.describe(image).image_id)
        self.assertEqual((False, True), found(self.old_id))
        self.assertEqual((False, True), found('00000000-0000-4000-8000-000000000000'))

    def test_own_space(self):
        image = self.world.cinder.image(self.world.cinder.volumes[self.old_id])
        expected = self.world.storage.describe(image).used_bytes
        self.assertIsNotNone(expected)
        self.assertEqual(expected, self.volumes.find_own_bytes(self.old_id))
        self.world.storage.trash(image, self.world.storage.describe(image).image_id)
        self.assertIsNone(self.volumes.find_own_bytes(self.old_id))
        self.assertIsNone(self.volumes.find_own_bytes('00000000-0000-4000-8000-000000000000'))

    def test_attachments(self):
        cinder = types.SimpleNamespace(find_attachments=lambda _id: {'server': 'attachment'})
        volumes = replica_volumes.ReplicaVolumes(
            dataclasses.replace(self.deps, cinder=cinder), self.volumes.detach
        )
        self.assertEqual({'server'}, set(volumes.find_servers(self.old_id)))
        self.assertFalse(self.volumes.is_attached(self.old_id))
        self.world.cinder.volumes[self.old_id]['status'] = 'in-use'
        self.assertTrue(self.volumes.is_attached(self.old_id))
        self.volumes.detach(self.old_id, 'server')
        self.assertEqual([(self.old_id, 'server')], self.detached)

    def test_rolls_back_a_detachment(self):
        rolled_back, attachments = [], {'server': 'attachment'}
        volume = self.world.cinder.volumes[self.old_id]
        cinder = types.SimpleNamespace(
            find_volume=self.deps.cinder.find_volume,
            find_attachments=lambda _id: attachments,
            roll_back_detachment=rolled_back.append,
            set_volume_status=self.deps.cinder.set_volume_status,
        )
        volumes = replica_volumes.ReplicaVolumes(
            dataclasses.replace(self.deps, cinder=cinder), self.volumes.detach
        )
        for status in ('in-use', 'available', 'error'):
            volume['status'] = status
            volumes.roll_back_detachment(self.old_id)
            self.assertEqual((status, []), (volume['status'], rolled_back))
        volume['status'] = 'detaching'
        volumes.roll_back_detachment(self.old_id)
        self.assertEqual(('detaching', [self.old_id]), (volume['status'], rolled_back))
        attachments.clear()
        volumes.roll_back_detachment(self.old_id)
        self.assertEqual(('available', 1), (volume['status'], len(rolled_back)))
        volumes.roll_back_detachment('00000000-0000-4000-8000-000000000000')

    def test_deletion_of_the_instance_deletes_both_volumes(self):
        new_id = self.clones.create(self.record)
        self.volumes.discard(new_id, self.record)
        instance = self.deps.trove.find_instance(self.replica_id)
        deletion = instance_deletion.InstanceDeletion(
            self.deps, instance, lambda: self.instance.update(deleted=True)
        )
        for step in deletion.steps():
            step.do()
        self.world.cinder.work()
        self.assertFalse({self.old_id, new_id} & set(self.world.cinder.volumes))
        self.assertEqual(set(), self.images())
