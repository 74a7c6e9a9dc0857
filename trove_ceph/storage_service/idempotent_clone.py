# SPDX-License-Identifier: Apache-2.0
"""Clone, also where whoever did it before died at it.

librbd makes an image, then notes the parent in it, then notes the clone in the parent, and then
copies the parent's metadata (CloneRequest.cc in Ceph's source). Cut off in between, it leaves an
image that reads as zeros, or one whose parent does not know it: the snapshot could be removed under
it. None of that can be told from a clone that is whole and was not used yet, so what was not used
is made anew.
"""

import dataclasses

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import backend, image_types

LOG = logging.getLogger(__name__)


def clone(
    storage: backend.Backend,
    snapshot: image_types.SnapshotRef,
    image: image_types.ImageRef,
    options: image_types.ImageOptions,
) -> None:
    """Make a clone, or leave one alone that is there and was used.

    :raises AlreadyExistsError: something else has the name
    :raises BusyError: it is there, was not used, and is open, perhaps at a client that died
    """
    try:
        storage.clone(snapshot, image, options)
    except exceptions.AlreadyExistsError:
        facts = storage.describe(image)
        if not _is_unused(facts, snapshot):
            if facts.parent != snapshot:
                raise
            return
        if facts.clients:
            raise exceptions.BusyError(
                f'{image}: is there, and open at {", ".join(facts.clients)}'
            ) from None
        LOG.warning('%s: is there and was not used, so it is made anew', image)
        storage.remove(image)
        storage.clone(snapshot, image, options)


def _is_unused(facts: image_types.ImageFacts, snapshot: image_types.SnapshotRef) -> bool:
    is_of_it = facts.parent in (None, snapshot)
    is_needed = dataclasses.replace(facts, clients=()).obstacles()
    return is_of_it and not facts.used_bytes and not is_needed
