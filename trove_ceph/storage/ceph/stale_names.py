# SPDX-License-Identifier: Apache-2.0
"""Remove names of images that do not exist, left by an interrupted creation or removal.

librbd writes a name into the pool's directory, then an object with the image's id, then the image's
header, and removes them in reverse order (CreateRequest.cc and RemoveRequest.cc in Ceph's source).
After an interruption there is no image to open, and no other image can be created with that name.
"""

import contextlib
from collections.abc import Callable

import rados
import rbd

from trove_ceph.storage.ceph import encoding, metadata

_DIRECTORY = 'rbd_directory'


def find_id(context: rados.Ioctx, name: str) -> str | None:
    """Return the id of a name from the pool's directory, or else from its id object, or None."""
    return next(iter(_ids(context, name)), None)


def find_name(context: rados.Ioctx, image_id: str) -> str | None:
    """Return the name of an id in the pool's directory, or None."""
    with contextlib.suppress(rados.ObjectNotFound):
        _, answer = context.execute(_DIRECTORY, 'rbd', 'dir_get_name', encoding.string(image_id))
        return encoding.Reader(answer).string()
    return None


def create(context: rados.Ioctx, name: str, request: Callable[[], None]) -> None:
    """Create an image, even if a stale name is in the way."""
    try:
        request()
    except rbd.ImageExists:
        if not remove(context, name):
            raise
        request()


def remove(context: rados.Ioctx, name: str) -> bool:
    """Remove a stale name, and return whether the name was stale.

    The name of an image that is just being created looks the same: the caller must ensure that no
    other client creates it.
    """
    if not _is_stale(context, name):
        return False
    # A name that is not in the directory is removed, too, and then reported as missing.
    with contextlib.suppress(rbd.ImageNotFound):
        rbd.RBD().remove(context, name)
    return True


def has_header(context: rados.Ioctx, image_id: str) -> bool:
    """Return whether an image exists, under its name or in the trash."""
    try:
        context.stat(metadata.header_of(image_id))
    except rados.ObjectNotFound:
        return False
    return True


def _is_stale(context: rados.Ioctx, name: str) -> bool:
    ids = _ids(context, name)
    return bool(ids) and not any(has_header(context, one) for one in ids)


def _ids(context: rados.Ioctx, name: str) -> list[str]:
    found = []
    with contextlib.suppress(rados.ObjectNotFound):
        _, answer = context.execute(_DIRECTORY, 'rbd', 'dir_get_id', encoding.string(name))
        found.append(encoding.Reader(answer).string())
    with contextlib.suppress(rados.ObjectNotFound):
        found.append(metadata.image_id(context, name))
    return found
