# SPDX-License-Identifier: Apache-2.0
"""The one place that speaks to the monitor."""

import contextlib
import errno
import json
import time

from cephcluster import layout
from cephcluster.errors import ClusterError, MonitorError, UsageError


class Monitor:
    """Monitor commands over one librados connection.

    :param handle: a connected rados.Rados.
    """

    def __init__(self, handle, timeout_sec=60):
        self._handle = handle
        self._timeout_sec = timeout_sec

    def command(self, prefix, data=b'', **arguments):
        """Run a monitor command and return its decoded answer.

        :raises MonitorError: the monitor refused it.
        """
        request = json.dumps({'prefix': prefix, 'format': 'json', **arguments})
        code, output, status = self._handle.mon_command(request, data, timeout=self._timeout_sec)
        if code != 0:
            words = ' '.join(f'{key}={value}' for key, value in arguments.items())
            raise MonitorError(f'{prefix} {words}: {status or errno.errorcode.get(-code)}', -code)
        return _decode(output)

    def find(self, prefix, **arguments):
        """Like command(), but None where the monitor knows no such thing."""
        try:
            return self.command(prefix, **arguments)
        except MonitorError as error:
            if error.code == errno.ENOENT:
                return None
            raise

    def initialise_rbd_pool(self, pool):
        """Prepare a pool for RBD images, so that the first image does not have to."""
        import rbd

        with self._handle.open_ioctx(pool) as context:
            rbd.RBD().pool_init(context, True)

    def wait_until_clean(self, timeout_sec):
        """Block until every placement group is active and clean.

        :raises ClusterError: the time is up; the message carries the states seen last.
        """
        deadline = time.monotonic() + timeout_sec
        while True:
            # The manager's count lags behind a new pool: hold it against the map itself.
            expected = sum(pool['pg_num'] for pool in self.command('osd dump')['pools'])
            status = self.command('status')
            states = {
                entry['state_name']: entry['count']
                for entry in status['pgmap'].get('pgs_by_state', [])
            }
            if status['mgrmap']['available'] and states == {'active+clean': expected}:
                return
            if time.monotonic() > deadline:
                raise ClusterError(
                    f'not {expected} clean placement groups after {timeout_sec} s: {states}'
                )
            time.sleep(0.1)


def _decode(output):
    text = output.decode(errors='replace').strip()
    if text[:1] in ('{', '['):
        return json.loads(text)
    return text


@contextlib.contextmanager
def connect(settings, timeout_sec=30):
    """Connect to the cluster's monitor as client.admin.

    :raises MonitorError: it does not answer in time.
    """
    try:
        import rados
    except ImportError as error:
        raise UsageError(
            'the Python module rados is missing: install the package python3-rados and '
            'use /usr/bin/python3'
        ) from error
    try:
        handle = rados.Rados(conffile=str(layout.conf_file(settings)), name='client.admin')
        handle.connect(timeout=timeout_sec)
    except rados.Error as error:
        raise MonitorError(
            f'the monitor at {settings.mon_addr}:{settings.mon_port_v2} does not answer: {error}',
            error.errno or errno.ETIMEDOUT,
        ) from error
    try:
        yield Monitor(handle)
    finally:
        handle.shutdown()
