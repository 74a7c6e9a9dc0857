# SPDX-License-Identifier: Apache-2.0
"""The filler against a model of a pool whose sums arrive late."""

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph_bench import ceph_facts, model, pool_filler

GIB_IN_MIB = 1024


class Cluster:
    """A pool with other data and the filler; commands, facts and writes of one Ceph.

    :param other_mib: data of the pool without the filler
    :param lag: number of readings that still show the sums from before a change
    """

    pool = 'volumes'

    def __init__(self, total_gib=100, other_mib=0, lag=1, fullest=0.0):
        self.total_mib = total_gib * GIB_IN_MIB
        self.other_mib = other_mib
        self.lag = lag
        self.fullest = fullest
        self.size_mib = None
        self.written_mib = 0
        self.most_percent = 0.0
        self.fails_at = None
        self.log = []
        self._shown = self._percent()
        self._stale = 0

    def _percent(self):
        return 100 * (self.other_mib + self.written_mib) / self.total_mib

    def _changed(self):
        self._stale = self.lag
        self.most_percent = max(self.most_percent, self._percent())

    def pool_usage(self, name):
        assert name == self.pool
        if self._stale:
            self._stale -= 1
        else:
            self._shown = self._percent()
        used = self._shown / 100
        return ceph_facts.PoolUsage(
            self._shown,
            self.total_mib * units.Mi,
            self.fullest + used * (95 - self.fullest),
            85.0,
            95.0,
        )

    def has_image(self, name):
        assert name == pool_filler.IMAGE
        return self.size_mib is not None

    def image_facts(self, name):
        return {'size': self.size_mib * units.Mi}

    def create_image(self, name, size_gib):
        assert self.size_mib is None
        self.size_mib = round(size_gib * GIB_IN_MIB)
        self.log.append('create')

    def resize_image(self, name, size_mib):
        assert size_mib != self.size_mib
        self.log.append('grow' if size_mib > self.size_mib else 'shrink')
        self.size_mib = size_mib
        if self.written_mib > size_mib:
            self.written_mib = size_mib
            self._changed()

    def ensure_no_image(self, name):
        if self.size_mib is not None:
            self.log.append('remove')
        self.size_mib, self.written_mib = None, 0
        self._changed()

    def write(self, image, offset_mib, size_mib):
        assert (image.pool, image.name) == ('volumes', pool_filler.IMAGE)
        assert offset_mib + size_mib == self.size_mib
        if self.fails_at is not None and self._percent() >= self.fails_at:
            raise KeyboardInterrupt
        self.written_mib += size_mib
        self._changed()


