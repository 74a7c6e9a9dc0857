# SPDX-License-Identifier: Apache-2.0
"""Two workers that are alive at once: one is suspended inside a request, the other resumes.

Generated from the requests and the writes of each operation: the first worker is suspended at each
of them in turn, before its answer is read. Meanwhile its claim expires and another worker
completes the operation. Then the first one wakes up, and must do no harm.
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
from trove_ceph.tests.unit.strategies import test_verify, vault_helpers
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.verification import world as servers

HOUR = datetime.timedelta(hours=1)
MINUTE = datetime.timedelta(minutes=1)


class Suspend(worlds.Strike):
    """Something happens while a worker is suspended at one of its requests."""

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


#: Reads; a strike at one of these would equal a strike at the next request.
_READS = ('find', 'get', 'is_', 'list_', 'of_', 'in_', 'heartbeat', 'kept_', 'trashed_', 'vault_')


class Database:
    """The tables of a worker; each verb that writes counts as a request too."""

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
    """Count a worker's transactions among the requests of a strike."""
    object.__setattr__(deps, 'records', Database(deps.records, strike))
    return deps


class Operation:
    """An operation that one worker begins and another one continues; both can be struck."""

    def make_world(self):
        world = test_verify.World()
        vault_helpers.write(world, 'abc')
        self.prepare(world)
        return world

    def start(self, world, strike, only_writes):
        """Run it as a worker that may be struck."""
        request_strike = None if only_writes else strike
        deps = with_database(world.deps(request_strike, claims.DEFAULT_EXPIRY), strike)
        self.work(deps, world)

    def carry_on(self, world):
        """Let the claims of all other workers expire, and continue as another worker."""
        world.date += MINUTE
        world.now += 60
        deps = world.deps(expiry=claims.DEFAULT_EXPIRY)
        recovery.recover(deps, worlds.AtOnce())
        for role in (Role.COPY, Role.VERIFY):
            queue_worker.start_due_jobs(deps, role, worlds.AtOnce())

    def struck_at_each(self, make_strike, only_writes=False):
        """Yield worlds in which the operation was struck at each of its requests and writes.

        A strike after one of them equals a strike before the next one, except for answers that
        are lost.

        :param only_writes: strike only writes to the tables; other tests strike requests
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
        """Check the end state after all other workers had their turns; nothing may be left."""
        for _again in range(3):
            self.carry_on(world)
        world.cinder.work()
        try:
            self.check_done(world)
        except BaseException as error:
            error.add_note(where)
            raise

    def assert_claimable(self, world, record):
        """Check that the claim of a worker that died at the end blocks no other worker."""
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


class TwoCreationsTest(Operation, base.BaseTestCase):
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
            # The database failed before the backup began.
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


class TwoCopiesTest(Operation, base.BaseTestCase):
    def prepare(self, world):
        world.backup = vault_helpers.take(world)
        world.records.queue.request_copy(world.backup)

    def work(self, deps, world):
        queue_worker.start_due_jobs(deps, Role.COPY, worlds.AtOnce())

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual(RecordState.COPIED, record.state)
        self.assert_claimable(world, record)
        self.assertEqual(
            vault_helpers.content(world, record.location),
            vault_helpers.content(world, record.copy),
        )
        self.assertEqual([record.copy.name], world.snapshots(record.copy.of))
        self.assertEqual([], world.held_locks())


class TwoVerificationsTest(Operation, base.BaseTestCase):
    def prepare(self, world):
        world.backup = vault_helpers.take(world)
        world.records.queue.request_verification(world.backup)

    def work(self, deps, world):
        queue_worker.start_due_jobs(deps, Role.VERIFY, worlds.AtOnce())

    def check_done(self, world):
        record = world.records.get(world.backup)
        self.assertEqual(RecordState.VERIFIED, record.state)
        self.assert_claimable(world, record)
        self.assertEqual(servers.POSITION, record.gtid_executed)
        self.assertEqual({world.volume_image.name}, world.images())
        self.assertEqual(([], []), (world.held_locks(), world.servers.open_clones()))


class TwoDeletionsTest(Operation, base.BaseTestCase):
    def prepare(self, world):
        world.backup = vault_helpers.take(world)
        vault_helpers.copy(world, world.backup)

    def work(self, deps, world):
        delete.delete_backup(deps, world.backup)

    def check_done(self, world):
        record = world.records.find(world.backup)
        if record is not None:
            # The database failed before the deletion began.
            self.assertEqual(RecordState.COPIED, record.state)
            return
        self.assertTrue(trove_database.backup(world.backup).deleted)
        self.assertEqual(([], {}), (world.snapshots(), world.cinder.snapshots))
        self.assertEqual(set(), world.images('vault') - {world.vault.name})
