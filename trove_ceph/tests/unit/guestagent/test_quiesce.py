# SPDX-License-Identifier: Apache-2.0
import threading
import uuid

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import quiesce

LIMIT_SEC = 20
MAX_SEC = 60


class World:
    """A server and a volume as plain state, with a log of what happened."""

    def __init__(self):
        self.done = []
        self.failing = {}
        self.now = 1000.0
        self.frozen = False
        self.locked = False
        self.connected = True
        self.lost = ''

    def do(self, what):
        self.done.append(what)
        if what in self.failing:
            raise self.failing[what]


class FakeLock:
    def __init__(self, world, hold_sec):
        self.world, self.hold_sec = world, hold_sec
        world.do('connect')

    def lock_instance(self):
        self.world.do('lock')
        self.world.locked = True

    def lock_non_transactional_tables(self):
        self.world.do('lock tables')
        return 3

    def is_held(self):
        assert not self.world.frozen, 'a frozen server does not answer'
        return self.world.connected

    def unlock(self):
        assert not self.world.frozen, 'would hang with the general log on'
        self.world.do('unlock')
        return '' if self.world.connected else 'the connection is gone'

    def close(self):
        self.world.done.append('disconnect')
        self.world.locked = False


class FakeFreeze:
    def __init__(self, world, limit_sec):
        self.world, self.limit_sec = world, limit_sec
        world.do('start')

    def wait_until_ready(self):
        self.world.do('ready')

    def freeze(self):
        # A freeze cannot be canceled, so it happens even after a timeout.
        self.world.frozen = True
        self.world.do('freeze')
        return 0.5

    def is_frozen(self):
        return self.world.frozen

    def thaw(self):
        self.world.do('thaw')
        lost = '' if self.world.frozen else 'the limit passed'
        self.world.frozen = False
        return lost

    def close(self):
        self.world.done.append('end')
        self.world.frozen = False


class QuiescerTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = World()
        self.opened = []
        self.token = uuid.uuid4().hex
        self.quiescer = quiesce.Quiescer(
            lambda hold_sec: self.open(FakeLock, hold_sec),
            lambda limit_sec: self.open(FakeFreeze, limit_sec),
            MAX_SEC,
            clock=lambda: self.world.now,
        )

    def open(self, kind, seconds):
        made = kind(self.world, seconds)
        self.opened.append(seconds)
        return made

    def quiesce(self, backup_id='b1', level='freeze', limit_sec=LIMIT_SEC, token=None):
        """Quiesce for the present attempt, or for another one."""
        return self.quiescer.quiesce(backup_id, token or self.token, level, limit_sec)

    def release(self, backup_id='b1', token=None):
        """End the present attempt and begin another one."""
        answer = self.quiescer.release(backup_id, token or self.token)
        self.token = uuid.uuid4().hex
        return answer

    def assert_at_work(self):
        self.assertFalse(self.world.frozen)
        self.assertFalse(self.world.locked)

    def test_ddl_locks_and_freezes_nothing(self):
        answer = self.quiesce(level='ddl')

        self.assertEqual(['connect', 'lock'], self.world.done)
        self.assertEqual(
            {
                'backup_id': 'b1',
                'level': 'ddl',
                'remaining_sec': LIMIT_SEC,
                'freeze_sec': 0.0,
                'locked_tables': 0,
            },
            answer,
        )

    def test_freeze_is_last_and_slow_steps_precede_the_locks(self):
        answer = self.quiesce()

        self.assertEqual(
            ['connect', 'start', 'ready', 'lock', 'lock tables', 'freeze'], self.world.done
        )
        self.assertEqual((0.5, 3), (answer['freeze_sec'], answer['locked_tables']))

    def test_thaw_comes_before_the_unlock(self):
        self.quiesce()
        del self.world.done[:]
        self.world.now += 4

        answer = self.release('b1')

        self.assertEqual(['thaw', 'unlock', 'end', 'disconnect'], self.world.done)
        self.assertEqual(
            {'backup_id': 'b1', 'level': 'freeze', 'held': True, 'reason': '', 'held_sec': 4.0},
            answer,
        )

    def test_locks_outlast_the_freeze(self):
        self.quiesce()

        locks, freeze = self.opened
        self.assertEqual(LIMIT_SEC, freeze)
        self.assertGreater(locks, freeze)

    def test_limit_is_bounded(self):
        for requested, given in ((7, 7), (1000, MAX_SEC), (0, 1)):
            self.quiesce(level='ddl', limit_sec=requested)
            self.assertEqual(given, self.opened[-1])
            self.release('b1')

    def test_failed_attempt_leaves_nothing(self):
        for step in ('connect', 'start', 'ready', 'lock', 'lock tables', 'freeze'):
            for error in (exceptions.NotQuiescedError('no'), MemoryError()):
                self.world.failing = {step: error}
                self.assertRaises(type(error), self.quiesce)
                self.assert_at_work()

        self.world.failing = {}
        self.assertFalse(self.release('b1')['held'])
        self.quiesce()
        self.assertTrue(self.release('b1')['held'])

    def test_undo_in_reverse_order(self):
        self.world.failing = {'freeze': exceptions.NotQuiescedError('no')}
        self.assertRaises(exceptions.NotQuiescedError, self.quiesce)

        self.assertEqual(['end', 'disconnect'], self.world.done[-2:])

    def test_repetition_returns_the_present_hold(self):
        first = self.quiesce()
        done = list(self.world.done)
        self.world.now += 5

        again = self.quiesce()

        self.assertEqual(first | {'remaining_sec': LIMIT_SEC - 5}, again)
        self.assertEqual(done, self.world.done)

    def test_one_backup_at_a_time(self):
        self.quiesce()
        done = list(self.world.done)

        error = self.assertRaises(exceptions.NotQuiescedError, self.quiesce, 'b2', token='other')
        self.assertIn('b1', str(error))

        self.assertEqual(done, self.world.done)
        self.assertFalse(self.quiescer.release('b2', 'other')['held'])
        self.assertTrue(self.release('b1')['held'])

    def test_another_attempt_replaces_the_previous_one(self):
        """The process of the previous attempt is dead, so its limit is not awaited."""
        self.quiesce(token='first')
        self.world.now += 5
        done = len(self.world.done)

        answer = self.quiesce(token='second')

        self.assertEqual('thaw', self.world.done[done])
        self.assertEqual(LIMIT_SEC, answer['remaining_sec'])
        answer = self.quiescer.release('b1', 'first')
        self.assertFalse(answer['held'])
        self.assertIn('another attempt', answer['reason'])
        self.assertTrue(self.world.frozen)
        self.assertTrue(self.quiescer.release('b1', 'second')['held'])
        self.assert_at_work()

    def test_release_of_another_attempt_neither_proves_nor_ends_a_hold(self):
        self.quiesce(token='first')

        answer = self.quiescer.release('b1', 'second')

        self.assertEqual((False, True), (answer['held'], self.world.frozen))
        self.assertTrue(self.quiescer.release('b1', 'first')['held'])

    def test_quiesce_that_arrives_after_its_own_release(self):
        """No release would follow."""
        for held_before in (False, True):
            token = f'{held_before}'
            if held_before:
                self.quiesce(token=token)
            self.quiescer.release('b1', token)
            done = list(self.world.done)

            error = self.assertRaises(exceptions.NotQuiescedError, self.quiesce, token=token)

            self.assertIn('has ended already', str(error))
            self.assertEqual(done, self.world.done)
            self.assert_at_work()

    def test_attempt_that_lost_its_hold_cannot_hold_again(self):
        self.quiesce()
        self.world.now += LIMIT_SEC
        self.assertRaises(exceptions.NotQuiescedError, self.quiesce)
        self.assertFalse(self.release()['held'])
        self.assert_at_work()

    def test_number_of_stored_attempts_is_bounded(self):
        for number in range(1000):
            self.quiescer.release('b1', f't{number}')
        self.assertEqual(256, len(self.quiescer._ended))

    def test_lost_hold_does_not_block_others(self):
        for lose in (
            lambda: setattr(self.world, 'frozen', False),
            lambda: setattr(self.world, 'now', self.world.now + LIMIT_SEC),
        ):
            self.quiesce('b1', token=f'{lose}')
            lose()
            self.quiesce('b2')
            self.assertTrue(self.release('b2')['held'])

        self.quiesce('b1', 'ddl', token='before')
        self.world.connected = False
        self.quiesce('b2', 'ddl')
        self.world.connected = True
        self.assertTrue(self.release('b2')['held'])

    def test_release_reports_that_the_limit_passed(self):
        self.quiesce()
        self.world.frozen = False

        answer = self.release('b1')

        self.assertEqual((False, 'the limit passed'), (answer['held'], answer['reason']))
        self.assert_at_work()

    def test_release_reports_a_lost_connection(self):
        for level in quiesce.LEVELS:
            self.quiesce(level=level)
            self.world.connected = False

            answer = self.release('b1')

            self.assertEqual((False, 'the connection is gone'), (answer['held'], answer['reason']))
            self.world.connected = True

    def test_repeated_release_returns_the_same_answer(self):
        self.quiesce(token='first')
        first = self.quiescer.release('b1', 'first')
        done = list(self.world.done)

        self.assertEqual(first, self.quiescer.release('b1', 'first'))
        self.assertEqual(done, self.world.done)

        # Only for this attempt.
        self.world.failing = {'connect': exceptions.NotQuiescedError('no')}
        self.assertRaises(exceptions.NotQuiescedError, self.quiesce)
        self.assertFalse(self.release('b1')['held'])

    def test_release_without_a_hold(self):
        answer = self.release('b1')

        self.assertEqual((False, []), (answer['held'], self.world.done))
        self.assertIn('nothing was held', answer['reason'])

    def test_release_that_overtakes_its_quiesce_undoes_it(self):
        reached, go_on = threading.Event(), threading.Event()
        released = []

        def slow_lock(_lock):
            reached.set()
            go_on.wait(30)
            self.world.locked = True

        self.patch(FakeLock, 'lock_instance', slow_lock)
        taking = threading.Thread(target=self.quiesce)
        taking.start()
        self.assertTrue(reached.wait(30))
        releasing = threading.Thread(target=lambda: released.append(self.release('b1')))
        releasing.start()
        releasing.join(0.1)
        self.assertEqual([], released)

        go_on.set()
        taking.join(30)
        releasing.join(30)

        self.assertEqual([True], [answer['held'] for answer in released])
        self.assert_at_work()

    def test_unknown_level(self):
        for level in ('none', 'hard'):
            error = self.assertRaises(exceptions.NotQuiescedError, self.quiesce, 'b1', level)
            self.assertIn(level, str(error))
        self.assertEqual([], self.world.done)