class PoolFillerTest(base.BaseTestCase):
    def filler(self, cluster):
        clock = [0.0]

        def sleep(seconds):
            clock[0] += seconds

        return pool_filler.PoolFiller(
            model.Image('volumes', 'volume-1', '/c'),
            lambda text, share: None,
            facts=cluster,
            pool=cluster,
            write=cluster.write,
            start_wait=lambda seconds: waiting.Deadline(seconds, lambda: clock[0], sleep),
        )

    def assert_reached(self, percent, cluster):
        self.assertAlmostEqual(percent, cluster._percent(), delta=pool_filler.TOLERANCE)

    def test_fills_steps_up_and_removes_the_filler(self):
        cluster = Cluster(other_mib=5 * GIB_IN_MIB)
        with self.filler(cluster) as filler:
            for percent in (14, 70, 87):
                usage = filler.ensure(percent)
                self.assertAlmostEqual(percent, usage.used_percent, delta=0.5)
                # Of 100 GiB.
                self.assertAlmostEqual(percent, usage.stored_gib, delta=0.5)
                self.assert_reached(percent, cluster)
        self.assertEqual('remove', cluster.log[-1])
        self.assertEqual((None, 0), (cluster.size_mib, cluster.written_mib))
        self.assertLess(cluster.most_percent, 87.6)

    def test_a_filled_pool_is_left_as_it_is(self):
        cluster = Cluster()
        with self.filler(cluster) as filler:
            filler.ensure(14)
            done = list(cluster.log)
            filler.ensure(14)
            self.assertEqual(done, cluster.log)

    def test_shrinks_when_other_data_grow_and_for_a_lower_percentage(self):
        cluster = Cluster()
        with self.filler(cluster) as filler:
            filler.ensure(70)
            cluster.other_mib += 3 * GIB_IN_MIB
            filler.ensure(70)
            self.assert_reached(70, cluster)
            filler.ensure(14)
            self.assert_reached(14, cluster)
        self.assertIn('shrink', cluster.log)

    def test_sums_that_arrive_late(self):
        for lag in (0, 1, 5):
            cluster = Cluster(lag=lag)
            with self.filler(cluster) as filler:
                filler.ensure(70)
                self.assert_reached(70, cluster)
                self.assertLess(cluster.most_percent, 70.5)

    def test_continues_after_every_interruption(self):
        for fails_at in (0, 4, 30, 64):
            cluster = Cluster()
            cluster.fails_at = fails_at
            # A killed process does not remove the filler.
            self.assertRaises(KeyboardInterrupt, self.filler(cluster).ensure, 70)
            self.assertIsNotNone(cluster.size_mib)
            written, cluster.fails_at = cluster.written_mib, None
            with self.filler(cluster) as filler:
                filler.ensure(70)
                self.assert_reached(70, cluster)
                self.assertGreater(cluster.written_mib, written)
            self.assertIsNone(cluster.size_mib)

    def test_ctrl_c_removes_the_filler(self):
        cluster = Cluster()
        cluster.fails_at = 30
        with self.assertRaisesRegex(KeyboardInterrupt, ''):
            with self.filler(cluster) as filler:
                filler.ensure(70)
        self.assertIsNone(cluster.size_mib)

    def test_refuses_nearfull_before_it_writes(self):
        # One OSD is fuller than the others: at 87 % of the pool it would hold 88 %.
        cluster = Cluster(fullest=40)
        with self.filler(cluster) as filler:
            filler.ensure(14)
            before = list(cluster.log)
            error = self.assertRaises(exceptions.LoadFailedError, filler.ensure, 87)
            self.assertEqual(before, cluster.log)
        self.assertIn('would fill an OSD to 87.8', str(error))
        self.assertIn('nearfull at 85 %', str(error))

    def test_refuses_a_percentage_below_the_other_data(self):
        cluster = Cluster(other_mib=20 * GIB_IN_MIB)
        with self.filler(cluster) as filler:
            error = self.assertRaises(exceptions.LoadFailedError, filler.ensure, 14)
        self.assertIn('20.0 % full, and only 0 MiB of it are the filler', str(error))

    def test_sums_that_never_settle(self):
        cluster = Cluster(lag=10_000)
        with self.filler(cluster) as filler:
            error = self.assertRaises(exceptions.LoadFailedError, filler.ensure, 14)
        self.assertIn('do not settle within 180 s', str(error))

    def test_a_small_pool(self):
        cluster = Cluster(total_gib=1)
        with self.filler(cluster) as filler:
            filler.ensure(14)
            self.assert_reached(14, cluster)


class FullestOsdTest(base.BaseTestCase):
    def usage(self, used, fullest):
        return ceph_facts.PoolUsage(used, 1.0, fullest, 85.0, 95.0)

    def test_available_space_ends_at_the_full_ratio(self):
        self.assertEqual(95, self.usage(20, 30).fullest_osd_percent_at(100))

    def test_nothing_changes_at_the_present_percentage(self):
        self.assertEqual(30, self.usage(20, 30).fullest_osd_percent_at(20))

    def test_an_even_pool_of_its_own_is_below_nearfull_at_87_percent(self):
        self.assertAlmostEqual(82.65, self.usage(0, 0).fullest_osd_percent_at(87))
