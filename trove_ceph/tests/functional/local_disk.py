# SPDX-License-Identifier: Apache-2.0
"""Volumes in files, for tests of their content without Ceph."""

import contextlib
import os
import shutil
import subprocess

from trove_ceph.host import commands, rbd_device
from trove_ceph.tests.functional import mysqld

VOLUME_BYTES = 1024**3


class LocalDisk:
    """A file as a block device, inside a ``with`` block."""

    def __init__(self, file):
        self._file = file
        self.device = ''
        # There is no daemon below it; this process cannot end before the test.
        self.daemon_pid = os.getpid()

    def __enter__(self):
        self.device = commands.run('losetup', '--find', '--show', self._file)
        return self

    def __exit__(self, *exception):
        rbd_device.detach(self.device)


@contextlib.contextmanager
def mounted(file, mount_point, make=False):
    """Mount a volume and yield its path.

    All that was written is in the file afterwards, unless an exception ended the block.
    """
    with LocalDisk(file) as disk, rbd_device.Filesystem(disk.device, mount_point, make) as volume:
        yield volume.path
        # The unmount writes nothing while a process of another test has a copy of the mount in a
        # namespace of its own.
        commands.run('sync', '--file-system', str(volume.path))


def make_database(file, directory):
    """Create a volume with a stopped database that has a few rows."""
    with file.open('wb') as volume:
        volume.truncate(VOLUME_BYTES)
    with mounted(file, directory / 'made', make=True) as volume:
        with mysqld.durable_server(volume, directory / 'made-run') as server:
            server.query('CREATE DATABASE shop')
            server.query('CREATE TABLE shop.orders (id INT PRIMARY KEY, note CHAR(20))')
            server.query('INSERT INTO shop.orders VALUES (1, "one"), (2, "two")')


def hostile_root(directory, body):
    """Create a root file system whose mysqld is an arbitrary shell script.

    :param body: the script's part after the options are parsed; ``say`` writes to the error log
    """
    root = directory / 'hostile'
    subprocess.run(['cp', '--archive', '--link', mysqld.rootfs(), root], check=True)
    program = root / 'usr' / 'sbin' / 'mysqld'
    program.unlink()
    program.write_text(_SCRIPT + body + '\nexit 1\n')
    program.chmod(0o755)
    return root


_SCRIPT = """#!/bin/sh
case "$*" in *--version*) echo 'mysqld  Ver 9.7.4 for Linux on x86_64'; exit 0 ;; esac
for word in "$@"; do
    case "$word" in --log-error=*) log=${word#*=} ;; esac
done
say() {
    echo "2026-11-21T18:48:35.900000Z 0 [ERROR] [MY-000001] [Server] $*" >> "$log"
}
"""


def copy(source, target):
    """Copy a volume as a sparse file."""
    subprocess.run(['cp', '--sparse=always', source, target], check=True)


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
