# SPDX-License-Identifier: Apache-2.0
import dataclasses
import itertools

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.storage.fake import backend
from trove_ceph.storage.image_types import MIB, Qos
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.tiers import sample
from trove_ceph.tests.unit.tiers.qos import world
from trove_ceph.tiers.qos import ownership, reconciler

NONE = Qos()


class Counting(backend.FakeBackend):
    """Counts what changes something, and fails at the images that it is told."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.changes = []
        self.broken = {}

    def set_qos(self, image, qos):
        self._note('set_qos', image)
        super().set_qos(image, qos)

    def set_image_metadata(self, image, entries):
        self._note('set_image_metadata', image)
        super().set_image_metadata(image, entries)

    def describe(self, image):
        self._check(image)
        return super().describe(image)

    def describe_pool(self, pool):
        for facts in super().describe_pool(pool):
            self._check(facts.image)
            yield facts

    def _note(self, verb, image):
        self._check(image)
        self.changes.append((verb, image))

    def _check(self, image):
        if image in self.broken:
            raise self.broken[image]


class KeeperTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = world.World()
        self.storage = Counting(self.world.cluster)

    def _sweep(self):
        return self.world.keeper(self.storage).sweep()

    def assert_kept(self, image, limits=world.LIMITS):
        self.assertEqual(limits, self.world.limits(image))
        self.assertEqual(limits, self.world.marked(image).limits)

    def assert_free(self, image, limits=NONE):
        self.assertEqual((limits, None), (self.world.limits(image), self.world.marked(image)))

    def assert_settled(self):
        """Nothing is left to do, and nothing is done."""
        self.storage.changes.clear()
        self.assertEqual(((), {}), (self._sweep().changes, self._sweep().failures))
        self.assertEqual([], self.storage.changes)


class SweepTestCase(KeeperTestCase):
    def test_volumes_get_what_they_are_promised(self):
        _, image = self.world.add()
        _, small = self.world.add(size=1)
        _, slow = self.world.add('slow', backend='slow')
        report = self._sweep()
        self.assertEqual((3, 2, {}), (report.volumes, len(report.changes), report.failures))
        self.assert_kept(image)
        self.assert_kept(small, Qos(iops=3000, bytes_per_sec=500 * MIB))
        self.assert_free(slow)
        self.assert_settled()

    def test_resize(self):
        volume, image = self.world.add()
        self._sweep()
        volume['size'] = 300
        (change,) = self._sweep().changes
        self.assertEqual('6000 IOPS, 500 MiB/s -> 9000 IOPS, 500 MiB/s', change.difference)
        self.assert_kept(image, Qos(iops=9000, bytes_per_sec=500 * MIB))
        self.assert_settled()

    def test_limits_that_lack_their_tick(self):
        """As they were set before there was one, or by somebody else."""
        _, image = self.world.add()
        self.world.limited(image, world.LIMITS)
        self.world.cluster.get(image).qos_is_whole = False
        (change,) = self._sweep().changes
        self.assertEqual('6000 IOPS, 500 MiB/s, completed', change.difference)
        self.assertTrue(self.storage.describe(image).qos_is_whole)
        self.assert_kept(image)
        self.assert_settled()

    def test_mark_says_what_was_ours_before(self):
        _, image = self.world.add()
        self.world.limited(image, Qos(iops=3000))
        self._sweep()
        self.assertEqual(
            ownership.LimitOwner(world.LIMITS, Qos(iops=3000)), self.world.marked(image)
        )

    def test_retype_takes_away_what_is_ours(self):
        volume, image = self.world.add()
        self._sweep()
        for name in ('slow', 'of no tier', None):
            volume['volume_type'] = name
            self._sweep()
            self.assert_free(image)
            self.assert_settled()
            volume['volume_type'] = 'fast'
            self._sweep()
            self.assert_kept(image)

    def test_tier_that_is_held_by_the_hypervisor_from_now_on(self):
        _, image = self.world.add()
        self._sweep()
        self.world.content = sample.read(world.TIERS | {'tiers/fast/qos': 'front-end'})
        self._sweep()
        self.assert_free(image)
        self.assert_settled()

    def test_tier_with_another_promise(self):
        _, image = self.world.add()
        self._sweep()
        self.world.content = sample.read(world.TIERS | {'tiers/fast/throughput_mib_per_sec': None})
        self._sweep()
        self.assert_kept(image, Qos(iops=6000))
        self.assert_settled()

    def test_limits_of_others_are_theirs_where_the_tier_sets_none(self):
        _, image = self.world.add('slow', backend='slow')
        self.world.limited(image, Qos(iops=50), marked=False)
        self.assert_settled()
        self.assert_free(image, Qos(iops=50))

    def test_limits_of_others_give_way_to_the_tier(self):
        _, image = self.world.add()
        self.world.limited(image, Qos(iops=50, iops_burst=60), marked=False)
        self._sweep()
        self.assert_kept(image)
        self.assertEqual(Qos(), self.world.marked(image).before)

    def test_what_others_set_over_ours_stays_when_ours_go(self):
        volume, image = self.world.add()
        self._sweep()
        changed = dataclasses.replace(world.LIMITS, iops=50)
        self.world.cluster.get(image).qos = changed
        volume['volume_type'] = 'slow'
        self._sweep()
        self.assert_free(image, Qos(iops=50))
        self.assert_settled()

    def test_limits_that_are_right_already_are_taken_over(self):
        _, image = self.world.add()
        self.world.limited(image, world.LIMITS, marked=False)
        (change,) = self._sweep().changes
        self.assertEqual('6000 IOPS, 500 MiB/s, taken over', change.difference)
        self.assertEqual([('set_image_metadata', image)], self.storage.changes)
        self.assert_kept(image)
        self.assert_settled()

    def test_clone_that_inherited_limits(self):
        """librbd copies an image's metadata to its clones, and Cinder leaves it there."""
        _, parent = self.world.add(size=500)
        self._sweep()
        inherited = self.world.limits(parent)
        for volume_type, expected in (('fast', world.LIMITS), ('slow', None)):
            _, clone = self.world.add(volume_type)
            self.world.limited(clone, inherited)
            self._sweep()
            if expected:
                self.assert_kept(clone, expected)
            else:
                self.assert_free(clone)
        self.assert_settled()

    def test_image_has_another_name_after_a_migration(self):
        _, image = self.world.add(**{'os-vol-mig-status-attr:name_id': 'new'})
        self.assertEqual('volume-new', image.name)
        self._sweep()
        self.assert_kept(image)

    def test_volume_lies_where_its_host_says(self):
        """While a retype copies it to another pool, its type is one and its place another."""
        _, image = self.world.add('fast', backend='slow')
        self._sweep()
        self.assertEqual('volumes-slow', image.pool)
        self.assert_kept(image)

    def test_what_is_no_volume_is_left_alone(self):
        images = [
            image_types.ImageRef('volumes-fast', name)
            for name in ('trove_ceph.vault.7', 'volume-of-nobody', 'volume-1.deleted')
        ]
        for image in images:
            self.world.storage.create_image(image, MIB, image_types.ImageOptions())
            self.world.limited(image, Qos(iops=7))
        self.world.cinder.add_volume('fast', 10, backend='elsewhere')
        self.world.cinder.add_volume('fast', 10, **{'os-vol-host-attr:host': None})
        report = self._sweep()
        self.assertEqual((0, [], {}), (report.volumes, self.storage.changes, report.failures))

    def test_volume_without_image(self):
        for status in ('creating', 'error', 'deleting', 'error_deleting'):
            self.world.cinder.add_volume('fast', 10, status=status)
        lost = self.world.cinder.add_volume('fast', 10, status='in-use')
        report = self._sweep()
        self.assertEqual([lost['id']], list(report.failures))
        self.assertIn(
            f'volumes-fast/volume-{lost["id"]}: does not exist', *report.failures.values()
        )

    def test_plan_changes_nothing(self):
        _, image = self.world.add()
        lost = self.world.cinder.add_volume('fast', 10)
        report = self.world.keeper(self.storage).plan()
        self.assertEqual([image], [change.image for change in report.changes])
        self.assertEqual([lost['id']], list(report.failures))
        self.assertEqual([], self.storage.changes)
        self.assert_free(image)


