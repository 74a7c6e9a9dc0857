# SPDX-License-Identifier: Apache-2.0
"""Kills of services of the lab while a replica is promoted or detached."""

import types

from fault_injection import operations, plan, rounds
from oslotest import base
from troveclient import exceptions


class FakeRoles:
    """A source with a replica that follows at once; each change of their roles takes 10 s.

    :ivar sources: of each instance, None of a source
    :ivar refuses: whether changes end without an effect
    """

    def __init__(self, now):
        self._now = now
        self.refuses = False
        self.sources, self.requests = {'db': None}, []
        self._changes, self._ends_at = {}, 0.0
        self.backups = types.SimpleNamespace(list=list)
        self.instances = types.SimpleNamespace(
            create=self.create,
            get=lambda _id: types.SimpleNamespace(id='db', addresses=[]),
            list=self.list,
            delete=self.delete,
            update=lambda one, detach_replica_source: self._change('detach', one, {one: None}),
            promote_to_replica_source=self.promote,
        )
        self.client = types.SimpleNamespace(get=self.get)

    def create(self, _name, replica_of, **_request):
        self.sources['r'] = replica_of
        return types.SimpleNamespace(id='r')

    def list(self):
        self._advance()
        status = 'PROMOTE' if self._changes else 'ACTIVE'
        return [
            types.SimpleNamespace(
                id=one, name='db1' if one == 'db' else f'{operations.PREFIX}{one}', status=status
            )
            for one in self.sources
        ]

    def get(self, path):
        self._advance()
        one = path.rpartition('/')[2]
        source_id = self.sources[one]
        if source_id is None and one not in self.sources.values():
            raise exceptions.NotFound(404)
        return None, {'replication': {'state': source_id and 'following'}}

    def promote(self, one):
        other = self.sources[one]
        self._change('promote', one, {one: None, other: one})

    def delete(self, one):
        assert one not in self.sources.values(), 'a source with a replica is not deleted'
        self.requests.append(('delete', one))
        del self.sources[one]

    def _change(self, verb, one, changes):
        self._advance()
        assert not self._changes
        self.requests.append((verb, one))
        self._changes, self._ends_at = changes, self._now() + 10

    def _advance(self):
        if self._changes and self._now() >= self._ends_at:
            self.sources |= {} if self.refuses else self._changes
            self._changes = {}


class RolesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.trove = FakeRoles(lambda: self.now)
        self.cloud = operations.Cloud(self.trove, self.trove, None, 'db')
        self.rounds = rounds.Rounds(self.cloud, lambda _service: None, lambda: self.now, self.sleep)

    def sleep(self, seconds):
        self.now += seconds

    def run_round(self, operation):
        (result,) = self.rounds.run([plan.Plan(1, operation, 'trove-taskmanager', 2.0)])
        return result.settled_sec, result.good, result.text

    def test_promotion_and_back(self):
        self.assertEqual(
            (8.0, True, 'ACTIVE as source, ACTIVE following'), self.run_round('promote')
        )
        self.assertEqual(
            [('promote', 'r'), ('promote', 'db'), ('delete', 'r')], self.trove.requests
        )
        self.assertEqual({'db': None}, self.trove.sources)

    def test_promotion_that_fails(self):
        self.trove.refuses = True
        self.assertEqual(
            (8.0, False, 'ACTIVE following, ACTIVE as source'), self.run_round('promote')
        )
        self.assertEqual([('promote', 'r'), ('delete', 'r')], self.trove.requests)

    def test_detachment(self):
        self.assertEqual((8.0, True, 'ACTIVE, detached'), self.run_round('detach'))
        self.assertEqual([('detach', 'r'), ('delete', 'r')], self.trove.requests)

    def test_detachment_that_fails(self):
        self.trove.refuses = True
        self.assertEqual((8.0, False, 'ACTIVE, following'), self.run_round('detach'))

    def test_promotion_that_an_earlier_run_left(self):
        self.trove.sources = {'db': 'r', 'r': None}
        self.rounds.repeat(self.cloud.remove_leftovers)
        self.assertEqual({'db': None}, self.trove.sources)
        self.assertEqual([('promote', 'db'), ('delete', 'r')], self.trove.requests)
