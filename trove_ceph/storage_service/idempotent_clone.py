# SPDX-License-Identifier: Apache-2.0
"""Create a clone, even after an earlier attempt was killed.

librbd creates an image, then records the parent in it, then records the clone in the parent, and
then copies the parent's metadata (CloneRequest.cc in Ceph's source). A kill in between leaves an
image that reads as zeros, or one that its parent does not know, so that the snapshot can be removed
although the clone needs it. Such an image looks like a complete clone that was not used yet, so an
unused clone is created again.
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
    """Create a clone; keep an existing one that was used.

    :raises AlreadyExistsError: the image exists and is not a clone of the snapshot
    :raises BusyError: an unused clone exists and is open, perhaps at a client that died
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
                f'{image}: exists without any data, and is still open at {", ".join(facts.clients)}'
            ) from None
        LOG.warning('%s: exists and is unused; creating it again', image)
        storage.remove(image)
        storage.clone(snapshot, image, options)


def _is_unused(facts: image_types.ImageFacts, snapshot: image_types.SnapshotRef) -> bool:
    is_of_it = facts.parent in (None, snapshot)
    is_needed = dataclasses.replace(facts, clients=()).obstacles()
    return is_of_it and not facts.used_bytes and not is_needed
