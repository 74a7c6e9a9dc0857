# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions, steps
from trove_ceph.cinder import resources, volumes
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.cinder import world as worlds

IMAGE = image_types.ImageRef('volumes-hdd', f'trove_ceph.restore.{worlds.OPERATION}')

CLUSTERED = 'blocks@hdd#hdd'


def adoption(world, adapter=None, owner=None, make=None, **facts):
    """Return the adoption of a clone in another pool than its parent."""
    snapshot = world.image.snapshot('parent')
    fields = {
        'operation_id': worlds.OPERATION,
        'image': IMAGE,
        'volume_type': 'hdd',
        'backend': worlds.HDD,
        'name': 'trove-instance',
        'metadata': {'instance': 'i1'},
    }
    return volumes.VolumeAdoption(
        world.storage,
        world.cinder.client(worlds.SERVICE, adapter=adapter),
        resources.ImageToAdopt(**fields | facts),
        make or (lambda: world.storage.clone(snapshot, IMAGE, image_types.ImageOptions())),
        remove=lambda: world.storage.remove(IMAGE),
        owner=owner and world.cinder.client(owner, 'member', adapter=adapter),
        wait_limits=world.wait_limits(),
    )


class _Interruption(worlds.RequestInterruptionTests):
    owner = None
    location = {'host': worlds.HDD, 'cluster': None}

    def make_world(self):
        world = worlds.World()
        world.storage.create_snapshot(world.image.snapshot('parent'))
        return world

    def make_operation(self, world, adapter=None):
        return adoption(world, adapter, self.owner).steps()

    def check_done(self, world):
        (volume,) = [one for one in world.cinder.volumes.values() if one is not world.volume]
        self.assertEqual({f'volume-{volume["id"]}'}, world.images('volumes-hdd'))
        self.assertEqual(
            {
                'status': 'available',
                'project': self.owner or worlds.SERVICE,
                **self.location,
                'type': 'hdd',
                'size': 1,
                'bootable': 'false',
                'name': 'trove-instance',
                'metadata': {'instance': 'i1', 'trove_ceph.operation': worlds.OPERATION},
            },
            {
                key: value
                for key, value in volume.items()
                if key not in ('id', 'name_id', 'created_at')
            },
        )
        (child,) = world.storage.describe(world.image).children
        self.assertEqual(f'volume-{volume["id"]}', child.image.name)
        self._check_no_more(world)

    def check_undone(self, world):
        self.assertEqual([world.volume], list(world.cinder.volumes.values()))
        self.assertEqual(set(), world.images('volumes-hdd'))
        self._check_no_more(world)

    def _check_no_more(self, world):
        self.assertEqual({world.image.name}, world.images('volumes-nvme'))
        self.assertEqual({}, world.cinder.transfers)
        self.assertEqual([], world.trash())
        self.check_quota(world)


class OwnProjectInterruptionTest(_Interruption, base.BaseTestCase):
    """All volumes belong to one project, as in Trove."""


class OtherProjectInterruptionTest(_Interruption, base.BaseTestCase):
    owner = worlds.TENANT


class ClusteredInterruptionTest(_Interruption, base.BaseTestCase):
    """cinder-volume runs in an active-active cluster, so the request names it and no host."""

    location = {'host': 'one@hdd#hdd', 'cluster': CLUSTERED}

    def make_world(self):
        world = super().make_world()
        world.cinder.form_cluster('blocks', 'one', 'two')
        return world

    def make_operation(self, world, adapter=None):
        return adoption(world, adapter, self.owner, backend=CLUSTERED).steps()


class VolumeAdoptionTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.world.storage.create_snapshot(self.world.image.snapshot('parent'))

    def run_steps(self, adopting):
        steps.run('test', adopting.steps())
        return adopting.volume_id

    def assert_refused(self, error_class, *words, **facts):
        adopting = adoption(self.world, **facts)
        error = self.assertRaises(error_class, self.run_steps, adopting)
        for word in words:
            self.assertIn(word, str(error))
        self.assertEqual(set(), self.world.images('volumes-hdd'))
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))
        self.assertEqual(self.world.cinder.true_usage(), self.world.cinder.quota.counted())
        return error

    def make(self, size_bytes=worlds.GIB, **options):
        return lambda: self.world.storage.create_image(
            IMAGE, size_bytes, image_types.ImageOptions(**options)
        )

    def test_id_is_known_when_it_is_adopted(self):
        adopting = adoption(self.world)
        self.assertRaises(exceptions.NotFoundError, lambda: adopting.volume_id)
        self.assertIn(self.run_steps(adopting), self.world.cinder.volumes)

    def test_bootable(self):
        volume_id = self.run_steps(adoption(self.world, bootable=True))
        self.assertEqual('true', self.world.cinder.volumes[volume_id]['bootable'])

    def test_run_again_while_the_volume_is_in_use(self):
        volume_id = self.run_steps(adoption(self.world))
        self.world.cinder.volumes[volume_id]['status'] = 'in-use'
        self.assertEqual(volume_id, self.run_steps(adoption(self.world)))

    def test_run_again_when_the_volume_has_moved(self):
        """The volume was retyped meanwhile; it is neither created again nor deleted."""
        volume_id = self.run_steps(adoption(self.world))
        volume = self.world.cinder.volumes[volume_id]
        (image,) = [one for one in self.world.cluster.images if one.pool == 'volumes-hdd']
        image.pool, volume['host'] = 'volumes-nvme', worlds.NVME
        self.assertEqual(volume_id, self.run_steps(adoption(self.world)))
        self.assertEqual(set(), self.world.images('volumes-hdd'))
        self.assertIn(f'volume-{volume_id}', self.world.images('volumes-nvme'))

    def test_replaces_a_failed_volume(self):
        for self.world.cinder.failing in ('before', 'after'):
            for step in (operation := adoption(self.world).steps())[:3]:
                step.do()
            error = self.assertRaises(exceptions.AdoptionFailedError, operation[3].do)
            self.assertIn('is in status error', str(error))
        self.world.cinder.failing = None
        self.run_steps(adoption(self.world))
        self.assertEqual(2, len(self.world.cinder.volumes))
        self.assertEqual(1, len(self.world.images('volumes-hdd')))
        self.assertEqual(self.world.cinder.true_usage(), self.world.cinder.quota.counted())

    def test_failure_leaves_nothing(self):
        for self.world.cinder.failing in ('before', 'after'):
            self.assert_refused(exceptions.AdoptionFailedError)

    def test_volume_type(self):
        self.assert_refused(exceptions.NotAdoptableError, 'no volume type x', volume_type='x')
        self.world.cinder.add_type('secret', encryption={'encryption_id': 'e1'})
        self.assert_refused(exceptions.NotAdoptableError, 'is encrypted', volume_type='secret')
        self.world.cinder.add_type('shared', extra_specs={'multiattach': '<is> True'})
        self.assert_refused(exceptions.NotAdoptableError, 'multiattach', volume_type='shared')
        self.assert_refused(
            exceptions.NotAdoptableError, 'requires back end nvme', volume_type='nvme'
        )

    def test_back_end(self):
        self.assert_refused(exceptions.NotAdoptableError, 'no RBD back end x', backend='x')
        error = self.assert_refused(
            exceptions.NotAdoptableError, backend=worlds.NVME, volume_type='nvme'
        )
        self.assertIn('lab@nvme#nvme uses pool volumes-nvme', str(error))

    def test_image_that_cannot_become_a_volume(self):
        for make, words in (
            (self.make(worlds.GIB + 1), 'not a multiple of 1 GiB'),
            (self.make(0), 'not a multiple of 1 GiB'),
            (self.make(features=frozenset({'layering'})), 'lacks the feature exclusive-lock'),
            (self.make_with_snapshot, 'has snapshots by-hand'),
        ):
            with self.subTest(words):
                self.addCleanup(self.world.__init__)
                adopting = adoption(self.world, make=make)
                error = self.assertRaises(exceptions.NotAdoptableError, self.run_steps, adopting)
                self.assertIn(words, str(error))

    def make_with_snapshot(self):
        self.make()()
        self.world.storage.create_snapshot(IMAGE.snapshot('by-hand'))

    def test_quota_of_either_project(self):
        for project in (worlds.SERVICE, worlds.TENANT):
            for name in ('volumes', 'gigabytes', 'gigabytes_hdd'):
                used = self.world.cinder.quota.usage.get((project, name), 0)
                self.world.cinder.quota.limits = {(project, name): used}
                words = f'project {project}: {name} needed 1, used {used}, limit {used}'
                self.assert_refused(exceptions.QuotaExceededError, words, owner=worlds.TENANT)
        self.world.cinder.quota.limits = {(worlds.TENANT, 'per_volume_gigabytes'): 0}
        self.assert_refused(exceptions.QuotaExceededError, 'per_volume', owner=worlds.TENANT)

    def test_ignores_a_foreign_volume_with_our_metadata(self):
        theirs = self.world.cinder.add_volume(
            'stranger', worlds.HDD, metadata={resources.OPERATION_KEY: worlds.OPERATION}
        )
        self.assertNotEqual(theirs['id'], self.run_steps(adoption(self.world)))
        self.assertIn(theirs['id'], self.world.cinder.volumes)

    def test_refuses_an_image_of_another_operation(self):
        """The vault image belongs to an instance, and an undo would delete it."""
        name = 'trove_ceph.vault.a9e0a1f4-6d0f-4a7c-8a2e-111111111111'
        image = image_types.ImageRef('volumes-hdd', name)
        self.assertRaises(ValueError, adoption, self.world, image=image)

    def test_clustered_volume(self):
        self.world.cinder.form_cluster('blocks', 'one', 'two')
        volume_id = self.run_steps(adoption(self.world, backend=CLUSTERED))
        found = self.world.cinder.client(worlds.SERVICE).find_volume(volume_id)
        self.assertEqual(CLUSTERED, found.backend)
        # A member is not shown the cluster.
        member = self.world.cinder.client(worlds.SERVICE, 'member').find_volume(volume_id)
        self.assertEqual('one@hdd#hdd', member.backend)

    def test_cluster_that_is_down(self):
        self.world.cinder.form_cluster('blocks', 'one', 'two')
        del self.world.cinder.backends[CLUSTERED]
        self.assert_refused(
            exceptions.NotAdoptableError, f'no RBD back end {CLUSTERED}', backend=CLUSTERED
        )

    def test_member_is_not_allowed(self):
        member = self.world.cinder.client(worlds.SERVICE, 'member')
        adopting = adoption(self.world)
        adopting._cinder = member
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.run_steps, adopting)
        self.assertIn('Policy does not allow', str(error))
