# SPDX-License-Identifier: Apache-2.0
"""Names of which nothing else is left, because whoever made or removed the image died at it.

librbd writes a name into the pool's directory, then an object that holds the image's id, then the
image's header, and removes them the other way round (CreateRequest.cc and RemoveRequest.cc in
Ceph's source). In between there is nothing to open, and nothing else can be made by that name.
"""

import contextlib
from collections.abc import Callable

import rados
import rbd

from trove_ceph.storage.ceph import encoding, metadata

_DIRECTORY = 'rbd_directory'


def find_id(context: rados.Ioctx, name: str) -> str | None:
    """Return the id that belongs to a name, by the pool's directory or else by its own object."""
    return next(iter(_ids(context, name)), None)


def make(context: rados.Ioctx, name: str, request: Callable[[], None]) -> None:
    """Make an image, also where only its name is left of another."""
    try:
        request()
    except rbd.ImageExists:
        if not clear(context, name):
            raise
        request()


def clear(context: rados.Ioctx, name: str) -> bool:
    """Clear a name if nothing else is left of its image, and tell whether that was so.

    Whoever is just making the image looks the same: callers see to it that nobody is.
    """
    if not _is_only_a_name(context, name):
        return False
    # What is not in the directory is removed, too, and then said to be missing.
    with contextlib.suppress(rbd.ImageNotFound):
        rbd.RBD().remove(context, name)
    return True


def has_header(context: rados.Ioctx, image_id: str) -> bool:
    """Tell whether an image is there, under its name or in the trash."""
    try:
        context.stat(metadata.header_of(image_id))
    except rados.ObjectNotFound:
        return False
    return True


def _is_only_a_name(context: rados.Ioctx, name: str) -> bool:
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
