# SPDX-License-Identifier: Apache-2.0
"""What a signed request may be used on: what is ours, and little else.

An image or a snapshot is *ours* when its name follows :mod:`trove_ceph.storage.names`, and so is
each snapshot of an image of ours. A *volume* is an image that Cinder named ``volume-<id>``; it is
foreign, and so are Cinder's snapshots, ``snapshot-<id>``, and all other images. Each verb of the
endpoint declares one of the permissions below; one that declares none cannot be asked for over the
message bus. Whatever a permission does not allow is refused with NotPermittedError before anything
is changed.

What may be done to a volume, and what proves that it is meant:

============================  =====================================================================
make or remove a snapshot     the snapshot is ours by its name
clone from it, copy,          nothing is changed; the new image is ours by its name. The snapshot is
verify or inspect it          ours or Cinder's
flatten, fence                the operation id names the volume's image id: ``flatten.<image id>``,
                              ``fence.<image id>``
unfence                       the image's metadata has our record of the clients that were fenced
trash                         it has no snapshot that was not removed, and either clones read from
                              it or it reads from another pool: Cinder cannot delete such a volume
                              as it is
restore, purge                our record beside the locks says that this service moved it to the
                              trash
============================  =====================================================================

Limits of a volume cannot be set by a request. The service sets them itself, as the tier says.
"""

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.storage import backend, fencing, image_types, lock_store, names, tasks
from trove_ceph.storage_service import pools

_ID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_VOLUME = re.compile(f'volume-{_ID}')
_OF_CINDER = re.compile(f'snapshot-{_ID}')
_TRASHED = 'trashed/'
_FORGET_AFTER_SEC = 86400
#: The image of a vault is made by copies alone.
_VAULT = 'vault'


class Evidence:
    """What Ceph can tell about the images of a request, within our pools.

    :param entries: keeps the records of what this service moved to the trash
    """

    def __init__(
        self,
        storage: backend.Backend,
        ours: pools.Pools,
        entries: lock_store.LockStore,
        now: Callable[[], float] = time.time,
    ):
        self._storage = storage
        self._pools = ours
        self._ledger = entries
        self._now = now

    def header(self, image: image_types.ImageRef) -> image_types.ImageHeader:
        """Read what an image says of itself."""
        self._pools.check(image)
        return self._storage.read_header(image)

    def describe(self, image: image_types.ImageRef) -> image_types.ImageFacts:
        """Describe an image, without the space it uses."""
        self._pools.check(image)
        return self._storage.describe(image, with_usage=False)

    def find_trashed(self, pool: str, image_id: str) -> image_types.TrashedImage | None:
        """Return an image in the trash."""
        self._pools.check_pool(pool)
        found = self._storage.list_trash(pool)
        return next((one for one in found if one.image_id == image_id), None)

    def note_trashed(self, image: image_types.ImageRef, image_id: str) -> None:
        """Write down that an image is moved to the trash; forget what left the trash long ago."""
        present = {one.image_id for one in self._storage.list_trash(image.pool)}
        entries: dict[str, str | None] = {}
        for key, value in self._ledger.read(image.pool, _TRASHED).items():
            noted_at, _, _ = value.partition(' ')
            # One that was noted just now may be about to be moved.
            if key.removeprefix(_TRASHED) not in present and (
                self._now() - float(noted_at) > _FORGET_AFTER_SEC
            ):
                entries[key] = None
        noted = f'{self._now():.0f} {image.name}'
        self._ledger.write(image.pool, entries | {f'{_TRASHED}{image_id}': noted})

    def was_trashed_by_us(self, trashed: image_types.TrashedImage) -> bool:
        """Whether this service moved an image to the trash."""
        key = f'{_TRASHED}{trashed.image_id}'
        _, _, name = self._ledger.read(trashed.pool, key).get(key, '').partition(' ')
        return name == trashed.name


