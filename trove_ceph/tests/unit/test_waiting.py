# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import waiting


class DeadlineTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 1e9
        self.looks = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.assertGreater(seconds, 0)
        self.now += seconds

    def wait(self, timeout_sec, poll_sec):
        deadline = waiting.Deadline(timeout_sec, self.clock, self.sleep)
        began = self.now
        while True:
            self.looks.append(round(self.now - began, 3))
            if not deadline.pause(poll_sec):
                return deadline

    def test_last_look_is_at_the_deadline(self):
        deadline = self.wait(1, 0.4)
        self.assertEqual([0, 0.4, 0.8, 1], self.looks)
        self.assertEqual(0, deadline.left_sec)

    def test_there_is_one_look_without_any_time(self):
        for timeout_sec in (0, -5):
            self.looks.clear()
            self.wait(timeout_sec, 1)
            self.assertEqual([0], self.looks)

    def test_rounding_ends_too(self):
        for poll_sec in (0.1, 1 / 3, 0.7):
            self.looks.clear()
            self.wait(10.1, poll_sec)
            self.assertEqual(10.1, round(self.looks[-1], 2))

    def test_looks_that_take_longer_than_the_pauses(self):
        deadline = waiting.Deadline(10, self.clock, self.sleep)
        self.now += 9
        self.assertEqual(1, deadline.left_sec)
        self.assertTrue(deadline.pause(5))
        self.now += 100
        self.assertEqual(0, deadline.left_sec)
        self.assertFalse(deadline.pause(5))
