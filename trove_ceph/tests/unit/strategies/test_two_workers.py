# SPDX-License-Identifier: Apache-2.0
"""Two workers that are alive at once: one is suspended inside a request, the other takes over.

Generated from the requests and the writes of each operation: the first worker is suspended at each
of them in turn, before its answer is read. Meanwhile its claim expires and another worker carries
on to the end. Then the first one wakes up, and may do no harm.
"""

import datetime
import itertools

from oslotest import base
from trove.backup.state import BackupState

from trove_ceph import enums, exceptions
from trove_ceph.db import claims
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import backup_types, create, delete, queue_worker, recovery
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import test_vault_copy, test_verify
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.verification import world as servers

HOUR = datetime.timedelta(hours=1)
MINUTE = datetime.timedelta(minutes=1)


class Suspend(worlds.Strike):
    """A worker is suspended at one of its requests, while something happens."""

    def __init__(self, number, happen, after):
        super().__init__(number, after)
        self._happen = happen

    def around(self, request, unavailable):
        is_it = next(self._numbers) == self._number
        if is_it:
            self.struck = True
            if not self._after:
                self._happen()
        answer = request()
        if is_it and self._after:
            self._happen()
        return answer


#: To be struck at one of these is to be struck at what follows.
_READS = ('find', 'get', 'is_', 'list_', 'of_', 'in_', 'heartbeat', 'kept_', 'trashed_', 'vault_')


class Database:
    """What a worker has of the tables, of which each verb that writes is a request, too."""

    def __init__(self, inner, strike):
        self._inner, self._strike = inner, strike

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name in ('claims', 'results', 'queue'):
            return Database(found, self._strike)
        if not callable(found) or name.startswith(_READS):
            return found
        failed = exceptions.ServiceUnavailableError('the database failed')
        return lambda *given, **named: self._strike.around(lambda: found(*given, **named), failed)


def with_database(deps, strike):
    """Have a worker's transactions be among what it can be struck at."""
    object.__setattr__(deps, 'records', Database(deps.records, strike))
    return deps


class Operation:
    """What one worker does, and how another one carries on; everything can be struck."""

    def make_world(self):
        world = test_verify.World()
        test_vault_copy.write(world, 'abc')
        self.prepare(world)
        return world

    def start(self, world, strike, only_writes):
        """Do it, as a worker that may be struck."""
        asked = None if only_writes else strike
        deps = with_database(world.deps(asked, claims.DEFAULT_EXPIRY), strike)
        self.work(deps, world)

    def carry_on(self, world):
        """Let the claims of all others expire, and carry on as another worker."""
        world.date += MINUTE
        world.now += 60
        deps = world.deps(expiry=claims.DEFAULT_EXPIRY)
        recovery.recover(deps, worlds.AtOnce())
        for role in (Role.COPY, Role.VERIFY):
            queue_worker.start_due_jobs(deps, role, worlds.AtOnce())

    def struck_at_each(self, make_strike, only_writes=False):
        """Yield worlds in which the operation was struck at each of its requests and writes.

        To be struck after one of them is to be struck before the next one, but for answers that
        are lost.

        :param only_writes: those to the tables; the requests are struck elsewhere
        """
        whens = (False, True) if only_writes else (True,)
        for number, after in ((n, after) for n in itertools.count() for after in whens):
            world = self.make_world()
            strike = make_strike(world, number, after)
            try:
                self.start(world, strike, only_writes)
            except (exceptions.TroveCephError, interruption.Kill) as error:
                self.assertTrue(strike.struck, error)
            if not strike.struck:
                self.assertGreater(number, 2)
                return
            yield world, f'at request {number}, after={after}'

    def check(self, world, where):
        """Check the end after all others had their turns; nothing may be left over."""
        for _again in range(3):
            self.carry_on(world)
        world.cinder.work()
        try:
            self.check_done(world)
        except BaseException as error:
            error.add_note(where)
            raise

    def assert_claimable(self, world, record):
        """Check that the claim of a worker that died after its work blocks no other worker."""
        another = claims.Claimant('another', claims.DEFAULT_EXPIRY)
        self.assertTrue(another.may_claim(record, world.date))

    def test_suspended_at_each_request(self):
        def suspend(world, number, after):
            return Suspend(number, lambda: self.carry_on(world), after)

        for world, where in self.struck_at_each(suspend):
            self.check(world, where)

    def test_killed_between_any_two_writes(self):
        for world, where in self.struck_at_each(
            lambda _world, number, after: worlds.Strike(number, after), only_writes=True
        ):
            self.check(world, where)

    def test_errors_of_the_database_at_any_write(self):
        for world, where in self.struck_at_each(
            lambda _world, number, after: worlds.Strike(number, after, lost=True), only_writes=True
        ):
            self.check(world, where)


