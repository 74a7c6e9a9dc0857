# SPDX-License-Identifier: Apache-2.0
import threading

from oslotest import base

from trove_ceph.strategies.backup import background


class BackgroundTest(base.BaseTestCase):
    def test_runs_beside_its_caller(self):
        go_on = threading.Event()

        def request():
            self.assertTrue(go_on.wait(60))
            return 'answer'

        wait = background.begin(request)
        go_on.set()
        self.assertEqual('answer', wait())
        self.assertEqual('answer', wait())

    def test_raises_the_error_to_the_caller_that_waits(self):
        def request():
            raise ValueError('no answer')

        wait = background.begin(request)
        self.assertIn('no answer', str(self.assertRaises(ValueError, wait)))
