# SPDX-License-Identifier: Apache-2.0
"""Cinder and Ceph in memory, with two tiers that limit images."""

from oslo_utils import units

from trove_ceph.storage import image_types
from trove_ceph.storage.fake import backend, cluster
from trove_ceph.tests.unit.tiers import fake_cloud, sample
from trove_ceph.tiers import cinder
from trove_ceph.tiers.qos import ownership, reconciler

SLOW = {
    'purpose': 'data',
    'device_class': 'hdd',
    'pool': 'volumes-slow',
    'copies': 2,
    'placement_groups': {'count': 64},
    'volume_type': {'name': 'slow', 'backend': 'slow'},
}
#: fast has limits of images, slow has none.
TIERS = {'tiers/fast/qos': 'image', 'tiers/slow': SLOW}
MIB = units.Mi
#: What the tier fast promises to a volume of 200 GiB.
LIMITS = image_types.Qos(iops=6000, bytes_per_sec=500 * MIB)


class World:
    """State that outlives a process."""

    def __init__(self, changes=()):
        self.content = sample.read(TIERS | dict(changes))
        self.cinder = fake_cloud.FakeCinder(backends=['fast', 'slow'])
        self.cluster = cluster.Cluster({'volumes-fast': 1024 * MIB, 'volumes-slow': 1024 * MIB})
        self.storage = backend.FakeBackend(self.cluster)

    def reconciler(self, storage=None):
        """Return the reconciler of a new process."""
        return reconciler.Reconciler(
            lambda: self.content, cinder.Cinder(self.cinder.client()), storage or self.storage
        )

    def add(self, volume_type='fast', size=200, backend='fast', **attributes):
        """Add a volume with its image, and return both."""
        volume = self.cinder.add_volume(volume_type, size, backend, **attributes)
        name_id = volume['os-vol-mig-status-attr:name_id'] or volume['id']
        image = image_types.ImageRef(f'volumes-{backend}', f'volume-{name_id}')
        self.storage.create_image(image, MIB, image_types.ImageOptions())
        return volume, image

    def limited(self, image, limits, marked=True, **before):
        """Set limits of an image, with or without our ownership entry."""
        found = self.cluster.get(image)
        found.qos = limits
        if marked:
            found.metadata[ownership.KEY] = ownership.LimitOwner(
                limits, image_types.Qos(**before)
            ).text()

    def limits(self, image):
        return self.cluster.get(image).qos

    def marked(self, image):
        return ownership.read(self.cluster.get(image).metadata)
