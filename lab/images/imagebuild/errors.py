# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a build, as one exception the command line knows how to print."""

from pathlib import Path


class BuildError(Exception):
    """A build cannot go on; the message says what an operator can do about it.

    :param message: one sentence naming the object and what was expected of it.
    :param log: file that holds the output of the failed command, if a command failed.
    """

    TAIL_LINES = 15

    def __init__(self, message: str, *, log: Path | None = None):
        super().__init__(message)
        self.log = log

    def log_tail(self) -> list[str]:
        """Return the last lines of the log, empty if there is none."""
        if self.log is None or not self.log.exists():
            return []
        return self.log.read_text(errors="replace").splitlines()[-self.TAIL_LINES :]
