# SPDX-License-Identifier: Apache-2.0
import dataclasses
import datetime

from oslotest import base
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions, steps
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup import volume_cleanup
from trove_ceph.strategies.replication import clones, create, dependencies, placement
from trove_ceph.strategies.restore import cloned_volume, flatten
from trove_ceph.tests.unit.strategies import replication_world
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database


def created(world, **facts):
    """Create the volumes of the world's replicas."""
    deps = world.replication_deps()
    volumes = create.VolumeCreation(deps, create.plan(deps, world.request(**facts)))
    steps.run('creation', volumes.steps())
    return volumes


class CreationInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """A replica in the pool of the tier for replicas."""

    def make_world(self):
        return replication_world.ReplicationWorld(replicas_on='replica')

    def make_operation(self, world, strike=None):
        planned = create.plan(world.replication_deps(), world.request())
        self.volumes = create.VolumeCreation(world.replication_deps(strike), planned)
        return self.volumes.steps()

    def check_done(self, world):
        world.cinder.work()
        self.assertEqual({}, self.volumes.failures)
        for instance_id in world.replicas:
            volume = world.volume_of(instance_id)
            self.assertEqual(
                ('available', worlds.SERVICE, f'trove-{instance_id}', 'nvme-replica'),
                tuple(volume[name] for name in ('status', 'project', 'name', 'type')),
            )
            facts = world.facts_of(instance_id)
            self.assertEqual(world.volume_image, facts.parent.of)
            self.assertEqual(replication_world.REPLICA_POOL, facts.image.pool)
        self.check_no_more(world, set(world.replicas))

    def check_undone(self, world):
        world.cinder.work()
        for one in world.replicas:
            self.assertIsNone(trove_database.instance(one).volume_id)
        self.check_no_more(world, set())

    def check_no_more(self, world, having):
        volume_cleanup.reclaim(world.deps())
        names = {world.cinder.image(world.volume_of(one)).name for one in having}
        self.assertEqual(names, world.images(replication_world.REPLICA_POOL) - {world.vault.name})
        self.assertEqual({world.volume_image.name}, world.images())
        self.assertEqual(1 + len(having), len(world.cinder.volumes))
        self.assertEqual([], world.snapshots())
        self.assertEqual([], world.trash())
        self.assertEqual(world.cinder.true_usage(), world.cinder.quota.counted())


