# SPDX-License-Identifier: Apache-2.0
"""Commands that differ between clouds: environment variables name them."""

import os
import shlex
import subprocess
from collections.abc import Sequence

from trove_ceph import exceptions


def run(variable: str, purpose: str, *arguments: str) -> None:
    """Run the command in a variable with more arguments.

    :param purpose: what the command does, as in "a command that …"
    :raises LoadFailedError: the variable is not set, or the command failed
    """
    _run(variable, purpose, '', arguments, None)


def read(variable: str, purpose: str, default: str) -> str:
    """Run the command in a variable, by default another one, and return its output.

    :raises LoadFailedError: the command failed
    """
    return _run(variable, purpose, default, (), subprocess.PIPE).stdout


def _run(
    variable: str, purpose: str, default: str, arguments: Sequence[str], output: int | None
) -> subprocess.CompletedProcess[str]:
    command = shlex.split(os.environ.get(variable) or default)
    if not command:
        raise exceptions.LoadFailedError(
            f'{variable} is not set; set it to a command that {purpose}'
        )
    words = [*command, *arguments]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=output, text=True, check=False
        )
    except OSError as error:
        raise exceptions.LoadFailedError(f'{variable}: {shlex.join(words)}: {error}') from error
    if done.returncode:
        raise exceptions.LoadFailedError(
            f'{variable}: {shlex.join(words)}: exit status {done.returncode}'
        )
    return done
