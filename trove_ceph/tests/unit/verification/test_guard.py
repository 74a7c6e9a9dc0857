# SPDX-License-Identifier: Apache-2.0
import threading

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import guard, model

WAIT_SEC = 30


class GuardTest(base.BaseTestCase):
    def wait_for_the_end(self, watch):
        """What waits for a server, and fails when that is ended."""
        ended = threading.Event()
        with watch.watching(ended.set):
            if not ended.wait(WAIT_SEC):
                self.fail('nobody ended it')
            raise OSError('the server is gone')

    def test_canceled_while_it_waits(self):
        cancel = threading.Event()
        watch = guard.Guard(60, cancel)
        cancel.set()
        self.assertRaises(exceptions.CanceledError, self.wait_for_the_end, watch)
        self.assertRaises(exceptions.CanceledError, watch.check)

    def test_not_allowed_any_more(self):
        watch = guard.Guard(60, is_allowed=lambda: False)
        self.assertRaises(exceptions.CanceledError, self.wait_for_the_end, watch)
        self.assertRaises(exceptions.CanceledError, watch.check_allowed)

    def test_out_of_time(self):
        times = [0.0]
        watch = guard.Guard(60, clock=lambda: times[0])
        watch.check()
        times[0] = 59.0
        self.assertEqual(1.0, watch.left_sec)
        times[0] = 61.0
        found = self.assertRaises(model.Finding, self.wait_for_the_end, watch)
        self.assertEqual(
            (model.UNFINISHED, 'not done within the time limit of 60 s'),
            (found.verdict, found.reason),
        )

    def test_an_error_of_its_own_stays_so(self):
        watch = guard.Guard(60)
        with self.assertRaisesRegex(OSError, 'disk'), watch.watching(self.fail):
            raise OSError('disk')

    def test_nothing_happens_when_it_goes_well(self):
        with guard.Guard(60).watching(self.fail):
            pass
        self.assertEqual([], [one for one in threading.enumerate() if one.name == 'inspection'])
