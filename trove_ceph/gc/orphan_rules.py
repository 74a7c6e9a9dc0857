# SPDX-License-Identifier: Apache-2.0
"""Decide what is an orphan, and why.

Only objects that trove_ceph named are considered: ``trove_ceph.<kind>.<id>`` in Ceph; in Cinder
the names that Trove gives, if the metadata of the service project holds the operation's id; and
copies in a vault image, which have the names of their source snapshots; in Nova, Neutron and
Cinder the names of warm guests that wait.
"""

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db import backup_record
from trove_ceph.gc import inventory
from trove_ceph.gc.orphan import Kind, Orphan, PlacedSnapshot
from trove_ceph.gc.references import References
from trove_ceph.storage import golden, image_types, names, tasks
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.guests.dependencies import GuestResource, guest_name
from trove_ceph.strategies.restore import cloned_volume

#: The name that Cinder gives to a snapshot, and that its copy in the vault has too.
_OF_CINDER = re.compile('snapshot-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
_ID = re.compile('[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
#: The name of the volume of an instance, or of a warm guest.
_OF_INSTANCE = re.compile('trove-([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})')
_OF_GUEST = re.compile(f'{guest_name("")}([0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})')
_NO_INSPECTION = 'no inspection is under way'
_CLONED = 'its replicas were cloned long ago'


class OrphanRules:
    """Compares what exists with what is referred to.

    :param found: what exists
    :param references: what refers to it, read after ``found``
    :param before: objects that were created or changed later are ignored
    """

    def __init__(
        self,
        deps: BackupDependencies,
        found: inventory.Inventory,
        references: References,
        before: datetime.datetime,
    ):
        self._deps = deps
        self._inventory = found
        self._references = references
        self._before = before
        self._rules: Mapping[Kind, Callable[[Any], Orphan | None]] = {
            Kind.IMAGE: self._image,
            Kind.SNAPSHOT: self._snapshot,
            Kind.TRASHED_IMAGE: self._trashed,
            Kind.VOLUME: self._volume,
            Kind.VOLUME_SNAPSHOT: self._volume_snapshot,
            Kind.GUEST: self._guest,
            Kind.JOB: self._job,
            Kind.BACKUP_RECORD: self._backup_record,
            Kind.VOLUME_RECORD: self._volume_record,
            Kind.TRASH_RECORD: self._trash_record,
        }

    def find(self) -> Iterator[Orphan]:
        """List the orphans."""
        found, references = self._inventory, self._references
        targets_of: Mapping[Kind, Iterable[Any]] = {
            Kind.IMAGE: found.images,
            Kind.SNAPSHOT: (
                PlacedSnapshot(facts, one)
                for facts in found.images
                for one in facts.snapshots
                if not one.removed
            ),
            Kind.TRASHED_IMAGE: found.trashed,
            Kind.VOLUME: found.volumes,
            Kind.VOLUME_SNAPSHOT: found.volume_snapshots,
            Kind.GUEST: found.of_guests,
            Kind.JOB: references.jobs,
            Kind.BACKUP_RECORD: references.backups.values(),
            Kind.VOLUME_RECORD: references.kept_volumes,
            Kind.TRASH_RECORD: references.trash_records,
        }
        for kind, targets in targets_of.items():
            for target in targets:
                if orphan := self.judge(kind, target):
                    yield orphan

    def judge(self, kind: Kind, target: Any) -> Orphan | None:
        """Return an object as an orphan; None if it is, or may be, in use."""
        orphan = self._rules[kind](target)
        if orphan is None or (orphan.since is not None and orphan.since > self._before):
            return None
        return orphan

    # In Ceph.

    def _image(self, facts: image_types.ImageFacts) -> Orphan | None:
        name = names.parse(facts.image.name)
        if name is None or self._references.is_in_use(facts.image):
            return None
        if name.kind == 'vault':
            reason = (
                None if self._references.has_copies(facts.image) else 'no backup has a copy in it'
            )
        elif golden.is_golden(facts.image):
            reason = _unfinished_build(facts)
        else:
            reason = self._reason(name, facts.parent)
        if reason is None:
            return None
        others = [
            one.name
            for one in facts.snapshots
            if not one.removed and not names.parse(one.name) and not _is_own(facts, one)
        ]
        obstacles = {
            'it has clones:': facts.children,
            'clients have it open:': facts.clients,
            'it has snapshots that are not ours:': others,
        }
        owner_id = self._owner_of(name, facts.parent)
        return self._orphan(
            Kind.IMAGE, facts, facts.image, facts.created_at, reason, obstacles, owner_id
        )

    def _snapshot(self, placed: PlacedSnapshot) -> Orphan | None:
        is_copy = _is_copy(placed.image, placed.snapshot)
        # A copy with Cinder's name belongs to the instance or backup in the name of its image.
        name = names.parse(placed.snapshot.name) or (
            names.parse(placed.image.image.name) if is_copy else None
        )
        if name is None or self._references.is_in_use(placed.location):
            return None
        if self._image(placed.image):
            # It is removed with its image.
            return None
        if is_copy:
            reason = (
                None if self._references.has_copy_at(placed.location) else 'no backup has this copy'
            )
        elif name.kind == 'backup':
            reason = self._references.find_backup_at(name.id, placed.location)
        elif name.kind == 'replica':
            reason = None if self._references.is_reprovisioning(name.id) else _CLONED
        else:
            reason = self._reason(name)
        if reason is None:
            return None
        clones = [one for one in placed.image.children if one.snapshot == placed.snapshot.name]
        if name.kind == 'replica':
            # Replicas keep what they read when their snapshot is removed.
            clones = []
        since = placed.snapshot.created_at
        obstacles = {'it has clones:': clones}
        owner_id = self._source_of(name, placed.location) or name.id
        return self._orphan(
            Kind.SNAPSHOT, placed, placed.location, since, reason, obstacles, owner_id
        )

    def _reason(
        self, name: names.Name, parent: image_types.SnapshotRef | None = None
    ) -> str | None:
        if name.kind == 'check':
            return _NO_INSPECTION
        if self._references.is_reprovisioning(name.id) or name.id in self._references.guest_ids:
            return None
        if name.kind in cloned_volume.KINDS and self._references.has_volume(name.id):
            # Otherwise Cinder would manage it by now, under another name.
            return f'instance {name.id} has another volume'
        if self._references.is_alive(name.id):
            return None
        if source_id := self._source_of(name, parent):
            return f're-provisioning {name.id} of a replica of instance {source_id} has ended'
        return f'there is no instance, no backup and no guest {name.id}'

    def _trashed(self, trashed: image_types.TrashedImage) -> Orphan | None:
        name = names.parse(trashed.name)
        if name is None or self._references.is_waiting_in_trash(trashed):
            return None
        return self._orphan(
            Kind.TRASHED_IMAGE,
            trashed,
            trashed,
            trashed.trashed_at,
            'no record or job will purge it',
            {'it has clones:': trashed.children},
            self._owner_of(name),
        )

    # In Cinder.

    def _volume(self, volume: cinder_resources.Volume) -> Orphan | None:
        owner_id, reason = self._owner_of_volume(volume)
        if reason is None:
            return None
        is_kept = any(one.volume_id == volume.id for one in self._references.kept_volumes)
        if is_kept or any(one.volume_id == volume.id for one in self._references.backups.values()):
            return None
        facts = self._find_image(volume.image_name)
        if facts is not None and self._references.is_in_use(facts.image):
            return None
        snapshots = [one for one in self._inventory.volume_snapshots if one.volume_id == volume.id]
        status = [] if volume.status in ('available', 'error') else [volume.status]
        obstacles: dict[str, Iterable[object]] = {
            'its status is': status,
            'it has snapshots:': snapshots,
            'it has clones:': facts.children if facts else (),
        }
        return self._orphan(
            Kind.VOLUME, volume, volume, volume.created_at, reason, obstacles, owner_id
        )

    def _owner_of_volume(self, volume: cinder_resources.Volume) -> tuple[str, str | None]:
        """Return for whom a volume was created, and why that does not need it; None: it may."""
        references = self._references
        if guest_id := _named_id(_OF_GUEST, volume):
            is_known = guest_id in references.guest_ids
            return guest_id, None if is_known else f'guest {guest_id} has no record'
        instance_id = _named_id(_OF_INSTANCE, volume)
        if (
            instance_id is None
            or references.is_reprovisioning(_operation_id(volume))
            # It is deleted with the guest, whose instance got another one.
            or volume.id in references.volumes_of_guests
        ):
            return '', None
        if references.has_other_volume(instance_id, volume.id):
            return instance_id, f'instance {instance_id} has another volume'
        is_alive = references.is_alive(instance_id)
        return instance_id, None if is_alive else f'there is no instance {instance_id}'

    def _volume_snapshot(self, snapshot: cinder_resources.Snapshot) -> Orphan | None:
        backup_id = _backup_of(snapshot)
        if backup_id is None:
            return None
        record = self._references.backups.get(backup_id)
        if record is None:
            if self._references.is_alive(backup_id):
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
            for facts in self._inventory.images
            for child in facts.children
            if child.snapshot == snapshot.rbd_name
        ]
        status = [snapshot.status] if snapshot.under_way else []
        obstacles: dict[str, Iterable[object]] = {'its status is': status, 'it has clones:': clones}
        return self._orphan(
            Kind.VOLUME_SNAPSHOT,
            snapshot,
            snapshot,
            snapshot.created_at,
            reason,
            obstacles,
            backup_id,
        )

    # In Nova and Neutron.

    def _guest(self, found: GuestResource) -> Orphan | None:
        if found.guest_id in self._references.guest_ids:
            return None
        name = f'{found.kind} {found.resource_id} ({found.name})'
        reason = f'guest {found.guest_id} has no record'
        return self._orphan(
            Kind.GUEST, found, name, found.created_at, reason, owner_id=found.guest_id
        )

    # Jobs and records.

    def _job(self, job: tasks.Job) -> Orphan | None:
        if job.state is not tasks.JobState.INTERRUPTED:
            return None
        reason = 'no caller continues it'
        return self._orphan(Kind.JOB, job, job, job.updated_at, reason)

    def _backup_record(self, record: backup_record.BackupRecord) -> Orphan | None:
        locations = [
            location for location in (record.location, record.copy) if location is not None
        ]
        if record.state in backup_record.UNDER_WAY or any(
            location.pool not in self._inventory.pools for location in locations
        ):
            return None
        present: list[object] = [location for location in locations if self._has(location)]
        present += [
            one for one in self._inventory.volume_snapshots if one.id == record.cinder_snapshot_id
        ]
        if not self._references.shows_backup(record.backup_id):
            reason = 'Trove does not show the backup'
            obstacles: dict[str, list[object]] = {'these exist:': present}
        elif record.state is not backup_record.RecordState.FAILED and not present:
            reason = f'the backup is {record.state}, but neither its snapshot nor a copy exists'
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
        existing = {(one.pool, one.image_id) for one in self._inventory.trashed}
        existing |= {(facts.image.pool, facts.image_id) for facts in self._inventory.images}
        if (
            trashed.pool not in self._inventory.pools
            or (trashed.pool, trashed.image_id) in existing
        ):
            return None
        reason = 'the image is gone'
        return self._orphan(Kind.TRASH_RECORD, trashed, trashed, trashed.created_at, reason)

    # What the rules share.

    def _owner_of(
        self, name: names.Name, parent: image_types.SnapshotRef | None = None
    ) -> str | None:
        """Return the id of the instance or backup that owns an image; None: operators own it.

        They own golden volumes, and the clones of those that were inspected.
        """
        if name.kind == golden.KIND:
            return None
        is_check = name.kind == 'check'
        if is_check and self._find_image(names.image_name(golden.KIND, name.id)) is not None:
            return None
        return self._source_of(name, parent) or name.id

    def _source_of(self, name: names.Name, snapshot: image_types.SnapshotRef | None) -> str | None:
        """Return the source of a replica for which a re-provisioning has created an object.

        The record of a replica has the id of its last re-provisioning only. But the object is a
        snapshot of the volume of the source, or a clone of one: no other Trove clones the volume of
        an instance of this one.

        :param snapshot: the object, or the parent of the clone
        :returns: None: its owner has the id in its name, or its source is not known
        """
        if name.kind != 'replica' or snapshot is None or self._references.is_known(name.id):
            return None
        for volume in self._inventory.volumes:
            found = _OF_INSTANCE.fullmatch(volume.name)
            if found and volume.image_name == snapshot.image:
                return found[1] if self._references.is_known(found[1]) else None
        return None

    def _find_image(self, name: str) -> image_types.ImageFacts | None:
        return next((one for one in self._inventory.images if one.image.name == name), None)

    def _has(self, location: image_types.SnapshotRef) -> bool:
        return any(
            facts.image == location.of and facts.find_snapshot(location.name)
            for facts in self._inventory.images
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
            f'{text} {", ".join(map(str, objects))}'
            for text, objects in (obstacles or {}).items()
            if objects
        ]
        if since is None:
            texts.append('its age is not known')
        elif since.tzinfo is None:
            # The database stores times in UTC, without time zone.
            since = since.replace(tzinfo=datetime.UTC)
        is_known = owner_id is None or self._references.is_known(owner_id)
        unknown_id = None if is_known else owner_id
        return Orphan(kind, target, str(name), since, reason, tuple(texts), unknown_id)


def _unfinished_build(facts: image_types.ImageFacts) -> str | None:
    """Return why a golden volume is an orphan, which no job builds; None: it was completed."""
    if golden.state_of(facts) in (golden.State.BUILDING, golden.State.BUILT):
        return 'its build was interrupted'
    return None


def _is_own(image: image_types.ImageFacts, snapshot: image_types.SnapshotFacts) -> bool:
    """Return whether a snapshot without a name of ours belongs to its image nevertheless."""
    return _is_copy(image, snapshot) or golden.is_golden(image.image)


def _is_copy(image: image_types.ImageFacts, snapshot: image_types.SnapshotFacts) -> bool:
    """Return whether a snapshot is a copy of a backup, by its name and that of its image."""
    vault, own = names.parse(image.image.name), names.parse(snapshot.name)
    if vault is None or vault.kind != 'vault':
        return False
    return bool(_OF_CINDER.fullmatch(snapshot.name)) or (own is not None and own.kind == 'backup')


def _backup_of(snapshot: cinder_resources.Snapshot) -> str | None:
    """Return the id of the backup for which a snapshot was created; None if it is not ours."""
    backup_id = _operation_id(snapshot)
    return backup_id if snapshot.name == f'trove-{backup_id}-backup' else None


def _named_id(pattern: re.Pattern[str], volume: cinder_resources.Volume) -> str | None:
    """Return the id in the name of a volume; None if it is not ours.

    The operation is that of the instance or the guest itself, or a re-provisioning.
    """
    found = pattern.fullmatch(volume.name)
    return found[1] if found and _operation_id(volume) else None


def _operation_id(resource: cinder_resources.Volume | cinder_resources.Snapshot) -> str:
    """Return the id of the operation that created a resource; empty if it is not ours."""
    operation_id = resource.metadata.get(cinder_resources.OPERATION_KEY, '')
    return operation_id if _ID.fullmatch(operation_id) else ''
