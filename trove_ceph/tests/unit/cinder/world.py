# SPDX-License-Identifier: Apache-2.0
"""Ceph and Cinder in memory, and operations that are interrupted at each request."""

import itertools

from keystoneauth1 import exceptions as keystone_exceptions
from oslo_utils import units

from trove_ceph import exceptions, steps
from trove_ceph.cinder import wait
from trove_ceph.storage import image_types
from trove_ceph.storage.fake import cluster
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.cinder import cinder_http, fake_cinder

GIB = units.Gi
OPERATION = '5f0c1f3a-5d0e-4d6b-9f55-3d0a7e0d2c11'
NVME, HDD = 'lab@nvme#nvme', 'lab@hdd#hdd'
SERVICE, TENANT = 'service', 'tenant'


class World:
    """State that outlives a process: a volume in use, the source of snapshots and clones."""

    def __init__(self):
        self.cluster = cluster.Cluster({'volumes-nvme': 64 * GIB, 'volumes-hdd': 64 * GIB})
        backends = {NVME: 'volumes-nvme', HDD: 'volumes-hdd'}
        self.cinder = fake_cinder.FakeCinder(self.cluster, backends)
        self.storage = self.cinder.storage
        for name in ('nvme', 'hdd'):
            self.cinder.add_type(name)
        self.volume = self.cinder.add_volume(SERVICE, NVME, status='in-use')
        self.image = self.cinder.image(self.volume)
        self.now = 0.0

    def wait_limits(self):
        """Return limits of waiting with a simulated clock."""
        return wait.WaitLimits(10, clock=lambda: self.now, sleep=self._sleep)

    def _sleep(self, seconds):
        self.now += seconds

    def images(self, pool):
        """Return the names of a pool's images."""
        return {facts.image.name for facts in self.storage.describe_pool(pool)}

    def snapshots(self, image=None):
        """Return the names of an image's snapshots."""
        facts = self.storage.describe(image or self.image)
        return [one.name for one in facts.snapshots if not one.removed]

    def trash(self):
        """Return the names of the images in the trash of all pools."""
        pools = self.cluster.capacities
        return [one.name for pool in pools for one in self.storage.list_trash(pool)]


class RequestInterruptionTests(interruption.InterruptionTests):
    """Interrupt the operation also before and after each request to Cinder.

    ``make_operation`` takes the adapter that sends its requests.
    """

    def test_killed_at_each_request(self):
        self._strike_each(interruption.Kill, _kill)

    def test_each_request_is_lost(self):
        """A missing response leaves open whether Cinder has processed the request."""
        self._strike_each(exceptions.ServiceUnavailableError, _lose)

    def _strike_each(self, expected, strike):
        for number, after in ((n, after) for n in itertools.count() for after in (False, True)):
            world = self.make_world()
            adapter = cinder_http.Adapter(world.cinder, number, after, strike)
            operation = self.make_operation(world, adapter)
            with interruption.annotated(f'{strike.__name__} at request {number}, after={after}'):
                try:
                    steps.run('operation under test', operation)
                except expected:
                    self.assertTrue(adapter.struck)
                    if strike is _lose:
                        self.check_undone(world)
                if not adapter.struck:
                    self.assertGreater(number, 5)
                    return
                steps.run('operation under test', self.make_operation(world))
                self.check_done(world)

    def check_quota(self, world):
        world.cinder.work()
        self.assertEqual(world.cinder.true_usage(), world.cinder.quota.counted())


def snapshot_of(world):
    return image_types.SnapshotRef(
        world.image.pool, world.image.name, f'trove_ceph.backup.{OPERATION}'
    )


def _kill():
    raise interruption.Kill


def _lose():
    raise keystone_exceptions.ConnectFailure('the connection was lost')
