# SPDX-License-Identifier: Apache-2.0
import fixtures
from oslotest import base

from trove_ceph_bench import model
from trove_ceph_bench.targets import rbd_image


class RbdImageTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        # The process boundary: neither command exists.
        empty = self.useFixture(fixtures.TempDir()).path
        self.useFixture(fixtures.EnvironmentVariable('PATH', empty))

    def test_without_an_image(self):
        self.assertIsNone(rbd_image.image({}))
        self.assertIsNone(rbd_image.disclose(None))

    def test_image_named_by_the_plan(self):
        spec = {'image': 'pool/data', 'ceph': {'conf': '/c', 'user': 'bench'}}

        self.assertEqual(model.Image('pool', 'data', '/c', 'bench'), rbd_image.image(spec, 'v1'))

    def test_volume_in_a_named_pool(self):
        self.assertEqual(
            model.Image('pool', 'volume-v1', '/etc/ceph/ceph.conf', 'admin'),
            rbd_image.image({'ceph': {'pool': 'pool'}}, 'v1'),
        )

    def test_volume_without_access_to_ceph(self):
        self.assertIsNone(rbd_image.image({}, 'v1'))

    def test_disclosure_reports_why_facts_are_missing(self):
        found = rbd_image.disclose(model.Image('pool', 'data', '/c', 'bench'))

        self.assertEqual('pool/data', found['image'])
        self.assertIn('cannot be run', found['unknown'])
