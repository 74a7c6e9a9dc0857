# SPDX-License-Identifier: Apache-2.0
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import golden
from trove_ceph.strategies.backup import volume_cleanup
from trove_ceph.strategies.restore import flatten, golden_volume
from trove_ceph.tests.unit.strategies import golden_world
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

GIB = units.Gi


class SourceTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = golden_world.make_world()

    def test_the_largest_that_fits(self):
        found = golden_world.find(self.world, size_gib=3)
        self.assertEqual((self.world.golden, worlds.NVME), (found.volume, found.backend.name))
        larger = golden_world.add_golden_volume(self.world, 3)
        self.assertEqual(larger, golden_world.find(self.world, size_gib=3).volume)
        self.assertEqual(self.world.golden, golden_world.find(self.world, size_gib=2).volume)

    def test_none_fits(self):
        for facts in (
            {'size_gib': 17},
            {'version': '9.7.5'},
            {'version': '9.7'},
            {'version': 'latest'},
        ):
            self.assertIsNone(golden_world.find(self.world, **facts), facts)
        request = golden_world.request(self.world)
        self.assertIsNone(golden_volume.find_source(self.world.deps(), request, []))

    def test_one_that_is_not_ready(self):
        for state in set(golden.State) - {golden.State.READY, golden.State.OUTDATED}:
            self.world = golden_world.make_world()
            self.world.storage.remove_snapshot(self.world.golden.snapshot(golden.State.READY))
            if state is not golden.State.BUILDING:
                self.world.storage.create_snapshot(self.world.golden.snapshot(state))
            self.assertIsNone(golden_world.find(self.world), state)

    def test_a_pool_of_no_tier(self):
        self.world.cinder.backends['lab@other#other'] = 'other'
        self.world.cinder.add_type('other')
        self.assertIsNone(golden_world.find(self.world, volume_type='other'))

    def test_an_unknown_volume_type(self):
        self.assertRaises(
            exceptions.NotAdoptableError, golden_world.find, self.world, volume_type='gone'
        )


class GoldenCloneInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """A creation on a volume that is larger than the golden one."""

    def make_world(self):
        return golden_world.make_world()

    def make_operation(self, world, strike=None):
        source = golden_world.find(world)
        request = golden_world.request(world)
        return golden_volume.GoldenClone(world.deps(strike), request, source).steps()

    def check_done(self, world):
        world.cinder.work()
        (volume,) = [one for one in world.cinder.volumes.values() if one is not world.volume]
        self.assertEqual(
            ('available', worlds.SERVICE, f'trove-{world.new.id}', 2),
            tuple(volume[name] for name in ('status', 'project', 'name', 'size')),
        )
        self.assertEqual(volume['id'], trove_database.instance(world.new.id).volume_id)
        facts = world.storage.describe(world.cinder.image(volume))
        self.assertEqual(world.golden.snapshot(golden.State.READY), facts.parent)
        self.assertEqual(2 * GIB, facts.size_bytes)
        self._check_no_more(world, {facts.image.name})

    def check_undone(self, world):
        world.cinder.work()
        self.assertEqual([world.volume], list(world.cinder.volumes.values()))
        self.assertIsNone(trove_database.instance(world.new.id).volume_id)
        self._check_no_more(world, set())

    def _check_no_more(self, world, created):
        volume_cleanup.reclaim(world.deps())
        others = {world.volume_image.name, world.golden.image.name}
        self.assertEqual(created, world.images() - others)
        self.assertEqual([], world.trash())
        self.assertEqual(world.cinder.true_usage(), world.cinder.quota.counted())


class FlattenTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = golden_world.make_world()
        deps = self.world.deps()
        source = golden_world.find(self.world)
        golden_volume.clone_volume(deps, golden_world.request(self.world), source)
        self.world.cinder.work()
        (self.volume,) = [
            one for one in self.world.cinder.volumes.values() if one is not self.world.volume
        ]

    def test_the_clone_is_flattened_in_its_own_pool(self):
        flatten.flatten_volume(self.world.deps(), self.world.new.id)
        image = self.world.cinder.image(self.volume)
        self.assertIsNone(self.world.storage.describe(image).parent)
        self.assertEqual((), self.world.storage.describe(self.world.golden.image).children)
        # The guest is told, so that it trims the volume.
        flatten.flatten_volume(self.world.deps(), self.world.new.id)
        self.assertEqual('no', self.volume['metadata']['trove_ceph.dependent'])