Check = Callable[[Evidence, Mapping[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class Permission:
    """What a verb may be used on.

    :param changes: something; a request for it must then name the copy of the service that it is
        for, so that it cannot be replayed to another
    :param check: raises NotPermittedError; given the arguments by their names
    """

    changes: bool
    check: Check


def _allow(_evidence: Evidence, _arguments: Mapping[str, Any]) -> None:
    pass


def _create_snapshot(_evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    snapshot = arguments['snapshot']
    _demand_image(snapshot.of)
    if not is_ours(snapshot.of) and not is_our_snapshot(snapshot.name):
        raise _refusal(snapshot, 'a snapshot of ours is named trove_ceph.<kind>.<operation id>')


def _change_snapshot(_evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    snapshot = arguments['snapshot']
    new_name = arguments.get('name', snapshot.name)
    if is_ours(snapshot.of):
        return
    _demand_image(snapshot.of)
    for name in (snapshot.name, new_name):
        if not is_our_snapshot(name):
            raise _refusal(snapshot, f'snapshot {name} of a volume is not ours')


def _clone(_evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    image = arguments['image']
    _demand_source(arguments['snapshot'])
    _demand_ours(image)
    if _kind(image) == _VAULT:
        raise _refusal(image, 'the image of a vault is made by copies alone')


def _set_qos(_evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    _demand_ours(arguments['image'])


def _unfence(evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    image = arguments['image']
    _demand_image(image)
    if not is_ours(image) and not fencing.recorded(evidence.header(image)):
        raise _refusal(image, 'no client was fenced off it by this service')


def _trash(evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    image = arguments['image']
    _demand_image(image)
    if is_ours(image):
        return
    facts = evidence.describe(image)
    if facts.snapshot_names:
        raise _refusal(image, f'it has snapshots: {", ".join(facts.snapshot_names)}')
    if not facts.children and (facts.parent is None or facts.parent.pool == image.pool):
        raise _refusal(image, 'no clone reads from it and it reads from no other pool')
    evidence.note_trashed(image, facts.image_id)


def _restore(evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    trashed = evidence.find_trashed(arguments['pool'], arguments['image_id'])
    if trashed is None:
        # The verb says so.
        return
    if arguments['name'] != trashed.name:
        raise _refusal(trashed, f'it is restored by its own name, not as {arguments["name"]}')
    _demand_trashed_by_us(evidence, trashed)


def _start(evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    work = arguments['work']
    check = OF_WORK.get(type(work))
    if check is None:
        raise _refusal(work, 'no permission is declared for such work')
    check(evidence, arguments['operation_id'], work)


def _flatten(evidence: Evidence, operation_id: str, work: tasks.FlattenTask) -> None:
    _demand_named(evidence, 'flatten', operation_id, work.image)


def _fence(evidence: Evidence, operation_id: str, work: tasks.FenceTask) -> None:
    _demand_named(evidence, 'fence', operation_id, work.image)


def _copy(_evidence: Evidence, _operation_id: str, work: tasks.CopyTask) -> None:
    _demand_source(work.snapshot)
    _demand_ours(work.image)
    if _kind(work.image) != _VAULT:
        raise _refusal(work.image, 'copies go to images named trove_ceph.vault.<id>')


def _verify(_evidence: Evidence, _operation_id: str, work: tasks.VerifyTask) -> None:
    _demand_source(work.snapshot)
    _demand_source(work.copy)


def _inspect(_evidence: Evidence, _operation_id: str, work: tasks.InspectTask) -> None:
    _demand_source(work.snapshot)


def _purge(evidence: Evidence, _operation_id: str, work: tasks.PurgeTask) -> None:
    trashed = evidence.find_trashed(work.pool, work.image_id)
    # The same request again, after it was done, returns what became of it.
    if trashed is not None:
        _demand_trashed_by_us(evidence, trashed)


#: What each kind of work may be done to.
OF_WORK: Mapping[type[tasks.Task], Callable[[Evidence, str, Any], None]] = {
    tasks.FlattenTask: _flatten,
    tasks.CopyTask: _copy,
    tasks.VerifyTask: _verify,
    tasks.InspectTask: _inspect,
    tasks.FenceTask: _fence,
    tasks.PurgeTask: _purge,
}

LOOK = Permission(changes=False, check=_allow)
CANCEL_JOB = Permission(changes=True, check=_allow)
CREATE_SNAPSHOT = Permission(changes=True, check=_create_snapshot)
CHANGE_SNAPSHOT = Permission(changes=True, check=_change_snapshot)
CLONE = Permission(changes=True, check=_clone)
SET_QOS = Permission(changes=True, check=_set_qos)
UNFENCE = Permission(changes=True, check=_unfence)
TRASH = Permission(changes=True, check=_trash)
RESTORE = Permission(changes=True, check=_restore)
START_JOB = Permission(changes=True, check=_start)


def is_ours(image: image_types.ImageRef) -> bool:
    """Whether an image has one of our names."""
    return _kind(image) in names.IMAGE_KINDS


def is_our_snapshot(name: str) -> bool:
    """Whether a snapshot has one of our names."""
    found = names.parse(name)
    return found is not None and found.kind in names.SNAPSHOT_KINDS


def is_volume(image: image_types.ImageRef) -> bool:
    """Whether an image is a volume by the name that Cinder gives."""
    return bool(_VOLUME.fullmatch(image.name))


def _kind(image: image_types.ImageRef) -> str | None:
    found = names.parse(image.name)
    return found.kind if found else None


def _demand_ours(image: image_types.ImageRef) -> None:
    if not is_ours(image):
        raise _refusal(image, 'the image is not ours; ours are named trove_ceph.<kind>.<id>')


def _demand_image(image: image_types.ImageRef) -> None:
    if not is_ours(image) and not is_volume(image):
        raise _refusal(image, 'the image is neither ours nor a volume of Cinder')


def _demand_source(snapshot: image_types.SnapshotRef) -> None:
    if is_ours(snapshot.of):
        return
    _demand_image(snapshot.of)
    if not is_our_snapshot(snapshot.name) and not _OF_CINDER.fullmatch(snapshot.name):
        raise _refusal(snapshot, 'the snapshot is neither ours nor one of Cinder')


def _demand_named(
    evidence: Evidence, verb: str, operation_id: str, image: image_types.ImageRef
) -> None:
    """Demand of an operation on a volume that it is about the image that has the name now."""
    _demand_image(image)
    if is_ours(image):
        return
    with contextlib.suppress(exceptions.NotFoundError):
        wanted = f'{verb}.{evidence.header(image).image_id}'
        # A suffix tells operations on one image apart.
        if not f'{operation_id.replace(":", ".")}.'.startswith(f'{wanted}.'):
            raise _refusal(image, f'the id of an operation on a volume must be {wanted}')


def _demand_trashed_by_us(evidence: Evidence, trashed: image_types.TrashedImage) -> None:
    image = image_types.ImageRef(trashed.pool, trashed.name)
    if not is_ours(image) and not evidence.was_trashed_by_us(trashed):
        raise _refusal(trashed, 'it is not ours, and this service did not move it to the trash')


def _refusal(subject: object, reason: str) -> exceptions.NotPermittedError:
    return exceptions.NotPermittedError(f'{subject}: not permitted: {reason}')
