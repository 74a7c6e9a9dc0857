# SPDX-License-Identifier: Apache-2.0
"""Replicas of Trove's table that our table does not have, or has wrongly."""

import dataclasses
import datetime
import functools

from trove_ceph.db.replica_record import Observation, ReplicaState
from trove_ceph.tests.unit.db import replacement_helpers, replica_helpers

HOUR = datetime.timedelta(hours=1)


class AdoptTest(replica_helpers.ReplicaStoreTestCase):
    def adopt(self):
        return self.store.adopt('r', 'p', 'source', 'v')

    def test_a_replica_of_trove_without_a_row(self):
        self.trove.add('r')
        self.assertIsNone(self.adopt())
        self.trove.set('r', slave_of_id='source')
        found = self.adopt()
        self.assertEqual(self.store.find('r'), found)
        self.assertEqual(
            ('p', 'source', 'v', None, ReplicaState.FOLLOWING),
            (found.project_id, found.source_id, found.volume_id, found.cloned_at, found.state),
        )
        self.now += HOUR
        self.assertEqual(found, self.adopt())

    def test_a_row_without_a_volume(self):
        """As promotions have left it, so that the row of a source on a lost pool was not found."""
        self.add('a')
        self.store.promote('source', 'a', keeps_source=True)
        self.trove.add('source')
        self.trove.set('source', slave_of_id='a')
        self.assertIsNone(self.store.find('source').volume_id)
        self.assertEqual('v', self.store.adopt('source', 'p', 'a', 'v').volume_id)
        # The volume of a row changes only with a re-provisioning.
        self.assertEqual('v', self.store.adopt('source', 'p', 'a', 'another').volume_id)

    def test_a_row_that_names_another_source(self):
        before = self.add('r', 'old source')
        self.trove.set('r', slave_of_id='source')
        found = self.adopt()
        self.assertEqual(dataclasses.replace(before, source_id='source'), found)
        self.assertEqual(found, self.store.find('r'))

    def test_when_another_source_was_seen_last_is_not_known(self):
        self.add('r', 'old source')
        self.store.observe(self.store.find('r'), Observation(), self.now)
        self.trove.set('r', slave_of_id='source')
        self.assertIsNone(self.adopt().source_seen_at)

    def test_what_is_no_idle_replica_of_the_source(self):
        self.trove.add('r')
        for values in (
            {'slave_of_id': 'another'},
            {'slave_of_id': 'source', 'task_id': replacement_helpers.DELETING},
            {'slave_of_id': 'source', 'task_id': replacement_helpers.NONE, 'deleted': True},
        ):
            self.trove.set('r', **values)
            self.assertIsNone(self.adopt(), values)
        self.assertIsNone(self.store.find('r'))

    def test_its_creation_ends_meanwhile(self):
        self.trove.add('r')
        self.trove.set('r', slave_of_id='source')
        self.adopt()
        register = functools.partial(self.store.register, 'r', 'p', 'source')
        self.assertIsNone(register('another volume', self.now).cloned_at)
        self.assertEqual(self.now, register('v', self.now).cloned_at)
        self.assertEqual(self.now, register('v', self.now + HOUR).cloned_at)
