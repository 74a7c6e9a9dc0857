# SPDX-License-Identifier: Apache-2.0
import itertools
import threading

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import volume_trim

HOUR = 3600


class FakeVolume:
    """A volume that takes a second for each range and records the ranges."""

    def __init__(self, clock, size_bytes):
        self.clock = clock
        self.size_bytes = size_bytes
        self.trimmed = []
        self.during = lambda: None
        self.whole_extents = False

    def filesystem_bytes(self):
        return self.size_bytes

    def trim(self, offset, length, minimum):
        self.during()
        self.trimmed.append((self.clock.now, offset, length))
        self.clock.now += 1
        return self.size_bytes if self.whole_extents else length


class FakeClock:
    def __init__(self):
        self.now = 1000.0
        self.at_sleep = lambda: None

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.at_sleep()
        self.now += seconds


class VolumeTrimTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.clock = FakeClock()
        self.volume = FakeVolume(self.clock, 600 * units.Mi)
        self.begun = []

    def make(self, interval_sec=HOUR, start=None):
        return volume_trim.VolumeTrimmer(
            lambda: self.volume,
            interval_sec,
            clock=self.clock,
            sleep=self.clock.sleep,
            start=start or (lambda function: function()),
            between=lambda least, most: most,
        )

    def ranges(self):
        return [
            (offset // units.Mi, length // units.Mi) for _, offset, length in self.volume.trimmed
        ]

    def test_whole_volume_in_ranges_with_pauses(self):
        self.make().trim_unless_recent(0)

        self.assertEqual([(0, 256), (256, 256), (512, 256)], self.ranges())
        # One second of work, one second of pause.
        self.assertEqual([1000, 1002, 1004], [at for at, _, _ in self.volume.trimmed])

    def test_number_of_ranges_is_bounded(self):
        self.volume.size_bytes = 16 * units.Ti + 1

        self.make().trim_unless_recent(0)

        self.assertLessEqual(len(self.volume.trimmed), volume_trim.MAX_RANGES)
        _, offset, length = self.volume.trimmed[-1]
        self.assertGreaterEqual(offset + length, self.volume.size_bytes)

    def test_ranges_grow_if_the_kernel_discards_whole_extents(self):
        self.volume.size_bytes = 100 * units.Gi
        self.volume.whole_extents = True

        self.make().trim_unless_recent(0)

        self.assertEqual([(0, 256), (256, 512), (768, 1024)], self.ranges()[:3])
        self.assertLess(len(self.volume.trimmed), 10)
        _, offset, length = self.volume.trimmed[-1]
        self.assertGreaterEqual(offset + length, self.volume.size_bytes)

    def test_first_trim_is_soon_and_others_periodic(self):
        trimmer = self.make()
        at = []
        for _ in range(3 * 60):
            now = self.clock.now
            if trimmer.trim_if_due():
                at.append(now)
            self.clock.now += 60
        # 300 s after the start, then after an hour plus at most 10 %.
        self.assertEqual(1300, at[0])
        self.assertEqual(3, len(at))
        for before, after in itertools.pairwise(at):
            self.assertLess(abs(after - before - 1.1 * HOUR), 120)

    def test_first_start_of_a_database_schedules_a_trim(self):
        trimmer = self.make()
        self.clock.now += 300
        self.assertTrue(trimmer.trim_if_due())
        trimmer.schedule_soon()
        self.clock.now += 300
        self.assertTrue(trimmer.trim_if_due())
        trimmer.schedule_soon()
        self.assertFalse(trimmer.trim_if_due())

    def test_interval_of_zero_trims_nothing(self):
        trimmer = self.make(interval_sec=0)
        self.clock.now += 10 * HOUR
        trimmer.schedule_soon()
        self.assertFalse(trimmer.trim_if_due())
        self.assertFalse(trimmer.trim_unless_recent(0))
        self.assertEqual([], self.volume.trimmed)

    def test_recent_trim_is_not_repeated(self):
        trimmer = self.make()
        self.assertTrue(trimmer.trim_unless_recent(600))
        self.clock.now += 599
        self.assertFalse(trimmer.trim_unless_recent(600))
        self.clock.now += 2
        self.assertTrue(trimmer.trim_unless_recent(600))

    def test_one_trim_at_a_time(self):
        trimmer = self.make()
        again = []
        self.volume.during = lambda: again.append(trimmer.trim_unless_recent(0))

        trimmer.trim_unless_recent(0)

        self.assertEqual([False] * 3, again)
        self.assertEqual(3, len(self.volume.trimmed))

    def test_no_range_starts_during_a_pause(self):
        trimmer = self.make()
        trimmer.pause(100)

        trimmer.trim_unless_recent(0)

        self.assertEqual(1100, self.volume.trimmed[0][0])

    def test_backup_interrupts_a_trim(self):
        trimmer = self.make()

        def begin_backup():
            self.clock.at_sleep = lambda: None
            trimmer.pause(50)

        self.clock.at_sleep = begin_backup
        trimmer.trim_unless_recent(0)

        began, *others = [at for at, _, _ in self.volume.trimmed]
        self.assertEqual(1000, began)
        # The pause began at 1001.
        self.assertGreaterEqual(others[0], 1051)
        self.assertEqual(3, len(self.volume.trimmed))

    def test_trim_resumes_after_the_backup(self):
        trimmer = self.make()
        trimmer.pause(1000)
        trimmer.pause(10)
        self.clock.at_sleep = trimmer.resume

        trimmer.trim_unless_recent(0)

        self.assertLess(self.volume.trimmed[0][0], 1003)

    def test_pause_waits_for_the_running_range(self):
        trimmer = self.make(start=lambda function: threads.append(_started(function)))
        threads, order = [], []
        in_range, may_end = threading.Event(), threading.Event()

        def during():
            in_range.set()
            may_end.wait(60)
            order.append('range')

        self.volume.during = during
        trimmer.trim_unless_recent(0)
        in_range.wait(60)

        def pause():
            trimmer.pause(0)
            order.append('backup')

        backup = _started(pause)
        may_end.set()
        backup.join(60)
        threads[0].join(60)
        self.assertLess(order.index('range'), order.index('backup'))

    def test_failure_ends_one_trim_only(self):
        trimmer = self.make()

        def fail():
            raise exceptions.StorageCommandError('the discard operation is not supported')

        self.volume.during = fail
        self.assertTrue(trimmer.trim_unless_recent(600))
        self.volume.during = lambda: None
        # A failed trim is not recent.
        self.assertTrue(trimmer.trim_unless_recent(600))
        self.assertEqual(3, len(self.volume.trimmed))

    def test_failed_start_of_the_thread_leaves_no_lock(self):
        def refuse(function):
            raise RuntimeError("can't start new thread")

        trimmer = self.make(start=refuse)
        self.assertRaises(RuntimeError, trimmer.trim_unless_recent, 0)
        self.assertRaises(RuntimeError, trimmer.trim_unless_recent, 0)


def _started(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread
