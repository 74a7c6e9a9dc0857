# SPDX-License-Identifier: Apache-2.0
"""The entry point of ``trove-ceph-manage``; it needs no more than Python until a command runs."""

import sys
from collections.abc import Sequence


def main() -> int:
    """Run the command that the process was started with; return its exit status."""
    return run(sys.argv[1:])


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit status.

    :param arguments: the command line without the name of the program
    """
    try:
        from trove_ceph.cmd.manage import shell

        return shell.Shell().run(list(arguments))
    except ModuleNotFoundError as error:
        # The package is installed without the extra where nothing is managed, as in guests.
        print(
            f'trove-ceph-manage: the Python package {error.name} is missing; '
            "install 'trove-ceph[manage]'",
            file=sys.stderr,
        )
        return 1
