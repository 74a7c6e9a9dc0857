# SPDX-License-Identifier: Apache-2.0
"""A tenant's volume is limited to the IOPS of its tier, and gets more when it grows."""

import tempfile
import time
from pathlib import Path

from tempest import config
from tempest.lib import decorators

from trove_ceph_bench import model, rbd_stats
from trove_ceph_tempest_plugin import limits
from trove_ceph_tempest_plugin.tests import base

CONF = config.CONF
TOLERANCE = 0.05
#: Cinder notifies at once; only a lost notification waits for a sweep.
FOLLOW_SEC = 30
POLL_SEC = 1
#: A load that reaches this share of a limit is throttled by it.
SATURATED = 0.8
MIB_PER_GIB = 1024


class TestLimits(base.DatabaseTest):
    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        cls.promise = limits.parse(CONF.trove_ceph.promises).get(cls.volume_type)
        if not cls.promise:
            raise cls.skipException(f'[trove_ceph] promises does not list {cls.volume_type}')

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a012')
    def test_limit_holds_and_follows_a_resize(self):
        """Under load the image gets no more IOPS than promised, also after a live resize."""
        if not (self.cluster and self.expected):
            raise self.skipException(
                f'[trove_ceph] ceph_conf is not set, or placement does not list {self.volume_type}'
            )
        volume_id = self.traces_of(self.instance_id).volume_id
        options = CONF.trove_ceph
        image = model.Image(
            self.expected.pool, f'volume-{volume_id}', options.ceph_conf, options.ceph_user
        )
        size = options.volume_size_gib
        self._wait_for_limit(image, size)
        write_load = self.prepare_load('write')
        before = self._measure(image, write_load, size)
        uptime = self.database.uptime_sec()
        elapsed = self.act({'resize': {'volume': {'size': size + 1}}})
        self.record('resize', {'seconds_to_healthy': elapsed})
        self._wait_for_limit(image, size + 1)
        after = self._measure(image, write_load, size + 1)
        self.assertGreaterEqual(self.database.uptime_sec(), uptime + int(elapsed))
        if before < SATURATED * self._promised(size):
            raise self.skipException(f'sysbench reaches {before} IOPS, too few to test the limit')
        self.assertGreater(after, before)

    def _promised(self, size_gib):
        return self.promise.volume_iops(size_gib * MIB_PER_GIB)

    def _wait_for_limit(self, image, size_gib):
        deadline = time.monotonic() + FOLLOW_SEC
        while limits.of_image(image) != self._promised(size_gib) and time.monotonic() < deadline:
            time.sleep(POLL_SEC)
        self.assertEqual(self._promised(size_gib), limits.of_image(image))

    def _measure(self, image, load, size_gib):
        """Return the IOPS of the image under load."""
        options = CONF.trove_ceph
        with tempfile.TemporaryDirectory(prefix='trove-ceph-limits-') as directory:
            with rbd_stats.RbdStats([image], Path(directory) / 'counters') as stats:
                began = time.monotonic()
                figures = load.run(options.sysbench_threads, options.sysbench_seconds)
                measured = stats.result(began, time.monotonic())
        self.assertIsNotNone(measured, f"Ceph's manager counted no operation on {image}")
        totals = measured['totals']
        iops = round(totals['read_iops'] + totals['write_iops'], 1)
        self.record(f'{size_gib} GiB', {'iops': iops, 'limit': self._promised(size_gib), **figures})
        self.assertLessEqual(iops, self._promised(size_gib) * (1 + TOLERANCE))
        return iops


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=TestLimits, first=TestLimits)
