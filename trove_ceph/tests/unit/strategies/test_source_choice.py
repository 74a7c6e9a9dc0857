# SPDX-License-Identifier: Apache-2.0
"""Which replica becomes the source, by what each has received and executed."""

import itertools

from oslotest import base

from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication import source_choice

SERVER, OTHER = '11111111-1111-1111-1111-111111111111', '22222222-2222-2222-2222-222222222222'


def gtids(last, server=SERVER):
    return GtidSet.parse(f'{server}:1-{last}')


class SourceChoiceTest(base.BaseTestCase):
    """Each replica is the pair of what it has executed and what it has received or executed."""

    def choose(self, **replicas):
        executed, known = self.split(replicas)
        return source_choice.choose(executed, known)

    def split(self, replicas):
        executed = {one: gtid_sets[0] for one, gtid_sets in replicas.items()}
        return executed, {one: gtid_sets[1] for one, gtid_sets in replicas.items()}

    def find_unexecuted(self, chosen, **replicas):
        return source_choice.find_unexecuted(chosen, *self.split(replicas))

    def test_the_lowest_id_of_those_that_have_the_same(self):
        same = (gtids(10), gtids(10))
        self.assertEqual('a', self.choose(b=same, a=same))

    def test_the_one_that_has_received_more(self):
        """Whatever the order of their ids is."""
        behind, ahead = (gtids(10), gtids(10)), (gtids(10), gtids(12))
        self.assertEqual('b', self.choose(a=behind, b=ahead))
        self.assertEqual('a', self.choose(a=ahead, b=behind))

    def test_the_one_that_has_received_more_although_it_has_executed_less(self):
        behind, ahead = (gtids(10), gtids(10)), (gtids(5), gtids(12))
        self.assertEqual('b', self.choose(a=behind, b=ahead))

    def test_the_one_that_has_executed_most_of_those_that_have_the_same(self):
        slow, fast = (gtids(5), gtids(12)), (gtids(9), gtids(12))
        self.assertEqual('b', self.choose(a=slow, b=fast))
        self.assertEqual('a', self.choose(a=fast, b=slow))

    def test_the_one_with_the_most_if_none_has_all(self):
        less, more = (gtids(3),) * 2, (gtids(5, OTHER),) * 2
        self.assertEqual('b', self.choose(a=less, b=more))
        self.assertEqual('a', self.choose(a=more, b=less))

    def test_all_that_the_others_have_counts_more_than_the_number(self):
        both = gtids(3) | gtids(5, OTHER)
        self.assertEqual('b', self.choose(a=(gtids(5, OTHER),) * 2, b=(gtids(3), both)))

    def test_one_that_does_not_answer_is_not_chosen(self):
        self.assertEqual(
            'b', source_choice.choose({'b': gtids(10)}, {'a': gtids(12), 'b': gtids(10)})
        )

    def test_nothing_is_lost_that_the_new_source_has_executed(self):
        ahead, slow = (gtids(12), gtids(12)), (gtids(5), gtids(11))
        self.assertEqual({}, self.find_unexecuted('b', a=slow, b=ahead))

    def test_the_new_source_loses_what_it_has_not_executed(self):
        one = (gtids(5), gtids(11))
        self.assertEqual({'a': gtids(11) - gtids(5)}, self.find_unexecuted('a', a=one))

    def test_another_replica_loses_what_it_has_not_executed(self):
        one, other = (gtids(5), gtids(5)), (gtids(4), gtids(5) | gtids(2, OTHER))
        self.assertEqual({'b': gtids(2, OTHER)}, self.find_unexecuted('a', a=one, b=other))

    def test_another_replica_keeps_what_it_has_executed(self):
        one, other = (gtids(5),) * 2, (gtids(2, OTHER),) * 2
        self.assertEqual({}, self.find_unexecuted('a', a=one, b=other))

    def test_what_one_has_executed_that_does_not_answer_is_not_known(self):
        self.assertEqual(
            {'a': gtids(12) - gtids(10)},
            source_choice.find_unexecuted('b', {'b': gtids(10)}, {'a': gtids(12), 'b': gtids(10)}),
        )

    def test_a_choice_is_good_as_soon_as_one_has_executed_all(self):
        for done in itertools.product(range(5, 13), repeat=2):
            executed = {'a': gtids(done[0]), 'b': gtids(done[1])}
            known = {'a': gtids(12), 'b': gtids(12)}
            chosen = source_choice.choose(executed, known)
            is_ready = not source_choice.find_unexecuted(chosen, executed, known)
            self.assertEqual(12 in done, is_ready)
