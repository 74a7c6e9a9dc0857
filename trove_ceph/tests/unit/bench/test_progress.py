# SPDX-License-Identifier: Apache-2.0
import io

from oslotest import base

from trove_ceph_bench import progress


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


class EstimateTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.clock = Clock()
        self.estimate = progress.Estimate(self.clock)

    def do(self, kind, expected_sec, seconds):
        self.estimate.start(kind, expected_sec)
        self.clock.now += seconds
        self.estimate.finish()

    def test_expectations_alone(self):
        self.estimate.plan('run', 60)
        self.estimate.plan('fill', 30)
        self.assertEqual(90, self.estimate.left_sec())

    def test_what_was_slower_stays_slower(self):
        for _ in range(3):
            self.estimate.plan('run', 60)
        self.estimate.plan('fill', 30)
        self.do('run', 60, 90)
        self.assertEqual(2 * 90 + 30, self.estimate.left_sec())

    def test_the_present_step_counts_down_to_nothing(self):
        self.estimate.plan('run', 60)
        self.estimate.start('run', 60)
        self.clock.now += 45
        self.assertEqual(15, self.estimate.left_sec())
        self.clock.now += 45
        self.assertEqual(0, self.estimate.left_sec())

    def test_nothing_is_known_before_the_first_of_an_unknown_kind(self):
        for size in (64, 64, 256):
            self.estimate.plan('backup', size, known=False)
        self.assertIsNone(self.estimate.left_sec())
        self.estimate.start('backup', 64)
        self.assertIsNone(self.estimate.left_sec())
        self.clock.now += 8
        self.estimate.finish()
        self.assertEqual(8 + 8, self.estimate.left_sec())

    def test_sizes_tell_once_there_are_two(self):
        """A virtual machine's boot takes as long for 256 MiB as for 16, and a copy does not."""
        for size in (16, 64, 256):
            for kind in ('restore', 'copy'):
                self.estimate.plan(kind, size, known=False)
        for size in (16, 64):
            self.do('restore', size, 315)
            self.do('copy', size, 2 + size)
        self.assertAlmostEqual(315 + 258, self.estimate.left_sec())

    def test_a_step_that_was_not_planned(self):
        self.do('enter', 1, 20)
        self.estimate.plan('run', 60)
        self.assertEqual(60, self.estimate.left_sec())


class ProgressTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.clock = Clock()

    def show(self, stream):
        return progress.Progress(stream, clock=self.clock)

    def test_elsewhere_only_lines_that_stay(self):
        stream = io.StringIO()
        shown = self.show(stream)
        shown.estimate.plan('run', 60)
        shown.estimate.plan('run', 60)
        with shown.step('run', '1/2 write', 60):
            shown.note('measuring', 0.5)
            self.clock.now += 65
        shown.say('1/2 write: 12 TPS')
        self.assertEqual('[1:05, 1:05 left] 1/2 write: 12 TPS\n', stream.getvalue())

    def test_a_long_step_shows_that_it_is_alive(self):
        stream = io.StringIO()
        shown = self.show(stream)
        shown.estimate.plan('fill', 600)
        with shown.step('fill', 'filling', 600):
            for _ in range(4):
                self.clock.now += 10
                shown.note('table 3', 0.25)
        self.assertEqual('[0:30, 9:30 left] filling: table 3 25%\n', stream.getvalue())

    def test_a_terminal_has_one_live_line(self):
        stream = Terminal()
        shown = self.show(stream)
        shown.estimate.plan('run', 60)
        with shown.step('run', '1/1 write', 60):
            shown.note('measuring', 0.5)
        shown.say('done')
        self.assertEqual(1, stream.getvalue().count('\n'))
        self.assertIn('\r\x1b[K[0:00, 1:00 left] 1/1 write: measuring 50%', stream.getvalue())
        self.assertTrue(stream.getvalue().endswith('\r\x1b[K[0:00, 0:00 left] done\n'))

    def test_unknown_time_left(self):
        stream = io.StringIO()
        shown = self.show(stream)
        shown.estimate.plan('backup', 1, known=False)
        shown.say('begin')
        self.assertEqual('[0:00, left ?] begin\n', stream.getvalue())

    def test_durations(self):
        texts = [progress.duration_text(seconds) for seconds in (0, 59.6, 723, 3723)]
        self.assertEqual(['0:00', '1:00', '12:03', '1:02:03'], texts)
