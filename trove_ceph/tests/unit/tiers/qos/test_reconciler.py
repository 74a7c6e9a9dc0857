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
    """Count the changes, and fail for the images in ``broken``."""

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

    def describe(self, image, with_usage=True):
        self._check(image)
        return super().describe(image, with_usage)

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


class ReconcilerTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = world.World()
        self.storage = Counting(self.world.cluster)

    def _sweep(self):
        return self.world.reconciler(self.storage).sweep()

    def assert_limited(self, image, limits=world.LIMITS):
        self.assertEqual(limits, self.world.limits(image))
        self.assertEqual(limits, self.world.marked(image).limits)

    def assert_free(self, image, limits=NONE):
        self.assertEqual((limits, None), (self.world.limits(image), self.world.marked(image)))

    def assert_settled(self):
        """A second sweep changes nothing."""
        self.storage.changes.clear()
        self.assertEqual(((), {}), (self._sweep().changes, self._sweep().failures))
        self.assertEqual([], self.storage.changes)


class SweepTestCase(ReconcilerTestCase):
    def test_volumes_get_what_they_are_promised(self):
        _, image = self.world.add()
        _, small = self.world.add(size=1)
        _, slow = self.world.add('slow', backend='slow')
        report = self._sweep()
        self.assertEqual((3, 2, {}), (report.volumes, len(report.changes), report.failures))
        self.assert_limited(image)
        self.assert_limited(small, Qos(iops=3000, bytes_per_sec=500 * MIB))
        self.assert_free(slow)
        self.assert_settled()

    def test_resize(self):
        volume, image = self.world.add()
        self._sweep()
        volume['size'] = 300
        (change,) = self._sweep().changes
        self.assertEqual('6000 IOPS, 500 MiB/s -> 9000 IOPS, 500 MiB/s', change.difference)
        self.assert_limited(image, Qos(iops=9000, bytes_per_sec=500 * MIB))
        self.assert_settled()

    def test_limits_without_the_tick_setting(self):
        """Earlier releases or other tools do not set it."""
        _, image = self.world.add()
        self.world.limited(image, world.LIMITS)
        self.world.cluster.get(image).qos_is_whole = False
        (change,) = self._sweep().changes
        self.assertEqual('6000 IOPS, 500 MiB/s, completed', change.difference)
        self.assertTrue(self.storage.describe(image).qos_is_whole)
        self.assert_limited(image)
        self.assert_settled()

    def test_entry_has_our_previous_limits(self):
        _, image = self.world.add()
        self.world.limited(image, Qos(iops=3000))
        self._sweep()
        self.assertEqual(
            ownership.LimitOwner(world.LIMITS, Qos(iops=3000)), self.world.marked(image)
        )

    def test_retype_removes_our_limits(self):
        volume, image = self.world.add()
        self._sweep()
        for name in ('slow', 'of no tier', None):
            volume['volume_type'] = name
            self._sweep()
            self.assert_free(image)
            self.assert_settled()
            volume['volume_type'] = 'fast'
            self._sweep()
            self.assert_limited(image)

    def test_tier_changes_to_front_end_limits(self):
        _, image = self.world.add()
        self._sweep()
        self.world.content = sample.read(world.TIERS | {'tiers/fast/qos': 'front-end'})
        self._sweep()
        self.assert_free(image)
        self.assert_settled()

    def test_tier_changes_its_limits(self):
        _, image = self.world.add()
        self._sweep()
        self.world.content = sample.read(world.TIERS | {'tiers/fast/throughput_mib_per_sec': None})
        self._sweep()
        self.assert_limited(image, Qos(iops=6000))
        self.assert_settled()

    def test_foreign_limits_stay_if_the_tier_sets_none(self):
        _, image = self.world.add('slow', backend='slow')
        self.world.limited(image, Qos(iops=50), marked=False)
        self.assert_settled()
        self.assert_free(image, Qos(iops=50))

    def test_limits_of_the_tier_replace_foreign_ones(self):
        _, image = self.world.add()
        self.world.limited(image, Qos(iops=50, iops_burst=60), marked=False)
        self._sweep()
        self.assert_limited(image)
        self.assertEqual(Qos(), self.world.marked(image).before)

    def test_foreign_limits_stay_when_ours_are_removed(self):
        volume, image = self.world.add()
        self._sweep()
        changed = dataclasses.replace(world.LIMITS, iops=50)
        self.world.cluster.get(image).qos = changed
        volume['volume_type'] = 'slow'
        self._sweep()
        self.assert_free(image, Qos(iops=50))
        self.assert_settled()

    def test_equal_foreign_limits_are_taken_over(self):
        _, image = self.world.add()
        self.world.limited(image, world.LIMITS, marked=False)
        (change,) = self._sweep().changes
        self.assertEqual('6000 IOPS, 500 MiB/s, taken over', change.difference)
        self.assertEqual([('set_image_metadata', image)], self.storage.changes)
        self.assert_limited(image)
        self.assert_settled()

    def test_clone_inherits_limits(self):
        """librbd copies an image's metadata to its clones, and Cinder leaves it there."""
        _, parent = self.world.add(size=500)
        self._sweep()
        inherited = self.world.limits(parent)
        for volume_type, expected in (('fast', world.LIMITS), ('slow', None)):
            _, clone = self.world.add(volume_type)
            self.world.limited(clone, inherited)
            self._sweep()
            if expected:
                self.assert_limited(clone, expected)
            else:
                self.assert_free(clone)
        self.assert_settled()

    def test_image_has_another_name_after_a_migration(self):
        _, image = self.world.add(**{'os-vol-mig-status-attr:name_id': 'new'})
        self.assertEqual('volume-new', image.name)
        self._sweep()
        self.assert_limited(image)

    def test_host_of_the_volume_names_the_pool(self):
        """During a retype with migration, type and pool belong to different tiers."""
        _, image = self.world.add('fast', backend='slow')
        self._sweep()
        self.assertEqual('volumes-slow', image.pool)
        self.assert_limited(image)

    def test_images_of_no_volume_are_not_changed(self):
        images = [
            image_types.ImageRef('volumes-fast', name)
            for name in ('trove_ceph.vault.7', 'volume-without-a-record', 'volume-1.deleted')
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
        report = self.world.reconciler(self.storage).plan()
        self.assertEqual([image], [change.image for change in report.changes])
        self.assertEqual([lost['id']], list(report.failures))
        self.assertEqual([], self.storage.changes)
        self.assert_free(image)


class BadVolumeTestCase(ReconcilerTestCase):
    """One of ten volumes fails."""

    def setUp(self):
        super().setUp()
        self.added = [self.world.add() for _ in range(10)]
        self.bad, self.bad_image = self.added[4]

    def _assert_others_limited(self, report):
        self.assertEqual([self.bad['id']], list(report.failures))
        for _, image in self.added:
            if image != self.bad_image:
                self.assert_limited(image)

    def test_image_that_cannot_be_opened(self):
        for error in (
            exceptions.StorageError('describing: Input/output error'),
            ValueError('a burst must not be below its limit'),
        ):
            self.storage.broken = {self.bad_image: error}
            report = self._sweep()
            self._assert_others_limited(report)
            self.assertIn(str(error), report.failures[self.bad['id']])
        self.storage.broken = {}
        self._sweep()
        self.assert_limited(self.bad_image)

    def test_cinder_fails_for_one(self):
        answer = self.world.cinder._show_volume

        def show(number):
            if number == self.bad['id']:
                return self.world.cinder._respond({'computeFault': {'message': 'no'}}, 500)
            return answer(number)

        self.world.cinder._show_volume = show
        self._assert_others_limited(self._sweep())

    def test_volume_is_deleted_meanwhile(self):
        reconciler = self.world.reconciler(self.storage)
        listed = reconciler._cinder.volumes()
        reconciler._cinder.volumes = lambda: listed
        self.world.cinder.volumes.remove(self.bad)
        self.world.storage.remove(self.bad_image)
        report = reconciler.sweep()
        self.assertEqual((9, {}), (len(report.changes), report.failures))

    def test_silent_pool_does_not_hide_the_others(self):
        silent = [self.world.add('slow', backend='slow') for _ in range(3)]
        asked = []
        check = self.storage._check

        def count(image):
            asked.extend([image] if image.pool == 'volumes-slow' else [])
            check(image)

        self.storage._check = count
        error = exceptions.CephUnreachableError('timed out')
        self.storage.broken = {image: error for _, image in silent}
        report = self._sweep()
        self.assertEqual({volume['id'] for volume, _ in silent}, report.failures.keys())
        self.assertEqual(1, len(asked), 'each request would wait for its time limit')
        for _, image in self.added:
            self.assert_limited(image)

    def test_pool_that_becomes_silent_between_changes(self):
        _, slow = self.world.add('slow', backend='slow')
        self.world.limited(slow, Qos(iops=5))
        set_metadata = self.storage.set_image_metadata

        def fail(image, entries):
            if image == self.bad_image:
                self.storage.broken = {
                    one: exceptions.CephUnreachableError('timed out') for _, one in self.added
                }
            set_metadata(image, entries)

        self.storage.set_image_metadata = fail
        report = self._sweep()
        changed = {change.image for change in report.changes}
        self.assertIn(slow, changed)
        self.assertIn(self.bad['id'], report.failures)
        self.assertEqual(len(self.added) + 1, len(changed) + len(report.failures))

    def test_unreachable_ceph_ends_the_sweep(self):
        self.storage.broken = {self.bad_image: exceptions.CephUnreachableError('timed out')}
        self.assertRaises(exceptions.CephUnreachableError, self._sweep)

    def test_unreachable_cinder_ends_the_sweep(self):
        self.world.cinder.failure = 503
        self.assertRaises(exceptions.ServiceUnavailableError, self._sweep)


class OneVolumeTestCase(ReconcilerTestCase):
    def _set_limits(self, volume_id):
        return self.world.reconciler(self.storage).set_limits(volume_id)

    def test_changes_only_the_given_volume(self):
        volume, image = self.world.add()
        _, other = self.world.add()
        self.assertEqual(image, self._set_limits(volume['id']).image)
        self.assert_limited(image)
        self.assert_free(other)
        self.assertIsNone(self._set_limits(volume['id']))

    def test_ignores_volumes_outside_of_the_tiers(self):
        outside = self.world.cinder.add_volume('fast', 1, backend='elsewhere')
        creating = self.world.cinder.add_volume('fast', 1, status='creating')
        for volume_id in ('gone', outside['id'], creating['id']):
            self.assertIsNone(self._set_limits(volume_id))

    def test_image_is_missing(self):
        volume = self.world.cinder.add_volume('fast', 1)
        self.assertRaises(exceptions.NotFoundError, self._set_limits, volume['id'])

    def test_outdated_list_does_not_undo_a_resize(self):
        """A sweep lists a volume, which is resized and limited before the sweep reaches it."""
        volume, image = self.world.add()
        sweeping = self.world.reconciler(self.storage)
        listed = sweeping._cinder.volumes()
        volume['size'] = 300
        self._set_limits(volume['id'])
        sweeping._cinder.volumes = lambda: listed
        self.assertEqual((), sweeping.sweep().changes)
        self.assert_limited(image, Qos(iops=9000, bytes_per_sec=500 * MIB))


class InterruptionTests(interruption.InterruptionTests):
    """A change of limits, interrupted in each step and between two limits."""

    def make_world(self):
        fakes = world.World()
        self.volume, self.image = self.arrange(fakes)
        return fakes

    def make_operation(self, fakes):
        report = fakes.reconciler().plan()
        return [
            step
            for change in report.changes
            for step in reconciler.make_steps(fakes.storage, change)
        ]

    def check_done(self, fakes):
        fakes.reconciler().sweep()
        found = fakes.limits(self.image), fakes.marked(self.image)
        self.assertEqual(self.expected, (found[0], found[1] and found[1].limits))
        self.assertTrue(fakes.cluster.get(self.image).qos_is_whole)
        # A retype removes all our limits, whatever happened before.
        self._retype(fakes)
        fakes.reconciler().sweep()
        self.assertEqual((Qos(), None), (fakes.limits(self.image), fakes.marked(self.image)))

    def _retype(self, fakes):
        (volume,) = fakes.cinder.volumes
        volume['volume_type'] = 'slow'

    def test_killed_at_each_instant(self):
        for number in itertools.count():
            fakes = self.make_world()
            try:
                fakes.reconciler(DyingBackend(fakes.cluster, number)).sweep()
            except interruption.Kill:
                self.check_done(fakes)
            else:
                break
        self.assertGreater(number, 1)

    def test_retyped_after_each_instant(self):
        """The volume has another type before the change is repeated."""
        for number in itertools.count():
            fakes = self.make_world()
            dying = DyingBackend(fakes.cluster, number)
            try:
                fakes.reconciler(dying).sweep()
            except interruption.Kill:
                pass
            else:
                break
            self._retype(fakes)
            fakes.reconciler().sweep()
            found = fakes.limits(self.image), fakes.marked(self.image)
            self.assertEqual((self.left_after_retype, None), found, f'killed at {number}')
            self.assertTrue(fakes.cluster.get(self.image).qos_is_whole, f'killed at {number}')
        self.assertGreater(number, 1)

    left_after_retype = Qos()


class DyingBackend(backend.FakeBackend):
    """Set one limit after the other, as Ceph's back end does, and die at the given instant."""

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

    def arrange(self, fakes):
        return fakes.add()


class OtherLimitsInterruptionTest(InterruptionTests, base.BaseTestCase):
    expected = (world.LIMITS, world.LIMITS)

    def arrange(self, fakes):
        added = fakes.add()
        fakes.limited(added[1], Qos(iops=3000, bytes_per_sec=MIB))
        return added


class NoLimitsInterruptionTest(InterruptionTests, base.BaseTestCase):
    expected = (Qos(), None)

    def arrange(self, fakes):
        added = fakes.add('slow')
        fakes.limited(added[1], Qos(iops=3000, bytes_per_sec=MIB))
        return added
