# SPDX-License-Identifier: Apache-2.0
"""Random operations on a source and its replicas while clients write and read.

After each operation, all servers have the same tables at the same position, no server has a
transaction that the source lacks, and no commit is missing but those of which the product tells.

To repeat a run, set ``TROVE_CEPH_SOAK_SEED``; ``TROVE_CEPH_SOAK_OPERATIONS`` sets its length.
"""

import datetime
import os
import random
import re
import signal
import sys

import fixtures

from trove_ceph import exceptions
from trove_ceph.guestagent import server
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.tests.functional import base, replication_group, replication_world

IS_LONG = bool(os.environ.get('TROVE_CEPH_LONG_TESTS'))
SEED = os.environ.get('TROVE_CEPH_SOAK_SEED')
OPERATIONS = int(os.environ.get('TROVE_CEPH_SOAK_OPERATIONS') or (250 if IS_LONG else 25))
#: Of one operation, on a busy machine.
TIMEOUT_SEC = 600
LEAST_REPLICAS, MOST_REPLICAS = 2, 3
#: A promotion has about as many requests.
PROMOTION_REQUESTS = 48
MOST_COMMITS = 40

_MISSING = re.compile(r'At least (\d+) transactions are missing')


@base.long
class SoakTest(replication_group.GroupTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.Timeout(TIMEOUT_SEC * (OPERATIONS + 1), gentle=True))
        self.seed = int(SEED or random.randrange(2**32))
        sys.stderr.write(f'soak of replication: TROVE_CEPH_SOAK_SEED={self.seed}\n')
        self.done, self.log = [], self.directory / 'soak.log'
        self.set_up_group(random.Random(self.seed))

    def test_random_operations(self):
        left = []
        try:
            for _ in range(LEAST_REPLICAS):
                self._run(self.new_replica)
            for _ in range(OPERATIONS):
                if len(self.replicas) < LEAST_REPLICAS:
                    self._run(self.new_replica)
                    continue
                left = left or self._shuffled()
                self._run(left.pop())
        except Exception as error:
            done = '\n'.join((f'TROVE_CEPH_SOAK_SEED={self.seed}', *self.done))
            raise AssertionError(f'{done}\n{type(error).__name__}: {error}') from error

    def _shuffled(self):
        """Return each operation once."""
        operations = [
            self.new_replica,
            self.fresh_clone,
            self.promotion,
            self.promotion_of_a_source_that_is_killed,
            self.ejection,
            self.ejection_of_a_dead_source,
            self.take_over_from_a_dead_source,
            self.detachment,
            self.deletion,
            self.restart_of_a_replica,
            self.kill_of_a_replica,
            self.kill_of_the_source,
            self.cut_of_the_network,
            self.pause_of_a_replica,
            self.pause_of_the_receiver,
            self.purge,
            self.semi_sync,
            self.semi_sync,
        ]
        self.random.shuffle(operations)
        return operations

    def _run(self, operation):
        self.done.append(f'{len(self.done) + 1} {operation.__name__}')
        operation()
        with self.log.open('a') as log:
            log.write(f'{datetime.datetime.now()} {self.done[-1]}\n')
        self.settle()
        self.check()

    def _note(self, text):
        """Note what an operation does, for the message of a failure."""
        self.done[-1] += f', {text}'

    def _any_replica(self):
        replica_id = self.random.choice(self.replicas)
        self._note(self.name(replica_id))
        return replica_id

    def _either(self):
        return self.random.random() < 0.5

    def _write(self):
        """Wait for a random number of commits."""
        self.writer.wait_for(self.random.randrange(1, MOST_COMMITS))

    # The operations.

    def new_replica(self):
        if len(self.replicas) < MOST_REPLICAS:
            self._note(self.name(self.create()))
        else:
            self._note('there are enough')

    def fresh_clone(self):
        self.reprovision(self._any_replica())

    def promotion(self):
        """A planned one loses nothing; the old source becomes a replica."""
        candidate_id, old_id = self._any_replica(), self.source_id
        self.promote(candidate_id)
        self.assertEqual(candidate_id, self.source_id)
        self.assertIn(old_id, self.replicas)
        self.assertEqual({}, self.world.renewed)

    def promotion_of_a_source_that_is_killed(self):
        """Either it goes on without the old source, or the source stays that, and is repaired."""
        candidate_id, old_id = self._any_replica(), self.source_id
        seen = self.look_at_source()
        number = self.random.randrange(PROMOTION_REQUESTS)
        self._note(f'killed before request {number}')
        strike = replication_world.KillAt(self.source_app, number)
        try:
            self.promote(candidate_id, strike)
        except exceptions.TroveCephError as error:
            self._note(f'{type(error).__name__}')
            self.resume()
        if self.source_app.server.pid is not None:
            self._note('goes on')
            if self.apps[old_id].server.pid is None and old_id not in self.world.renewed:
                self.start_again(old_id, is_moved=False)
        elif self._either():
            self._note('the source starts again')
            self.start_again(old_id, self._either())
        else:
            self._note('the source is ejected')
            self.eject()
            self._check_told(old_id, seen)

    def ejection(self):
        """A source that lives ends its work, so nothing is lost."""
        old_id, seen = self.source_id, self.look_at_source()
        self._write()
        self.eject()
        self.assertEqual(set(), self._check_told(old_id, seen))

    def _check_told(self, old_id, seen):
        """Check what is told of the ejection of a source; return which commits are missing.

        :param seen: the commits that the last look at the source found
        """
        missing = self.forget_missing()
        told = _MISSING.search(self.world.faults[old_id][-1])
        self._note(f'{len(missing)} missing, {told[1] if told else "none"} told')
        self.assertLessEqual(len(missing & seen), int(told[1]) if told else 0)
        return missing

    def _kill_source(self):
        """Kill the source some time after the last look at it; return what that found."""
        if self.has_semi_sync:
            self.wait_for_each_commit()
        if self._either():
            self._note('one is behind')
            self.strategy.stop_receiving(self.apps[self.random.choice(self.replicas)])
        self._write()
        seen = self.look_at_source()
        if self._either():
            self._write()
        self.source_app.server.kill()
        return seen

    def ejection_of_a_dead_source(self):
        """What is known to be missing is told; with semi-synchronous replication nothing is."""
        old_id, seen = self.source_id, self._kill_source()
        self.eject()
        missing = self._check_told(old_id, seen)
        if self.has_semi_sync:
            self.assertEqual(set(), missing)

    def take_over_from_a_dead_source(self):
        """Nothing that is known may be missing; otherwise the source starts on a new server."""
        old_id, seen = self.source_id, self._kill_source()
        try:
            self.take_over()
        except exceptions.SourceNotChangedError as error:
            self._note(f'refused: {error}')
            self.start_again(old_id, is_moved=True)
            self.world.paused |= set(self.replicas)
            self.receive_again()
            return
        missing = self._check_told(old_id, seen)
        self.assertEqual(set(), missing if self.has_semi_sync else missing & seen)

    def detachment(self):
        """A detached replica has what it had received, and is independent."""
        replica_id = self._any_replica()
        app = self.detach(replica_id)
        status = app.status()
        self.assertFalse(status['is_replica'] or status['is_read_only'])
        own = GtidSet.parse(status['gtid_executed'])
        source = GtidSet.parse(self.source_app.status()['gtid_executed'])
        self.assertEqual(GtidSet(), (own - source) - own.written_by(status['server_uuid']))
        app.query('CREATE DATABASE own')
        self.remove(replica_id)

    def deletion(self):
        self.delete(self._any_replica())

    def restart_of_a_replica(self):
        replica_id = self._any_replica()
        self.apps[replica_id].restart()
        self.strategy.resume(self.apps[replica_id])

    def kill_of_a_replica(self):
        """It recovers, and fetches what it has missed, also if that is interrupted."""
        replica_id = self._any_replica()
        for _ in range(self.random.randrange(1, 3)):
            self.apps[replica_id].server.kill()
            self._write()
            self.start_again(replica_id, self._either())

    def kill_of_the_source(self):
        """It has all that it has acknowledged."""
        self._write()
        self.source_app.server.kill()
        self.start_again(self.source_id, self._either())

    def cut_of_the_network(self):
        """Replicas that do not reach their source catch up."""
        link = self.source_app.link
        for _ in range(self.random.randrange(1, 4)):
            self.random.choice((link.refuse, link.drop))()
            self._write()
            link.mend()

    def pause_of_a_replica(self):
        """Its server is stopped, and its connections stay."""
        pid = self.apps[self._any_replica()].server.pid
        os.kill(pid, signal.SIGSTOP)
        self._write()
        os.kill(pid, signal.SIGCONT)

    def pause_of_the_receiver(self):
        self.stop_receiving(self._any_replica())
        self._write()
        self.receive_again()

    def purge(self):
        """A replica that misses a purged binary log gets a fresh clone."""
        replica_id = self._any_replica()
        self.stop_receiving(replica_id)
        executed = self.apps[replica_id].status()['gtid_executed']
        query = 'SELECT GTID_SUBSET(@@GLOBAL.gtid_purged, %s)'
        while self.source_app.query(query, executed) == ((1,),):
            self._write()
            server.MySqlServer.purge_binary_logs(self.source_app, 0)
        self.assertRaises(exceptions.ReplicasLeftError, self.receive_again)
        self.assertIn('purged', self.world.renewed[replica_id])

    def semi_sync(self):
        """Switch semi-synchronous replication on or off."""
        self.has_semi_sync = not self.has_semi_sync
        self._note('on' if self.has_semi_sync else 'off')
