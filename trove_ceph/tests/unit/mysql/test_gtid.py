# SPDX-License-Identifier: Apache-2.0
"""Sets of GTIDs against sets of single transactions."""

import hypothesis
from hypothesis import strategies
from oslotest import base

from trove_ceph.mysql import gtid
from trove_ceph.mysql.gtid import GtidSet

ONE = '3e11fa47-71ca-11e1-9e33-c80aa9429562'
TWO = 'aaaaaaaa-71ca-11e1-9e33-c80aa9429562'

#: (server, tag, number)
_TRANSACTIONS = strategies.sets(
    strategies.tuples(
        strategies.sampled_from((ONE, TWO)),
        strategies.sampled_from(('', 'b_1', 'c')),
        strategies.integers(1, 12),
    ),
    max_size=40,
)


def make(transactions):
    """Return the set of single transactions, from a text with one interval for each."""
    parts = (
        f'{server}:{tag}:{number}' if tag else f'{server}:{number}'
        for server, tag, number in transactions
    )
    return GtidSet.parse(','.join(parts))


class PropertiesTest(base.BaseTestCase):
    @hypothesis.settings(max_examples=200)
    @hypothesis.given(_TRANSACTIONS, _TRANSACTIONS)
    def test_is_a_set_of_transactions(self, first, second):
        one, two = make(first), make(second)
        self.assertEqual(len(first), one.count)
        self.assertEqual(bool(first), bool(one))
        self.assertEqual(first == second, one == two)
        self.assertEqual(first <= second, one <= two)
        self.assertEqual(make(first | second), one | two)
        self.assertEqual(make(first - second), one - two)
        self.assertEqual(one, GtidSet.parse(str(one)))
        self.assertEqual(hash(make(first)), hash(GtidSet.parse(str(one))))

    @hypothesis.settings(max_examples=300)
    @hypothesis.given(strategies.text(f'{ONE}:,-\n 9tx', max_size=60))
    def test_any_text_is_read_or_refused(self, text):
        try:
            found = GtidSet.parse(text)
        except ValueError as error:
            self.assertIn('set of GTIDs', str(error))
        else:
            self.assertEqual(found, GtidSet.parse(str(found)))


class GtidSetTest(base.BaseTestCase):
    def test_text_is_in_the_normal_form_of_mysql(self):
        for text, expected in (
            ('', ''),
            (' ,\n', ''),
            (f'{ONE}:1', f'{ONE}:1'),
            (f'{ONE}:1-3:4-9:11', f'{ONE}:1-9:11'),
            (f'{ONE}:5-6:1-7:2', f'{ONE}:1-7'),
            (f'{TWO}:1,\n{ONE}:1-1', f'{ONE}:1,{TWO}:1'),
            (f'{ONE.upper()}:3 - 4', f'{ONE}:3-4'),
            # Since MySQL 8.3, a tag applies to the intervals that follow it.
            (f'{ONE}:Sales:1-2:4:7:backup:1', f'{ONE}:backup:1:sales:1-2:4:7'),
            (f'{ONE}:1-5:sales:1,{ONE}:sales:2', f'{ONE}:1-5:sales:1-2'),
            (f'{ONE}:{gtid.GREATEST_NUMBER}', f'{ONE}:{gtid.GREATEST_NUMBER}'),
        ):
            self.assertEqual(expected, str(GtidSet.parse(text)), text)

    def test_refuses_what_is_no_set(self):
        for text in (
            'x',
            ONE,
            f'{ONE}:',
            f'{ONE}:0',
            f'{ONE}:2-1',
            f'{ONE}:1-',
            f'{ONE}:-1',
            f'{ONE}:{gtid.GREATEST_NUMBER + 1}',
            f'{ONE}:{"9" * 20}',
            f'{ONE}:sales',
            f'{ONE}:1:sales',
            f'{ONE}:sales:backup:1',
            f'{ONE}:{"a" * 33}:1',
            f'{ONE[:-1]}:1',
            f'{ONE} {TWO}:1',
            f'{ONE}:1;{TWO}:1',
            f'{ONE}:\u0661',
        ):
            error = self.assertRaises(ValueError, GtidSet.parse, text)
            self.assertIn('is not a set of GTIDs', str(error))

    def test_refuses_a_text_that_is_too_long(self):
        error = self.assertRaises(ValueError, GtidSet.parse, ' ' * (gtid.MOST_CHARACTERS + 1))
        self.assertIn('1048577 characters', str(error))

    def test_the_longest_text_is_read(self):
        numbers = ':'.join(str(number) for number in range(1, 300_000, 2))
        text = f'{ONE}:{numbers}'[: gtid.MOST_CHARACTERS].rpartition(':')[0]
        found = GtidSet.parse(text)
        self.assertEqual(text, str(found))
        self.assertFalse(found - GtidSet.parse(f'{ONE}:1-300000'))

    def test_lag_and_errant_transactions(self):
        source = GtidSet.parse(f'{ONE}:1-1000')
        replica = GtidSet.parse(f'{ONE}:1-990,{TWO}:1-2')
        self.assertEqual(10, (source - replica).count)
        self.assertEqual(f'{TWO}:1-2', str(replica - source))

    def test_transactions_of_one_server(self):
        found = GtidSet.parse(f'{ONE}:1-9:tag:4,{TWO}:1-2')
        self.assertEqual(GtidSet.parse(f'{ONE}:1-9:tag:4'), found.written_by(ONE.upper()))
        self.assertFalse(GtidSet.parse(f'{TWO}:1').written_by(ONE))
