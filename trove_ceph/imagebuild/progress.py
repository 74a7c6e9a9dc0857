# SPDX-License-Identifier: Apache-2.0
"""Progress lines on standard error: the present stage, and the duration of each stage."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Print one line when a stage starts and one when it ends.

    :param quiet: print nothing.
    """

    def __init__(self, *, quiet: bool = False):
        self._quiet = quiet
        self._started = time.monotonic()
        self.current = "start"

    def note(self, text: str) -> None:
        """Print one line with the seconds since the program's start."""
        if not self._quiet:
            elapsed_sec = time.monotonic() - self._started
            print(f"[{elapsed_sec:6.1f} s] {text}", file=sys.stderr, flush=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Name the work of the block, so that an error message can name it."""
        self.current = name
        began = time.monotonic()
        self.note(f"{name} ...")
        yield
        self.note(f"{name}: done in {time.monotonic() - began:.1f} s")
