# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in tests."""

import signal

import fixtures


class TakesCtrlC(fixtures.Fixture):
    """Let Ctrl-C interrupt this process and its children even if the test run ignores it.

    A shell starts background processes with SIGINT ignored, and their children inherit that.
    """

    def _setUp(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
