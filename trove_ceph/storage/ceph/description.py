# SPDX-License-Identifier: Apache-2.0
"""Read the facts of an open image."""

import datetime
from collections.abc import Iterator

import rados
import rbd

from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import ancestry, children, connection, limits, metadata


def describe(
    handle: rbd.Image,
    image: image_types.ImageRef,
    context: rados.Ioctx,
    link: connection.Connection,
) -> image_types.ImageFacts:
    """Return the facts of an image, with a few requests however many snapshots it has.

    A clone costs one more request for each image from which it reads.
    """
    stat = handle.stat()
    entries = metadata.read(context, handle.id())
    parent = _parent_of(handle)
    clients = clients_of(handle, link)
    return image_types.ImageFacts(
        image=image,
        image_id=handle.id(),
        size_bytes=stat['size'],
        object_bytes=stat['obj_size'],
        features=_features_of(handle),
        data_pool=data_pool_of(handle, context, link),
        parent=parent,
        snapshots=tuple(_snapshots_of(handle)),
        children=children.Children(handle, context, link).all(),
        clients=tuple(sorted(clients.watchers)),
        lock_owner=clients.lock_owner,
        qos=limits.read(entries),
        metadata=limits.without_options(entries),
        created_at=handle.create_timestamp().replace(tzinfo=datetime.UTC),
        qos_is_whole=limits.is_whole(entries),
        clone_depth=ancestry.depth(context, handle.id(), link),
    )


def read_header(
    handle: rbd.Image, image: image_types.ImageRef, context: rados.Ioctx
) -> image_types.ImageHeader:
    """Return the facts in the image's header."""
    entries = limits.without_options(metadata.read(context, handle.id()))
    return image_types.ImageHeader(image, handle.id(), _features_of(handle), entries)


def used_bytes(handle: rbd.Image) -> int:
    """Return the space of an image and its snapshots, in whole objects, without its parent.

    Like ``rbd du``: the sum of what was written between consecutive snapshots. If Ceph keeps a
    removed snapshot for its clones, the sum is too high by what was written after it.
    """
    total = 0
    since: str | None = None

    def add(_offset: int, length: int, exists: bool) -> None:
        nonlocal total
        total += length if exists else 0

    def count() -> None:
        handle.diff_iterate(0, handle.size(), since, add, include_parent=False, whole_object=True)

    for snapshot in sorted(handle.list_snaps(), key=lambda one: one['id']):
        handle.set_snap_by_id(snapshot['id'])
        count()
        # librbd compares with a snapshot by its name; it does not find a removed one.
        if snapshot['namespace'] == rbd.RBD_SNAP_NAMESPACE_TYPE_USER:
            since = snapshot['name']
    handle.set_snap(None)
    count()
    return total


def clients_of(handle: rbd.Image, link: connection.Connection) -> image_types.Clients:
    """Return the other clients that have an image open for writing, and the lock owner."""
    ourselves = link.cluster.get_instance_id()
    watchers = {watcher['addr'] for watcher in handle.watchers_list() if watcher['id'] != ourselves}
    # The exclusive lock is based on an advisory lock, which even a read-only handle can list.
    lockers = handle.list_lockers()
    owners = [
        address
        for client, _, address in (lockers['lockers'] if lockers else [])
        if client != f'client.{ourselves}'
    ]
    return image_types.Clients(frozenset(watchers), owners[0] if owners else None)


def data_pool_of(
    handle: rbd.Image, context: rados.Ioctx, link: connection.Connection
) -> str | None:
    """Return the name of an image's data pool, or None if it is the image's own pool."""
    identifier = handle.data_pool_id()
    if identifier == context.get_pool_id():
        return None
    return link.cluster.pool_reverse_lookup(identifier)


def _snapshots_of(handle: rbd.Image) -> Iterator[image_types.SnapshotFacts]:
    for snapshot in handle.list_snaps():
        removed = snapshot['namespace'] == rbd.RBD_SNAP_NAMESPACE_TYPE_TRASH
        created = handle.get_snap_timestamp(snapshot['id'])
        yield image_types.SnapshotFacts(
            name=snapshot['name'],
            snapshot_id=snapshot['id'],
            size_bytes=snapshot['size'],
            created_at=created.replace(tzinfo=datetime.UTC),
            removed=removed,
            removed_name=snapshot['trash']['original_name'] if removed else None,
        )


def _parent_of(handle: rbd.Image) -> image_types.SnapshotRef | None:
    try:
        spec = handle.get_parent_image_spec()
    except rbd.ImageNotFound:
        return None
    return image_types.SnapshotRef(spec['pool_name'], spec['image_name'], spec['snap_name'])


def _features_of(handle: rbd.Image) -> frozenset[str]:
    return frozenset(rbd.RBD().features_to_string(handle.features()).split(','))
