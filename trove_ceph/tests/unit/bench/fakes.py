# SPDX-License-Identifier: Apache-2.0
"""Servers and loads that leave notes instead of existing."""

import datetime

from trove_ceph import exceptions
from trove_ceph_bench import model


class Target:
    """Notes what is done with it in a list that several may share."""

    def __init__(self, name, notes, fails=None):
        self.name = name
        self.image = None
        self.address = model.Address('root', 'sesame', f'schema_of_{name}')
        self.fails = fails
        self._notes = notes

    def __enter__(self):
        self._notes.append(('enter', self.name))
        if self.fails == 'enter':
            raise exceptions.TargetUnavailableError(f'{self.name} is not there')
        return self

    def __exit__(self, *exception):
        self._notes.append(('leave', self.name))
        if self.fails == 'leave':
            raise exceptions.TargetUnavailableError(f'{self.name} keeps its schema')

    def disclose(self):
        return {'version': '9.7.4'}

    def cpu_sec(self):
        return None

    def restart(self):
        self._notes.append(('restart', self.name))
        return True


def load_run(reason=None):
    """Return the outcome of a load, as far as a runner looks at it."""
    return {
        'format': model.FORMAT,
        'kind': 'load',
        'started': datetime.datetime.now(datetime.UTC).isoformat(),
        'complete': reason is None,
        'reason': reason,
        'totals': {'tps': 20.0, 'latency_ms': {'p99': 12.5}},
        'committer': {'gap_max_ms': 87.1},
        'warnings': [],
    }
