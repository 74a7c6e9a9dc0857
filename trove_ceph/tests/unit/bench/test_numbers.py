# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph_bench import numbers

THIN = numbers.THIN


class NumbersTest(base.BaseTestCase):
    def test_three_significant_digits(self):
        expected = {
            0: '0',
            0.000123: '0.000123',
            0.5: '0.500',
            9.994: '9.99',
            9.996: '10.0',
            12.345: '12.3',
            999.6: f'1{THIN}000',
            11040.4: f'11{THIN}000',
            1234567: f'1{THIN}230{THIN}000',
            -5.5: '-5.50',
        }
        for value, text in expected.items():
            self.assertEqual(text, numbers.number(value))
        self.assertEqual(numbers.UNKNOWN, numbers.number(None))

    def test_sizes_have_a_suitable_unit(self):
        self.assertEqual(f'3{THIN}B', numbers.size(3))
        self.assertEqual(f'1.46{THIN}KiB', numbers.size(1500))
        self.assertEqual(f'256{THIN}MiB', numbers.size(256 * 2**20))
        self.assertEqual(numbers.UNKNOWN, numbers.size(None))

    def test_bytes_and_shares_carry_their_units(self):
        self.assertEqual(f'93.0{THIN}%', numbers.in_unit(0.93, 'share'))
        self.assertEqual(f'1{THIN}KiB', numbers.in_unit(1024, 'bytes'))
        self.assertEqual('12.0', numbers.in_unit(12, 'ms'))

    def test_mean_with_half_of_its_interval(self):
        estimate = {'value': 20.61, 'low': 19.41, 'high': 21.81, 'n': 3}
        self.assertEqual('20.6 ± 1.2', numbers.figure(estimate))
        self.assertEqual('19.4 to 21.8', numbers.interval(estimate))

    def test_without_an_interval(self):
        estimate = {'value': 20.61, 'low': None, 'high': None, 'n': 1}
        self.assertEqual('20.6', numbers.figure(estimate))
        self.assertEqual('', numbers.interval(estimate))
        self.assertEqual(numbers.UNKNOWN, numbers.figure(None))

    def test_median_with_its_extremes(self):
        spread = {'median': 87.1, 'low': 60.2, 'high': 412.0, 'n': 3}
        self.assertEqual('87.1 (60.2 to 412)', numbers.figure(spread))
        self.assertEqual('87.1', numbers.figure(spread | {'n': 1}))