class BadVolumeTestCase(KeeperTestCase):
    """Of ten volumes one makes trouble."""

    def setUp(self):
        super().setUp()
        self.added = [self.world.add() for _ in range(10)]
        self.bad, self.bad_image = self.added[4]

    def _assert_others_kept(self, report):
        self.assertEqual([self.bad['id']], list(report.failures))
        for _, image in self.added:
            if image != self.bad_image:
                self.assert_kept(image)

    def test_image_that_cannot_be_opened(self):
        for error in (
            exceptions.StorageError('describing: Input/output error'),
            ValueError('a burst must not be below its limit'),
        ):
            self.storage.broken = {self.bad_image: error}
            report = self._sweep()
            self._assert_others_kept(report)
            self.assertIn(str(error), report.failures[self.bad['id']])
        self.storage.broken = {}
        self._sweep()
        self.assert_kept(self.bad_image)

    def test_cinder_fails_for_one(self):
        answer = self.world.cinder._show_volume

        def show(number):
            if number == self.bad['id']:
                return self.world.cinder._respond({'computeFault': {'message': 'no'}}, 500)
            return answer(number)

        self.world.cinder._show_volume = show
        self._assert_others_kept(self._sweep())

    def test_volume_is_deleted_meanwhile(self):
        keeper = self.world.keeper(self.storage)
        listed = keeper._cinder.volumes()
        keeper._cinder.volumes = lambda: listed
        self.world.cinder.volumes.remove(self.bad)
        self.world.storage.remove(self.bad_image)
        report = keeper.sweep()
        self.assertEqual((9, {}), (len(report.changes), report.failures))

    def test_ceph_that_does_not_answer_ends_the_sweep(self):
        self.storage.broken = {self.bad_image: exceptions.CephUnreachableError('timed out')}
        self.assertRaises(exceptions.CephUnreachableError, self._sweep)

    def test_cinder_that_does_not_answer(self):
        self.world.cinder.failure = 503
        self.assertRaises(exceptions.ServiceUnavailableError, self._sweep)


