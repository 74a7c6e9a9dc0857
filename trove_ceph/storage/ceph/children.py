# SPDX-License-Identifier: Apache-2.0
"""List the clones of an image, and release what lost clones have held.

librbd asks every pool of the cluster for clones, and the pool of each clone for its name. If a pool
with clones is silent, its answer takes as long as that pool's; if a clone is lost with the disk of
its pool, the whole list is an error for ever. Both concern the parent, which is in another pool.

The parent's header has its clones of format 2 (children_list in src/cls/rbd/cls_rbd.cc of Ceph's
source); clones of format 1 are in an object of their own pools, and their snapshots are protected.
"""

import contextlib
import dataclasses
import struct
from collections.abc import Iterator

import rados
import rbd

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import connection, encoding, metadata, stale_names, trash_entry

_FORMAT_1 = 'rbd_children'
# Of an answer; a clone takes less than 64.
_ANSWER_BYTES = 4 * 1024**2


@dataclasses.dataclass(frozen=True)
class _Clone:
    snapshot_id: int
    snapshot: str
    pool_id: int
    image_id: str


@dataclasses.dataclass(frozen=True)
class _Entry:
    """The name of an image in its pool; empty if it is neither in the directory nor in the trash.

    :param is_lost: there is no such image in the pool
    """

    name: str = ''
    trashed: bool = False
    is_lost: bool = False


class Children:
    """The clones of all snapshots of an open image.

    :param context: the pool of the image
    """

    def __init__(self, handle: rbd.Image, context: rados.Ioctx, link: connection.Connection):
        self._handle = handle
        self._context = context
        self._link = link

    def all(self) -> tuple[image_types.Child, ...]:
        """Return the clones that exist; those in a silent pool without their names.

        Send no request if the image has no clones, and wait a few seconds for a silent pool.
        """
        return tuple(
            image_types.Child(
                image_types.ImageRef(pool, entry.name),
                clone.image_id,
                clone.snapshot,
                entry.trashed,
            )
            for clone, pool, entry in self._located([*self._format_2(), *self._format_1()])
            if not entry.is_lost
        )

    def release_lost(self) -> int:
        """Remove the snapshots that Ceph has kept for clones that do not exist any more.

        A clone is attached to its parent after its header is written, and detached before the
        header is removed (CloneRequest.cc and RemoveRequest.cc in Ceph's source). So an attached
        clone without a header is lost. The handle must be open for writing.

        :returns: the number of lost clones
        """
        located = list(self._located(list(self._format_2())))
        lost = [clone for clone, _, entry in located if entry.is_lost]
        needed = {clone.snapshot_id for clone, _, entry in located if not entry.is_lost}
        for clone in lost:
            self._detach(clone)
        released = {clone.snapshot_id for clone in lost} - needed
        for snapshot in list(self._handle.list_snaps()):
            is_removed = snapshot['namespace'] == rbd.RBD_SNAP_NAMESPACE_TYPE_TRASH
            if is_removed and snapshot['id'] in released:
                self._handle.remove_snap_by_id(snapshot['id'])
        return len(lost)

    def _detach(self, clone: _Clone) -> None:
        child = struct.pack('<q', clone.pool_id) + encoding.string(clone.image_id)
        argument = encoding.long_number(clone.snapshot_id) + encoding.versioned(child)
        with rados.WriteOpCtx() as request:
            request.execute('rbd', 'child_detach', argument)
            self._context.operate_write_op(request, metadata.header_of(self._handle.id()))

    def _located(self, clones: list[_Clone]) -> Iterator[tuple[_Clone, str, _Entry]]:
        """Yield each clone with the name of its pool and its entry there."""
        for pool_id in dict.fromkeys(clone.pool_id for clone in clones):
            of_pool = [clone for clone in clones if clone.pool_id == pool_id]
            try:
                pool = self._link.cluster.pool_reverse_lookup(pool_id)
            except rados.ObjectNotFound:
                # The pool was deleted, and the clones with it.
                yield from ((clone, f'pool {pool_id}', _Entry(is_lost=True)) for clone in of_pool)
                continue
            ids = [clone.image_id for clone in of_pool]
            for clone, entry in zip(of_pool, self._entries(pool_id, pool, ids), strict=True):
                yield clone, pool, entry

    def _entries(self, pool_id: int, pool: str, image_ids: list[str]) -> list[_Entry]:
        def find_all(context: rados.Ioctx) -> list[_Entry]:
            with self._link.translated(f'looking up clones in pool {pool}'):
                return [_find(context, image_id) for image_id in image_ids]

        if pool_id == self._context.get_pool_id():
            return find_all(self._context)
        try:
            return self._link.silent_pools.ask(pool, find_all)
        except exceptions.CephUnreachableError:
            return [_Entry()] * len(image_ids)

    def _format_2(self) -> Iterator[_Clone]:
        if not self._handle.op_features() & rbd.RBD_OPERATION_FEATURE_CLONE_PARENT:
            return
        header = metadata.header_of(self._handle.id())
        for snapshot in self._handle.list_snaps():
            with contextlib.suppress(rados.ObjectNotFound):
                argument = encoding.long_number(snapshot['id'])
                _, answer = self._context.execute(
                    *(header, 'rbd', 'children_list', argument, _ANSWER_BYTES)
                )
                reader = encoding.Reader(answer)
                for _ in range(reader.number()):
                    child = reader.structure()
                    yield _Clone(
                        snapshot['id'],
                        snapshot['name'],
                        child.signed_long_number(),
                        child.string(),
                    )

    def _format_1(self) -> Iterator[_Clone]:
        protected = [
            snapshot
            for snapshot in self._handle.list_snaps()
            if snapshot['namespace'] == rbd.RBD_SNAP_NAMESPACE_TYPE_USER
            and self._handle.is_protected_snap(snapshot['name'])
        ]
        if not protected:
            return
        parent = struct.pack('<q', self._context.get_pool_id()) + encoding.string(self._handle.id())
        for pool in self._link.cluster.list_pools():
            for snapshot in protected:
                argument = parent + encoding.long_number(snapshot['id'])
                for image_id in self._registered(pool, argument):
                    pool_id = self._link.cluster.pool_lookup(pool)
                    yield _Clone(snapshot['id'], snapshot['name'], pool_id, image_id)

    def _registered(self, pool: str, argument: bytes) -> list[str]:
        """Return the ids of the clones of format 1 in a pool."""

        def request(context: rados.Ioctx) -> bytes:
            with self._link.translated(f'looking for clones in pool {pool}'):
                found = context.execute(_FORMAT_1, 'rbd', 'get_children', argument, _ANSWER_BYTES)
            return found[1]

        try:
            reader = encoding.Reader(self._link.silent_pools.ask(pool, request))
        except exceptions.StorageError:
            # A pool without such clones, of another user, or silent: Ceph keeps the snapshot.
            return []
        return [reader.string() for _ in range(reader.number())]


def _find(context: rados.Ioctx, image_id: str) -> _Entry:
    if (name := stale_names.find_name(context, image_id)) is not None:
        return _Entry(name)
    with contextlib.suppress(rados.ObjectNotFound):
        return _Entry(trash_entry.read(context, image_id).name, trashed=True)
    return _Entry(is_lost=not stale_names.has_header(context, image_id))
