# SPDX-License-Identifier: Apache-2.0
"""Print the steps and their durations."""

import contextlib
import sys
import time


class Progress:
    """Print steps and record their durations in seconds by name."""

    def __init__(self, durations: dict):
        self.durations = durations
        self._live = sys.stdout.isatty()
        self._last_note = ''

    @contextlib.contextmanager
    def step(self, name: str, text: str):
        """Time a step and print it; the duration of a failed step is not recorded."""
        print(f'  {text} …', flush=True)
        started = time.monotonic()
        yield
        duration_sec = time.monotonic() - started
        self.durations[name] = round(duration_sec, 1)
        print(f'{self._clear()}  {duration_sec:8.1f} s  {text}', flush=True)

    def note(self, text: str, elapsed_sec: float):
        """Show the state of the running step; without a terminal, only changes."""
        line = f'{int(elapsed_sec) // 60:6}:{int(elapsed_sec) % 60:02}  {text}'
        if self._live:
            print(f'{self._clear()}{line}', end='', flush=True)
        elif text != self._last_note:
            print(line, flush=True)
        self._last_note = text

    def _clear(self):
        return '\r\033[K' if self._live else ''
