# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from oslotest import base

from trove_ceph.tests.unit.bench import fakes, test_plan
from trove_ceph_bench import command_environment, events, operations


class CommandEnvironmentTest(base.BaseTestCase):
    def test_names(self):
        commands = ['rbd ls "$BENCH_POOL"', None, 'echo ${BENCH_ZONE:-nova} $BENCH_POOL ${HOME}']
        self.assertEqual({'BENCH_POOL', 'BENCH_ZONE'}, command_environment.names(commands))

    def test_values_that_are_set_and_no_passwords(self):
        environ = {
            'BENCH_POOL': 'fast',
            'BENCH_ZONE': '',
            'BENCH_ADMIN_PASSWORD': 'sesame',
            'BENCH_DSN': 'mysql://root:sesame@db',
            'OTHER': 'x',
        }
        used = {*environ, 'BENCH_UNSET'} - {'OTHER'}
        self.assertEqual({'BENCH_POOL': 'fast'}, command_environment.values(used, environ))

    def test_knows_what_the_harness_sets(self):
        target = fakes.Target('a', [])
        of_target = events.environment([target])
        self.assertEqual(command_environment.OF_TARGET, of_target.keys())
        attempts = test_plan.operations_plan(committer=False)
        attempt = next(attempts.attempts())
        made = operations.Operation(attempts, attempt, target, Path('/x'), print)
        expected = command_environment.OF_TARGET | command_environment.OF_ATTEMPT
        self.assertEqual(expected, made._environment.keys())
