# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of the sandbox that end by themselves."""

import subprocess
from collections.abc import Mapping

from trove_ceph import exceptions

TIMEOUT_SEC = 60


def run(
    *words: object, timeout_sec: float = TIMEOUT_SEC, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command and return its standard output.

    :raises StorageCommandError: it failed, did not end in time, or is not installed
    """
    command = [str(word) for word in words]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_sec,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise exceptions.StorageCommandError(
            f'{" ".join(command)} did not end within {timeout_sec} s'
        ) from error
    except OSError as error:
        raise exceptions.StorageCommandError(f'{command[0]} cannot be run: {error}') from error
    if result.returncode != 0:
        raise exceptions.StorageCommandError(
            f'{" ".join(command)} failed with exit code {result.returncode}: '
            f'{(result.stderr or result.stdout).strip()[-500:]}'
        )
    return result.stdout.strip()