class TakingTwiceTest(Operation, base.BaseTestCase):
    level = enums.QuiesceLevel.FREEZE

    def prepare(self, world):
        world.policy = backup_types.BackupSettings(self.level, limit_sec=worlds.LIMIT_SEC)
        world.backup = world.add_backup()

    def work(self, deps, world):
        create.create_backup(deps, world.backup.id)

    def check_done(self, world):
        record = world.records.find(world.backup.id)
        row = trove_database.backup(world.backup.id)
        if record is None:
            # The database failed before anything was begun.
            self.assertIn(row.state, (BackupState.NEW, BackupState.FAILED))
        else:
            self.assertIsNone(record.claimed_by)
        if record is None or record.state is RecordState.FAILED:
            self.assertEqual(([], {}), (world.snapshots(), world.cinder.snapshots))
            return
        self.assertEqual(RecordState.TAKEN, record.state)
        self.assertEqual(BackupState.COMPLETED, row.state)
        self.assertEqual(f'cinder://{record.cinder_snapshot_id}', row.location)
        self.assertEqual([record.cinder_snapshot_id], list(world.cinder.snapshots))
        self.assertEqual([record.location.name], world.snapshots())
        self.assertEqual(self.level, record.quiesce)
        world.now += worlds.LIMIT_SEC + 10
        self.assertFalse(world.guest.is_held)


class CopyingTwiceTest(Operation, base.BaseTestCase):
    def prepare(self, world):
        world.backup = test_vault_copy.take(world)
        world.records.queue.request_copy(world.backup)

    def work(self, deps, world):
        queue_worker.start_due_jobs(deps, Role.COPY, worlds.AtOnce())

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual(RecordState.COPIED, record.state)
        self.assert_claimable(world, record)
        self.assertEqual(
            test_vault_copy.content(world, record.location),
            test_vault_copy.content(world, record.copy),
        )
        self.assertEqual([record.copy.name], world.snapshots(record.copy.of))
        self.assertEqual([], world.held_locks())


class VerifyingTwiceTest(Operation, base.BaseTestCase):
    def prepare(self, world):
        world.backup = test_vault_copy.take(world)
        world.records.queue.request_verification(world.backup)

    def work(self, deps, world):
        queue_worker.start_due_jobs(deps, Role.VERIFY, worlds.AtOnce())

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual(RecordState.VERIFIED, record.state)
        self.assert_claimable(world, record)
        self.assertEqual(servers.POSITION, record.gtid_executed)
        self.assertEqual({world.volume_image.name}, world.images())
        self.assertEqual(([], []), (world.held_locks(), world.servers.held()))


class DeletingTwiceTest(Operation, base.BaseTestCase):
    def prepare(self, world):
        world.backup = test_vault_copy.take(world)
        test_vault_copy.copy(world, world.backup)

    def work(self, deps, world):
        delete.delete_backup(deps, world.backup)

    def check_done(self, world):
        record = world.records.find(world.backup)
        if record is not None:
            # The database failed before the deletion was begun.
            self.assertEqual(RecordState.COPIED, record.state)
            return
        self.assertTrue(trove_database.backup(world.backup).deleted)
        self.assertEqual(([], {}), (world.snapshots(), world.cinder.snapshots))
        self.assertEqual(set(), world.images('vault') - {world.vault.name})