class VolumeCreationTest(base.BaseTestCase):
    def make_world(self, count=1, **facts):
        self.world = replication_world.ReplicationWorld(count, **facts)
        return self.world

    def test_several_replicas_share_one_snapshot(self):
        world = self.make_world(3)
        volumes = created(world)
        self.assertEqual({}, volumes.failures)
        self.assertEqual(1, world.events.count('storage create_snapshot'))
        parents = {world.facts_of(one).parent for one in world.replicas}
        self.assertEqual({world.volume_image}, {one.of for one in parents})
        self.assertEqual(1, len(parents))
        self.assertEqual([], world.snapshots())
        self.assertEqual('nvme', world.volume_of(world.replicas[0])['type'])
        created_at = volumes.cloned_at.replace(tzinfo=datetime.UTC)
        self.assertLess(abs(datetime.datetime.now(datetime.UTC) - created_at).days, 1)

    def test_is_on_the_tier_of_the_policy_of_its_source(self):
        world = self.make_world(2)
        world.policies.set(world.instance.id, replica_volume_type='nvme-replica')
        self.assertEqual({}, created(world, volume_type='nvme').failures)
        for replica_id in world.replicas:
            self.assertEqual('nvme-replica', world.volume_of(replica_id)['type'])
            image = world.facts_of(replica_id).image
            self.assertEqual(replication_world.REPLICA_POOL, image.pool)
        self.assertEqual([], world.snapshots())

    def test_policies_of_other_sources_have_no_effect(self):
        world = self.make_world()
        world.policies.set('another', replica_volume_type='nvme-replica')
        created(world)
        self.assertEqual('nvme', world.volume_of(world.replicas[0])['type'])

    def test_neither_locks_nor_freezes_the_source(self):
        world = self.make_world()
        created(world)
        self.assertEqual(
            {'guest check_backup_settings'}, {one for one in world.events if 'guest' in one}
        )
        self.assertEqual(([], []), (world.guest.locks, world.guest.freezes))

    def test_the_failure_of_one_leaves_the_others_alone(self):
        world = self.make_world(3)
        trove_database.instance(world.replicas[1]).update(deleted=True)
        volumes = created(world)
        self.assertEqual([world.replicas[1]], list(volumes.failures))
        self.assertIsInstance(volumes.failures[world.replicas[1]], exceptions.RecordNotFoundError)
        volume_cleanup.reclaim(world.deps())
        self.assertEqual(3, len(world.cinder.volumes))
        self.assertEqual(3, len(world.images()))
        self.assertEqual([], world.snapshots())

    def test_refuses_if_a_setting_was_changed_meanwhile(self):
        world = self.make_world()
        planned = create.plan(world.replication_deps(), world.request())
        world.guest.evidence = 'another digest'
        volumes = create.VolumeCreation(world.replication_deps(), planned)
        error = self.assertRaises(
            exceptions.ReplicaRefusedError, steps.run, 'creation', volumes.steps()
        )
        self.assertIn('settings were changed', str(error))
        self.assertEqual(([], {world.volume_image.name}), (world.snapshots(), world.images()))

    def test_replaces_a_clone_that_librbd_did_not_complete(self):
        world = self.make_world()
        name = names.image_name('replica', world.replicas[0])
        incomplete = image_types.ImageRef('volumes', name)
        size_bytes = world.storage.describe(world.volume_image).size_bytes
        world.storage.create_image(incomplete, size_bytes, image_types.ImageOptions())
        self.assertEqual({}, created(world).failures)
        self.assertEqual(world.volume_image, world.facts_of(world.replicas[0]).parent.of)
        volume_cleanup.reclaim(world.deps())
        self.assertEqual(([], 2), (world.trash(), len(world.images())))

    def test_flattens_no_replica_in_another_pool(self):
        world = self.make_world(replicas_on='replica')
        created(world)
        flatten.flatten_dependents(world.deps())
        self.assertEqual(world.volume_image, world.facts_of(world.replicas[0]).parent.of)

    def test_removes_what_an_interrupted_creation_has_left(self):
        """The deletion of an instance without a volume."""
        world = self.make_world(replicas_on='replica')
        (replica,) = world.replicas
        deps = world.replication_deps()
        planned = create.plan(deps, world.request())
        volume = clones.ReplicaVolume(
            deps.backup,
            replica,
            replica,
            clones.SharedSnapshot(deps.backup, planned.image, replica),
            planned.target,
        )
        clones.SharedSnapshot(deps.backup, planned.image, replica).ensure()
        count = len(volume.steps())
        for number in range(count + 1):
            for step in volume.steps()[:number]:
                step.do()
            for _ in range(2):
                cloned_volume.remove(world.deps(), replica, replica, world.project)
                volume_cleanup.reclaim(world.deps())
                world.cinder.work()
            self.assertEqual([world.volume], list(world.cinder.volumes.values()))
            self.assertEqual(set(), world.images(replication_world.REPLICA_POOL))
            self.assertEqual([], world.trash())
        self.assertGreater(count, 3)


class OldSnapshotsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = replication_world.ReplicationWorld()
        deps = self.world.deps()
        self.left = clones.SharedSnapshot(deps, self.world.volume_image, self.world.replicas[0])
        self.left.ensure()
        self.now = datetime.datetime.now(datetime.UTC)

    def remove(self, volume_ids, later=2 * clones.SNAPSHOT_EXPIRY):
        clones.remove_old_snapshots(self.world.deps(), volume_ids, self.now + later)

    def volume_ids(self):
        return self.world.trove.list_replicated_volumes()

    def test_removes_what_a_dead_taskmanager_has_left(self):
        self.assertIn(self.world.volume['id'], self.volume_ids())
        self.remove(self.volume_ids())
        self.assertEqual([], self.world.snapshots())
        self.remove(self.volume_ids())

    def test_keeps_the_snapshot_of_a_running_creation(self):
        self.remove(self.volume_ids(), later=clones.SNAPSHOT_EXPIRY / 2)
        self.assertEqual([self.left.ref.name], self.world.snapshots())

    def test_keeps_other_snapshots(self):
        self.left.remove()
        self.world.cinder.add_snapshot(self.world.volume)
        other = self.world.volume_image.snapshot(f'trove_ceph.backup.{self.world.instance.id}')
        self.world.storage.create_snapshot(other)
        before = self.world.snapshots()
        self.remove(self.volume_ids())
        self.assertEqual(before, self.world.snapshots())

    def test_continues_after_a_volume_that_does_not_exist(self):
        self.world.cinder.volumes['on no tier'] = {
            **self.world.volume,
            'id': 'on no tier',
            'host': 'lab@lvm#lvm',
        }
        self.remove(['gone', 'on no tier', *self.volume_ids()])
        self.assertEqual([], self.world.snapshots())

    def test_releases_a_snapshot_of_which_the_storage_does_not_know(self):
        self.left.remove()
        self.left.release()
        self.assertEqual([], self.world.snapshots())


