# SPDX-License-Identifier: Apache-2.0
"""Objects of a clone that its object map has and that are not there.

librbd marks an object in the map and then writes it. A client that ends in between leaves a mark
without an object. Reading and writing are right all the same, since they ask for the object, and
then its parent. But flattening passes over what is marked, and then takes the parent away: what it
had there reads as zeros from then on, without an error (``C_FlattenObject`` in
src/librbd/operation/FlattenRequest.cc of Ceph's source).

``rebuild_object_map`` does not mend that: in an image itself, other than in its snapshots, it
leaves such marks, because somebody might be writing there just now (``update_object_map`` in
RebuildObjectMapRequest.cc). So the objects are asked for here, and what is missing is copied from
the parent by the request that librbd uses for that, ``copyup`` of the object class ``rbd``. It does
nothing where the object is there by then, so that no lock is needed, and whoever has the image open
does not notice. To take the lock from a hypervisor would make its server's writes fail.
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
    link: connection.Connection, image: image_types.ImageRef, go_on: Callable[[], None]
) -> None:
    """Have all objects of a clone be there that its object map has; it may be in use.

    :param go_on: called again and again; it may raise what ends it
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
            link.translated(f'copying up what {image} lacks', [image.pool, pool]),
        ):
            missing = objects.absent(data_context, names, go_on)
            for name in missing:
                go_on()
                content = layout.read(handle, names[name])
                # What the parent does not have reads as zeros without it, too.
                if content.count(0) < len(content):
                    data_context.execute(name, 'rbd', 'copyup', content)
    if missing:
        LOG.warning('%s: %d objects were in its map and not there', image, len(missing))
        _rebuild_snapshots(link, image, go_on)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """How the data of an image lies in objects."""

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
        """Return where in the image a row of an object is; most images have one in each."""
        group, column = divmod(number, self.stripe_count)
        rows = self.object_bytes // self.stripe_bytes
        return ((group * rows + row) * self.stripe_count + column) * self.stripe_bytes

    def read(self, handle: rbd.Image, number: int) -> bytes:
        """Return what reads where an object is, or would be."""
        rows = []
        for row in range(self.object_bytes // self.stripe_bytes):
            offset = self.offset_of(number, row)
            length = min(self.stripe_bytes, handle.size() - offset)
            if length > 0:
                rows.append(handle.read(offset, length))
        return b''.join(rows)


def _find_marked(context: rados.Ioctx, handle: rbd.Image, layout: _Layout) -> Sequence[int]:
    """Return the numbers of the objects that the map has and that the parent may have, too."""
    within = handle.overlap()
    if not handle.features() & rbd.RBD_FEATURE_OBJECT_MAP or not within:
        return []
    name = object_map.object_name(handle.id())
    try:
        size, _ = context.stat(name)
        marked = object_map.marked(context.read(name, size))
    except rados.ObjectNotFound:
        # Nobody believes such a map, nor passes anything over.
        return []
    return [number for number in marked if layout.offset_of(number) < within]


def _rebuild_snapshots(
    link: connection.Connection, image: image_types.ImageRef, go_on: Callable[[], None]
) -> None:
    """Have the maps of snapshots show what they got with the image, as they share its objects."""
    with (
        link.pool(image.pool) as context,
        link.translated(f'rebuilding the object maps of the snapshots of {image}', [image.pool]),
        rbd.Image(context, image.name) as handle,
    ):
        for snapshot in list(handle.list_snaps()):
            go_on()
            handle.set_snap_by_id(snapshot['id'])
            handle.rebuild_object_map()
