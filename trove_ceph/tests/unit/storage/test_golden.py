# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslo_utils import units
from oslotest import base

from trove_ceph.storage import golden, image_types, names, tasks
from trove_ceph.storage.fake import backend, cluster

VOLUME = golden.GoldenVolume('volumes', '9.7.4', 10)


class GoldenVolumeTest(base.BaseTestCase):
    def test_the_name_follows_from_the_content(self):
        self.assertEqual(VOLUME.image, golden.GoldenVolume('volumes', '9.7.4', 10).image)
        others = (
            golden.GoldenVolume('volumes', '9.7.5', 10),
            golden.GoldenVolume('volumes', '9.7.4', 11),
            golden.GoldenVolume('volumes', '9.7.4', 10, golden.RECIPE + 1),
        )
        self.assertEqual(4, len({VOLUME.image.name, *(one.image.name for one in others)}))
        elsewhere = dataclasses.replace(VOLUME, pool='vault')
        self.assertEqual(('vault', VOLUME.image.name), (elsewhere.image.pool, elsewhere.image.name))

    def test_the_name_is_recognised(self):
        self.assertTrue(golden.is_golden(VOLUME.image))
        self.assertTrue(VOLUME.image.name.startswith(golden.PREFIX))
        other = image_types.ImageRef('volumes', names.image_name('check', VOLUME.id))
        self.assertFalse(golden.is_golden(other))
        self.assertFalse(golden.is_golden(image_types.ImageRef('volumes', 'volume')))

    def test_a_version_is_one_release(self):
        for version in ('9.7', '9', '8.4-lts', 'latest', '9.7.4.1', '9.7.4 '):
            self.assertFalse(golden.is_exact(version))
            self.assertRaises(ValueError, golden.GoldenVolume, 'volumes', version, 10)
        self.assertRaises(ValueError, golden.GoldenVolume, 'volumes', '9.7.4', 0)

    def test_sizes_from_which_a_volume_may_grow(self):
        for size_gib, expected in (
            (9, []),
            (10, [10]),
            (100, [100, 10]),
            (160, [100, 10]),
            (161, [100]),
            (1600, [100]),
            (1601, []),
        ):
            self.assertEqual(expected, golden.fitting_sizes([10, 100, 10], size_gib), size_gib)

    def test_a_task_needs_the_name_of_its_volume(self):
        self.assertEqual(VOLUME, tasks.GoldenTask.of(VOLUME).volume)
        for image, version, size_gib in (
            (VOLUME.image, '9.7.5', 10),
            (VOLUME.image, '9.7.4', 11),
            (image_types.ImageRef('volumes', 'volume'), '9.7.4', 10),
            (VOLUME.image, '9.7', 10),
        ):
            self.assertRaises(ValueError, tasks.GoldenTask, image, version, size_gib)


class StateTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.storage = backend.FakeBackend(cluster.Cluster({'volumes': 1024 * units.Mi}))
        self.storage.create_image(VOLUME.image, 10 * units.Gi, image_types.ImageOptions())

    def record(self, content):
        self.storage.set_image_metadata(VOLUME.image, {golden.METADATA_KEY: content})

    def state(self):
        return golden.state_of(self.storage.describe(VOLUME.image))

    def content(self):
        return golden.find_content(self.storage.describe(VOLUME.image))

    def test_states(self):
        self.record(VOLUME.content)
        self.assertEqual(golden.State.BUILDING, self.state())
        snapshot = VOLUME.snapshot(golden.State.BUILT)
        self.storage.create_snapshot(snapshot)
        self.assertEqual(golden.State.BUILT, self.state())
        for state in (golden.State.READY, golden.State.RETIRED):
            self.storage.rename_snapshot(snapshot, state.value)
            snapshot = VOLUME.snapshot(state)
            self.assertEqual(state, self.state())

    def test_content(self):
        self.assertIsNone(self.content())
        self.record(VOLUME.content)
        self.assertEqual(VOLUME, self.content())
        self.record('something else')
        self.assertIsNone(self.content())

    def test_another_recipe_is_outdated(self):
        self.storage.create_snapshot(VOLUME.snapshot(golden.State.READY))
        for content in ('', dataclasses.replace(VOLUME, recipe=golden.RECIPE + 1).content):
            self.record(content)
            self.assertEqual(golden.State.OUTDATED, self.state())
