# SPDX-License-Identifier: Apache-2.0
"""The exception for all failures of a build, which the command line prints."""

from pathlib import Path


class BuildError(Exception):
    """A build cannot continue; the message says what to do.

    :param message: one sentence with the object and the expectation.
    :param log: file with the output of the failed command, if a command failed.
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
