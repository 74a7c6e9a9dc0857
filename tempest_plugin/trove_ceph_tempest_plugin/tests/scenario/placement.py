# SPDX-License-Identifier: Apache-2.0
"""A tenant chooses a volume type; an operator verifies the location of the data in Ceph."""

from tempest.lib import decorators

from trove_ceph_tempest_plugin import placement
from trove_ceph_tempest_plugin.tests import base


class PlacementScenario(base.DatabaseTest):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a001')
    @decorators.attr(type='smoke')
    def test_placement(self):
        """Every object of the volume is on devices of the type's class."""
        self.record('created', {'seconds_to_healthy': self.created_sec})
        traces = self.traces_of(self.instance_id)
        volumes = self.os_admin.volumes_client_latest
        volume = volumes.show_volume(traces.volume_id)['volume']
        self.assertEqual(self.volume_type, volume['volume_type'])
        if not self.cluster:
            raise self.skipException('[trove_ceph] ceph_conf is not set')
        if not self.expected:
            raise self.skipException(f'[trove_ceph] placement does not list {self.volume_type}')
        image = self.cluster.find_image(self.expected.pool, f'volume-{traces.volume_id}')
        self.assertIsNotNone(image, f'no volume-{traces.volume_id} in pool {self.expected.pool}')
        figures, faults = placement.survey(self.cluster, image, self.expected)
        self.record('placement', figures)
        self.assertEqual([], faults)
