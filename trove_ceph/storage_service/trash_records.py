# SPDX-License-Identifier: Apache-2.0
"""Record which volumes this service has moved to the trash: requests may purge no others.

A volume that is restored keeps its id and its name, and Cinder may move it to the trash later. So
the record, beside the locks, also has the time of the move, by which Ceph tells the two apart. It
is written before the move, so that a kill leaves none without a record, and again with the time
that Ceph has. Both are by the clock of one host.
"""

import time
from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import backend, image_types, lock_store

LOG = logging.getLogger(__name__)

_PREFIX = 'trashed/'
_EXPIRE_AFTER_SEC = 86400
#: How long after the first record a killed service may have moved the image: a few requests, each
#: of which has a time limit.
_MOVE_SEC = 600
#: Times are rounded.
_TOLERANCE_SEC = 2


class TrashRecords:
    """The volumes that this service moved to the trash.

    :param entries: stores the records
    :param now: the wall clock
    """

    def __init__(
        self,
        storage: backend.Backend,
        entries: lock_store.LockStore,
        now: Callable[[], float] = time.time,
    ):
        self._storage = storage
        self._lock_store = entries
        self._now = now

    def trash(
        self, image: image_types.ImageRef, image_id: str | None = None
    ) -> image_types.TrashedImage:
        """Move an image to the trash, and record it; the caller holds the lock of the image.

        The parameters and errors are those of :meth:`.backend.Backend.trash`.
        """
        found_id = self._storage.read_header(image).image_id
        if image_id not in (None, found_id):
            # It reports that the name belongs to another image.
            return self._storage.trash(image, image_id)
        self._delete_expired(image.pool)
        self._record(image, found_id, self._now())
        try:
            trashed = self._storage.trash(image, found_id)
        except exceptions.CephUnreachableError:
            # It may have been moved.
            raise
        except exceptions.StorageError:
            self.forget(image.pool, found_id)
            raise
        self._record(image, found_id, trashed.trashed_at.timestamp())
        return trashed

    def forget(self, pool: str, image_id: str) -> None:
        """Delete the record of an image that is not in the trash, or not by this service."""
        try:
            self._lock_store.write(pool, {_PREFIX + image_id: None})
        except exceptions.StorageError as error:
            # Its time tells that it is not of a later move.
            LOG.warning('Cannot delete the record of image %s of %s: %s', image_id, pool, error)

    def has(self, trashed: image_types.TrashedImage) -> bool:
        """Return whether this service moved an image to the trash when it was moved there."""
        key = _PREFIX + trashed.image_id
        value = self._lock_store.read(trashed.pool, key).get(key)
        if value is None:
            return False
        noted_at, _, name = value.partition(' ')
        moved_after = trashed.trashed_at.timestamp() - float(noted_at)
        return name == trashed.name and -_TOLERANCE_SEC <= moved_after <= _MOVE_SEC

    def _record(self, image: image_types.ImageRef, image_id: str, time_sec: float) -> None:
        value = f'{time_sec:.0f} {image.name}'
        self._lock_store.write(image.pool, {_PREFIX + image_id: value})

    def _delete_expired(self, pool: str) -> None:
        """Delete the records of images that are not in the trash any more."""
        found = self._lock_store.read(pool, _PREFIX)
        present = {one.image_id for one in self._storage.list_trash(pool)}
        expired: dict[str, str | None] = {}
        for key, value in found.items():
            noted_at, _, _ = value.partition(' ')
            # A recent record may be of an image that is just about to be moved.
            if key.removeprefix(_PREFIX) not in present and (
                self._now() - float(noted_at) > _EXPIRE_AFTER_SEC
            ):
                expired[key] = None
        if expired:
            self._lock_store.write(pool, expired)
