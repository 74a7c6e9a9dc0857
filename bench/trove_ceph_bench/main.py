# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-bench``: measure MySQL servers and the operations on them, and report."""

import sys
import warnings


def main() -> int:
    """Run the command; return its exit status."""
    # Trove's client imports eventlet, which warns every user that it is deprecated.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    try:
        from trove_ceph_bench import cli

        return cli.main(sys.argv[1:])
    except ModuleNotFoundError as error:
        # Hosts that run no benchmarks, such as guests, install the package without the extra.
        print(
            f"trove-ceph-bench: the Python package {error.name} is missing; "
            f"install 'trove-ceph[bench]'",
            file=sys.stderr,
        )
        return 1
