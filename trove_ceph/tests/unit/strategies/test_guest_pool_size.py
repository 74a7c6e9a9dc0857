# SPDX-License-Identifier: Apache-2.0
"""How many guests a pool has, for all numbers of guests, and the pools of the configuration."""

import hypothesis
from hypothesis import strategies
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.strategies.guests import pool_size, pool_spec
from trove_ceph.strategies.guests.pool_size import Change, Counts
from trove_ceph.strategies.guests.pool_spec import PoolSpec

SMALL = strategies.integers(0, 12)


class WantedSizeTest(base.BaseTestCase):
    def test_follows_demand_within_its_limits(self):
        for requests, share, expected in (
            (0, 1.0, 1),
            (1, 1.0, 1),
            (3, 1.0, 3),
            (3, 0.5, 2),
            (3, 0.0, 1),
            (9, 1.0, 5),
        ):
            self.assertEqual(expected, pool_size.wanted_size(requests, share, 1, 5))

    def test_most_has_precedence(self):
        self.assertEqual(2, pool_size.wanted_size(0, 1.0, 3, 2))


class ChangeTest(base.BaseTestCase):
    def test_examples(self):
        for size, counts, expected in (
            (2, Counts(), Change(boot=2)),
            (2, Counts(booting=1), Change(boot=1)),
            (2, Counts(ready=2), Change()),
            # Servers that are being deleted need room too.
            (5, Counts(retired=4), Change(boot=1)),
            (1, Counts(ready=3), Change(retire=2)),
            # A guest that is no longer needed is retired when it is ready.
            (1, Counts(booting=2, ready=1), Change()),
            # The replacement of an old guest comes first.
            (2, Counts(ready=2, old=1), Change(boot=1)),
            (2, Counts(ready=2, old=1, booting=1), Change()),
            (2, Counts(ready=3, old=1), Change(retire=1)),
            # Without room for it, one old guest is replaced at a time.
            (5, Counts(ready=5, old=3), Change(retire=1)),
            (5, Counts(ready=4, old=2, retired=1), Change()),
            (5, Counts(ready=4, old=2), Change(boot=1)),
            (5, Counts(ready=4, old=2, booting=1), Change()),
        ):
            self.assertEqual(expected, pool_size.change(size, 5, counts), (size, counts))

    @hypothesis.given(SMALL, SMALL, SMALL, SMALL, SMALL, SMALL)
    def test_limits(self, size, most, booting, ready, old, retired):
        size, old = min(size, most), min(old, ready)
        counts = Counts(booting, ready, old, retired)
        change = pool_size.change(size, most, counts)
        servers = booting + ready + retired
        self.assertTrue(0 <= change.retire <= ready)
        self.assertTrue(change.boot == 0 or servers + change.boot <= most)
        # What is left is ready for as many instances, unless an old guest makes room.
        left = ready - change.retire
        self.assertTrue(left >= min(size, ready) or (change.retire == 1 and old))

    @hypothesis.given(SMALL, SMALL, SMALL, SMALL)
    def test_settles(self, size, most, ready, old):
        size, old = min(size, most), min(old, ready)
        for _ in range(4 * 12):
            change = pool_size.change(size, most, Counts(0, ready, old, 0))
            if change == Change():
                break
            gone = min(change.retire, old)
            ready, old = ready - change.retire + change.boot, old - gone
        self.assertEqual((size, 0), (ready, old if size else 0))


class PoolSpecTest(base.BaseTestCase):
    def test_forms(self):
        texts = ['mysql/8.4:db.small', 'mysql/9.7.4:7:nova', 'mysql/8.4:big flavor']
        self.assertEqual(
            (
                PoolSpec(texts[0], 'mysql', '8.4', 'db.small'),
                PoolSpec(texts[1], 'mysql', '9.7.4', '7', 'nova'),
                PoolSpec(texts[2], 'mysql', '8.4', 'big flavor'),
            ),
            pool_spec.parse(texts),
        )
        self.assertEqual((), pool_spec.parse([]))

    def test_refuses_others(self):
        for text in ('', 'mysql:small', 'mysql/8.4', 'mysql/8.4:a:b:c', f'mysql/8.4:{"x" * 200}'):
            error = self.assertRaises(exceptions.InvalidConfigurationError, pool_spec.parse, [text])
            self.assertIn('DATASTORE/VERSION:FLAVOR[:ZONE]', str(error))
        twice = ['mysql/8.4:small'] * 2
        self.assertRaises(exceptions.InvalidConfigurationError, pool_spec.parse, twice)
