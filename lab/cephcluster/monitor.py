# SPDX-License-Identifier: Apache-2.0
"""The adapter to the monitor."""

import contextlib
import errno
import json

from cephcluster import layout
from cephcluster.errors import MonitorError, UsageError


class Monitor:
    """Monitor commands over one librados connection.

    :param handle: a connected rados.Rados.
    """

    def __init__(self, handle, timeout_sec=60):
        self._handle = handle
        self._timeout_sec = timeout_sec

    def command(self, prefix, data=b'', **arguments):
        """Run a monitor command and return its decoded reply.

        :raises MonitorError: the monitor refused it.
        """
        request = json.dumps({'prefix': prefix, 'format': 'json', **arguments})
        code, output, status = self._handle.mon_command(request, data, timeout=self._timeout_sec)
        if code != 0:
            text = ' '.join(f'{key}={value}' for key, value in arguments.items())
            raise MonitorError(f'{prefix} {text}: {status or errno.errorcode.get(-code)}')
        return _decode(output)


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
            f'the monitor at {settings.mon_addr}:{settings.mon_port_v2} does not answer: {error}'
        ) from error
    try:
        yield Monitor(handle)
    finally:
        handle.shutdown()
