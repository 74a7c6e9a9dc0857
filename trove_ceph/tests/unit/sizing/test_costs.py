# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.sizing import costs
from trove_ceph.tests.unit.sizing import sample

PRICE = {
    'provider': 'Cloud',
    'product': 'fast',
    'region': 'here',
    'date': '2026-03',
    'source': 'https://cloud.example/prices',
    'currency': 'USD',
    'price_per_gb_month': 0.1,
    'price_per_iops_month': 0.05,
    'included': {'iops': 0, 'iops_per_gb': 0},
}
HARDWARE = {
    'currency': 'USD',
    'node': 6000,
    'device': 600,
    'years': 5,
    'watts': 500,
    'price_per_kwh': 0.2,
}


class TableTest(base.BaseTestCase):
    def load(self, *prices):
        path = self.useFixture(fixtures.TempDir()).join('prices.yaml')
        Path(path).write_text(yaml.safe_dump({'prices': list(prices)}))
        return costs.load(path)

    def test_shipped_prices(self):
        prices = {price.product: price for price in costs.load(None)}
        provisioned, general = prices['EBS io2'], prices['EBS gp3']
        self.assertEqual((0.125, 0.065), (provisioned.per_gb_month, provisioned.per_iops_month))
        self.assertEqual((0.08, 3000), (general.per_gb_month, general.included_iops))
        for product, expected in (
            ('Hyperdisk Balanced', (0.08, 0.005, 3000)),
            ('Premium SSD v2', (0.081, 0.0052, 3000)),
        ):
            price = prices[product]
            self.assertEqual(
                expected, (price.per_gb_month, price.per_iops_month, price.included_iops)
            )

    def test_shipped_prices_are_of_several_clouds_and_have_sources(self):
        prices = costs.load(None)
        self.assertEqual({'AWS', 'Google', 'Azure'}, {price.provider for price in prices})
        self.assertEqual(len(prices), len({price.name for price in prices}))
        for price in prices:
            self.assertRegex(price.source, r'^https://\S+\.\S+')

    def test_a_half_filled_price_is_refused(self):
        for key in PRICE:
            half = {name: value for name, value in PRICE.items() if name != key}
            error = self.assertRaises(exceptions.InvalidFleetError, self.load, PRICE, half)
            self.assertRegex(str(error), rf'line \d+: prices\[1\]: lacks {key}$')

    def test_absurd_values_are_refused(self):
        for key, value, expected in (
            ('price_per_gb_month', 0, 'above 0'),
            ('price_per_gb_month', '0.1', 'above 0'),
            ('price_per_gb_month', None, 'above 0'),
            ('price_per_iops_month', -1, 'the least is 0'),
            ('price_per_iops_month', 1e9, 'the most is 1000'),
            ('date', 'yesterday', 'the month or day of the price'),
            ('date', '2026-13', 'the month or day of the price'),
            ('currency', '$', 'three letters'),
            ('source', ' ', 'a text'),
            ('included', {'iops': 0}, 'lacks iops_per_gb'),
        ):
            error = self.assertRaises(exceptions.InvalidFleetError, self.load, PRICE | {key: value})
            self.assertRegex(str(error), rf'prices\[0\]\.{key}: .*{expected}')

    def test_an_empty_table_is_refused(self):
        error = self.assertRaises(exceptions.InvalidFleetError, self.load)
        self.assertIn('prices: must not be empty', str(error))


class ComparisonTest(base.BaseTestCase):
    """100 databases with 100 GB and 300 IOPS each."""

    def compare(self, changes=(), price=()):
        prices = costs.parse({'prices': [PRICE | dict(price)]})
        [found] = costs.compare(sample.cluster(changes), prices)
        return found

    def test_price_of_a_fleet(self):
        found = self.compare()
        self.assertAlmostEqual(100 * (100 * 0.1 + 300 * 0.05), found.per_month)
        self.assertAlmostEqual(2500 / 10000, found.per_gb)
        self.assertAlmostEqual(2500 / 30000, found.per_iops)
        self.assertAlmostEqual(2500 / 3, found.target_per_month)
        self.assertIsNone(found.meets_target)

    def test_included_iops_are_free(self):
        for included, expected in (
            ({'iops': 100, 'iops_per_gb': 0}, 2000),
            ({'iops': 100, 'iops_per_gb': 2}, 1500),
            ({'iops': 3000, 'iops_per_gb': 0}, 1000),
        ):
            self.assertAlmostEqual(expected, self.compare(price={'included': included}).per_month)

    def test_growth_costs_as_much_more(self):
        found = self.compare({'growth_percent': 50, 'years': 2})
        self.assertAlmostEqual(2500 * 2.25, found.per_month)
        self.assertAlmostEqual(2500 / 30000, found.per_iops)

    def test_own_hardware(self):
        planned = sample.cluster({'hardware': HARDWARE})
        own = costs.own(planned)
        devices = planned.nodes * planned.devices_per_node
        self.assertAlmostEqual((planned.nodes * 6000 + devices * 600) / 60, own.capital)
        self.assertAlmostEqual(planned.nodes * 0.5 * 730 * 0.2, own.power)
        # The fleet has 10 000 GiB and 30 000 operations per second.
        self.assertAlmostEqual(own.capital / 10000, own.per_gb)
        self.assertAlmostEqual(own.capital / 30000, own.per_iops)

    def test_the_target_is_a_third(self):
        # Ten servers with one device each are 66 000 over 60 months, 1100 a month.
        for price_per_gb, expected in ((0.19, True), (0.17, False)):
            changes = {'hardware': HARDWARE}
            found = self.compare(
                changes, {'price_per_gb_month': price_per_gb, 'price_per_iops_month': 0.05}
            )
            self.assertAlmostEqual(1100 / (10000 * price_per_gb + 1500), found.own_share)
            self.assertEqual(expected, found.meets_target)

    def test_currencies_differ(self):
        error = self.assertRaises(
            exceptions.InvalidFleetError,
            self.compare,
            {'hardware': HARDWARE | {'currency': 'EUR'}},
        )
        self.assertIn('hardware.currency: EUR cannot be compared with USD', str(error))

    def test_no_promised_iops(self):
        device = {'class': 'hdd', 'size': '8TB'}
        changes = {
            'databases/0/iops_per_gib': None,
            'cluster': {'device': device, 'optimised_for': 'capacity'},
            'hardware': HARDWARE,
        }
        self.assertIsNone(self.compare(changes).per_iops)
        self.assertIsNone(costs.own(sample.cluster(changes)).per_iops)
