# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions, steps
from trove_ceph.cinder import resources, snapshots
from trove_ceph.tests.unit.cinder import world as worlds

OTHER_OPERATION = 'a9e0a1f4-6d0f-4a7c-8a2e-111111111111'


def adoption(world, adapter=None, project=worlds.SERVICE, **facts):
    snapshot = worlds.snapshot_of(world)
    wanted = {
        'operation_id': worlds.OPERATION,
        'snapshot': snapshot,
        'volume_id': world.volume['id'],
        'name': 'nightly',
        'metadata': {'backup': 'b1'},
    }
    return snapshots.SnapshotAdoption(
        world.storage,
        world.cinder.client(project, adapter=adapter),
        resources.SnapshotToAdopt(**wanted | facts),
        make=lambda: world.storage.create_snapshot(snapshot),
        patience=world.patience(),
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
    """Cinder-volume runs in an active-active cluster: the back end has the cluster's name."""

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

    def test_snapshot_is_not_taken_again(self):
        """What was true when it was taken need not be true later."""
        self.world.cinder.stalled = True
        adopting = adoption(self.world)
        with self.assertRaisesRegex(exceptions.ServiceUnavailableError, 'creating'):
            for step in adopting.steps():
                step.do()
        snapshot_id = self.world.storage.describe(self.world.image).snapshots[0].snapshot_id
        self.world.cinder.stalled = False
        self.run_steps(adoption(self.world))
        (kept,) = self.world.storage.describe(self.world.image).snapshots
        self.assertEqual(snapshot_id, kept.snapshot_id)

    def test_what_cinder_gave_up_after_renaming_is_kept(self):
        self.world.cinder.failing = 'after'
        operation = adoption(self.world).steps()
        for step in operation[:-1]:
            step.do()
        self.assertRaises(exceptions.AdoptionFailedError, operation[-1].do)
        (failed,) = self.world.cinder.snapshots
        self.world.cinder.failing = None
        self.assertEqual(failed, self.run_steps(adoption(self.world)))
        self.assertEqual('available', self.world.cinder.snapshots[failed]['status'])

    def test_what_cinder_gave_up_before_is_replaced(self):
        self.world.cinder.failing = 'before'
        operation = adoption(self.world).steps()
        for step in operation[:-1]:
            step.do()
        error = self.assertRaises(exceptions.AdoptionFailedError, operation[-1].do)
        (failed,) = self.world.cinder.snapshots
        self.assertIn(f'snapshot {failed} ended in error', str(error))
        self.world.cinder.failing = None
        self.assertNotEqual(failed, self.run_steps(adoption(self.world)))
        self.assertNotIn(failed, self.world.cinder.snapshots)

    def test_failure_leaves_nothing(self):
        for self.world.cinder.failing in ('before', 'after'):
            self.assert_refused(exceptions.AdoptionFailedError)

    def test_cinder_that_does_not_work_on(self):
        """Nobody knows how it ends, so the snapshot goes and what Cinder has is told of."""
        self.world.cinder.stalled = True
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.run_steps, adoption(self.world)
        )
        self.assertIn('cinder-volume', str(error))
        self.assertIn('left behind by "make the snapshot known to Cinder"', error.__notes__[0])
        self.assertEqual([], self.world.snapshots())
        self.world.cinder.stalled = False
        self.run_steps(adoption(self.world))
        self.assertEqual(1, len(self.world.cinder.snapshots))

    def test_volume_of_another_project(self):
        self.assert_refused(
            exceptions.NotAdoptableError,
            'is of project service',
            'project tenant',
            project=worlds.TENANT,
        )

    def test_volume_that_is_not_there(self):
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
        self.assertIn('no RBD back end lab@nvme#nvme that is up, but lab@hdd#hdd', str(error))

    def test_cluster_that_is_down(self):
        self.world.cinder.form_cluster('blocks', 'one', 'two')
        del self.world.cinder.backends['blocks@nvme#nvme']
        error = self.assertRaises(
            exceptions.NotAdoptableError, self.run_steps, adoption(self.world)
        )
        self.assertIn('back end blocks@nvme#nvme that is up, but blocks@hdd#hdd', str(error))

    def test_service_that_last_worked_on_a_clustered_volume(self):
        """Cinder shows it as the volume's host, and it may be down since."""
        self.world.cinder.form_cluster('blocks', 'two')
        self.world.volume['host'] = 'one@nvme#nvme'
        self.run_steps(adoption(self.world))
        self.assertEqual(1, len(self.world.cinder.snapshots))

    def test_quota(self):
        self.world.cinder.limits[worlds.SERVICE, 'snapshots'] = 0
        self.assert_refused(exceptions.QuotaExceededError, 'Quota exceeded for snapshots')

    def test_others_cannot_pass_theirs_off(self):
        theirs = self.world.cinder.add_snapshot(
            self.world.volume,
            project='stranger',
            metadata={resources.OPERATION_KEY: worlds.OPERATION},
        )
        adopted = self.run_steps(adoption(self.world))
        self.assertNotEqual(theirs['id'], adopted)
        self.assertIn(theirs['id'], self.world.cinder.snapshots)

    def test_only_what_the_operation_makes(self):
        for name in ('by-hand', f'trove_ceph.backup.{OTHER_OPERATION}'):
            snapshot = self.world.image.snapshot(name)
            error = self.assertRaises(ValueError, adoption, self.world, snapshot=snapshot)
            self.assertIn('is not the name of what operation', str(error))
