# SPDX-License-Identifier: Apache-2.0
"""The verbs of the storage service; :mod:`.receiver` offers them on the message bus."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import oslo_messaging as messaging
from oslo_log import log as logging

from trove_ceph import exceptions, operation_events
from trove_ceph.storage import backend, fencing, image_types, lock_store, tasks
from trove_ceph.storage_service import (
    idempotent_clone,
    jobs,
    leases,
    permissions,
    pools,
    serializer,
    silent_owners,
    trash_records,
)

LOG = logging.getLogger(__name__)

Answer = TypeVar('Answer')

#: The major version changes when the service stops supporting old callers, together with
#: ``rpcapi.VERSION``; the minor version changes with each new verb or argument.
VERSION = '2.1'


def _verb(
    permission: permissions.Permission,
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Declare a method as a verb, and pass its TroveCephErrors to the caller.

    :param permission: the images and snapshots that a request over the bus may name
    """

    def declare(method: Callable[..., Answer]) -> Callable[..., Answer]:
        def called(self: 'Endpoint', ctxt: dict[str, Any], **arguments: Any) -> Answer:
            try:
                return method(self, **arguments)
            except exceptions.TroveCephError as error:
                LOG.info('%s: refused: %s', method.__name__, error)
                raise
            except Exception as error:
                LOG.exception('%s: unexpected error', method.__name__)
                message = f'{method.__name__} failed: {type(error).__name__}: {error}'
                raise exceptions.StorageError(message) from error

        expecting = messaging.expected_exceptions(exceptions.TroveCephError)(called)
        verb = functools.wraps(method)(expecting)
        verb.permission = permission  # type: ignore[attr-defined]
        return verb

    return declare


def permissions_of(kind: type) -> dict[str, permissions.Permission]:
    """Return the permission of each verb; a method without a permission is not a verb."""
    found = ((name, getattr(member, 'permission', None)) for name, member in vars(kind).items())
    return {name: permission for name, permission in found if permission is not None}


