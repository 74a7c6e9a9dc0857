# SPDX-License-Identifier: Apache-2.0
"""Read the metadata of images, and change it without their exclusive lock.

librbd first takes the lock, or delegates the change to its holder. If the holder does not answer,
such as a stopped hypervisor, librbd waits half a minute until the holder's watch expires, and then
breaks the lock. Metadata does not need the lock: the object class ``rbd`` stores it on the image's
header (metadata_set and metadata_remove in src/cls/rbd/cls_rbd.cc of Ceph's source).

Clients that have the image open are not notified, so this is not for librbd options, which clients
apply when they are notified.

``metadata_list`` of the Python binding has a bug: each entry after an empty one gets the value of
the next.
"""

from collections.abc import Mapping

import rados

from trove_ceph.storage.ceph import encoding

# Maximum entries and bytes of one answer.
_PAGE, _PAGE_BYTES = 64, 1024**2


def image_id(context: rados.Ioctx, name: str) -> str:
    """Return the id of an image.

    :raises rados.ObjectNotFound: there is no image with this name
    """
    return encoding.Reader(context.read(f'rbd_id.{name}')).string()


def header_of(image_id: str) -> str:
    """Return the name of an image's header object."""
    return f'rbd_header.{image_id}'


def read(context: rados.Ioctx, image_id: str) -> dict[str, str]:
    """Return the metadata of an image, including librbd options.

    :raises rados.ObjectNotFound: the image does not exist any more
    """
    found: dict[str, str] = {}
    after = ''
    while True:
        argument = encoding.string(after) + encoding.long_number(_PAGE)
        _, answer = context.execute(
            header_of(image_id), 'rbd', 'metadata_list', argument, _PAGE_BYTES
        )
        page = encoding.Reader(answer).strings()
        found |= page
        if len(page) < _PAGE:
            return found
        after = max(page, key=str.encode)


def change(context: rados.Ioctx, image_id: str, entries: Mapping[str, str | None]) -> None:
    """Set entries of the metadata of an image atomically; None removes an entry.

    :raises rados.ObjectNotFound: the image does not exist any more
    """
    new = {key: value for key, value in entries.items() if value is not None}
    with rados.WriteOpCtx() as request:
        # Setting an entry would create the header of a removed image again. This call fails without
        # a header, and the whole request with it.
        request.execute('rbd', 'get_object_prefix', b'')
        if new:
            request.execute('rbd', 'metadata_set', encoding.strings(new))
        for key in entries.keys() - new.keys():
            request.execute('rbd', 'metadata_remove', encoding.string(key))
        context.operate_write_op(request, header_of(image_id))
