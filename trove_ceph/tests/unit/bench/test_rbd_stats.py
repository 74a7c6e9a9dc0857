# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from unittest import mock

import fixtures
from oslo_utils import units
from oslotest import base

from trove_ceph.tests.unit.bench import recorded
from trove_ceph_bench import model, rbd_stats

IMAGE = model.Image('volumes', 'img', '/etc/ceph/ceph.conf')
MIB = units.Mi
NAMES = ('write_ops', 'read_ops', 'write_bytes', 'read_bytes', 'write_latency', 'read_latency')


def counted(operations):
    """Return the sums after a number of 16 KiB writes of 5 ms each."""
    return rbd_stats.Counters(
        write_ops=operations,
        write_bytes=operations * 16384,
        write_latency=operations * 5_000_000,
    )


class FindCountersTest(base.BaseTestCase):
    def reply(self, *entries, pools=None):
        pools = pools or {'0': 'volumes'}
        return json.dumps(
            {'counter_descriptors': NAMES, 'pool_descriptors': pools, 'counters': entries}
        )

    def test_recorded_reply(self):
        _, reply = recorded.text('rbd-counters.log').splitlines()[0].split(' ', 1)
        self.assertEqual(
            rbd_stats.Counters(15916, 0, 262275072, 0, 6130064705225, 0),
            rbd_stats.find_counters(reply, IMAGE),
        )

    def test_distinguishes_images_of_different_pools(self):
        pools = {'0': 'images', '1': 'volumes'}
        entries = {'0/img': [1] * 6}, {'1/img': [2] * 6}
        reply = self.reply(*entries, pools=pools)
        self.assertEqual(rbd_stats.Counters(*[2] * 6), rbd_stats.find_counters(reply, IMAGE))

    def test_unlisted_image(self):
        self.assertIsNone(rbd_stats.find_counters(self.reply({'0/other': [1] * 6}), IMAGE))
        self.assertIsNone(rbd_stats.find_counters(self.reply(pools={'0': 'x'}), IMAGE))

    def test_invalid_reply(self):
        self.assertRaises(ValueError, rbd_stats.find_counters, 'Error EINVAL', IMAGE)


class EvaluateTest(base.BaseTestCase):
    def evaluate(self, points, since=10, until=16, size_gib=2.0):
        return rbd_stats.evaluate(points, since, until, size_gib, 2.0)

    def test_recorded_readings(self):
        points = []
        for line in recorded.text('rbd-counters.log').splitlines():
            at, reply = line.split(' ', 1)
            points.append((float(at), rbd_stats.find_counters(reply, IMAGE)))

        found = self.evaluate(points, 2426, 2432, 1.0)

        self.assertEqual(
            ('mgr', 2.0, 1.0), (found['source'], found['period_sec'], found['size_gib'])
        )
        # 15916 writes at 2426.034 and 20493 at 2434.451.
        self.assertAlmostEqual(4577 / 8.417, found['totals']['write_iops'], delta=0.01)
        self.assertEqual(found['totals']['write_iops'], round(found['totals']['iops_per_gib'], 2))
        self.assertEqual(0, found['totals']['read_iops'])
        self.assertIsNone(found['totals']['read_latency_ms'])
        self.assertEqual([1, 2, 3, 4, 5, 6], [each['second'] for each in found['seconds']])

    def test_steady_writes(self):
        # New sums every two seconds, read every second.
        points = [(float(t), counted(100 * (t - t % 2))) for t in range(6, 20)]

        found = self.evaluate(points)

        self.assertEqual(100.0, found['totals']['write_iops'])
        self.assertEqual(round(100 * 16384 / MIB, 3), found['totals']['write_mib_s'])
        self.assertEqual(5.0, found['totals']['write_latency_ms'])
        self.assertEqual(50.0, found['totals']['iops_per_gib'])
        self.assertEqual(50.0, found['totals']['write_iops_per_gib'])
        self.assertEqual({100.0}, {each['write_iops'] for each in found['seconds']})
        self.assertEqual([1, 2, 3, 4, 5, 6], [each['second'] for each in found['seconds']])

    def test_reads_do_not_count_as_writes_per_gib(self):
        points = [
            (float(t), rbd_stats.Counters(write_ops=10 * t, read_ops=30 * t)) for t in range(9, 18)
        ]
        totals = self.evaluate(points)['totals']
        self.assertEqual((5.0, 20.0), (totals['write_iops_per_gib'], totals['iops_per_gib']))

    def test_only_the_phase_counts(self):
        fast_before_and_after = [
            *((float(t), counted(1000 * t)) for t in range(5, 11)),
            *((float(t), counted(10000 + 10 * (t - 10))) for t in range(11, 17)),
            *((float(t), counted(10060 + 1000 * (t - 16))) for t in range(17, 20)),
        ]
        self.assertEqual(10.0, self.evaluate(fast_before_and_after)['totals']['write_iops'])

    def test_skips_the_restart_of_the_manager(self):
        points = [
            *((float(t), counted(100 * t)) for t in range(9, 13)),
            *((float(t), counted(100 * (t - 13))) for t in range(13, 18)),
        ]

        found = self.evaluate(points)

        self.assertEqual(100.0, found['totals']['write_iops'])
        self.assertNotIn(3, [each['second'] for each in found['seconds']])

    def test_none_if_the_sums_do_not_change(self):
        self.assertIsNone(self.evaluate([]))
        self.assertIsNone(self.evaluate([(11.0, counted(5))]))
        self.assertIsNone(self.evaluate([(float(t), counted(5)) for t in range(9, 18)]))


class RbdStatsTest(base.BaseTestCase):
    def poll(self, stats, write=None):
        """Read replies, of which there are none, until that is noticed."""
        for name in ('_INTERVAL_SEC', '_TIMEOUT_SEC'):
            self.useFixture(fixtures.MonkeyPatch(f'trove_ceph_bench.rbd_stats.{name}', 0.01))
        stats._poll(mock.Mock(**{'stdin.write.side_effect': write}))

    def test_tells_that_the_cluster_does_not_answer(self):
        log = Path(self.useFixture(fixtures.TempDir()).path) / 'rbd.log'
        stats = rbd_stats.RbdStats([IMAGE], log)
        self.poll(stats)
        self.assertIsNotNone(stats.silent_since)
        stats = rbd_stats.RbdStats([IMAGE], log)
        # It is left.
        self.poll(stats, lambda text: stats._stopping.set())
        self.assertIsNone(stats.silent_since)

    def test_refuses_images_of_two_clusters(self):
        other = model.Image('volumes', 'img', '/etc/ceph/other.conf')
        stats = rbd_stats.RbdStats([IMAGE, other], None)
        error = self.assertRaises(rbd_stats.UnavailableError, stats.__enter__)
        self.assertIn('in different clusters', str(error))
