# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import schema_problems, sizes


class SizesTest(base.BaseTestCase):
    def test_units(self):
        for text, expected in (
            ('256GiB', 256 * 1024**3),
            ('256 GiB', 256 * 1024**3),
            ('256GB', 256 * 1000**3),
            ('3.84TB', 3_840_000_000_000),
            ('512MiB', 512 * 1024**2),
            ('1PiB', 1024**5),
            ('900KB', 900_000),
        ):
            self.assertEqual([], schema_problems.problems(text, sizes.SIZE))
            self.assertEqual(expected, sizes.bytes_of(text), text)

    def test_decimal_units(self):
        self.assertTrue(sizes.is_decimal('256GB'))
        self.assertFalse(sizes.is_decimal('256GiB'))

    def test_speeds(self):
        for text, expected in (('25Gbit', 25000), ('2.5 Gbit', 2500), ('100Mbit', 100)):
            self.assertEqual([], schema_problems.problems(text, sizes.SPEED))
            self.assertEqual(expected, sizes.mbit_per_sec_of(text), text)

    def test_what_is_no_size(self):
        for value in (256, 1.5, '256', '256G', '256gb', '256Gib', '-1GiB', '1e3GiB', 'GiB', None):
            [(path, problem)] = schema_problems.problems(value, sizes.SIZE)
            self.assertEqual((), path)
            self.assertIn('must be a size with its unit, such as 256GiB', problem)

    def test_what_is_no_speed(self):
        for value in (25, '25', '25GB', '25Gb', '25GiB', '25Gbit/s'):
            [(_, problem)] = schema_problems.problems(value, sizes.SPEED)
            self.assertIn('must be a speed with its unit, such as 25Gbit', problem)
