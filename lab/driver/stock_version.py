# SPDX-License-Identifier: Apache-2.0
"""Offer MySQL as stock Trove does, as the rival in benchmarks."""

import time

from driver import instruments, up
from driver.errors import LabError

PLAYBOOK = 'stock_version.yml'


def run(settings, args) -> int:
    """Build a guest image with Trove's own agent, and make it the datastore ``mysql-stock``.

    :raises LabError: a task failed
    """
    started = time.monotonic()
    instruments.require_up(settings)
    with up.exclusive():
        if up.run_playbook(settings, started, PLAYBOOK):
            raise LabError('there is no datastore of stock Trove; the failed task is above')
    print('lab: the datastore mysql-stock has the guest image and the agent of stock Trove')
    return 0
