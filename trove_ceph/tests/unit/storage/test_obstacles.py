# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslo_utils import units
from oslotest import base

from trove_ceph.storage import image_types
from trove_ceph.storage.fake import backend, cluster

DEAD, ALIVE = '10.0.4.17:0/1', '10.0.4.18:0/2'


class ObstaclesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        storage = backend.FakeBackend(cluster.Cluster({'volumes': 64 * units.Mi}, lambda: 0.0))
        self.image = image_types.ImageRef('volumes', 'image')
        storage.create_image(self.image, units.Mi, image_types.ImageOptions())
        self.facts = storage.describe(self.image)

    def used_by(self, *clients):
        return dataclasses.replace(self.facts, clients=clients).obstacles({DEAD})

    def test_blocklisted_clients_are_listed_separately(self):
        header = f'rbd_header.{self.facts.image_id}'
        left = f'blocklisted clients that still watch {header} {DEAD}'
        self.assertEqual(f'clients {ALIVE}', self.used_by(ALIVE))
        self.assertEqual(left, self.used_by(DEAD))
        self.assertEqual(f'clients {ALIVE}; {left}', self.used_by(DEAD, ALIVE))
        self.assertEqual('', self.used_by())
