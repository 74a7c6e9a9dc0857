# SPDX-License-Identifier: Apache-2.0
"""Latencies beside their objectives, and the limits of volumes."""

import types

from oslotest import base

from trove_ceph.metrics import tiers
from trove_ceph.storage import image_types
from trove_ceph.storage.fake import backend
from trove_ceph.storage.fake import cluster as fake_cluster
from trove_ceph.tests.unit.tiers import sample
from trove_ceph.tiers.qos import reconciler
from trove_ceph.tiers.qos import service as qos_service


def samples(metrics):
    return {
        (each.name, *each.labels.values()): each.value
        for metric in metrics
        for each in metric.samples
    }


class LatenciesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.content = sample.read({'tiers/fast/latency_ms': 2})
        pools = {pool: 2**30 for tier in self.content.tiers.values() for pool in tier.pools}
        self.cluster = fake_cluster.Cluster(pools)
        self.latencies = tiers.Latencies(
            backend.FakeBackend(self.cluster), lambda: self.content.tiers
        )

    def measure(self, name, writes, write_sec, reads=0.0, read_sec=0.0, pool='volumes-fast'):
        image = image_types.ImageRef(pool, name)
        self.cluster.performance.append(
            image_types.ImagePerformance(image, reads, writes, read_sec, write_sec)
        )

    def test_the_mean_counts_requests_and_the_maximum_is_of_an_image(self):
        self.measure('busy', 300.0, 0.001)
        self.measure('slow', 100.0, 0.009)
        self.measure('idle', 0.0, 0.0)
        found = samples(self.latencies.read())
        name = 'trove_ceph_tier_latency_seconds'
        self.assertAlmostEqual(0.003, found[name, 'fast', 'write', 'mean'])
        self.assertEqual(0.009, found[name, 'fast', 'write', 'max'])
        self.assertEqual(400, found['trove_ceph_tier_requests_per_second', 'fast', 'write'])
        # No request has no latency, rather than one of 0.
        self.assertNotIn((name, 'fast', 'read', 'mean'), found)
        self.assertEqual(0, found['trove_ceph_tier_requests_per_second', 'fast', 'read'])

    def test_objectives(self):
        found = samples(self.latencies.read())
        name = 'trove_ceph_tier_latency_objective_seconds'
        self.assertEqual(0.002, found[name, 'fast'])
        self.assertNotIn((name, 'vault'), found)

    def test_a_tier_that_cannot_be_measured_leaves_the_others(self):
        del self.cluster.capacities['vault']
        self.measure('busy', 1.0, 0.001)
        found = samples(self.latencies.read())
        name = 'trove_ceph_tier_requests_per_second'
        self.assertIn((name, 'fast', 'write'), found)
        self.assertNotIn((name, 'vault', 'write'), found)


class LimitsTest(base.BaseTestCase):
    def test_the_last_sweep(self):
        service = types.SimpleNamespace(last_sweep=None)
        limits = tiers.Limits(service, lambda: 130.0)
        self.assertEqual({}, samples(limits.collect()))
        report = reconciler.Report(7, (object(), object()), {'v': 'volume v: no'})
        service.last_sweep = qos_service.Sweep(report, 100.0)
        found = samples(limits.collect())
        self.assertEqual(
            {
                ('trove_ceph_qos_volumes',): 7,
                ('trove_ceph_qos_drift',): 2,
                ('trove_ceph_qos_failures',): 1,
                ('trove_ceph_qos_sweep_age_seconds',): 30,
            },
            found,
        )


class DescriptionsTest(base.BaseTestCase):
    def test_names_are_unique(self):
        names = [one.name for one in tiers.DESCRIPTIONS]
        self.assertEqual(sorted(set(names)), sorted(names))
