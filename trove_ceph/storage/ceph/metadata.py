# SPDX-License-Identifier: Apache-2.0
"""Metadata of images, read by themselves, and changed without their exclusive lock.

librbd takes the lock first, or has its holder do the work. Of a client that does not answer, a
stopped hypervisor, it asks for the lock until Ceph has forgotten that client, half a minute later,
and then breaks it. The lock has no part in metadata, which the object class ``rbd`` keeps on the
image's header (metadata_set and metadata_remove in src/cls/rbd/cls_rbd.cc of Ceph's source).

Clients that have the image open are not told: not for librbd's own options, which they follow.

Reading by Python's ``metadata_list`` gives each entry after an empty one the value of the next.
"""

from collections.abc import Mapping

import rados

from trove_ceph.storage.ceph import encoding

# Entries, and bytes that they may have together.
_PAGE, _PAGE_BYTES = 64, 1024**2


def image_id(context: rados.Ioctx, name: str) -> str:
    """Return the id of an image of a pool.

    :raises rados.ObjectNotFound: no image has this name
    """
    return encoding.Reader(context.read(f'rbd_id.{name}')).string()


def header_of(image_id: str) -> str:
    """Name the object that is an image's header."""
    return f'rbd_header.{image_id}'


def read(context: rados.Ioctx, image_id: str) -> dict[str, str]:
    """Return the metadata of an image, librbd's own options included.

    :raises rados.ObjectNotFound: the image is not there any more
    """
    found: dict[str, str] = {}
    after = ''
    while True:
        question = encoding.string(after) + encoding.long_number(_PAGE)
        _, answer = context.execute(
            header_of(image_id), 'rbd', 'metadata_list', question, _PAGE_BYTES
        )
        page = encoding.Reader(answer).strings()
        found |= page
        if len(page) < _PAGE:
            return found
        after = max(page, key=str.encode)


def change(context: rados.Ioctx, image_id: str, entries: Mapping[str, str | None]) -> None:
    """Set entries of the metadata of an image, all of them or none; None removes one.

    :raises rados.ObjectNotFound: the image is not there any more
    """
    kept = {key: value for key, value in entries.items() if value is not None}
    with rados.WriteOpCtx() as request:
        # To set an entry would make the header of an image that was removed anew. Without one,
        # this fails, and all the rest with it.
        request.execute('rbd', 'get_object_prefix', b'')
        if kept:
            request.execute('rbd', 'metadata_set', encoding.strings(kept))
        for key in entries.keys() - kept.keys():
            request.execute('rbd', 'metadata_remove', encoding.string(key))
        context.operate_write_op(request, header_of(image_id))
