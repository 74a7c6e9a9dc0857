# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage``: what operators do, one area of work after the other."""

import argparse
import logging
import sys
from collections.abc import Sequence

from trove_ceph import exceptions

_MISSING = "install 'trove-ceph[manage]'"


def main() -> int:
    """Run the command; return its exit status."""
    try:
        return run(sys.argv[1:])
    except ModuleNotFoundError as error:
        # The package is installed without the extra where nothing is managed, as in guests.
        print(
            f'trove-ceph-manage: the Python package {error.name} is missing; {_MISSING}',
            file=sys.stderr,
        )
        return 1


def run(arguments: Sequence[str]) -> int:
    """Run the command with its arguments; return the exit status."""
    from trove_ceph.cmd.manage import db as db_cli
    from trove_ceph.cmd.manage import gc as gc_cli
    from trove_ceph.cmd.manage import qos as qos_cli
    from trove_ceph.cmd.manage import storage as storage_cli
    from trove_ceph.cmd.manage import tiers

    parser = argparse.ArgumentParser(
        prog='trove-ceph-manage',
        description='Manage databases on Ceph. Each area of work has its own --help with examples.',
    )
    parser.add_argument('-v', '--verbose', action='store_true', help='log what is done')
    areas = parser.add_subparsers(required=True, metavar='AREA')
    tiers.add_commands(areas)
    qos_cli.add_commands(areas)
    storage_cli.add_commands(areas)
    db_cli.add_commands(areas)
    gc_cli.add_commands(areas)
    parsed = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if parsed.verbose else logging.CRITICAL,
        format='trove-ceph-manage: %(message)s',
    )
    try:
        return parsed.function(parsed)
    except (exceptions.InvalidTiersError, exceptions.ConsequencesNotAcceptedError) as error:
        return _complain(error, tiers.PROBLEM)
    except exceptions.ChangeNotSeenError as error:
        return _complain(error, tiers.DRIFT)
    except exceptions.TroveCephError as error:
        return _complain(error, tiers.UNKNOWN)


def _complain(error: object, status: int) -> int:
    print(f'trove-ceph-manage: {" ".join(str(error).split())}', file=sys.stderr)
    return status
