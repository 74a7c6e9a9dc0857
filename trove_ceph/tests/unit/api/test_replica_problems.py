# SPDX-License-Identifier: Apache-2.0
import datetime

from oslotest import base

from trove_ceph.api import replica_problems
from trove_ceph.db.replica_record import ReplicaRecord, ReplicaState

NOW = datetime.datetime(2026, 1, 1)


def record(state=ReplicaState.FOLLOWING, observed_at=NOW, **values):
    return ReplicaRecord(
        instance_id='i',
        project_id='p',
        source_id='s',
        state=state,
        created_at=NOW,
        updated_at=NOW,
        observed_at=observed_at,
        **values,
    )


class DescribeTest(base.BaseTestCase):
    def test_says_what_an_error_of_mysql_means(self):
        for error, expected in (
            ('error 1236: Got fatal error 1236 from source when reading', 'binary logs'),
            ('error 13114: Cannot replicate', 'binary logs'),
            (
                "error connecting to source 'slave_x@10.0.0.3:3306', Error_code: MY-002003",
                'connect',
            ),
            ('Access denied (errno: 1045)', 'account'),
            ('Worker 1 failed executing transaction; error 1062: Duplicate entry', 'data'),
            ('error 4711: who knows', 'error 4711'),
        ):
            problem = replica_problems.describe(
                record(is_replicating=False, replication_error=error)
            )
            self.assertIn(expected, problem)

    def test_the_first_known_number_decides(self):
        error = 'error 3000: see error 1236'
        problem = replica_problems.describe(record(is_replicating=False, replication_error=error))
        self.assertIn('binary logs', problem)

    def test_has_no_problem_with_a_replica_that_replicates(self):
        self.assertIsNone(replica_problems.describe(record(is_replicating=True)))
        # The last error of MySQL stays readable after it has recovered.
        found = record(is_replicating=True, replication_error='error 2003')
        self.assertIsNone(replica_problems.describe(found))

    def test_an_old_look_proves_nothing(self):
        for is_replicating in (True, False, None):
            problem = replica_problems.describe(record(is_replicating=is_replicating), True)
            self.assertIn('has not looked at it', problem)
        # While it is re-provisioned, the worker knows more than the watch.
        found = record(ReplicaState.EXCHANGING, is_replicating=True)
        self.assertIn('being replaced', replica_problems.describe(found, True))

    def test_warns_of_transactions_of_its_own(self):
        found = record(is_replicating=True, errant='5ef1a1f4-0000-0000-0000-000000000000:1')
        self.assertIn('must not be promoted', replica_problems.describe(found))

    def test_does_not_have_the_only_copy_discarded(self):
        lost = 'its source lacks 2 transactions'
        found = record(is_replicating=True, errant='u:1-2', replication_error=lost)
        self.assertEqual(lost, replica_problems.describe(found))
        found = record(is_replicating=False, errant='u:1-2', replication_error=lost)
        self.assertEqual(lost, replica_problems.describe(found))

    def test_says_what_is_not_known(self):
        found = record(observed_at=None)
        self.assertIn('looked at within a minute', replica_problems.describe(found))
        self.assertIn('not known whether', replica_problems.describe(record()))

    def test_repeats_what_the_watch_says(self):
        for error in ('its guest agent does not answer', 'its volume does not exist any more'):
            found = record(is_replicating=None, replication_error=error)
            self.assertEqual(error, replica_problems.describe(found))

    def test_says_that_the_operator_has_to_repair_something(self):
        found = record(ReplicaState.BLOCKED, is_replicating=False)
        self.assertIn('operator has repaired', replica_problems.describe(found))

    def test_says_that_it_is_out_of_service_meanwhile(self):
        for state in (ReplicaState.EXCHANGING, ReplicaState.CATCHING_UP, ReplicaState.RETURNING):
            for is_replicating in (False, True):
                found = record(state, is_replicating=is_replicating, replication_error='error 2003')
                self.assertIn('clone', replica_problems.describe(found))
        found = record(ReplicaState.CLONING, is_replicating=False, replication_error='error 2003')
        self.assertIn('connect', replica_problems.describe(found))
