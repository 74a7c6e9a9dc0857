# SPDX-License-Identifier: Apache-2.0
"""The sandbox's mysqld from the lab's MySQL root file system, small and durable."""

import functools
import subprocess
from pathlib import Path

from trove_ceph.mysql import installation
from trove_ceph.mysql import mysqld as sandbox
from trove_ceph.tests.functional import base, workspace

BUILD = base.CHECKOUT / 'lab' / 'images' / 'build'
BUILD_TIMEOUT_SEC = 900
COPY_TIMEOUT_SEC = 300

# The settings that a lock-free backup requires: every acknowledged commit is on the volume.
DURABLE = {
    'innodb_flush_log_at_trx_commit': 1,
    'sync_binlog': 1,
    'innodb_doublewrite': 'ON',
    'gtid_mode': 'ON',
    'enforce_gtid_consistency': 'ON',
    'log_bin': '/var/lib/mysql/data/binlog',
}
SMALL = {
    'innodb_buffer_pool_size': '64M',
    'innodb_redo_log_capacity': '64M',
    'performance_schema': 'OFF',
    'mysqlx': 'OFF',
}


@functools.cache
def rootfs():
    """Return the root file system with MySQL, building it if it is not in the cache."""
    result = subprocess.run(
        [str(BUILD), 'mysql-rootfs'],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=BUILD_TIMEOUT_SEC,
        check=True,
    )
    return Path(result.stdout.strip().splitlines()[-1])


def server(volume, directory, options):
    """Return a server with exactly the given options."""
    return sandbox.Mysqld(installation.Rootfs(rootfs()), volume, directory, options)


class DurableServer(sandbox.Mysqld):
    """A server whose new data directory is a copy of one that each test process initialises."""

    def ensure_initialised(self):
        self.prepare_run()
        if self.data.exists() and any(self.data.iterdir()):
            return
        self.data.mkdir(exist_ok=True)
        subprocess.run(
            ['cp', '--archive', '--', f'{_initialised_data()}/.', str(self.data)],
            timeout=COPY_TIMEOUT_SEC,
            check=True,
        )
        # As after --initialize: a snapshot must not contain files that are not on disk yet.
        subprocess.run(
            ['sync', '--file-system', str(self.data)], timeout=COPY_TIMEOUT_SEC, check=True
        )


def durable_server(volume, directory, server_id=1):
    """Return a small server whose image is a consistent backup at any time.

    :param server_id: must differ between servers that run at the same time.
    """
    options = _durable_options(server_id)
    return DurableServer(installation.Rootfs(rootfs()), volume, directory, options)


def _durable_options(server_id):
    return {'skip_replica_start': 'ON', 'server_id': server_id} | DURABLE | SMALL


def remove_server_uuid(created):
    """Remove the server UUID of a copied server, so that its first start generates a new one."""
    (created.data / 'auto.cnf').unlink()


@functools.cache
def _initialised_data():
    """Return a data directory to copy, without the identity that each server creates itself."""
    volume = workspace.shared() / 'initialised'
    volume.mkdir(exist_ok=True)
    template = server(volume, volume / 'run', _durable_options(1))
    template.ensure_initialised()
    remove_server_uuid(template)
    return template.data
