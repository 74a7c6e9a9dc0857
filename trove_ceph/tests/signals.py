# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in tests."""

import signal

import fixtures


class TakesCtrlC(fixtures.Fixture):
    """Lets this process and its children be interrupted, also when the test run itself cannot be.

    A shell starts what runs in its background with SIGINT ignored, and children inherit that.
    """

    def _setUp(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
