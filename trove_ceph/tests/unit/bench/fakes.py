# SPDX-License-Identifier: Apache-2.0
"""Fake targets and results of loads."""

import datetime

from trove_ceph import exceptions
from trove_ceph_bench import model


class Target:
    """Record each call in a list that several targets may share."""

    def __init__(self, name, notes, fails=None):
        self.name = name
        self.image = None
        self.address = model.Address('root', 'sesame', f'schema_of_{name}')
        self.fails = fails
        self._notes = notes

    def __enter__(self):
        self._notes.append(('enter', self.name))
        if self.fails == 'enter':
            raise exceptions.TargetUnavailableError(f'{self.name} does not exist')
        return self

    def __exit__(self, *exception):
        self._notes.append(('leave', self.name))
        if self.fails == 'leave':
            raise exceptions.TargetUnavailableError(f'{self.name} still has its schema')

    def disclose(self):
        return {'version': '9.7.4'}

    def cpu_sec(self):
        return None

    def restart(self):
        self._notes.append(('restart', self.name))
        return True


def load_run(reason=None):
    """Return the result of a load with the keys that a runner reads."""
    return {
        'format': model.FORMAT,
        'kind': 'load',
        'started': datetime.datetime.now(datetime.UTC).isoformat(),
        'complete': reason is None,
        'reason': reason,
        'totals': {'tps': 20.0, 'latency_ms': {'p99': 12.5}},
        'committer': {'gap_max_ms': 87.1},
        'rbd': {'totals': {'write_iops': 70.0}},
        'warnings': [],
    }