class OneVolumeTestCase(KeeperTestCase):
    def _keep(self, volume_id):
        return self.world.keeper(self.storage).keep(volume_id)

    def test_one_is_kept_and_the_others_wait(self):
        volume, image = self.world.add()
        _, other = self.world.add()
        self.assertEqual(image, self._keep(volume['id']).image)
        self.assert_kept(image)
        self.assert_free(other)
        self.assertIsNone(self._keep(volume['id']))

    def test_nobodys_concern(self):
        outside = self.world.cinder.add_volume('fast', 1, backend='elsewhere')
        creating = self.world.cinder.add_volume('fast', 1, status='creating')
        for volume_id in ('gone', outside['id'], creating['id']):
            self.assertIsNone(self._keep(volume_id))

    def test_image_is_missing(self):
        volume = self.world.cinder.add_volume('fast', 1)
        self.assertRaises(exceptions.NotFoundError, self._keep, volume['id'])

    def test_what_was_listed_before_a_resize_does_not_undo_it(self):
        """A sweep lists the volumes, one is resized and kept, and then the sweep comes to it."""
        volume, image = self.world.add()
        sweeping = self.world.keeper(self.storage)
        listed = sweeping._cinder.volumes()
        volume['size'] = 300
        self._keep(volume['id'])
        sweeping._cinder.volumes = lambda: listed
        self.assertEqual((), sweeping.sweep().changes)
        self.assert_kept(image, Qos(iops=9000, bytes_per_sec=500 * MIB))


class InterruptionTests(interruption.InterruptionTests):
    """A change of limits, interrupted in each step, and between two limits."""

    def make_world(self):
        them = world.World()
        self.volume, self.image = self.arrange(them)
        return them

    def make_operation(self, them):
        report = them.keeper().plan()
        return [
            step
            for change in report.changes
            for step in reconciler.make_steps(them.storage, change)
        ]

    def check_done(self, them):
        them.keeper().sweep()
        found = them.limits(self.image), them.marked(self.image)
        self.assertEqual(self.expected, (found[0], found[1] and found[1].limits))
        self.assertTrue(them.cluster.get(self.image).qos_is_whole)
        # Whatever happened, what goes away in the end is all that is ours.
        self._retype(them)
        them.keeper().sweep()
        self.assertEqual((Qos(), None), (them.limits(self.image), them.marked(self.image)))

    def _retype(self, them):
        (volume,) = them.cinder.volumes
        volume['volume_type'] = 'slow'

    def test_killed_at_each_instant(self):
        for number in itertools.count():
            them = self.make_world()
            try:
                them.keeper(DyingBackend(them.cluster, number)).sweep()
            except interruption.Kill:
                self.check_done(them)
            else:
                break
        self.assertGreater(number, 1)

    def test_retyped_after_each_instant(self):
        """Nobody takes the change up: the volume has another type by then."""
        for number in itertools.count():
            them = self.make_world()
            dying = DyingBackend(them.cluster, number)
            try:
                them.keeper(dying).sweep()
            except interruption.Kill:
                pass
            else:
                break
            self._retype(them)
            them.keeper().sweep()
            found = them.limits(self.image), them.marked(self.image)
            self.assertEqual((self.left_after_retype, None), found, f'killed at {number}')
            self.assertTrue(them.cluster.get(self.image).qos_is_whole, f'killed at {number}')
        self.assertGreater(number, 1)

    left_after_retype = Qos()


class DyingBackend(backend.FakeBackend):
    """Sets one limit after the other, as Ceph's does, and dies at the given instant."""

    def __init__(self, cluster, instants):
        super().__init__(cluster)
        self._left = instants

    def set_image_metadata(self, image, entries):
        self._tick()
        super().set_image_metadata(image, entries)
        self._tick()

    def set_qos(self, image, qos):
        found = self.cluster.get(image)
        for name in ('iops', 'bytes_per_sec'):
            self._tick()
            found.qos_is_whole = False
            found.qos = dataclasses.replace(found.qos, **{name: getattr(qos, name)})
        self._tick()
        super().set_qos(image, qos)

    def _tick(self):
        if not self._left:
            raise interruption.Kill
        self._left -= 1


class FirstLimitsInterruptionTest(InterruptionTests, base.BaseTestCase):
    expected = (world.LIMITS, world.LIMITS)

    def arrange(self, them):
        return them.add()


class OtherLimitsInterruptionTest(InterruptionTests, base.BaseTestCase):
    expected = (world.LIMITS, world.LIMITS)

    def arrange(self, them):
        added = them.add()
        them.limited(added[1], Qos(iops=3000, bytes_per_sec=MIB))
        return added


class NoLimitsInterruptionTest(InterruptionTests, base.BaseTestCase):
    expected = (Qos(), None)

    def arrange(self, them):
        added = them.add('slow')
        them.limited(added[1], Qos(iops=3000, bytes_per_sec=MIB))
        return added
