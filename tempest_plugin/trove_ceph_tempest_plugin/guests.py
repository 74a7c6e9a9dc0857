# SPDX-License-Identifier: Apache-2.0
"""Look at the warm guests of the cloud, by the command that the configuration names."""

import functools
import json
import shlex

from trove_ceph_bench import guest_pool
from trove_ceph_tempest_plugin import commands


def pool(command: str) -> guest_pool.Pool:
    """Return the warm guests that a command prints in JSON.

    :param command: ``[trove_ceph] guests_command``
    """
    return guest_pool.Pool(functools.partial(_list, command))


def _list(command: str) -> guest_pool.Guests:
    return json.loads(commands.run(shlex.split(command)))
