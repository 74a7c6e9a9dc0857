# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslo_utils import units
from oslotest import base
from trove.backup.state import BackupState
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types, tasks
from trove_ceph.storage.image_types import ImageRef
from trove_ceph.strategies.backup import delete, volume_cleanup
from trove_ceph.strategies.restore import (
    clone_volume,
    cloned_volume,
    flatten,
    planning,
    restore_types,
    room,
)
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.test_delete import copy
from trove_ceph.tests.unit.taskmanager import trove_database

GIB = units.Gi
# Another tier; its pool is that of the vault here.
SLOW = 'lab@slow#slow'


def make_world():
    """A backup with a copy in the vault, and an instance without a volume."""
    world = worlds.World()
    world.cinder.backends[SLOW] = 'vault'
    world.cinder.add_type('slow')
    snapshot_id = world.cinder.add_snapshot(world.volume)['id']
    source = world.volume_image.snapshot(f'snapshot-{snapshot_id}')
    location = f'cinder://{snapshot_id}'
    world.backup = world.add_backup(state=BackupState.COMPLETED, location=location).id
    records = world.records
    claim = records.begin_taking(world.backup, world.instance.id, world.project, world.worker())
    records.record_location(claim, source, world.volume['id'], GIB)
    records.record_taken(claim, source.name, snapshot_id, 1.0)
    world.copy = copy(world, world.backup)
    world.restored = trove_database.add_instance(
        world.project, None, server_id=None, task_status=InstanceTasks.BUILDING
    )
    world.guests[world.restored.id] = worlds.Guest(world)
    return world


def restore_request(world, **facts):
    values = {'volume_type': 'nvme', 'size_gib': 1}
    return restore_types.RestoreRequest(world.restored.id, world.backup, **values | facts)


def restore(world, prefer_copy=False, **facts):
    """Restore, and return the volume in Cinder."""
    request = restore_request(world, **facts)
    deps = world.deps()
    clone_volume.clone_volume(deps, request, planning.plan(deps, request, prefer_copy))
    return world.cinder.volumes[trove_database.instance(world.restored.id).volume_id]


class CloneInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """A restore from the vault to a larger volume."""

    def make_world(self):
        return make_world()

    def make_operation(self, world, strike=None):
        request = restore_request(world, size_gib=2)
        plan = planning.plan(world.deps(), request, prefer_copy=True)
        return clone_volume.VolumeClone(world.deps(strike), request, plan).steps()

    def check_done(self, world):
        world.cinder.work()
        (volume,) = [one for one in world.cinder.volumes.values() if one is not world.volume]
        self.assertEqual(
            ('available', worlds.SERVICE, f'trove-{world.restored.id}', 2),
            tuple(volume[name] for name in ('status', 'project', 'name', 'size')),
        )
        self.assertEqual(volume['id'], trove_database.instance(world.restored.id).volume_id)
        facts = world.storage.describe(world.cinder.image(volume))
        self.assertEqual((world.copy, 2 * GIB), (facts.parent, facts.size_bytes))
        self._check_no_more(world, {facts.image.name})

    def check_undone(self, world):
        world.cinder.work()
        self.assertEqual([world.volume], list(world.cinder.volumes.values()))
        self.assertIsNone(trove_database.instance(world.restored.id).volume_id)
        self._check_no_more(world, set())

    def _check_no_more(self, world, restored):
        volume_cleanup.reclaim(world.deps())
        others = {world.volume_image.name, world.copy.image, world.vault.name}
        self.assertEqual(restored, (world.images() | world.images('vault')) - others)
        self.assertEqual([], world.trash())
        self.assertEqual(world.cinder.true_usage(), world.cinder.quota.counted())


class VolumeCloneTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = make_world()

    def left(self):
        volume_cleanup.reclaim(self.world.deps())
        return {one for one in self.world.images() if '.restore.' in one}, self.world.trash()

    def test_restores_to_another_tier(self):
        volume = restore(self.world, volume_type='slow')
        self.assertEqual(SLOW, volume['host'])
        facts = self.world.storage.describe(self.world.cinder.image(volume))
        self.assertEqual('vault', facts.image.pool)
        self.assertEqual(self.world.records.get(self.world.backup).location, facts.parent)
        self.assertEqual('yes', volume['metadata'][cinder_resources.DEPENDENT_KEY])

    def test_restores_to_another_tier_of_a_cinder_cluster(self):
        self.world.cinder.form_cluster('blocks', 'one', 'two')
        volume = restore(self.world, volume_type='slow')
        self.assertEqual(('one@slow#slow', 'blocks@slow#slow'), (volume['host'], volume['cluster']))
        self.assertEqual('available', volume['status'])

    def test_refuses_a_deleted_instance(self):
        request = restore_request(self.world)
        plan = planning.plan(self.world.deps(), request, prefer_copy=True)
        trove_database.instance(self.world.restored.id).update(deleted=True)
        error = self.assertRaises(
            exceptions.RecordNotFoundError,
            clone_volume.clone_volume,
            self.world.deps(),
            request,
            plan,
        )
        self.assertIn('was deleted meanwhile', str(error))
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))
        self.assertEqual((set(), []), self.left())

    def test_removes_the_volume_if_its_extension_fails(self):
        self.world.cinder.failing = 'extend'
        error = self.assertRaises(
            exceptions.AdoptionFailedError, restore, self.world, prefer_copy=True, size_gib=3
        )
        self.assertIn('3 GiB', str(error))
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))
        self.assertEqual((set(), []), self.left())
        self.world.cinder.failing = None
        self.assertEqual(3, restore(self.world, prefer_copy=True, size_gib=3)['size'])

    def test_leaves_nothing_if_the_quota_is_used_up(self):
        request = restore_request(self.world, size_gib=3)
        plan = planning.plan(self.world.deps(), request, prefer_copy=True)
        self.world.cinder.quota.limits[worlds.SERVICE, 'gigabytes'] = 4
        self.assertRaises(
            exceptions.QuotaExceededError,
            clone_volume.clone_volume,
            self.world.deps(),
            request,
            plan,
        )
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))
        self.assertEqual((set(), []), self.left())

    def test_removes_the_leftovers_of_a_killed_process(self):
        """Defect 7: stock forgets the leftovers of an instance without a volume."""
        request = restore_request(self.world, size_gib=2)
        deps = self.world.deps()
        plan = planning.plan(deps, request, prefer_copy=True)
        count = len(clone_volume.VolumeClone(deps, request, plan).steps()) - 1
        observed = set()
        for number in range(count + 1):
            for step in clone_volume.VolumeClone(deps, request, plan).steps()[:number]:
                step.do()
            observed.add((len(self.world.cinder.volumes), bool(self.left()[0])))
            # Flattening of the volume may run already; the instance does not have it yet.
            flatten.flatten_dependents(deps)
            instance = self.world.trove.find_instance(self.world.restored.id)
            for _ in range(2):
                cloned_volume.remove(deps, instance.id, instance.id, instance.project_id)
                self.world.cinder.work()
                self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))
                self.assertEqual((set(), []), self.left())
            self.assertEqual([], self.world.records.kept_volumes())
        self.assertEqual({(1, False), (1, True), (2, False)}, observed)

    def test_removes_the_leftovers_beside_a_back_end_of_others(self):
        """The storage service refuses its pool, which is that of no tier."""
        request = restore_request(self.world, size_gib=2)
        deps = self.world.deps()
        plan = planning.plan(deps, request, prefer_copy=True)
        for step in clone_volume.VolumeClone(deps, request, plan).steps():
            if self.left()[0]:
                break
            step.do()
        self.assertTrue(self.left()[0])
        self.world.cinder.backends['one@other#other'] = 'pool-of-others'
        instance = self.world.trove.find_instance(self.world.restored.id)
        cloned_volume.remove(deps, instance.id, instance.id, instance.project_id)
        self.assertEqual((set(), []), self.left())

    def test_keeps_volumes_of_other_projects(self):
        volume = self.world.cinder.add_volume('of-somebody-else', worlds.NVME)
        volume['metadata'] = {cinder_resources.OPERATION_KEY: self.world.restored.id}
        instance = self.world.trove.find_instance(self.world.restored.id)
        cloned_volume.remove(self.world.deps(), instance.id, instance.id, instance.project_id)
        self.assertIn(volume['id'], self.world.cinder.volumes)
        self.assertEqual([], self.world.records.kept_volumes())


class FlattenTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = make_world()
        self.volume = restore(self.world, prefer_copy=True)
        self.image = self.world.cinder.image(self.volume)
        self.guest = self.world.guests[self.world.restored.id]

    def parent(self):
        return self.world.storage.describe(self.image).parent

    def mark(self):
        return self.volume['metadata'][cinder_resources.DEPENDENT_KEY]

    def jobs(self):
        return [
            one
            for one in self.world.deps().storage.list_jobs()
            if isinstance(one.work, tasks.FlattenTask)
        ]

    def test_flattens_a_volume_in_use(self):
        self.volume['status'] = 'in-use'
        self.assertEqual((self.world.copy, 'yes'), (self.parent(), self.mark()))
        flatten.flatten_volume(self.world.deps(), self.world.restored.id)
        self.assertIsNone(self.parent())
        self.assertFalse(self.guest.is_flattened)
        flatten.flatten_dependents(self.world.deps())
        self.assertEqual(('no', True), (self.mark(), self.guest.is_flattened))
        # Now the deletion of the copy leaves nothing.
        delete.delete_backup(self.world.deps(), self.world.backup)
        self.assertEqual([], self.world.trash())
        self.assertNotIn(self.world.copy.image, self.world.images('vault'))

    def test_flattens_after_the_backup_is_deleted(self):
        delete.delete_backup(self.world.deps(), self.world.backup)
        self.assertEqual([self.world.copy.image], self.world.trash())
        # What an image in the trash has cannot be measured.
        self.world.cluster.capacities['volumes'] = 2 * GIB
        flatten.flatten_dependents(self.world.deps())
        self.assertIsNone(self.parent())
        volume_cleanup.reclaim(self.world.deps())
        self.assertEqual([], self.world.trash())

    def test_leaves_the_volume_of_an_instance_that_is_being_deleted(self):
        """No client may have it open when it is deleted, and it would need space meanwhile."""
        # As that of a replica that was re-provisioned: the operation is not that of the instance.
        self.volume['metadata'][cinder_resources.OPERATION_KEY] = 'request-of-a-re-provisioning'
        trove_database.instance(self.world.restored.id).update(task_status=InstanceTasks.DELETING)
        flatten.flatten_dependents(self.world.deps())
        self.assertIsNotNone(self.parent())
        # Kept until it can be deleted.
        trove_database.instance(self.world.restored.id).update(deleted=True)
        deps = self.world.deps()
        deps.records.keep_volume(self.volume['id'], self.world.restored.id, 'project')
        flatten.flatten_dependents(deps)
        self.assertIsNotNone(self.parent())

    def test_retries_after_a_failure_of_the_storage_service(self):
        writer = self.world.storage.open_writer(self.image)
        self.addCleanup(writer.close)
        flatten.flatten_dependents(self.world.deps(worlds.Strike(2, lost=True)))
        self.assertEqual('yes', self.mark())
        flatten.flatten_dependents(self.world.deps())
        self.assertIsNone(self.parent())

    def test_continues_after_a_kill_at_each_request(self):
        number, struck = 0, True
        while struck:
            strike = worlds.Strike(number // 2, after=bool(number % 2))
            try:
                flatten.flatten_dependents(self.world.deps(strike))
            except interruption.Kill:
                flatten.flatten_dependents(self.world.deps())
            number, struck = number + 1, strike.struck
            self.assertFalse(self.guest.is_flattened and self.parent())
        self.assertEqual(('no', True), (self.mark(), self.guest.is_flattened))
        self.assertGreater(number, 2)

    def test_a_guest_that_does_not_answer_is_told_later(self):
        self.guest.is_down = True
        for _again in range(3):
            flatten.flatten_dependents(self.world.deps())
        self.assertEqual((None, 'yes'), (self.parent(), self.mark()))
        self.guest.is_down = False
        flatten.flatten_dependents(self.world.deps())
        self.assertEqual(('no', True), (self.mark(), self.guest.is_flattened))

    def test_an_agent_that_does_not_know_the_request(self):
        def refuse():
            raise exceptions.GuestOutdatedError('does not support RPC method')

        self.guest.record_flattened = refuse
        for _again in range(2):
            flatten.flatten_dependents(self.world.deps())
        self.assertEqual('no', self.mark())

    def restore_by_cinder(self):
        """Return a volume that Cinder has cloned from a snapshot, at Trove's request."""
        origin = self.world.volume_image.snapshot('origin')
        self.world.storage.create_snapshot(origin)
        volume = self.world.cinder.add_volume('service', worlds.NVME, snapshot_id='origin')
        image = self.world.cinder.image(volume)
        self.world.storage.remove(image)
        self.world.storage.clone(origin, image, image_types.ImageOptions())
        return volume, image

    def test_a_clone_that_an_operator_flattens(self):
        volume, image = self.restore_by_cinder()
        trove_database.instance(self.world.restored.id).update(volume_id=volume['id'])
        flatten.flatten_volume(self.world.deps(), self.world.restored.id)
        flatten.flatten_dependents(self.world.deps())
        self.assertFalse(self.guest.is_flattened)
        self.assertIsNotNone(self.world.storage.describe(image).parent)
        self.world.storage.flatten(image)
        flatten.flatten_dependents(self.world.deps())
        self.assertEqual(
            ('no', True),
            (volume['metadata'][cinder_resources.DEPENDENT_KEY], self.guest.is_flattened),
        )

    def test_leaves_a_clone_that_no_instance_has(self):
        volume, image = self.restore_by_cinder()
        self.world.storage.flatten(image)
        flatten.flatten_dependents(self.world.deps())
        self.assertEqual({}, volume['metadata'])

    def test_a_clone_of_the_vault_on_the_tier_of_the_vault_shares_its_blocks(self):
        world = make_world()
        volume = restore(world, prefer_copy=True, volume_type='slow')
        for _again in range(2):
            flatten.flatten_dependents(world.deps())
        self.assertEqual('yes', volume['metadata'][cinder_resources.DEPENDENT_KEY])
        self.assertFalse(world.guests[world.restored.id].is_flattened)

    def test_leaves_other_volumes(self):
        row = trove_database.instance(self.world.restored.id)
        row.update(task_status=InstanceTasks.DELETING)
        flatten.flatten_dependents(self.world.deps())
        row.update(task_status=InstanceTasks.NONE)
        self.volume['project'] = 'of-somebody-else'
        flatten.flatten_dependents(self.world.deps())
        self.assertEqual([], self.jobs())

    def test_stops_flattening(self):
        flatten.stop_flattening(self.world.deps(), self.volume['id'])
        self.assertEqual([], self.jobs())
        self.world.served.manager._threads = waiting = worlds.service_world.DeferredExecutor()
        flatten.flatten_dependents(self.world.deps())
        flatten.stop_flattening(self.world.deps(), self.volume['id'])
        waiting.run_next()
        self.assertEqual([tasks.JobState.CANCELED], [one.state for one in self.jobs()])
        self.assertIsNotNone(self.parent())
        flatten.stop_flattening(self.world.deps(), self.world.volume['id'])
        flatten.stop_flattening(self.world.deps(), 'gone')

    def clone(self, name='origin'):
        """Return a clone of the volume of the source in its pool, and its image."""
        origin = self.world.volume_image.snapshot(name)
        self.world.storage.create_snapshot(origin)
        volume = self.world.cinder.add_volume('service', worlds.NVME)
        image = self.world.cinder.image(volume)
        self.world.storage.remove(image)
        self.world.storage.clone(origin, image, image_types.ImageOptions())
        return volume, image

    def test_waits_for_room(self):
        """A pool that is full blocks its OSDs, which other pools may have too."""
        self.world.cluster.get(self.world.volume_image).write(0, b'x' * (64 << 20))
        (volume, image), (other, other_image) = self.clone(), self.clone('other')
        deps = self.world.deps()
        for one in (volume, other):
            deps.cinder.request_flatten(one['id'])
        stored = self.world.storage.usage('volumes').stored_bytes

        def has_parent(one):
            return self.world.storage.describe(one).parent is not None

        def why_waiting():
            facts = self.world.storage.describe(image)
            return flatten.why_waiting(deps, deps.cinder.find_volume(volume['id']), facts)

        # For 64 MiB, and a tenth that stays free.
        self.world.cluster.capacities['volumes'] = stored + (64 << 20)
        flatten.flatten_dependents(deps)
        self.assertTrue(has_parent(image) and has_parent(other_image))
        self.assertIn('may take 64 MiB', why_waiting())
        # The work on one of them has not begun when there is a look at the other one.
        self.world.served.manager._threads = waiting = worlds.service_world.DeferredExecutor()
        self.world.cluster.capacities['volumes'] = (stored + (64 << 20)) * 10 // 9 + 1
        self.assertIsNone(why_waiting())
        before = len(self.jobs())
        flatten.flatten_dependents(deps)
        self.assertEqual(before + 1, len(self.jobs()))
        waiting.run_next()
        self.world.cluster.capacities['volumes'] = stored * 10
        flatten.flatten_dependents(deps)
        waiting.run_next()
        self.assertFalse(has_parent(image) or has_parent(other_image))

    def test_measures_all_images_above(self):
        self.world.cluster.get(self.world.volume_image).write(0, b'x' * (64 << 20))
        _volume, image = self.clone()
        self.world.cluster.get(image).write(0, b'y' * (8 << 20))
        between, (_volume, last) = image.snapshot('between'), self.clone('another')
        self.world.storage.create_snapshot(between)
        self.world.storage.remove(last)
        self.world.storage.clone(between, last, image_types.ImageOptions())
        deps = self.world.deps()
        facts = deps.storage.describe(last)
        self.world.cluster.capacities['volumes'] = 10 * GIB
        self.assertEqual(('volumes', 72 << 20), room.check_flatten(deps, facts, {}))
        # Not more than the part of the image that it does not have.
        self.world.cluster.get(last).write(0, b'z' * (12 << 20))
        facts = dataclasses.replace(facts, size_bytes=16 << 20)
        self.assertEqual(('volumes', 4 << 20), room.check_flatten(deps, facts, {}))

    def test_another_image_has_the_name_of_that_above(self):
        """As in the vault, after the deletion of all backups of an instance."""
        self.world.cluster.get(self.world.volume_image).write(0, b'x' * (64 << 20))
        _volume, image = self.clone()
        deps, above = self.world.deps(), self.world.volume_image
        above_size = deps.storage.describe(above).size_bytes
        self.world.storage.trash(above)
        self.world.storage.create_image(above, above_size, image_types.ImageOptions())
        self.world.cluster.capacities['volumes'] = 10 * GIB
        facts = deps.storage.describe(image)
        self.assertEqual(('volumes', facts.size_bytes), room.check_flatten(deps, facts, {}))

    def test_flattens_a_clone_in_the_pool_of_its_parent(self):
        """Such as that of a replica that was promoted, and never had an operation."""
        volume, image = self.clone()
        flatten.flatten_dependents(self.world.deps())
        self.assertIsNotNone(self.world.storage.describe(image).parent)
        self.world.deps().cinder.request_flatten(volume['id'])
        for _again in range(2):
            flatten.flatten_dependents(self.world.deps())
        self.assertIsNone(self.world.storage.describe(image).parent)
        self.assertEqual('no', volume['metadata'][cinder_resources.DEPENDENT_KEY])

    def test_a_migrated_image_needs_no_flattening(self):
        """Cinder's own migration copies all data, to an image of another name."""
        self.volume['host'] = worlds.OTHER
        flatten.flatten_dependents(self.world.deps())
        self.assertEqual('no', self.mark())
        self.assertEqual(ImageRef('volumes', f'volume-{self.volume["id"]}'), self.image)
