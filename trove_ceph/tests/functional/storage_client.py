# SPDX-License-Identifier: Apache-2.0
"""A client of storage in a process of its own, to be fenced or killed.

``write``: open an image as a hypervisor does and write numbers to it, one after another, until a
write fails. ``copy``: copy a snapshot slowly.
"""

import sys

import rados
import rbd

from trove_ceph.storage import copying, image_types, throttle
from trove_ceph.storage.ceph import backend, connection

BLOCK_BYTES = 4096
BLOCKS = 1024


def write(conf, user, pool, name):
    """Print ``writing`` after the first write, and at the end the error and the last number."""
    cluster = rados.Rados(name=user, conffile=conf)
    cluster.connect()
    image = rbd.Image(cluster.open_ioctx(pool), name)
    number = 0
    try:
        while True:
            block = str(number + 1).encode().ljust(BLOCK_BYTES)
            image.write(block, number % BLOCKS * BLOCK_BYTES)
            number += 1
            if number == 1:
                print('writing', flush=True)
    except rbd.Error as error:
        print(type(error).__name__, number, flush=True)


def copy(conf, user, pool, name, snapshot, target_pool, target, bytes_per_sec):
    """Copy a snapshot and print the position after each chunk."""
    storage = backend.CephBackend(connection.Connection(conf, user))
    limits = throttle.Throttle(
        bytes_per_sec=int(bytes_per_sec),
        progress=lambda progress: print(progress.position_bytes, flush=True),
    )
    source = image_types.ImageRef(pool, name).snapshot(snapshot)
    copying.copy(storage, source, storage, image_types.ImageRef(target_pool, target), limits=limits)


if __name__ == '__main__':
    {'write': write, 'copy': copy}[sys.argv[1]](*sys.argv[2:])
