# SPDX-License-Identifier: Apache-2.0
import json
import types

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.strategies.failover.host_move import Candidate
from trove_ceph.tests.unit.cmd.manage import command


class MoveHostTest(base.BaseTestCase):
    """The test case acts as the move of the databases.

    :ivar ends: what becomes of each failover: its record, or an error
    """

    def setUp(self):
        super().setUp()
        self.found, self.ends, self.moved = [], {}, []
        self.error = None
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.taskmanager.host_moves.make', self.make))

    def make(self, config_files, host, reason, timeout_sec, note):
        self.assertEqual((['a.conf'], 'compute-3', 'memory'), (config_files, host, reason))
        self.assertEqual(1800, timeout_sec)
        return self

    def check_host(self, is_begun):
        if self.error is not None:
            raise self.error

    def list(self):
        return self.found

    def move(self, candidate):
        self.moved.append(candidate.instance_id)
        ended = self.ends[candidate.instance_id]
        if isinstance(ended, Exception):
            raise ended
        return ended

    def has_left(self, ended):
        return ended.state is ReplacementState.COMPLETED

    def add(self, instance_id, end=None, refused=None):
        self.found.append(Candidate(instance_id, 'p', refused))
        completed = types.SimpleNamespace(state=ReplacementState.COMPLETED)
        self.ends[instance_id] = completed if end is None else end

    def run_command(self, *words, status=0):
        result = command.run(
            *('replacements', 'move-host', 'compute-3', '--reason', 'memory'),
            *('--config-file', 'a.conf', *words),
        )
        self.assertEqual(status, result.status, result)
        return result

    def outcomes(self, status=0):
        rows = json.loads(self.run_command('--yes', '-f', 'json', status=status).out)
        return {one['instance_id']: one['outcome'] for one in rows}

    def test_shows_what_would_be_moved(self):
        self.add('a')
        self.add('b', refused='instance b: is being backed up')
        result = self.run_command(status=1)
        for text in ('would be moved', 'is being backed up'):
            self.assertIn(text, result.out)
        self.assertEqual([], self.moved)

    def test_empty_host(self):
        self.assertIn('no database on compute-3', self.run_command('--yes').err)

    def test_moves_all(self):
        for name in 'ab':
            self.add(name)
        self.assertEqual({'a': 'moved', 'b': 'moved'}, self.outcomes())
        self.assertIn('2 of 2: instance b', self.run_command('--yes').err)

    def test_busy_database_stays_and_the_next_one_is_moved(self):
        self.add('a', exceptions.ReplacementRefusedError('instance a: has the task BACKUP'))
        self.add('b')
        found = self.outcomes(status=1)
        self.assertEqual(('stays: instance a: has the task BACKUP', 'moved'), tuple(found.values()))

    def test_failure_stops_the_move(self):
        for end, text in (
            (exceptions.InProgressError('it goes on'), 'unknown: it goes on'),
            (
                types.SimpleNamespace(
                    state=ReplacementState.FAILED, error='unknown variable x', new_host='h'
                ),
                'failed: unknown variable x',
            ),
        ):
            self.found.clear()
            self.moved.clear()
            self.add('a', end)
            self.add('b')
            found = self.outcomes(status=1)
            self.assertEqual(text, found['a'])
            self.assertIn('stays', found['b'])
            self.assertEqual(['a'], self.moved)

    def test_host_that_cannot_be_emptied(self):
        self.add('a')
        for error, status in (
            (exceptions.ConsequencesNotAcceptedError('it takes new servers'), 2),
            (exceptions.RecordNotFoundError('no such host'), 1),
            (exceptions.ServiceUnavailableError('Nova is down'), 3),
        ):
            self.error = error
            self.assertIn(str(error), self.run_command('--yes', status=status).err)
        self.assertEqual([], self.moved)

    def test_needs_a_reason(self):
        result = command.run('replacements', 'move-host', 'compute-3')
        self.assertEqual(2, result.status)
