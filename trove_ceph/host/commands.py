# SPDX-License-Identifier: Apache-2.0
"""Run short commands of this host."""

import subprocess
from collections.abc import Mapping

from trove_ceph import exceptions

TIMEOUT_SEC = 60


def run(
    *words: object, timeout_sec: float = TIMEOUT_SEC, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command and return its standard output.

    :raises StorageCommandError: the command failed, did not end in time, or is not installed
    """
    command = [str(word) for word in words]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    except OSError as error:
        raise exceptions.StorageCommandError(f'{command[0]} cannot be run: {error}') from error
    try:
        output, errors = process.communicate(timeout=timeout_sec)
    except subprocess.TimeoutExpired as error:
        # Do not wait for it: it cannot be killed while it waits for a disk in the kernel.
        process.kill()
        raise exceptions.StorageCommandError(
            f'{" ".join(command)} did not end within {timeout_sec} s'
        ) from error
    if process.returncode != 0:
        raise exceptions.StorageCommandError(
            f'{" ".join(command)} failed with exit code {process.returncode}: '
            f'{(errors or output).strip()[-500:]}'
        )
    return output.strip()
