# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage golden-volumes`` with a running service."""

import json

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import golden, image_types
from trove_ceph.tests.unit.golden import world as golden_world
from trove_ceph.tests.unit.storage_service import bus_case
from trove_ceph.verification import report

VOLUME = golden_world.VOLUME
WORDS = (VOLUME.pool, VOLUME.version, str(VOLUME.size_gib))


class GoldenCommandTest(bus_case.CommandTestCase):
    words = ('golden-volumes',)

    def setUp(self):
        super().setUp()
        self.golden = golden_world.World()
        self.golden.storage = self.world.storage
        self.serve('one', self.golden.builder())

    def listed(self):
        status, text = self.command('list', 'volumes', 'vault', '-f', 'json')
        self.assertEqual(0, status)
        return [
            (one['image'], one['version'], one['size_gib'], one['state'])
            for one in json.loads(text)
        ]

    def test_built_listed_and_removed(self):
        self.assertEqual([], self.listed())
        self.assertEqual('There are no golden volumes.\n', self.err)
        status, text = self.command('build', *WORDS)
        self.assertEqual((0, f'{VOLUME}: ready as {VOLUME.image}\n'), (status, text))
        self.assertEqual([(str(VOLUME.image), '9.7.4', 1, 'ready')], self.listed())
        self.assertEqual((0, text), self.command('build', *WORDS))
        self.assertEqual(1, len(self.golden.inspected))
        status, text = self.command('remove', str(VOLUME.image))
        self.assertEqual((0, f'{VOLUME.image}: removed\n'), (status, text))
        self.assertEqual([], self.listed())
        self.assertEqual([], self.world.storage.list_trash('volumes'))
        status, text = self.command('remove', str(VOLUME.image))
        self.assertEqual((0, f'{VOLUME.image}: does not exist\n'), (status, text))

    def test_built_again_after_it_was_removed(self):
        for _ in range(2):
            self.assertEqual(0, self.command('build', *WORDS)[0])
            self.assertEqual(golden.State.READY, self.golden.state())
            self.assertEqual(0, self.command('remove', str(VOLUME.image))[0])

    def test_a_build_that_failed_is_continued(self):
        self.golden.raises = {'initialise': exceptions.ServerFailedError('mysqld: no memory')}
        self.assertEqual((1, 'mysqld: no memory\n'), self.command('build', *WORDS))
        self.golden.raises = {}
        status, text = self.command('build', *WORDS, '-f', 'json')
        self.assertEqual((0, 2), (status, json.loads(text)['job']['attempt']))
        (job,) = self.api.list_jobs()
        self.assertEqual('done', job.state)

    def test_one_that_is_not_sound(self):
        self.golden.found = report.Inspection(report.CORRUPT, ('no redo log',))
        status, text = self.command('build', *WORDS)
        self.assertEqual(1, status)
        self.assertIn('its inspection found corrupt: no redo log', text)

    def test_one_from_which_clones_read_is_not_removed(self):
        self.command('build', *WORDS)
        clone = image_types.ImageRef('volumes', 'volume-1')
        storage = self.world.storage
        storage.clone(VOLUME.snapshot(golden.State.READY), clone, image_types.ImageOptions())
        for _ in range(2):
            status, text = self.command('remove', str(VOLUME.image))
            self.assertEqual(1, status)
            self.assertIn('clones read from it: volumes/volume-1; repeat', text)
            self.assertEqual([(str(VOLUME.image), '9.7.4', 1, 'retired')], self.listed())
        storage.flatten(clone)
        self.assertEqual(0, self.command('remove', str(VOLUME.image))[0])

    def test_what_an_interrupted_build_left_is_listed_and_removed(self):
        self.world.storage.create_image(VOLUME.image, units.Gi, image_types.ImageOptions())
        self.assertEqual([(str(VOLUME.image), None, 1, 'building')], self.listed())
        self.assertEqual(0, self.command('remove', str(VOLUME.image))[0])
        self.assertEqual([], self.listed())

    def test_wrong_arguments(self):
        for words in (
            ('build', 'volumes', '9.7', '10'),
            ('build', 'volumes', '9.7.4', '0'),
            ('build', 'volumes', '9.7.4', 'ten'),
            ('build', 'volumes', '9.7.4', '65537'),
            ('remove', 'volumes'),
            ('remove', str(self.image)),
        ):
            self.assertEqual(2, self.command(*words)[0], words)

    def test_a_pool_of_no_tier(self):
        status, text = self.command('build', 'elsewhere', '9.7.4', '10')
        self.assertEqual(1, status)
        self.assertIn('pool elsewhere: is not one of the pools', text)
