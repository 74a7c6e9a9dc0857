# SPDX-License-Identifier: Apache-2.0
"""Decide what is an orphan, and why.

Only objects that trove_ceph named are considered: ``trove_ceph.<kind>.<id>`` in Ceph; in Cinder
the names that Trove gives, if the metadata of the service project holds the operation's id; and
copies in a vault image, which have the names of their source snapshots.
"""

import datetime
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db import backup_record
from trove_ceph.gc import inventory
from trove_ceph.gc.orphan import Kind, Orphan, PlacedSnapshot
from trove_ceph.gc.references import References
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.strategies.backup.dependencies import BackupDependencies

#: What Cinder names a snapshot, and so its copy is named.
_OF_CINDER = re.compile('snapshot-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
_NO_INSPECTION = 'no inspection is under way'


class OrphanRules:
    """Compares what exists with what is referred to.

    :param before: objects that were made or changed later are ignored
    """

    def __init__(
        self,
        deps: BackupDependencies,
        there: inventory.Inventory,
        claims: References,
        before: datetime.datetime,
    ):
        self._deps = deps
        self._there = there
        self._claims = claims
        self._before = before
        self._rules: Mapping[Kind, Callable[[Any], Orphan | None]] = {
            Kind.IMAGE: self._image,
            Kind.SNAPSHOT: self._snapshot,
            Kind.TRASHED_IMAGE: self._trashed,
            Kind.VOLUME: self._volume,
            Kind.VOLUME_SNAPSHOT: self._volume_snapshot,
            Kind.JOB: self._job,
            Kind.BACKUP_RECORD: self._backup_record,
            Kind.VOLUME_RECORD: self._volume_record,
            Kind.TRASH_RECORD: self._trash_record,
        }

    def find(self) -> Iterator[Orphan]:
        """List the orphans."""
        there, claims = self._there, self._claims
        seen: Mapping[Kind, Iterable[Any]] = {
            Kind.IMAGE: there.images,
            Kind.SNAPSHOT: (
                PlacedSnapshot(facts, one)
                for facts in there.images
                for one in facts.snapshots
                if not one.removed
            ),
            Kind.TRASHED_IMAGE: there.trashed,
            Kind.VOLUME: there.volumes,
            Kind.VOLUME_SNAPSHOT: there.volume_snapshots,
            Kind.JOB: claims.jobs,
            Kind.BACKUP_RECORD: claims.backups.values(),
            Kind.VOLUME_RECORD: claims.kept_volumes,
            Kind.TRASH_RECORD: claims.trash_records,
        }
        for kind, targets in seen.items():
            for target in targets:
                if orphan := self.judge(kind, target):
                    yield orphan

    def judge(self, kind: Kind, target: Any) -> Orphan | None:
        """Return the orphan that an object is; None if it is, or may be, in use."""
        found = self._rules[kind](target)
        if found is None or (found.since is not None and found.since > self._before):
            return None
        return found

    # In Ceph.

    def _image(self, facts: image_types.ImageFacts) -> Orphan | None:
        name = names.parse(facts.image.name)
        if name is None or self._claims.is_worked_on(facts.image):
            return None
        if name.kind == 'vault':
            reason = None if self._claims.has_copies(facts.image) else 'no backup has a copy in it'
        else:
            reason = self._reason(name)
        if reason is None:
            return None
        others = [
            one.name
            for one in facts.snapshots
            if not one.removed and not names.parse(one.name) and not _is_copy(facts, one)
        ]
        obstacles = {
            'it is read by': facts.children,
            'it is open at': facts.clients,
            'it has snapshots of others:': others,
        }
        return self._orphan(
            Kind.IMAGE, facts, facts.image, facts.created_at, reason, obstacles, name.id
        )

    def _snapshot(self, placed: PlacedSnapshot) -> Orphan | None:
        is_copy = _is_copy(placed.image, placed.snapshot)
        # A copy that Cinder named is known by the instance, or the backup, that the vault is of.
        name = names.parse(placed.snapshot.name) or (
            names.parse(placed.image.image.name) if is_copy else None
        )
        if name is None or self._claims.is_worked_on(placed.place):
            return None
        if self._image(placed.image):
            # It goes with its image.
            return None
        if is_copy:
            reason = None if self._claims.has_copy_at(placed.place) else 'no backup has this copy'
        elif name.kind == 'backup':
            reason = self._claims.find_backup_at(name.id, placed.place)
        else:
            reason = self._reason(name)
        if reason is None:
            return None
        clones = [one for one in placed.image.children if one.snapshot == placed.snapshot.name]
        since = placed.snapshot.created_at
        obstacles = {'it is read by': clones}
        return self._orphan(Kind.SNAPSHOT, placed, placed.place, since, reason, obstacles, name.id)

    def _reason(self, name: names.Name) -> str | None:
        if name.kind == 'check':
            return _NO_INSPECTION
        if name.kind == 'restore' and self._claims.has_volume(name.id):
            # It would be Cinder's by now, by another name.
            return f'instance {name.id} has another volume'
        if self._claims.is_alive(name.id):
            return None
        return f'there is no instance and no backup {name.id}'

    def _trashed(self, trashed: image_types.TrashedImage) -> Orphan | None:
        name = names.parse(trashed.name)
        if name is None or self._claims.is_waiting_in_trash(trashed):
            return None
        return self._orphan(
            Kind.TRASHED_IMAGE,
            trashed,
            trashed,
            trashed.trashed_at,
            'nobody remembers to delete it',
            {'it is read by': trashed.children},
            name.id,
        )

    # In Cinder.

    def _volume(self, volume: cinder_resources.Volume) -> Orphan | None:
        instance_id = _operation_of(volume, 'trove-{}')
        if instance_id is None or self._claims.is_alive(instance_id):
            return None
        is_kept = any(one.volume_id == volume.id for one in self._claims.kept_volumes)
        if is_kept or any(one.volume_id == volume.id for one in self._claims.backups.values()):
            return None
        facts = self._find_image(volume.image_name)
        if facts is not None and self._claims.is_worked_on(facts.image):
            return None
        snapshots = [one for one in self._there.volume_snapshots if one.volume_id == volume.id]
        status = [] if volume.status in ('available', 'error') else [volume.status]
        obstacles: dict[str, Iterable[object]] = {
            'it is': status,
            'it has': snapshots,
            'it is read by': facts.children if facts else (),
        }
        reason = f'there is no instance {instance_id}'
        return self._orphan(
            Kind.VOLUME, volume, volume, volume.created_at, reason, obstacles, instance_id
        )

    def _volume_snapshot(self, snapshot: cinder_resources.Snapshot) -> Orphan | None:
        backup_id = _operation_of(snapshot, 'trove-{}-backup')
        if backup_id is None:
            return None
        record = self._claims.backups.get(backup_id)
        if record is None:
            if self._claims.is_alive(backup_id):
                return None
            reason = f'no backup {backup_id} is recorded'
        elif record.state in backup_record.UNDER_WAY or record.cinder_snapshot_id == snapshot.id:
            return None
        elif record.state is backup_record.RecordState.FAILED:
            reason = f'backup {backup_id} failed'
        else:
            reason = f'backup {backup_id} has another snapshot'
        clones = [
            child
            for facts in self._there.images
            for child in facts.children
            if child.snapshot == snapshot.rbd_name
        ]
        status = [snapshot.status] if snapshot.under_way else []
        obstacles: dict[str, Iterable[object]] = {'it is': status, 'it is read by': clones}
        return self._orphan(
            Kind.VOLUME_SNAPSHOT,
            snapshot,
            snapshot,
            snapshot.created_at,
            reason,
            obstacles,
            backup_id,
        )

    # What is written down.

    def _job(self, found: tasks.Job) -> Orphan | None:
        if found.state is not tasks.JobState.INTERRUPTED:
            return None
        reason = 'nobody carries on with it'
        return self._orphan(Kind.JOB, found, found, found.updated_at, reason)

    def _backup_record(self, record: backup_record.BackupRecord) -> Orphan | None:
        places = [place for place in (record.location, record.copy) if place is not None]
        if record.state in backup_record.UNDER_WAY or any(
            place.pool not in self._there.pools for place in places
        ):
            return None
        is_there: list[object] = [place for place in places if self._has(place)]
        is_there += [
            one for one in self._there.volume_snapshots if one.id == record.cinder_snapshot_id
        ]
        if not self._claims.shows_backup(record.backup_id):
            reason = 'Trove does not show the backup'
            obstacles: dict[str, list[object]] = {'there is': is_there}
        elif record.state is not backup_record.RecordState.FAILED and not is_there:
            reason = f'nothing of the backup is there, which is {record.state}'
            obstacles = {'Trove shows it to': [f'project {record.project_id}']}
        else:
            return None
        since = record.updated_at
        return self._orphan(Kind.BACKUP_RECORD, record, record.backup_id, since, reason, obstacles)

    def _volume_record(self, kept: backup_record.KeptVolume) -> Orphan | None:
        if self._deps.cinder.find_volume(kept.volume_id) is not None:
            return None
        reason = 'the volume is gone'
        return self._orphan(Kind.VOLUME_RECORD, kept, kept.volume_id, kept.created_at, reason)

    def _trash_record(self, trashed: backup_record.TrashedImage) -> Orphan | None:
        seen = {(one.pool, one.image_id) for one in self._there.trashed}
        seen |= {(facts.image.pool, facts.image_id) for facts in self._there.images}
        if trashed.pool not in self._there.pools or (trashed.pool, trashed.image_id) in seen:
            return None
        reason = 'the image is gone'
        return self._orphan(Kind.TRASH_RECORD, trashed, trashed, trashed.created_at, reason)

    # Inside.

    def _find_image(self, name: str) -> image_types.ImageFacts | None:
        return next((one for one in self._there.images if one.image.name == name), None)

    def _has(self, place: image_types.SnapshotRef) -> bool:
        return any(
            facts.image == place.of and facts.find_snapshot(place.name)
            for facts in self._there.images
        )

    def _orphan(
        self,
        kind: Kind,
        target: Any,
        name: object,
        since: datetime.datetime | None,
        reason: str,
        obstacles: Mapping[str, Iterable[object]] | None = None,
        owner_id: str | None = None,
    ) -> Orphan:
        texts = [
            f'{what} {", ".join(map(str, these))}'
            for what, these in (obstacles or {}).items()
            if these
        ]
        if since is None:
            texts.append('nobody knows how old it is')
        elif since.tzinfo is None:
            # The database has times of no zone, which are UTC.
            since = since.replace(tzinfo=datetime.UTC)
        is_known = owner_id is None or self._claims.is_known(owner_id)
        unknown_id = None if is_known else owner_id
        return Orphan(kind, target, str(name), since, reason, tuple(texts), unknown_id)


def _is_copy(image: image_types.ImageFacts, snapshot: image_types.SnapshotFacts) -> bool:
    """Tell whether a snapshot is one of a vault, which has copies of backups and nothing else."""
    vault, own = names.parse(image.image.name), names.parse(snapshot.name)
    if vault is None or vault.kind != 'vault':
        return False
    return bool(_OF_CINDER.fullmatch(snapshot.name)) or (own is not None and own.kind == 'backup')


def _operation_of(
    resource: cinder_resources.Volume | cinder_resources.Snapshot, pattern: str
) -> str | None:
    """Return the id of the operation that made something; None when it is none of ours.

    :param pattern: what an operation of ours names it
    """
    operation_id = resource.metadata.get(cinder_resources.OPERATION_KEY, '')
    try:
        uuid.UUID(operation_id)
    except ValueError:
        return None
    return operation_id if resource.name == pattern.format(operation_id) else None
