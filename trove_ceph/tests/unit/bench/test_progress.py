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

    def test_without_finished_steps(self):
        self.estimate.plan('run', 60)
        self.estimate.plan('fill', 30)
        self.assertEqual(90, self.estimate.left_sec())

    def test_scales_by_the_duration_of_finished_steps(self):
        for _ in range(3):
            self.estimate.plan('run', 60)
        self.estimate.plan('fill', 30)
        self.do('run', 60, 90)
        self.assertEqual(2 * 90 + 30, self.estimate.left_sec())

    def test_the_current_step_counts_down_to_zero(self):
        self.estimate.plan('run', 60)
        self.estimate.start('run', 60)
        self.clock.now += 45
        self.assertEqual(15, self.estimate.left_sec())
        self.clock.now += 45
        self.assertEqual(0, self.estimate.left_sec())

    def test_no_estimate_before_the_first_step_of_an_unknown_kind(self):
        for size in (64, 64, 256):
            self.estimate.plan('backup', size, known=False)
        self.assertIsNone(self.estimate.left_sec())
        self.estimate.start('backup', 64)
        self.assertIsNone(self.estimate.left_sec())
        self.clock.now += 8
        self.estimate.finish()
        self.assertEqual(8 + 8, self.estimate.left_sec())

    def test_linear_in_size_after_two_sizes(self):
        """The boot of a virtual machine does not depend on the size of the data; a copy does."""
        for size in (16, 64, 256):
            for kind in ('restore', 'copy'):
                self.estimate.plan(kind, size, known=False)
        for size in (16, 64):
            self.do('restore', size, 315)
            self.do('copy', size, 2 + size)
        self.assertAlmostEqual(315 + 258, self.estimate.left_sec())

    def test_unplanned_step(self):
        self.do('enter', 1, 20)
        self.estimate.plan('run', 60)
        self.assertEqual(60, self.estimate.left_sec())


class ProgressTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.clock = Clock()

    def show(self, stream):
        return progress.Progress(stream, clock=self.clock)

    def test_permanent_lines_only_without_a_terminal(self):
        stream = io.StringIO()
        display = self.show(stream)
        display.estimate.plan('run', 60)
        display.estimate.plan('run', 60)
        with display.step('run', '1/2 write', 60):
            display.note('measuring', 0.5)
            self.clock.now += 65
        display.print_line('1/2 write: 12 TPS')
        self.assertEqual('[1:05, 1:05 left] 1/2 write: 12 TPS\n', stream.getvalue())

    def test_a_long_step_prints_a_heartbeat(self):
        stream = io.StringIO()
        display = self.show(stream)
        display.estimate.plan('fill', 600)
        with display.step('fill', 'filling', 600):
            for _ in range(4):
                self.clock.now += 10
                display.note('table 3', 0.25)
        self.assertEqual('[0:30, 9:30 left] filling: table 3 25%\n', stream.getvalue())

    def test_a_terminal_has_one_live_line(self):
        stream = Terminal()
        display = self.show(stream)
        display.estimate.plan('run', 60)
        with display.step('run', '1/1 write', 60):
            display.note('measuring', 0.5)
        display.print_line('done')
        self.assertEqual(1, stream.getvalue().count('\n'))
        self.assertIn('\r\x1b[K[0:00, 1:00 left] 1/1 write: measuring 50%', stream.getvalue())
        self.assertTrue(stream.getvalue().endswith('\r\x1b[K[0:00, 0:00 left] done\n'))

    def test_unknown_time_left(self):
        stream = io.StringIO()
        display = self.show(stream)
        display.estimate.plan('backup', 1, known=False)
        display.print_line('begin')
        self.assertEqual('[0:00, left ?] begin\n', stream.getvalue())

    def test_durations(self):
        texts = [progress.duration_text(seconds) for seconds in (0, 59.6, 723, 3723)]
        self.assertEqual(['0:00', '1:00', '12:03', '1:02:03'], texts)
