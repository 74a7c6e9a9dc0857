# SPDX-License-Identifier: Apache-2.0
"""Backups during which a process dies or an answer is lost, at each of their requests."""

import contextlib
import itertools

from oslotest import base
from trove.backup.state import BackupState

from trove_ceph import exceptions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.enums import QuiesceLevel
from trove_ceph.strategies.backup import backup_types, create
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database


class CreationInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    level = QuiesceLevel.NONE

    def make_world(self):
        world = worlds.World()
        world.policy = backup_types.BackupSettings(self.level, limit_sec=worlds.LIMIT_SEC)
        world.parent = world.add_backup(state=BackupState.COMPLETED)
        world.backup = world.add_backup(parent_id=world.parent.id)
        return world

    def make_operation(self, world, strike=None):
        return create.BackupCreation(world.deps(strike), world.backup.id).steps()

    def check_done(self, world):
        world.cinder.work()
        (snapshot,) = world.cinder.snapshots.values()
        self.assertEqual('available', snapshot['status'])
        self.assertEqual([f'snapshot-{snapshot["id"]}'], world.snapshots())
        row = trove_database.backup(world.backup.id)
        self.assertEqual(BackupState.COMPLETED, row.state)
        self.assertEqual(f'cinder://{snapshot["id"]}', row.location)
        self.assertEqual(1, row.size)
        self.assertIsNone(row.parent_id)
        record = world.records.get(world.backup.id)
        self.assertEqual(RecordState.TAKEN, record.state)
        self.assertEqual(snapshot['id'], record.cinder_snapshot_id)
        self.assertEqual(f'{world.volume_image}@snapshot-{snapshot["id"]}', str(record.location))
        self.assertEqual(world.parent.id, record.parent_id)
        self.assertEqual(self.level, record.quiesce)
        self.assertIsNotNone(record.snapshot_at)
        self.assertFalse(world.guest.is_held)
        self.assertEqual(world.cinder.true_usage(), world.cinder.quota.counted())

    def check_undone(self, world):
        world.cinder.work()
        self.assertEqual({}, world.cinder.snapshots)
        self.assertEqual([], world.snapshots())
        self.assertNotEqual(BackupState.COMPLETED, trove_database.backup(world.backup.id).state)
        # If a release is lost, the guest's own time limit ends the hold.
        world.now += worlds.LIMIT_SEC + 10
        self.assertFalse(world.guest.is_held)


class FrozenInterruptionTest(CreationInterruptionTest):
    level = QuiesceLevel.FREEZE


class LateAnswerInterruptionTest(CreationInterruptionTest):
    """The agent answers after Cinder has adopted the snapshot."""

    def make_world(self):
        world = super().make_world()
        world.is_answered_late = True
        return world


class CheckedFirstInterruptionTest(CreationInterruptionTest):
    """The first snapshot was not proved, and the settings are checked first."""

    def make_operation(self, world, strike=None):
        return create.BackupCreation(world.deps(strike), world.backup.id, check_first=True).steps()

    def test_killed_at_each_request_of_both_orders(self):
        """Requests for a first snapshot that is not proved, its removal, and the second one."""
        for number in itertools.count():
            world = self.make_world()
            world.guest.evidence = None
            strike = worlds.Strike(number, after=True)
            with contextlib.suppress(interruption.Kill):
                create.create_backup(world.deps(strike), world.backup.id)
            if not strike.struck:
                self.assertGreater(number, 10)
                return
            world.now += 120
            with interruption.annotated(f'killed after request {number}'):
                create.create_backup(world.deps(), world.backup.id)
                self.check_done(world)


class GuestDies(worlds.Strike):
    """The guest agent is killed after a request, alone or with its virtual machine."""

    def __init__(self, number, world, *, with_machine):
        super().__init__(number)
        self._guest, self._with_machine = world.guest, with_machine

    def around(self, request, unavailable):
        answer = request()
        if next(self._numbers) == self._number:
            self.struck = True
            self._guest.restart()
            self._guest.is_down = self._with_machine
        return answer


class GuestInterruptionTest(base.BaseTestCase):
    """A backup whose guest dies is proved, or fails."""

    def take_until(self, number, level, with_machine):
        """Return the state of a backup whose guest dies after a request; None: no such request."""
        world = worlds.World()
        world.policy = backup_types.BackupSettings(level, limit_sec=worlds.LIMIT_SEC)
        backup = world.add_backup()
        strike = GuestDies(number, world, with_machine=with_machine)
        with contextlib.suppress(exceptions.TroveCephError):
            create.create_backup(world.deps(strike), backup.id)
        self.assertFalse(world.guest.is_held)
        world.cinder.work()
        record = world.records.get(backup.id)
        if record.state is RecordState.TAKEN:
            self.assertEqual([record.location.name], world.snapshots())
            self.assertEqual(level is QuiesceLevel.NONE, record.quiesced_sec is None)
            self.assertEqual(BackupState.COMPLETED, trove_database.backup(backup.id).state)
        else:
            self.assertEqual(([], {}), (world.snapshots(), world.cinder.snapshots))
            self.assertEqual(BackupState.FAILED, trove_database.backup(backup.id).state)
        return record.state if strike.struck else None

    def states(self, level, with_machine):
        """Return the states of backups whose guest dies after their first, second, ... request."""
        ends = (self.take_until(number, level, with_machine) for number in itertools.count())
        return list(itertools.takewhile(lambda end: end is not None, ends))

    def test_agent_is_killed_after_each_request(self):
        for level in QuiesceLevel:
            states = self.states(level, with_machine=False)
            self.assertIn(RecordState.TAKEN, states)
            # Only a hold depends on the agent's memory, which was lost at two requests, before the
            # snapshot was created and after.
            failed = 0 if level is QuiesceLevel.NONE else 2
            self.assertEqual(failed, states.count(RecordState.FAILED), (level, states))

    def test_machine_is_killed_after_each_request(self):
        for level in QuiesceLevel:
            states = self.states(level, with_machine=True)
            # Once the agent is not needed any more, its machine is not needed either.
            last = states.index(RecordState.TAKEN)
            self.assertEqual({RecordState.FAILED}, set(states[:last]))
            self.assertEqual({RecordState.TAKEN}, set(states[last:]))
            self.assertGreater(last, 0)
