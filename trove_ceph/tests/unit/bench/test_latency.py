# SPDX-License-Identifier: Apache-2.0
import math
import random
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests.unit.bench import recorded
from trove_ceph_bench import latency, sysbench_output

NS_PER_MS = 1000000


def histogram(durations_ns):
    """Count as lua/timed.lua does."""
    found = latency.Histogram()
    for duration in durations_ns:
        bucket = int(math.log(max(duration, 1000) / 1000) / math.log(1.02))
        found.add(latency.Histogram(1, duration, duration, latency.collections.Counter([bucket])))
    return found


class HistogramTest(base.BaseTestCase):
    def test_percentiles_are_within_a_bucket(self):
        generator = random.Random(1)
        durations = sorted(int(generator.lognormvariate(14, 1)) for _ in range(5000))
        found = histogram(durations)

        for percent in (1, 50, 95, 99, 99.9):
            exact_ms = durations[math.ceil(5000 * percent / 100) - 1] / NS_PER_MS
            self.assertAlmostEqual(exact_ms, found.percentile_ms(percent), delta=0.011 * exact_ms)
        figures = found.latency_ms()
        self.assertEqual(round(max(durations) / NS_PER_MS, 4), figures['max'])
        self.assertEqual(round(sum(durations) / 5000 / NS_PER_MS, 4), figures['avg'])

    def test_no_percentile_exceeds_the_maximum(self):
        figures = histogram([3 * NS_PER_MS]).latency_ms()
        self.assertEqual(3.0, figures['max'])
        self.assertLessEqual(figures['p50'], 3.0)
        self.assertAlmostEqual(3.0, figures['p99.9'], delta=0.03)

    def test_empty_histogram_has_no_latency(self):
        self.assertEqual(
            dict.fromkeys(('avg', 'p50', 'p95', 'p99', 'p99.9', 'max')),
            latency.Histogram().latency_ms(),
        )


class FilesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    def test_recorded_run_agrees_with_the_summary_of_sysbench(self):
        whole = latency.total(latency.read([recorded.DIRECTORY / 'latency.txt']).values())
        summary = sysbench_output.parse_summary(recorded.text('sysbench-run.log'))

        self.assertEqual(summary.transactions, whole.count)
        figures = whole.latency_ms()
        self.assertAlmostEqual(summary.latency_avg_ms, figures['avg'], delta=0.05)
        self.assertAlmostEqual(summary.latency_max_ms, figures['max'], delta=0.05)
        self.assertAlmostEqual(summary.latency_percentile_ms, figures['p99'], delta=4)

    def test_threads_are_merged_by_second(self):
        paths = [
            self.write('a', '7 2 3000 2000 0:1 35:1\n8 1 1000 1000 0:1\n'),
            self.write('b', '7 1 9000 9000 35:1\n'),
        ]

        seconds = latency.read(paths)

        self.assertEqual([7, 8], sorted(seconds))
        self.assertEqual((3, 12000, 9000), (seconds[7].count, seconds[7].sum_ns, seconds[7].max_ns))
        self.assertEqual({0: 1, 35: 2}, dict(seconds[7].buckets))

    def test_skips_an_incomplete_last_line(self):
        path = self.write('a', '7 1 1000 1000 0:1\n8 2 3000 20')
        self.assertEqual([7], list(latency.read([path])))

    def test_reads_what_it_writes(self):
        seconds = latency.read([recorded.DIRECTORY / 'latency.txt'])
        latency.write(self.directory / 'copy', seconds)
        self.assertEqual(seconds, latency.read([self.directory / 'copy']))
