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
the parent by a write of what reads there already.
"""

import dataclasses
from collections.abc import Callable, Sequence

import rados
import rbd
from oslo_log import log as logging

from trove_ceph.storage import model
from trove_ceph.storage.ceph import connection, description, object_map, objects, streams

LOG = logging.getLogger(__name__)

# The least that can be written.
_SECTOR_BYTES = 512


def copy_up(link: connection.Connection, image: model.ImageRef, go_on: Callable[[], None]) -> None:
    """Have all objects of a clone be there that its object map has.

    Where some are missing, the exclusive lock is taken for as long as it takes to write them, some
    milliseconds each: a client that has the image open, such as a hypervisor, gives it away and
    waits so long with what it writes.

    :param go_on: called again and again; it may raise what ends it
    :raises BusyError: some are missing, and another client holds the image exclusively
    """
    layout = _find_layout(link, image)
    missing = _absent(link, layout, layout.marked, go_on)
    if not missing:
        return
    with streams.Writer(link, image) as writer:
        # Whoever was writing some of them has done so before it gave the lock away.
        missing = _absent(link, layout, missing, go_on)
        LOG.warning('%s: %d objects are in its map and not there', image, len(missing))
        for number in missing:
            go_on()
            offset = layout.offset_of(number)
            with link.translated(f'reading {image}'):
                content = writer.handle.read(offset, _SECTOR_BYTES)
            writer.write(offset, content).result()


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where the data of an image lies.

    :param marked: the numbers of the objects that the map has and that the parent may have, too
    """

    pool: str
    prefix: str
    object_bytes: int
    stripe_bytes: int
    stripe_count: int
    marked: Sequence[int] = ()

    def name_of(self, number: int) -> str:
        return f'{self.prefix}.{number:016x}'

    def offset_of(self, number: int) -> int:
        """Return where in the image an object begins."""
        row, column = divmod(number, self.stripe_count)
        return row * self.stripe_count * self.object_bytes + column * self.stripe_bytes


def _find_layout(link: connection.Connection, image: model.ImageRef) -> _Layout:
    with (
        link.pool(image.pool) as context,
        link.translated(f'reading the object map of {image}', [image.pool]),
        rbd.Image(context, image.name, read_only=True) as handle,
    ):
        stat = handle.stat()
        layout = _Layout(
            pool=description.data_pool_of(handle, context, link) or image.pool,
            prefix=stat['block_name_prefix'],
            object_bytes=stat['obj_size'],
            stripe_bytes=handle.stripe_unit(),
            stripe_count=handle.stripe_count(),
        )
        if not handle.features() & rbd.RBD_FEATURE_OBJECT_MAP or not handle.overlap():
            return layout
        marked = _read_map(context, handle.id())
        within = [number for number in marked if layout.offset_of(number) < handle.overlap()]
        return dataclasses.replace(layout, marked=within)


def _read_map(context: rados.Ioctx, image_id: str) -> list[int]:
    name = object_map.object_name(image_id)
    try:
        size, _ = context.stat(name)
        return list(object_map.marked(context.read(name, size)))
    except rados.ObjectNotFound:
        # Nobody believes such a map, nor passes anything over.
        return []


def _absent(
    link: connection.Connection,
    layout: _Layout,
    numbers: Sequence[int],
    go_on: Callable[[], None],
) -> list[int]:
    names = {layout.name_of(number): number for number in numbers}
    with link.pool(layout.pool) as context, link.translated(f'asking pool {layout.pool}'):
        return [names[name] for name in objects.absent(context, names, go_on)]
