# SPDX-License-Identifier: Apache-2.0
"""The process that replaces files as root, started before it is needed: sudo may take seconds."""

import json
import os
import subprocess
import sys

from trove_ceph import exceptions
from trove_ceph.host import file_replacement

_TIMEOUT_SEC = 60


class ReplacementProcess:
    """A process that runs :mod:`~trove_ceph.host.file_replacement` once.

    :param root_helper: command prefix that runs a command as root
    """

    def __init__(self, root_helper: str = 'sudo'):
        prefix = [] if os.geteuid() == 0 else [root_helper]
        program = [sys.executable, '-I', '-S', file_replacement.__file__]
        try:
            self._process = subprocess.Popen(
                prefix + program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd='/',
            )
        except OSError as error:
            raise exceptions.StorageCommandError(
                f'{(prefix + program)[0]} cannot be run: {error}'
            ) from error

    def is_running(self) -> bool:
        """Return whether the process waits for its work."""
        return self._process.poll() is None

    def replace(self, replacement: file_replacement.Replacement) -> None:
        """Replace files; blocks for a minute at most.

        :raises StorageCommandError: the files are the old ones, or the marker is there
        """
        try:
            answer, _ = self._process.communicate(
                file_replacement.encode(replacement), timeout=_TIMEOUT_SEC
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            self._process.kill()
            raise exceptions.StorageCommandError(
                f'The files were not replaced: {type(error).__name__}'
            ) from None
        reason = json.loads(answer) if answer else 'the process has ended'
        if reason is not None:
            raise exceptions.StorageCommandError(f'The files were not replaced: {reason}')

    def close(self) -> None:
        """End the process unless it has ended."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            self._process.kill()
