# SPDX-License-Identifier: Apache-2.0
import threading

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import deadline, report

WAIT_SEC = 30


class DeadlineTest(base.BaseTestCase):
    def wait_for_the_end(self, watch):
        """Wait for a server until the deadline stops it, and then fail."""
        ended = threading.Event()
        with watch.watching(ended.set):
            if not ended.wait(WAIT_SEC):
                self.fail('the deadline did not stop the server')
            raise OSError('the server has ended')

    def test_cancel_stops_a_blocked_call(self):
        cancel = threading.Event()
        watch = deadline.Deadline(60, cancel)
        cancel.set()
        self.assertRaises(exceptions.CanceledError, self.wait_for_the_end, watch)
        self.assertRaises(exceptions.CanceledError, watch.check)

    def test_lost_leases_stop_a_blocked_call(self):
        watch = deadline.Deadline(60, is_allowed=lambda: False)
        self.assertRaises(exceptions.CanceledError, self.wait_for_the_end, watch)
        self.assertRaises(exceptions.CanceledError, watch.check_allowed)

    def test_out_of_time(self):
        times = [0.0]
        watch = deadline.Deadline(60, clock=lambda: times[0])
        watch.check()
        times[0] = 59.0
        self.assertEqual(1.0, watch.left_sec)
        times[0] = 61.0
        found = self.assertRaises(report.NotSoundError, self.wait_for_the_end, watch)
        self.assertEqual(
            (report.UNFINISHED, 'not done within the time limit of 60 s'),
            (found.verdict, found.reason),
        )

    def fail_at_once(self, watch):
        """Fail because of the time limit before the watcher has polled."""
        with watch.watching(lambda: None):
            raise exceptions.ServerFailedError('mysqld does not answer after 60 s')

    def test_the_server_notices_that_its_time_is_up_before_the_watcher(self):
        times = [0.0]
        watch = deadline.Deadline(60, clock=lambda: times[0])
        times[0] = 60.0
        found = self.assertRaises(report.NotSoundError, self.fail_at_once, watch)
        self.assertEqual(report.UNFINISHED, found.verdict)
        self.assertIsInstance(found.__cause__, exceptions.ServerFailedError)

    def test_the_server_ends_before_the_watcher_sees_the_cancellation(self):
        cancel = threading.Event()
        watch = deadline.Deadline(60, cancel)
        cancel.set()
        self.assertRaises(exceptions.CanceledError, self.fail_at_once, watch)

    def test_the_first_reason_is_raised(self):
        times = [0.0]
        cancel = threading.Event()
        watch = deadline.Deadline(60, cancel, clock=lambda: times[0])
        times[0] = 61.0
        ended = threading.Event()

        def wait_and_cancel():
            with watch.watching(ended.set):
                ended.wait(WAIT_SEC)
                cancel.set()
                raise OSError('the server has ended')

        self.assertRaises(report.NotSoundError, wait_and_cancel)

    def test_an_unrelated_error_is_not_replaced(self):
        watch = deadline.Deadline(60)
        with self.assertRaisesRegex(OSError, 'disk'), watch.watching(self.fail):
            raise OSError('disk')

    def test_a_call_returns_or_raises_as_its_function_does(self):
        watch = deadline.Deadline(60)
        self.assertEqual(5, watch.call('counting', lambda: 5))
        with self.assertRaisesRegex(OSError, 'disk'):
            watch.call('reading', self._fail)

    @staticmethod
    def _fail():
        raise OSError('disk')

    def hang(self, watch, **options):
        """Call a function that blocks until it is stopped, and return the error of the call."""
        ended = threading.Event()
        self.addCleanup(ended.set)
        kind = (exceptions.InspectionFaultError, exceptions.CanceledError)
        options = {'end': ended.set} | options
        try:
            watch.call('mounting', lambda: ended.wait(WAIT_SEC), **options)
        except kind as error:
            return error, ended.is_set()
        self.fail('the call returned')

    def test_a_call_that_times_out_is_stopped_and_is_no_verdict(self):
        times = [0.0]
        watch = deadline.Deadline(60, clock=lambda: times[0])
        times[0] = 61.0
        error, is_ended = self.hang(watch)
        self.assertIsInstance(error, exceptions.InspectionFaultError)
        self.assertTrue(is_ended)
        self.assertIn('mounting: did not end', str(error))

    def test_a_call_that_cannot_be_stopped_is_abandoned(self):
        """Such as a call of librbd when no OSD answers."""
        times = [0.0]
        watch = deadline.Deadline(60, clock=lambda: times[0])
        times[0] = 61.0
        error, is_ended = self.hang(watch, end=None)
        self.assertIsInstance(error, exceptions.InspectionFaultError)
        self.assertFalse(is_ended)

    def test_a_call_is_canceled(self):
        cancel = threading.Event()
        cancel.set()
        error, is_ended = self.hang(deadline.Deadline(60, cancel))
        self.assertIsInstance(error, exceptions.CanceledError)
        self.assertTrue(is_ended)

    def test_cleanup_has_its_own_time_limit(self):
        """Even after the inspection was canceled or its time is up."""
        times, cancel = [0.0], threading.Event()
        cancel.set()
        watch = deadline.Deadline(60, cancel, clock=lambda: times[0])
        times[0] = 100.0
        self.assertEqual(5, watch.call('closing', lambda: 5, limit_sec=10))
        begun = threading.Event()

        def wait_until_late():
            times[0] = 111.0
            begun.wait(WAIT_SEC)

        self.assertRaises(
            exceptions.InspectionFaultError,
            watch.call,
            *('closing', wait_until_late, begun.set, 10),
        )

    def test_nothing_is_stopped_when_the_call_succeeds(self):
        with deadline.Deadline(60).watching(self.fail):
            pass
        self.assertEqual([], [one for one in threading.enumerate() if one.name == 'inspection'])
