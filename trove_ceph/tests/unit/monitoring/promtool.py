# SPDX-License-Identifier: Apache-2.0
"""Run promtool, which Debian's package prometheus has; bindep lists it for the tests."""

import subprocess
from pathlib import Path

DIRECTORY = Path(__file__).parents[4] / 'etc' / 'monitoring'
ALERTS = DIRECTORY / 'alerts.yml'


def run(*words):
    """Run promtool; return whether it succeeded, and what it printed.

    :raises FileNotFoundError: the package prometheus is not installed
    """
    done = subprocess.run(
        ['promtool', *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode == 0, done.stdout
