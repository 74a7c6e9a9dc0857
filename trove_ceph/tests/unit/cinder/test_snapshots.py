# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions, steps
from trove_ceph.cinder import resources, snapshots
from trove_ceph.tests.unit.cinder import world as worlds

OTHER_OPERATION = 'a9e0a1f4-6d0f-4a7c-8a2e-111111111111'


def adoption(world, adapter=None, project=worlds.SERVICE, **facts):
    snapshot = worlds.snapshot_of(world)
    fields = {
        'operation_id': worlds.OPERATION,
        'snapshot': snapshot,
        'volume_id': world.volume['id'],
        'name': 'nightly',
        'metadata': {'backup': 'b1'},
    }
    return snapshots.SnapshotAdoption(
        world.storage,
        world.cinder.client(project, adapter=adapter),
        resources.SnapshotToAdopt(**fields | facts),
        make=lambda: world.storage.create_snapshot(snapshot),
        wait_limits=world.wait_limits(),
    )


class SnapshotInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    def make_world(self):
        return worlds.World()

    def make_operation(self, world, adapter=None):
        return adoption(world, adapter).steps()

    def check_done(self, world):
        (snapshot,) = world.cinder.snapshots.values()
        self.assertEqual([f'snapshot-{snapshot["id"]}'], world.snapshots())
        self.assertEqual('available', snapshot['status'])
        self.assertEqual(worlds.SERVICE, snapshot['project'])
        self.assertEqual(
            {'backup': 'b1', 'trove_ceph.operation': worlds.OPERATION}, snapshot['metadata']
        )
        self.check_quota(world)

    def check_undone(self, world):
        self.assertEqual({}, world.cinder.snapshots)
        self.assertEqual([], world.snapshots())
        self.check_quota(world)


class ClusteredInterruptionTest(SnapshotInterruptionTest):
    """cinder-volume runs in an active-active cluster, whose name the back end has."""

    def make_world(self):
        world = worlds.World()
        world.cinder.form_cluster('blocks', 'one', 'two')
        return world


class SnapshotAdoptionTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()

    def run_steps(self, adopting):
        steps.run('test', adopting.steps())
        return adopting.snapshot_id

    def assert_refused(self, error_class, *words, **facts):
        adopting = adoption(self.world, **facts)
        error = self.assertRaises(error_class, self.run_steps, adopting)
        for word in words:
            self.assertIn(word, str(error))
        self.assertEqual([], self.world.snapshots())
        self.assertEqual({}, self.world.cinder.snapshots)

    def test_id_is_known_when_it_is_adopted(self):
        adopting = adoption(self.world)
        self.assertRaises(exceptions.NotFoundError, lambda: adopting.snapshot_id)
        self.assertIn(self.run_steps(adopting), self.world.cinder.snapshots)

    def test_snapshot_is_not_created_again(self):
        """What was proved for the first snapshot does not hold for a later one."""
        self.world.cinder.stalled = True
        adopting = adoption(self.world)
        with self.assertRaisesRegex(exceptions.ServiceUnavailableError, 'creating'):
            for step in adopting.steps():
                step.do()
        snapshot_id = self.world.storage.describe(self.world.image).snapshots[0].snapshot_id
        self.world.cinder.stalled = False
        self.run_steps(adoption(self.world))
        (snapshot,) = self.world.storage.describe(self.world.image).snapshots
        self.assertEqual(snapshot_id, snapshot.snapshot_id)

    def test_uses_a_snapshot_that_failed_after_renaming(self):
        self.world.cinder.failing = 'after'
        operation = adoption(self.world).steps()
        for step in operation[:-1]:
            step.do()
        self.assertRaises(exceptions.AdoptionFailedError, operation[-1].do)
        (failed,) = self.world.cinder.snapshots
        self.world.cinder.failing = None
        self.assertEqual(failed, self.run_steps(adoption(self.world)))
        self.assertEqual('available', self.world.cinder.snapshots[failed]['status'])

    def test_replaces_a_snapshot_that_failed_before_renaming(self):
        self.world.cinder.failing = 'before'
        operation = adoption(self.world).steps()
        for step in operation[:-1]:
            step.do()
        error = self.assertRaises(exceptions.AdoptionFailedError, operation[-1].do)
        (failed,) = self.world.cinder.snapshots
        self.assertIn(f'snapshot {failed} is in status error', str(error))
        self.world.cinder.failing = None
        self.assertNotEqual(failed, self.run_steps(adoption(self.world)))
        self.assertNotIn(failed, self.world.cinder.snapshots)

    def test_failure_leaves_nothing(self):
        for self.world.cinder.failing in ('before', 'after'):
            self.assert_refused(exceptions.AdoptionFailedError)

    def test_stalled_cinder(self):
        """The outcome is unknown, so the snapshot is removed and Cinder's record is reported."""
        self.world.cinder.stalled = True
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.run_steps, adoption(self.world)
        )
        self.assertIn('cinder-volume', str(error))
        self.assertIn('left behind by "let Cinder manage the snapshot"', error.__notes__[0])
        self.assertEqual([], self.world.snapshots())
        self.world.cinder.stalled = False
        self.run_steps(adoption(self.world))
        self.assertEqual(1, len(self.world.cinder.snapshots))

    def test_volume_of_another_project(self):
        self.assert_refused(
            exceptions.NotAdoptableError,
            'belongs to project service',
            'project tenant',
            project=worlds.TENANT,
        )

    def test_missing_volume(self):
        self.assert_refused(exceptions.NotAdoptableError, 'no volume none', volume_id='none')

    def test_volume_in_a_state_that_cinder_refuses(self):
        self.world.volume['status'] = 'extending'
        self.assert_refused(exceptions.NotAdoptableError, '(extending) must be available or in-use')

    def test_volume_whose_image_has_another_name(self):
        self.world.volume['name_id'] = 'migrated'
        self.assert_refused(exceptions.NotAdoptableError, 'is volume-migrated')

    def test_back_end_that_is_down(self):
        del self.world.cinder.backends[worlds.NVME]
        adopting = adoption(self.world)
        error = self.assertRaises(exceptions.NotAdoptableError, self.run_steps, adopting)
        self.assertIn('no RBD back end lab@nvme#nvme that is up; up are: lab@hdd#hdd', str(error))

    def test_cluster_that_is_down(self):
        self.world.cinder.form_cluster('blocks', 'one', 'two')
        del self.world.cinder.backends['blocks@nvme#nvme']
        error = self.assertRaises(
            exceptions.NotAdoptableError, self.run_steps, adoption(self.world)
        )
        self.assertIn('back end blocks@nvme#nvme that is up; up are: blocks@hdd#hdd', str(error))

    def test_host_of_a_clustered_volume_may_be_down(self):
        """Cinder shows the service that last worked on the volume as its host."""
        self.world.cinder.form_cluster('blocks', 'two')
        self.world.volume['host'] = 'one@nvme#nvme'
        self.run_steps(adoption(self.world))
        self.assertEqual(1, len(self.world.cinder.snapshots))

    def test_quota(self):
        self.world.cinder.quota.limits[worlds.SERVICE, 'snapshots'] = 0
        self.assert_refused(exceptions.QuotaExceededError, 'Quota exceeded for snapshots')

    def test_ignores_a_foreign_snapshot_with_our_metadata(self):
        theirs = self.world.cinder.add_snapshot(
            self.world.volume,
            project='stranger',
            metadata={resources.OPERATION_KEY: worlds.OPERATION},
        )
        adopted = self.run_steps(adoption(self.world))
        self.assertNotEqual(theirs['id'], adopted)
        self.assertIn(theirs['id'], self.world.cinder.snapshots)

    def test_refuses_a_snapshot_of_another_operation(self):
        for name in ('by-hand', f'trove_ceph.backup.{OTHER_OPERATION}'):
            snapshot = self.world.image.snapshot(name)
            error = self.assertRaises(ValueError, adoption, self.world, snapshot=snapshot)
            self.assertIn('is not a name that operation', str(error))
