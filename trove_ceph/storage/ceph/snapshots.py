# SPDX-License-Identifier: Apache-2.0
"""Create snapshots that can be opened, even if the client that creates them dies meanwhile.

The owner of an image's lock creates its snapshots, also those that other clients request. It adds
the snapshot to the image's header and then writes the snapshot's object map
(SnapshotCreateRequest.cc in src/librbd/operation of Ceph's source). If it dies in between, the
snapshot exists, and each attempt to open it fails with ENOENT. A client that requested it repeats
the request, and librbd then reports "exists" as a success.
"""

import rados
import rbd
from oslo_log import log as logging

from trove_ceph.storage.ceph import object_map

LOG = logging.getLogger(__name__)


def create(handle: rbd.Image, context: rados.Ioctx, name: str) -> None:
    """Create a snapshot, or write the object map of one that has none.

    :raises rbd.ImageExists: the snapshot existed; it can be opened now
    """
    try:
        handle.create_snap(name, rbd.RBD_SNAP_CREATE_SKIP_QUIESCE)
    except rbd.ImageExists:
        _ensure_object_map(handle, context, name)
        raise
    _ensure_object_map(handle, context, name)


def _ensure_object_map(handle: rbd.Image, context: rados.Ioctx, name: str) -> None:
    if not handle.features() & rbd.RBD_FEATURE_OBJECT_MAP:
        return
    for snapshot in handle.list_snaps():
        if snapshot['name'] == name:
            try:
                context.stat(object_map.object_name(handle.id(), snapshot['id']))
            except rados.ObjectNotFound:
                _rebuild(handle, context, name)


def _rebuild(handle: rbd.Image, context: rados.Ioctx, name: str) -> None:
    image = handle.get_name()
    LOG.warning('%s@%s: its creation was interrupted; writing its object map', image, name)
    with rbd.Image(context, image) as other:
        # It cannot be opened at the snapshot. At a snapshot the work needs no lock.
        other.set_snap(name)
        other.rebuild_object_map()
