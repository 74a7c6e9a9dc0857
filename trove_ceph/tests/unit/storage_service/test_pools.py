# SPDX-License-Identifier: Apache-2.0
import fixtures
from oslo_config import cfg
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.conf import storage as storage_conf
from trove_ceph.storage import image_types, tasks
from trove_ceph.storage_service import pools, server

POOLS = pools.Pools(('volumes', 'vault'), ('vault-data',), {'vault': 'vault-data'})
IMAGE = image_types.ImageRef('volumes', 'image')

TIERS = """
tiers:
  fast:
    purpose: data
    device_class: nvme
    pool: volumes
    copies: 3
    placement_groups: {count: 32}
    volume_type: {name: fast, backend: fast}
  vault:
    purpose: vault
    device_class: hdd
    pool: vault
    copies: 3
    erasure: {k: 2, m: 1}
    placement_groups: {count: 32}
  images:
    purpose: images
    device_class: hdd
    pool: images
    copies: 3
    placement_groups: {count: 32}
users:
  client.trove-ceph-storage: {role: storage}
  client.fast-only: {role: storage, tiers: [fast]}
"""


class RenewalTest(base.BaseTestCase):
    def test_all_pools_are_renewed_at_the_same_times(self):
        for passed_sec in (0, 0.5, 3.7, 3.75, 14.9, 1000.1):
            waits_sec = server.time_to_next(3.75, passed_sec)
            self.assertTrue(0 < waits_sec <= 3.75, waits_sec)
            intervals = (passed_sec + waits_sec) / 3.75
            self.assertAlmostEqual(round(intervals), intervals)


class CheckTest(base.BaseTestCase):
    def test_accepts_own_pools(self):
        POOLS.check(
            IMAGE,
            IMAGE.snapshot('snapshot with spaces: ä'),
            image_types.ImageOptions(data_pool='vault-data', object_bytes=4096),
            tasks.CopyTask(IMAGE.snapshot('s'), image_types.ImageRef('vault', 'v'), options=None),
            None,
        )

    def test_the_error_names_the_refused_argument(self):
        elsewhere = image_types.ImageRef('images', 'image')
        for argument, named in (
            (elsewhere, 'pool images: is not one of the pools of this service: volumes, vault'),
            (elsewhere.snapshot('s'), 'pool images'),
            (image_types.ImageRef('vault-data', 'x'), 'pool vault-data'),
            (tasks.FlattenTask(elsewhere), 'pool images'),
            (tasks.CopyTask(IMAGE.snapshot('s'), elsewhere), 'pool images'),
            (tasks.VerifyTask(elsewhere.snapshot('s'), IMAGE.snapshot('s')), 'pool images'),
            (image_types.ImageRef('volumes', ''), "image ''"),
            (image_types.ImageRef('volumes', 'a/b'), "image 'a/b'"),
            (image_types.ImageRef('volumes', 'a\nb'), r"image 'a\nb'"),
            (image_types.ImageRef('volumes', 'x' * 201), 'must be 1 to 200 characters'),
            (IMAGE.snapshot('a@b'), "snapshot 'a@b'"),
            (image_types.ImageOptions(data_pool='images'), 'pool images'),
            (image_types.ImageOptions(object_bytes=5000), 'object_bytes 5000'),
            (image_types.ImageOptions(object_bytes=2**26), 'object_bytes 67108864'),
            (image_types.ImageOptions(features=frozenset({'flying'})), 'features flying'),
            (
                tasks.CopyTask(
                    IMAGE.snapshot('s'), IMAGE, options=image_types.ImageOptions(object_bytes=1)
                ),
                'object_bytes 1',
            ),
        ):
            error = self.assertRaises(exceptions.InvalidRequestError, POOLS.check, argument)
            self.assertIn(named, str(error))

    def test_ids(self):
        POOLS.check_image_id('1f9a')
        for image_id in ('', 'a/b', 'trash', '../x'):
            if image_id != 'trash':
                self.assertRaises(exceptions.InvalidRequestError, POOLS.check_image_id, image_id)
        tasks.check_operation_id('backup-0b7a2f3e:copy.1')
        for operation_id in ('', 'a b', 'a/b', '-x', 'x' * 129):
            self.assertRaises(
                exceptions.InvalidRequestError, tasks.check_operation_id, operation_id
            )

    def test_options_of_new_images(self):
        vault = image_types.ImageRef('vault', 'v')
        self.assertEqual('vault-data', POOLS.options_for(vault, None).data_pool)
        self.assertIsNone(POOLS.options_for(IMAGE, None).data_pool)
        given = image_types.ImageOptions(object_bytes=4096)
        self.assertIs(given, POOLS.options_for(vault, given))


class ConfiguredTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        storage_conf.register(self.conf)
        self.conf([])
        self.path = self.useFixture(fixtures.TempDir()).join('tiers.yaml')
        with open(self.path, 'w') as tiers:
            tiers.write(TIERS)
        self.set('tiers_file', self.path)

    def set(self, name, value):
        self.conf.set_override(name, value, 'trove_ceph_storage')
        # All configurations of the process share the option group.
        self.addCleanup(self.conf.clear_override, name, 'trove_ceph_storage')

    def find(self):
        return server.find_pools(self.conf.trove_ceph_storage)

    def test_the_tiers_of_the_user(self):
        found = self.find()
        self.assertEqual((('volumes', 'vault'), ('vault-data',)), (found.images, found.data))
        self.assertEqual({'vault': 'vault-data'}, found.data_pools)
        self.assertEqual(('vault', 'vault-data'), found.of_tier('vault'))
        error = self.assertRaises(exceptions.InvalidRequestError, found.of_tier, 'images')
        self.assertIn('tier images: does not exist; known are fast, vault', str(error))
        self.set('ceph_user', 'client.fast-only')
        self.assertEqual(('volumes',), self.find().images)

    def test_refuses_a_user_that_is_not_in_the_file(self):
        self.set('ceph_user', 'client.admin')
        error = self.assertRaises(exceptions.InvalidTiersError, self.find)
        self.assertIn('has no user client.admin', str(error))

    def test_pools_by_name(self):
        self.set('pools', ['a', 'b'])
        self.set('data_pools', ['c'])
        self.set('tiers_file', '/nowhere')
        self.assertEqual(pools.Pools(('a', 'b'), ('c',)), self.find())
