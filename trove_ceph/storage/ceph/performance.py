# SPDX-License-Identifier: Apache-2.0
"""Ask the manager what clients of images get from the OSDs, as ``rbd perf image iostat`` does.

The module rbd_support (src/pybind/mgr/rbd_support/perf.py of Ceph's source) has the OSDs count
requests by image. It returns rates, and the mean duration of a request in nanoseconds, over the
seconds between the last two reports of the OSDs.
"""

from typing import Any

from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import connection

_NANOSECOND = 1e-9


def busiest(link: connection.Connection, pool: str) -> list[image_types.ImagePerformance]:
    """Return the performance of the images of a pool with most writes, 64 at most.

    :raises NotFoundError: the pool does not exist
    """
    # The manager denies access to a pool that it does not know, as to one without a cap.
    link.check_pool(pool)
    answer = link.mgr_command(
        f'measuring pool {pool}', 'rbd perf image stats', pool_spec=pool, sort_by='write_ops'
    )
    names = answer['stat_descriptors']
    found = []
    for each in answer['stats']:
        for described, values in each.items():
            # An image is named by the number of its pool, and its name.
            _, _, image = described.partition('/')
            found.append(_performance(image_types.ImageRef(pool, image), names, values))
    return found


def _performance(
    image: image_types.ImageRef, names: list[str], values: list[Any]
) -> image_types.ImagePerformance:
    stats = dict(zip(names, values, strict=True))
    return image_types.ImagePerformance(
        image,
        reads_per_sec=stats['read_ops'],
        writes_per_sec=stats['write_ops'],
        read_sec=stats['read_latency'] * _NANOSECOND,
        write_sec=stats['write_latency'] * _NANOSECOND,
    )
