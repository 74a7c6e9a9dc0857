# SPDX-License-Identifier: Apache-2.0
"""Run the commands that the configuration names."""

import subprocess
from collections.abc import Callable, Collection, Sequence
from typing import Any

from trove_ceph import exceptions


def run(
    words: Sequence[str],
    timeout_sec: float | None = None,
    accepted: Collection[int] = (0,),
    execute: Callable[..., Any] = subprocess.run,
) -> str:
    """Run a command, and return its output.

    :param timeout_sec: within which it must end; None: there is no limit
    :param accepted: the exit codes of success
    :raises TroveCephError: it cannot be run, fails, or does not end in time
    """
    try:
        result = execute(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_sec
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise exceptions.TroveCephError(f'{" ".join(words)}: {error}') from error
    if result.returncode not in accepted:
        raise exceptions.TroveCephError(
            f'{" ".join(words)} exited with {result.returncode}: '
            f'{(result.stderr or result.stdout).strip()[-400:]}'
        )
    return result.stdout
