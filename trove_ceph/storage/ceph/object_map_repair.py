# SPDX-License-Identifier: Apache-2.0
"""Create the objects of a clone that are marked in its object map and do not exist.

librbd marks an object in the map and then writes it. A client that dies in between leaves a mark
without an object. Reads and writes are correct all the same, since they request the object and then
its parent. But flattening skips marked objects, and then removes the parent: its data there reads
as zeros from then on, without an error (``C_FlattenObject`` in
src/librbd/operation/FlattenRequest.cc of Ceph's source).

``rebuild_object_map`` does not repair that: in an image itself, unlike in its snapshots, it leaves
such marks, because a client might be writing there just now (``update_object_map`` in
RebuildObjectMapRequest.cc). So this module checks the objects, and copies missing ones from the
parent with the request that librbd uses for that, ``copyup`` of the object class ``rbd``. It does
nothing if the object exists by then, so it needs no lock, and clients that have the image open do
not notice. Taking the lock from a hypervisor would make its server's writes fail.
"""

import dataclasses
from collections.abc import Callable, Sequence

import rados
import rbd
from oslo_log import log as logging

from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import connection, description, object_map, objects

LOG = logging.getLogger(__name__)


def copy_up(
    link: connection.Connection, image: image_types.ImageRef, check_canceled: Callable[[], None]
) -> None:
    """Create all missing objects that the object map of a clone has; the clone may be in use.

    :param check_canceled: called from time to time; an exception ends the work
    """
    with (
        link.pool(image.pool) as context,
        link.translated(f'reading the object map of {image}', [image.pool]),
        rbd.Image(context, image.name, read_only=True) as handle,
    ):
        pool = description.data_pool_of(handle, context, link) or image.pool
        layout = _Layout.of(handle)
        names = {layout.name_of(number): number for number in _find_marked(context, handle, layout)}
        with (
            link.pool(pool) as data_context,
            link.translated(f'copying up missing objects of {image}', [image.pool, pool]),
        ):
            missing = objects.absent(data_context, names, check_canceled)
            for name in missing:
                check_canceled()
                content = layout.read(handle, names[name])
                # Without an object the range reads as zeros, too.
                if content.count(0) < len(content):
                    data_context.execute(name, 'rbd', 'copyup', content)
    if missing:
        LOG.warning('%s: created %d objects that its map has and were missing', image, len(missing))
        _rebuild_snapshots(link, image, check_canceled)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The mapping of an image's data to objects."""

    prefix: str
    object_bytes: int
    stripe_bytes: int
    stripe_count: int

    @classmethod
    def of(cls, handle: rbd.Image) -> '_Layout':
        stat = handle.stat()
        units = handle.stripe_unit(), handle.stripe_count()
        return cls(stat['block_name_prefix'], stat['obj_size'], *units)

    def name_of(self, number: int) -> str:
        return f'{self.prefix}.{number:016x}'

    def offset_of(self, number: int, row: int = 0) -> int:
        """Return the offset in the image of a row of an object; most images have one row each."""
        group, column = divmod(number, self.stripe_count)
        rows = self.object_bytes // self.stripe_bytes
        return ((group * rows + row) * self.stripe_count + column) * self.stripe_bytes

    def read(self, handle: rbd.Image, number: int) -> bytes:
        """Return the image's data in the range of an object."""
        rows = []
        for row in range(self.object_bytes // self.stripe_bytes):
            offset = self.offset_of(number, row)
            length = min(self.stripe_bytes, handle.size() - offset)
            if length > 0:
                rows.append(handle.read(offset, length))
        return b''.join(rows)


def _find_marked(context: rados.Ioctx, handle: rbd.Image, layout: _Layout) -> Sequence[int]:
    """Return the numbers of the marked objects in the range that the parent covers."""
    within = handle.overlap()
    if not handle.features() & rbd.RBD_FEATURE_OBJECT_MAP or not within:
        return []
    name = object_map.object_name(handle.id())
    try:
        size, _ = context.stat(name)
        marked = object_map.marked(context.read(name, size))
    except rados.ObjectNotFound:
        # Without a map librbd skips no objects.
        return []
    return [number for number in marked if layout.offset_of(number) < within]


def _rebuild_snapshots(
    link: connection.Connection, image: image_types.ImageRef, check_canceled: Callable[[], None]
) -> None:
    """Rebuild the object maps of snapshots, which share the objects created for the image."""
    with (
        link.pool(image.pool) as context,
        link.translated(f'rebuilding the object maps of the snapshots of {image}', [image.pool]),
        rbd.Image(context, image.name) as handle,
    ):
        for snapshot in list(handle.list_snaps()):
            check_canceled()
            handle.set_snap_by_id(snapshot['id'])
            handle.rebuild_object_map()