class RefusalTest(base.BaseTestCase):
    """Requests that are refused before anything is created."""

    def setUp(self):
        super().setUp()
        self.world = replication_world.ReplicationWorld(2)

    def refused(self, error=exceptions.ReplicaRefusedError, **facts):
        deps = self.world.replication_deps()
        caught = self.assertRaises(error, create.plan, deps, self.world.request(**facts))
        self.assertEqual([], self.world.snapshots())
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))
        self.assertEqual({self.world.volume_image.name}, self.world.images())
        return str(caught)

    def source(self, **values):
        trove_database.instance(self.world.instance.id).update(**values)

    def test_source_that_is_building(self):
        self.source(task_status=InstanceTasks.BUILDING)
        self.assertIn('is still being created', self.refused())

    def test_source_that_is_deleted(self):
        self.source(task_status=InstanceTasks.DELETING)
        self.assertIn('is being deleted', self.refused())
        self.source(task_status=InstanceTasks.NONE, deleted=True)
        self.assertIn('was deleted', self.refused())

    def test_source_that_is_a_replica(self):
        self.source(slave_of_id='another instance')
        self.assertIn('create a replica of its source another instance', self.refused())

    def test_source_that_does_not_exist(self):
        self.assertIn('was deleted', self.refused(source_id='no such instance'))

    def test_source_that_does_not_serve(self):
        self.world.guest.is_down = True
        text = self.refused(exceptions.GuestUnavailableError)
        self.assertIn(f'instance {self.world.instance.id}: does not serve; restart it', text)
        self.assertIn('HEALTHY: guest agent: no answer', text)

    def test_source_with_an_agent_of_an_earlier_release(self):
        def refuse():
            raise exceptions.GuestOutdatedError('rebuild the instance')

        self.world.guest.check_backup_settings = refuse
        self.assertEqual('rebuild the instance', self.refused(exceptions.GuestOutdatedError))

    def test_source_without_binary_logs(self):
        self.world.guest.reasons = [
            {'object': 'log_bin=OFF', 'remedy': 'set log_bin = ON', 'freeze_suffices': False}
        ]
        text = self.refused(exceptions.UnsafeSettingsError)
        self.assertIn('log_bin=OFF (remedy: set log_bin = ON)', text)

    def test_source_without_a_volume(self):
        self.source(volume_id=None)
        self.assertIn('no volume', self.refused())
        self.source(volume_id='gone')
        self.assertIn('no volume', self.refused())

    def test_replica_of_another_version(self):
        version = trove_database.foreign_version()
        trove_database.instance(self.world.replicas[0]).update(datastore_version_id=version)
        self.assertIn('mysql 9.7', self.refused())

    def test_too_many_replicas(self):
        self.world.limits = dependencies.Limits(replicas=2)
        create.plan(self.world.replication_deps(), self.world.request())
        gone = self.world.add_replica()
        self.assertIn('would have 3 replicas, and may have 2', self.refused())
        trove_database.instance(gone).update(deleted=True)
        create.plan(self.world.replication_deps(), self.world.request())

    def test_too_deep(self):
        """A replica that was promoted is still a clone."""
        created(self.world)
        (promoted, other) = self.world.replicas
        trove_database.instance(promoted).update(task_status=InstanceTasks.NONE, slave_of_id=None)
        request = self.world.request(source_id=promoted, instance_ids=(other,))
        deps = self.world.replication_deps()
        deps = dataclasses.replace(
            deps, backup=dataclasses.replace(deps.backup, guest=lambda _id: self.world.guest)
        )
        create.plan(deps, request)
        deps = dataclasses.replace(deps, limits=dependencies.Limits(clone_depth=1))
        error = self.assertRaises(exceptions.ReplicaRefusedError, create.plan, deps, request)
        self.assertIn('with 1 images above it, and a replica may have 1', str(error))

    def test_policy_whose_tier_is_gone(self):
        self.world.cinder.add_type('tape')
        self.world.policies.set(self.world.instance.id, replica_volume_type='tape')
        self.assertIn('set another one, or default', self.refused())

    def test_full_pool(self):
        self.world.tiers = replication_world.tiers(replicas_on='replica')
        self.world.cluster.capacities[replication_world.REPLICA_POOL] = 0
        self.refused(exceptions.NoSpaceError)

    def test_nearly_full_pool(self):
        """The growth of replicas would fill the OSDs, and block their sources."""
        pool = replication_world.REPLICA_POOL
        self.world.tiers = replication_world.tiers(replicas_on='replica')
        usage = image_types.PoolUsage(pool, 89, 89, 11, 0.89, near_full=True, full=False)
        usages, known = {pool: usage}, self.world.cluster.usage
        self.world.cluster.usage = lambda name: usages.get(name) or known(name)
        create.plan(self.world.replication_deps(), self.world.request())
        usages[pool] = dataclasses.replace(usage, fill=0.91)
        self.assertIn('10% must be free', self.refused(exceptions.NoSpaceError))

    def test_used_up_quota(self):
        self.world.cinder.quota.limits[worlds.SERVICE, 'volumes'] = 2
        self.assertIn('volumes needed 2, used 1', self.refused(exceptions.QuotaExceededError))

    def test_back_end_that_is_down(self):
        self.world.tiers = replication_world.tiers(replicas_on='replica')
        del self.world.cinder.backends[replication_world.REPLICAS]
        self.refused(exceptions.NotAdoptableError)


class PlacementTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = replication_world.ReplicationWorld()

    def choose(self, requested=None, policy=None, **facts):
        deps = self.world.deps()
        volume = deps.cinder.find_volume(self.world.volume['id'])
        tiers = replication_world.tiers(**facts)
        found = placement.choose(deps, tiers, volume, self.world.volume_image, requested, policy)
        return found.volume_type, found.backend.pool

    def policy(self, replica_volume_type):
        return self.world.policies.set(
            self.world.instance.id, replica_volume_type=replica_volume_type
        )

    def test_beside_the_source(self):
        for requested in (None, 'nvme'):
            self.assertEqual(('nvme', 'volumes'), self.choose(requested))

    def test_on_the_tier_that_the_source_names(self):
        expected = ('nvme-replica', replication_world.REPLICA_POOL)
        for requested in (None, 'nvme', 'nvme-replica'):
            self.assertEqual(expected, self.choose(requested, replicas_on='replica'))

    def test_beside_the_source_once_its_tier_names_none_for_replicas(self):
        """A fresh clone of a replica on the tier that was named, or that a policy named."""
        for policy in (None, self.policy(None)):
            self.assertEqual(('nvme', 'volumes'), self.choose('nvme-replica', policy))

    def test_follows_a_change_of_the_tier_for_replicas(self):
        """A fresh clone of a replica on another tier for replicas; one for data is kept."""
        self.world.cinder.add_type('old-replica')
        tiers = replication_world.tiers(replicas_on='replica')
        old = dataclasses.replace(
            tiers.tiers['replica'],
            name='old-replica',
            volume_type=dataclasses.replace(tiers.tiers['replica'].volume_type, name='old-replica'),
        )
        tiers = dataclasses.replace(tiers, tiers={**tiers.tiers, 'old-replica': old})
        deps = self.world.deps()
        volume = deps.cinder.find_volume(self.world.volume['id'])

        def choose(requested, source):
            return placement.choose(
                deps, tiers, source, self.world.volume_image, requested, policy=None
            ).volume_type

        self.assertEqual('nvme-replica', choose('old-replica', volume))
        promoted = dataclasses.replace(volume, volume_type='nvme-replica')
        self.assertEqual('nvme', choose('nvme', promoted))

    def test_on_the_tier_of_the_policy(self):
        """It takes precedence over the tier of the source, and over a present volume."""
        beside, replica = ('nvme', 'volumes'), ('nvme-replica', replication_world.REPLICA_POOL)
        for requested in (None, 'nvme', 'nvme-replica'):
            self.assertEqual(replica, self.choose(requested, self.policy('nvme-replica')))
            policy = self.policy('nvme')
            self.assertEqual(beside, self.choose(requested, policy, replicas_on='replica'))

    def test_policy_without_a_volume_type(self):
        policy = self.policy(None)
        self.assertEqual(('nvme', 'volumes'), self.choose('nvme', policy))
        self.assertEqual(
            ('nvme-replica', replication_world.REPLICA_POOL),
            self.choose('nvme', policy, replicas_on='replica'),
        )

    def test_refuses_a_policy_whose_volume_type_is_of_no_fitting_tier(self):
        self.world.cinder.add_type('tape')
        error = self.assertRaises(
            exceptions.ReplicaRefusedError, self.choose, 'nvme', self.policy('tape')
        )
        self.assertEqual(
            f'instance {self.world.instance.id}: its policy has --replica-volume-type tape, which '
            'is not for replicas any more; set another one, or default',
            str(error),
        )

    def test_refuses_other_types(self):
        self.world.cinder.add_type('tape')
        error = self.assertRaises(exceptions.ReplicaRefusedError, self.choose, 'tape')
        self.assertIn('is not for replicas; create another', str(error))
