# SPDX-License-Identifier: Apache-2.0
"""Count the images from which a clone reads.

librbd returns the parent of an open image only. The object class ``rbd`` has the parent in the
header of each image (parent_get in src/cls/rbd/cls_rbd.cc of Ceph's source), so that one request
for each level is enough and no parent has to be opened, not even one in the trash.
"""

import contextlib

import rados

from trove_ceph.storage.ceph import connection, encoding, metadata

# The header of a structure, two numbers and two short strings.
_ANSWER_BYTES = 4096


def depth(context: rados.Ioctx, image_id: str, link: connection.Connection) -> int:
    """Return the number of images above a clone, parent, grandparent and so on.

    An ancestor that is flattened or removed meanwhile ends the count.

    :param context: the pool of the image
    :returns: 0 for an image without parent
    """
    found = 0
    with contextlib.ExitStack() as opened, contextlib.suppress(rados.ObjectNotFound):
        while (parent := _parent_of(context, image_id)) is not None:
            pool_id, image_id = parent
            if pool_id != context.get_pool_id():
                pool = link.cluster.pool_reverse_lookup(pool_id)
                context = opened.enter_context(link.pool(pool))
            found += 1
    return found


def _parent_of(context: rados.Ioctx, image_id: str) -> tuple[int, str] | None:
    """Return the pool's id and the image's id of the parent, or None without parent.

    :raises rados.ObjectNotFound: the image does not exist any more
    """
    header = metadata.header_of(image_id)
    _, answer = context.execute(header, 'rbd', 'parent_get', b'', _ANSWER_BYTES)
    parent = encoding.Reader(answer).structure()
    pool_id = parent.signed_long_number()
    # The namespace, of which there is only one here.
    parent.string()
    return (pool_id, parent.string()) if pool_id >= 0 else None
