# SPDX-License-Identifier: Apache-2.0
"""Read an entry of a pool's trash, and end a move that was interrupted.

librbd marks an entry while it moves the image to the trash or back (api/Trash.cc in Ceph's source).
If the client dies between the last change and the removal of the mark, the image is in the trash,
but librbd refuses for ever to restore or to remove it.
"""

import dataclasses
import enum

import rados

from trove_ceph.storage.ceph import encoding

_TRASH = 'rbd_trash'
_TIME_BYTES = 8


class State(enum.IntEnum):
    """TRASH_IMAGE_STATE_… of src/cls/rbd/cls_rbd_types.h in Ceph's source."""

    NORMAL = 0
    MOVING = 1
    REMOVING = 2
    RESTORING = 3


@dataclasses.dataclass(frozen=True)
class TrashEntry:
    name: str
    state: State


def read(context: rados.Ioctx, image_id: str) -> TrashEntry:
    """Return the entry of an image.

    :raises rados.ObjectNotFound: it is not in the trash
    """
    _, answer = context.execute(_TRASH, 'rbd', 'trash_get', encoding.string(image_id))
    entry = encoding.Reader(answer).structure()
    # Who has moved it to the trash.
    entry.skip(1)
    name = entry.string()
    # When that was, and until when it is kept.
    entry.skip(2 * _TIME_BYTES)
    return TrashEntry(name, State(entry.byte()))


def end_move(context: rados.Ioctx, image_id: str) -> None:
    """Remove the mark of an interrupted move; do nothing if there is none.

    The caller must ensure that the image is in the trash only, and that no other client moves it.

    :raises rados.ObjectNotFound: it is not in the trash
    """
    state = read(context, image_id).state
    if state in (State.MOVING, State.RESTORING):
        set_state(context, image_id, state, State.NORMAL)


def set_state(context: rados.Ioctx, image_id: str, expected: State, state: State) -> None:
    argument = encoding.string(image_id) + bytes([state, expected])
    context.execute(_TRASH, 'rbd', 'trash_state_set', argument)
