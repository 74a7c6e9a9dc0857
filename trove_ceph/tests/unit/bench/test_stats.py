# SPDX-License-Identifier: Apache-2.0
import math
import statistics

from oslotest import base
from scipy import stats as reference

from trove_ceph_bench import stats


class MeanTest(base.BaseTestCase):
    def test_interval_is_student_t(self):
        values = [10.0, 12.0, 11.0, 13.0, 14.0]
        expected = reference.t.interval(
            0.95, 4, loc=12.0, scale=statistics.stdev(values) / math.sqrt(5)
        )
        found = stats.mean(values)
        self.assertAlmostEqual(12.0, found.value)
        self.assertAlmostEqual(expected[0], found.low)
        self.assertAlmostEqual(expected[1], found.high)

    def test_one_repeat_has_no_interval(self):
        self.assertEqual(stats.Estimate(7.0, None, None, 1, 'mean'), stats.mean([7.0]))
        self.assertIsNone(stats.mean([7.0]).significant)

    def test_equal_values_have_an_empty_interval(self):
        found = stats.mean([3.0, 3.0, 3.0])
        self.assertEqual((3.0, 3.0, 3.0), (found.low, found.value, found.high))

    def test_spread(self):
        self.assertEqual(stats.Spread(5.0, 1.0, 900.0, 3), stats.spread([900.0, 1.0, 5.0]))


class RatioTest(base.BaseTestCase):
    def test_pairing_cancels_variation_between_repeats(self):
        # Each repeat is slower than the one before, but the ratio is 1.1 in all of them.
        to = {0: 100.0, 1: 50.0, 2: 25.0}
        of = {key: value * 1.1 for key, value in to.items()}
        paired = stats.ratio(of, to)
        self.assertEqual('paired', paired.method)
        self.assertAlmostEqual(1.1, paired.value)
        self.assertAlmostEqual(1.1, paired.low)
        self.assertTrue(paired.significant)
        unpaired = stats.unpaired_ratio(list(of.values()), list(to.values()))
        self.assertAlmostEqual(1.1, unpaired.value)
        self.assertFalse(unpaired.significant)

    def test_paired_interval_is_that_of_the_t_test_on_logarithms(self):
        of, to = [110.0, 125.0, 118.0, 131.0], [100.0, 104.0, 99.0, 108.0]
        logs = [[math.log(value) for value in values] for values in (of, to)]
        expected = reference.ttest_rel(*logs).confidence_interval(0.95)
        found = stats.paired_ratio(list(zip(of, to, strict=True)))
        self.assertAlmostEqual(math.exp(expected.low), found.low)
        self.assertAlmostEqual(math.exp(expected.high), found.high)

    def test_unpaired_interval_is_welch_t_on_logarithms(self):
        of, to = [110.0, 125.0, 118.0, 131.0], [100.0, 104.0, 99.0]
        logs = [[math.log(value) for value in values] for values in (of, to)]
        expected = reference.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
        found = stats.unpaired_ratio(of, to)
        self.assertAlmostEqual(math.exp(expected.low), found.low)
        self.assertAlmostEqual(math.exp(expected.high), found.high)
        self.assertEqual(3, found.n)

    def test_repeats_that_do_not_match_are_not_paired(self):
        found = stats.ratio({0: 2.0, 1: 2.2, 2: 2.1}, {0: 1.0, 1: 1.1})
        self.assertEqual('unpaired', found.method)
        self.assertEqual(2, found.n)

    def test_order_of_repeats_does_not_matter(self):
        of, to = {0: 2.0, 1: 3.0}, {1: 1.5, 0: 1.0}
        self.assertAlmostEqual(2.0, stats.ratio(of, to).low)

    def test_one_repeat_has_no_interval(self):
        for found in (stats.ratio({0: 3.0}, {0: 2.0}), stats.ratio({0: 3.0}, {1: 2.0})):
            self.assertAlmostEqual(1.5, found.value)
            self.assertEqual((None, None, 1), (found.low, found.high, found.n))
            self.assertIsNone(found.significant)

    def test_equal_repeats_on_both_sides(self):
        found = stats.unpaired_ratio([2.0, 2.0, 2.0], [1.0, 1.0])
        self.assertEqual((2.0, 2.0), (round(found.low, 9), round(found.high, 9)))

    def test_a_ratio_and_its_inverse(self):
        of, to = {0: 3.0, 1: 4.0, 2: 3.5}, {0: 2.0, 1: 2.5, 2: 2.1}
        ratio, inverse = stats.ratio(of, to), stats.ratio(to, of)
        self.assertAlmostEqual(1 / ratio.low, inverse.high)
        self.assertAlmostEqual(1 / ratio.value, inverse.value)

    def test_no_ratio_without_positive_values(self):
        self.assertIsNone(stats.ratio({}, {}))
        self.assertIsNone(stats.ratio({0: 1.0}, {}))
        self.assertIsNone(stats.ratio({0: 1.0, 1: 1.0}, {0: 1.0, 1: 0.0}))
        self.assertIsNone(stats.unpaired_ratio([1.0, 2.0], [1.0, -1.0]))

    def test_significant(self):
        def estimate(low, high):
            return stats.Estimate(1.0, low, high, 3, 'paired')

        self.assertTrue(estimate(1.01, 1.2).significant)
        self.assertTrue(estimate(0.8, 0.99).significant)
        self.assertFalse(estimate(0.99, 1.2).significant)
