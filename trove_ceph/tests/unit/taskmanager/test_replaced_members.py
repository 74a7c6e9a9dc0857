# SPDX-License-Identifier: Apache-2.0
"""Replacements of a source or a replica, and changes of the source, exclude each other.

Each writes what it does before it looks for the others. The tests run all orders of these writes
and looks, as of two taskmanagers at the same time, and in the worst case: something has reset
Trove's tasks of the instances, which exclude most of it as well.
"""

import itertools
import uuid

import sqlalchemy as sa
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import (
    claims,
    instance_operations,
    replacements,
    replicas,
    tables,
    transactions,
)
from trove_ceph.db.replacement_record import FailoverCause, RequestedBy
from trove_ceph.db.roles import Role
from trove_ceph.strategies.replacement import requests, rules
from trove_ceph.taskmanager import changed_replicas
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import replaced_instance

SOURCE, REPLICA = 'source', 'replica'
#: The claims of each operation in their order, and the instances that it finds free afterwards.
PROMOTION = ((Role.PROMOTE_REPLICA, REPLICA), (Role.CHANGE_SOURCE, SOURCE)), (SOURCE, REPLICA)
EJECTION = ((Role.EJECT_SOURCE, SOURCE),), (SOURCE, REPLICA)
#: Of a source whose failover is open, which is no other operation.
TAKE_OVER = ((Role.TAKE_OVER, SOURCE),), (REPLICA,)
DETACHMENT = ((Role.DETACH_REPLICA, REPLICA), (Role.CHANGE_SOURCE, SOURCE)), (REPLICA,)


class Group:
    """A source with a replica in Trove's table and in ours."""

    def __init__(self):
        trove_database.path()
        project = f'project-{uuid.uuid4()}'
        source = trove_database.add_instance(project, 'volume')
        replica = trove_database.add_instance(project, 'volume-2', slave_of_id=source.id)
        self.ids = {SOURCE: source.id, REPLICA: replica.id}
        self.operations = instance_operations.InstanceOperationStore()
        self.replacements = replacements.ReplacementStore()
        self.tasks = changed_replicas.OtherTasks(
            self.operations, self.replacements, replicas.ReplicaStore()
        )
        self.allowed = set()

    # The steps of each side.

    def change(self, operation):
        held, free = operation
        yield from ((lambda role=role, one=one: self._claim(role, one)) for role, one in held)
        yield lambda: self._check_free(free)

    def replacement(self, name):
        return [lambda: self._request(name), lambda: self._check_replacement(name)]

    def _claim(self, role, name):
        assert self.operations.begin(role, self.ids[name], claims.Claimant('one'))

    def _check_free(self, names):
        # An ejection leaves a replica out that is not free, so that it is none of its own.
        self.allowed |= {('change', one) for one in names if self.tasks.find(self.ids[one]) is None}

    def _request(self, name):
        now = self.replacements.now()
        facts = replaced_instance.find_facts(self.ids[name])
        try:
            record = requests.new_failover(
                facts, RequestedBy.OPERATOR, '', True, FailoverCause.REQUEST, now
            )
        except exceptions.ReplacementRefusedError:
            return
        self.replacements.request(record, facts.task)

    def _check_replacement(self, name):
        if self.replacements.find_open(self.ids[name]) is None:
            return
        now = self.replacements.now()
        facts = replaced_instance.find_facts(self.ids[name])
        if rules.why_not(facts, True, now, 'MIGRATING') is None:
            self.allowed.add(('replacement', name))


def orders(first, second):
    """Return all orders of two lists of steps, each of which keeps its own order."""
    count = len(first) + len(second)
    for places in itertools.combinations(range(count), len(first)):
        one, other = iter(first), iter(second)
        yield [next(one) if place in places else next(other) for place in range(count)]


def remove_operations():
    """Remove what is open, which another test of the same process would continue."""
    with transactions.Transactions().writing() as session:
        for row in (tables.ReplacementRow, tables.InstanceOperationRow):
            session.execute(sa.delete(row))


def run(make_steps):
    """Run steps on a new group, and return what was allowed.

    :param make_steps: returns the steps for a group
    """
    group = Group()
    for step in make_steps(group):
        step()
    return group.allowed


class ReplacedMembersTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(remove_operations)

    def run_orders(self, operation, name):
        """Return what was allowed in each order."""
        count = len(list(orders(operation[0] + (None,), (None, None))))
        found = []
        for number in range(count):

            def make_steps(group, number=number):
                every = orders(list(group.change(operation)), group.replacement(name))
                return next(itertools.islice(every, number, None))

            found.append(run(make_steps))
        return found

    def test_an_instance_is_never_in_two_operations(self):
        for operation in (PROMOTION, EJECTION, TAKE_OVER, DETACHMENT):
            for name in operation[1]:
                results = self.run_orders(operation, name)
                for allowed in results:
                    self.assertFalse({('change', name), ('replacement', name)} <= allowed, allowed)
                # Each of them is allowed if it comes first.
                self.assertIn(('replacement', name), set.union(*results))
                self.assertIn(('change', name), set.union(*results))

    def test_a_source_fails_over_while_its_replica_is_detached(self):
        for allowed in self.run_orders(DETACHMENT, SOURCE):
            self.assertEqual({('change', REPLICA), ('replacement', SOURCE)}, allowed)

    def test_source_and_replica_fail_over_at_once(self):
        def make_steps(group):
            steps = [*group.replacement(SOURCE), *group.replacement(REPLICA)]
            return steps[0], steps[2], steps[1], steps[3]

        self.assertEqual({('replacement', SOURCE), ('replacement', REPLICA)}, run(make_steps))
