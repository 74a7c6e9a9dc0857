# SPDX-License-Identifier: Apache-2.0
"""Look at the warm guests of the cloud, by the command that the configuration names."""

import functools
import json
import shlex
import subprocess

from trove_ceph import exceptions
from trove_ceph_bench import guest_pool


def pool(command: str) -> guest_pool.Pool:
    """Return the warm guests that a command prints in JSON.

    :param command: ``[trove_ceph] guests_command``
    """
    return guest_pool.Pool(functools.partial(_list, command))


def _list(command: str) -> guest_pool.Guests:
    result = subprocess.run(
        shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if result.returncode:
        raise exceptions.TroveCephError(
            f'{command} exited with {result.returncode}: {result.stderr.strip()[-400:]}'
        )
    return json.loads(result.stdout)
