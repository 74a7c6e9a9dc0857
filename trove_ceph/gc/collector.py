# SPDX-License-Identifier: Apache-2.0
"""Remove orphans one by one, and check each again right before it is removed."""

import collections
import contextlib
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from trove_ceph import exceptions, steps
from trove_ceph.cinder import deletion
from trove_ceph.gc import inventory, orphan_rules
from trove_ceph.gc.guests import Guests
from trove_ceph.gc.orphan import Kind, Orphan
from trove_ceph.gc.references import References, Replicas
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup import volume_cleanup
from trove_ceph.strategies.backup.dependencies import BackupDependencies

#: A sweep that ignores younger objects than this is complete.
MOST_MIN_AGE = datetime.timedelta(days=7)


class Sweeps(Protocol):
    """Our table of the last sweep."""

    def record(self, found: Mapping[str, int], removed: Mapping[str, int]) -> None: ...


class Collector:
    """Finds and removes orphans.

    :param guests: the warm guests
    :param replicas: the table of replicas
    :param sweeps: where the end of a sweep is recorded
    :param pools: the pools whose images are examined
    :param min_age: younger objects are ignored
    :param now: the current time, with its time zone
    """

    def __init__(
        self,
        deps: BackupDependencies,
        guests: Guests,
        replicas: Replicas,
        sweeps: Sweeps,
        pools: Sequence[str],
        min_age: datetime.timedelta,
        now: datetime.datetime,
    ):
        self._deps = deps
        self._guests = guests
        self._replicas = replicas
        self._pools = pools
        self._sweeps = sweeps
        self._min_age = min_age
        self._before = now - min_age
        self._inventory: inventory.Inventory

    def find(self) -> list[Orphan]:
        """List the orphans."""
        self._inventory = inventory.take_inventory(self._deps, self._guests, self._pools)
        return list(self._judge().find())

    def remove(self, orphan: Orphan, include_unknown: bool = False) -> None:
        """Remove an orphan; harmless when repeated.

        :param include_unknown: remove it even if this Trove does not know its owner
        :raises BusyError: it must stay, or is in use now
        """
        found = self._judge().judge(orphan.kind, orphan.target)
        if found is None:
            raise exceptions.BusyError(f'{orphan} is in use now')
        if stays := found.stays_because(include_unknown):
            raise exceptions.BusyError(f'{orphan}: {stays}')
        steps.run(f'removal of {orphan}', removal(self._deps, self._guests, orphan))

    def finish(self) -> None:
        """Start to purge the trashed images that have no clones."""
        volume_cleanup.purge_trashed(self._deps)

    def record(self, found: Iterable[Orphan], removed: Iterable[Orphan]) -> None:
        """Record the end of a sweep, for monitoring, unless its ``min_age`` left out too much.

        :param found: the orphans that it has found
        :param removed: those that it has removed
        :raises ServiceUnavailableError: the database does not answer, or lacks the table
        """
        if self._min_age <= MOST_MIN_AGE:
            self._sweeps.record(_count(found), _count(removed))

    def close(self) -> None:
        """Close the connection to the storage service."""
        self._deps.storage.close()

    def _judge(self) -> orphan_rules.OrphanRules:
        references = References(self._deps, self._guests, self._replicas)
        return orphan_rules.OrphanRules(self._deps, self._inventory, references, self._before)


def removal(deps: BackupDependencies, guests: Guests, orphan: Orphan) -> list[steps.Step]:
    """Return the steps that remove an orphan."""
    if orphan.kind is Kind.VOLUME:
        return deletion.VolumeDeletion(
            deps.storage, deps.cinder, orphan.target.id, deps.wait_limits
        ).steps()
    return [steps.Step('remove the orphan', lambda: _remove(deps, guests, orphan), commits=True)]


def _count(orphans: Iterable[Orphan]) -> Mapping[str, int]:
    counts = collections.Counter(one.kind for one in orphans)
    return {str(kind): counts[kind] for kind in Kind}


def _remove(deps: BackupDependencies, guests: Guests, orphan: Orphan) -> None:
    target, records = orphan.target, deps.records
    with contextlib.suppress(exceptions.NotFoundError):
        match orphan.kind:
            case Kind.IMAGE:
                volume_cleanup.trash(deps, target.image, target.image_id)
            case Kind.TRASHED_IMAGE:
                _record_trashed(deps, target)
            case Kind.SNAPSHOT:
                deps.storage.remove_snapshot(target.location)
            case Kind.VOLUME_SNAPSHOT:
                deps.cinder.delete_snapshot(target.id)
                deps.wait_limits.until_gone(deps.cinder.find_snapshot, target.id)
            case Kind.GUEST:
                guests.delete(target)
            case Kind.JOB:
                deps.storage.cancel(target.operation_id)
            case Kind.BACKUP_RECORD:
                _delete_backup_record(deps, target.backup_id)
            case Kind.VOLUME_RECORD:
                records.delete_kept_volume(target.volume_id)
            case Kind.TRASH_RECORD:
                records.delete_trashed_image(target.pool, target.image_id)


def _delete_backup_record(deps: BackupDependencies, backup_id: str) -> None:
    claim = deps.records.begin_deleting(backup_id, deps.worker)
    if claim is not None:
        deps.records.delete(claim)
    elif (record := deps.records.find(backup_id)) is not None:
        raise exceptions.BusyError(f'backup {backup_id} is in use by {record.claimed_by}')


def _record_trashed(deps: BackupDependencies, trashed: image_types.TrashedImage) -> None:
    """Record an image in the trash, so that the taskmanager purges it once it has no clones."""
    deps.records.record_trashed(trashed.pool, trashed.image_id, trashed.name)