class Endpoint:
    """The verbs of the service. A verb that changes something holds a lock meanwhile.

    :param own_pools: the pools that the service may read and change
    :param owners: of locks that no verb for snapshots may take
    :param records: of the volumes that the service moves to the trash
    """

    def __init__(
        self,
        storage: backend.Backend,
        own_pools: pools.Pools,
        own_leases: leases.Leases,
        all_jobs: jobs.Jobs,
        owners: silent_owners.SilentOwners,
        records: trash_records.TrashRecords,
        wait_sec: float = jobs.BUSY_WAIT_SEC,
    ):
        self._storage = storage
        self._pools = own_pools
        self._leases = own_leases
        self._jobs = all_jobs
        self._owners = owners
        self._trash_records = records
        self._wait_sec = wait_sec

    # Verbs that only read.

    @_verb(permissions.READ)
    def version(self) -> str:
        return VERSION

    @_verb(permissions.READ)
    def describe(self, image: image_types.ImageRef, with_usage: bool) -> image_types.ImageFacts:
        self._pools.check(image)
        return self._storage.describe(image, with_usage)

    @_verb(permissions.READ)
    def list_images(
        self, pool: str, prefix: str, after: str, limit: int
    ) -> list[image_types.ListedImage]:
        self._pools.check_pool(pool)
        if not 1 <= limit <= serializer.MAX_LISTED:
            raise exceptions.InvalidRequestError(
                f'limit {limit}: must be 1 to {serializer.MAX_LISTED}'
            )
        return self._storage.list_images(pool, prefix, after, limit)

    @_verb(permissions.READ)
    def list_trash(self, pool: str) -> list[image_types.TrashedImage]:
        self._pools.check_pool(pool)
        return self._storage.list_trash(pool)

    @_verb(permissions.READ)
    def usage(self, pool: str) -> image_types.PoolUsage:
        if pool not in self._pools.data:
            self._pools.check_pool(pool)
        return self._storage.usage(pool)

    @_verb(permissions.READ)
    def usage_of_tier(self, tier: str) -> list[image_types.PoolUsage]:
        return [self._storage.usage(pool) for pool in self._pools.of_tier(tier)]

    # Short changes.

    @_verb(permissions.CREATE_SNAPSHOT)
    def create_snapshot(self, snapshot: image_types.SnapshotRef) -> image_types.SnapshotFacts:
        self._pools.check(snapshot)
        with self._locked('create_snapshot', snapshot, tasks.snapshot_lock(snapshot)):
            self._check_owner(snapshot, is_present=False)
            self._storage.create_snapshot(snapshot)
        return self._find_snapshot(snapshot)

    def _find_snapshot(self, snapshot: image_types.SnapshotRef) -> image_types.SnapshotFacts:
        facts = self._storage.describe(snapshot.of, with_usage=False)
        found = facts.find_snapshot(snapshot.name)
        if found is None:
            raise exceptions.NotFoundError(f'{snapshot}: another client removed it meanwhile')
        return found

    @_verb(permissions.CHANGE_SNAPSHOT)
    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        self._pools.check(snapshot)
        with self._locked('remove_snapshot', snapshot, tasks.snapshot_lock(snapshot)):
            self._check_owner(snapshot, is_present=True)
            self._storage.remove_snapshot(snapshot)

    def _check_owner(self, snapshot: image_types.SnapshotRef, is_present: bool) -> None:
        """Check that no silent owner of the image would lose its lock.

        :param is_present: whether the snapshot must exist for the work to need the lock
        """
        try:
            self._owners.check(snapshot.of)
        except exceptions.SilentOwnerError:
            facts = self._storage.describe(snapshot.of, with_usage=False)
            if (facts.find_snapshot(snapshot.name) is not None) is is_present:
                raise

    @_verb(permissions.CHANGE_SNAPSHOT)
    def rename_snapshot(
        self, snapshot: image_types.SnapshotRef, name: str
    ) -> image_types.SnapshotFacts:
        renamed = snapshot.of.snapshot(name)
        self._pools.check(snapshot, renamed)
        locks = tasks.snapshot_lock(snapshot), tasks.snapshot_lock(renamed)
        with self._locked('rename_snapshot', snapshot, *locks):
            self._storage.rename_snapshot(snapshot, name)
        return self._find_snapshot(renamed)

    @_verb(permissions.CLONE)
    def clone(
        self,
        snapshot: image_types.SnapshotRef,
        image: image_types.ImageRef,
        qos: image_types.Qos,
        options: image_types.ImageOptions | None,
    ) -> None:
        self._pools.check(snapshot, image, options)
        with (
            operation_events.reported(operation_events.Operation.STORAGE_CLONE, image=str(image)),
            self._locked('clone', image, tasks.image_lock(image)),
        ):
            clone_options = self._pools.options_for(image, options)
            idempotent_clone.clone(self._storage, snapshot, image, clone_options)
            # An earlier attempt may have created the clone and not set the limits.
            self._storage.set_qos(image, qos)

    @_verb(permissions.SET_QOS)
    def set_qos(self, image: image_types.ImageRef, qos: image_types.Qos) -> None:
        self._pools.check(image)
        with self._locked('set_qos', image, tasks.limits_lock(image)):
            self._storage.set_qos(image, qos)

    @_verb(permissions.UNFENCE)
    def unfence(self, image: image_types.ImageRef) -> None:
        self._pools.check(image)
        with self._locked('unfence', image, tasks.fence_lock(image)):
            fencing.unfence(self._storage, image)

    @_verb(permissions.TRASH)
    def trash(
        self, image: image_types.ImageRef, image_id: str | None = None
    ) -> image_types.TrashedImage:
        self._pools.check(image)
        if image_id is not None:
            self._pools.check_image_id(image_id)
        with self._locked('trash', image, tasks.image_lock(image)):
            if permissions.is_managed(image):
                # Its name is enough to purge or restore it.
                return self._storage.trash(image, image_id)
            return self._trash_records.trash(image, image_id)

    @_verb(permissions.RESTORE)
    def restore(self, pool: str, image_id: str, name: str) -> None:
        image = image_types.ImageRef(pool, name)
        self._pools.check(image)
        self._pools.check_image_id(image_id)
        locks = tasks.trash_lock(pool, image_id), tasks.image_lock(image)
        with self._locked('restore', image, *locks):
            self._storage.restore(pool, image_id, name)
            self._trash_records.forget(pool, image_id)

    # Jobs.

    @_verb(permissions.START_JOB)
    def start(self, operation_id: str, work: tasks.Task) -> tasks.Job:
        tasks.check_operation_id(operation_id)
        if isinstance(work, tasks.PurgeTask):
            self._pools.check_pool(work.pool)
            self._pools.check_image_id(work.image_id)
        self._pools.check(work)
        return self._jobs.start(operation_id, work)

    @_verb(permissions.READ)
    def find_job(self, operation_id: str) -> tasks.Job:
        return self._jobs.find(operation_id)

    @_verb(permissions.READ)
    def list_jobs(self) -> list[tasks.Job]:
        return self._jobs.all()

    @_verb(permissions.READ)
    def survey_jobs(self) -> tuple[list[tasks.Job], list[str]]:
        return self._jobs.survey()

    @_verb(permissions.CANCEL_JOB)
    def cancel(self, operation_id: str) -> tasks.Job:
        return self._jobs.cancel(operation_id)

    @contextlib.contextmanager
    def _locked(self, verb: str, subject: object, *locks: lock_store.Lock) -> Iterator[None]:
        began = time.monotonic()
        with self._leases.hold(locks, verb, self._wait_sec):
            yield
        LOG.info('%s %s: done in %.3f s', verb, subject, time.monotonic() - began)
