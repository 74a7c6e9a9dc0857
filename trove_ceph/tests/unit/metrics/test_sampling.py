# SPDX-License-Identifier: Apache-2.0
import threading

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.metrics import sampling
from trove_ceph.metrics.descriptions import Description

FOUND = Description('trove_ceph_test', 'For the test.')


class SamplerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.found = 1
        self.reads = 0
        self.sampler = sampling.Sampler('test', self.read, 60, lambda: self.now)

    def read(self):
        self.reads += 1
        self.now += 2
        if isinstance(self.found, Exception):
            raise self.found
        yield FOUND.gauge({(): self.found})

    def samples(self):
        return {
            sample.name: sample.value
            for metric in self.sampler.collect()
            for sample in metric.samples
        }

    def test_before_the_first_read(self):
        found = self.samples()
        self.assertEqual(0, found['trove_ceph_figures_up'])
        self.assertEqual(0, found['trove_ceph_figures_errors_total'])
        self.assertNotIn('trove_ceph_figures_age_seconds', found)
        self.assertNotIn(FOUND.name, found)

    def test_scrapes_cost_no_read(self):
        self.sampler.sample()
        for _ in range(5):
            self.assertEqual(1, self.samples()[FOUND.name])
        self.assertEqual(1, self.reads)
        self.now += 10
        found = self.samples()
        self.assertEqual(1, found['trove_ceph_figures_up'])
        self.assertEqual(10, found['trove_ceph_figures_age_seconds'])
        self.assertEqual(2, found['trove_ceph_figures_read_seconds'])

    def test_a_failed_read_leaves_the_figures_out_until_one_succeeds(self):
        self.sampler.sample()
        for number, error in enumerate((exceptions.ServiceUnavailableError('x'), KeyError('y')), 1):
            self.found = error
            self.sampler.sample()
            found = self.samples()
            self.assertEqual(0, found['trove_ceph_figures_up'])
            self.assertEqual(number, found['trove_ceph_figures_errors_total'])
            self.assertNotIn(FOUND.name, found)
        self.found = 3
        self.sampler.sample()
        found = self.samples()
        self.assertEqual((1, 3), (found['trove_ceph_figures_up'], found[FOUND.name]))

    def test_figures_of_a_read_that_hangs_become_out_of_date(self):
        self.sampler.sample()
        self.now += 180
        self.assertIn(FOUND.name, self.samples())
        self.now += 1
        found = self.samples()
        self.assertEqual(0, found['trove_ceph_figures_up'])
        self.assertNotIn(FOUND.name, found)

    def test_the_thread_reads_at_once_and_ends(self):
        has_read = threading.Event()

        def read():
            has_read.set()
            return ()

        sampler = sampling.Sampler('test', read, 3600)
        sampler.start()
        self.assertTrue(has_read.wait(60))
        sampler.stop()
        sampler._thread.join(60)
        self.assertFalse(sampler._thread.is_alive())
