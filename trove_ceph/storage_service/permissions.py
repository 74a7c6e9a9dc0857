# SPDX-License-Identifier: Apache-2.0
"""Restrict the images and snapshots on which a signed request may be executed.

An image or a snapshot is *managed* if its name follows :mod:`trove_ceph.storage.names`; so is each
snapshot of a managed image. A *volume* is an image that Cinder named ``volume-<id>``. It is not
managed, nor are Cinder's snapshots, ``snapshot-<id>``, and all other images. Each verb of the
endpoint declares one of the permissions below; a verb without one cannot be called over the message
bus. A request that its permission does not allow fails with NotPermittedError before anything is
changed.

What a request may do to a volume, and on which condition:

============================  =====================================================================
create or remove a snapshot   the snapshot has a managed name
clone, copy, verify or        it only reads; the new image has a managed name, and the snapshot has
inspect a snapshot            a managed name or one of Cinder's
flatten, fence                the operation id contains the id of the volume's image:
                              ``flatten.<image id>``, ``fence.<image id>``
unfence                       the image's metadata has a record of fenced clients
trash                         all its snapshots were removed, and either clones read from it or it
                              reads from another pool: Cinder cannot delete such a volume
restore, purge                a record beside the locks shows that this service moved it to the
                              trash, and that no other client did so later
============================  =====================================================================

A request cannot set the limits of a volume; the service sets them itself, as the tier defines.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.storage import backend, fencing, golden, image_types, names, tasks
from trove_ceph.storage_service import pools, trash_records

_ID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_VOLUME = re.compile(f'volume-{_ID}')
_OF_CINDER = re.compile(f'snapshot-{_ID}')
#: The kind of a vault image, which only copies create.
_VAULT = 'vault'


class Evidence:
    """The facts in Ceph about the images of a request, within the pools of the service.

    :param records: of the volumes that this service moved to the trash
    """

    def __init__(
        self,
        storage: backend.Backend,
        own_pools: pools.Pools,
        records: trash_records.TrashRecords,
    ):
        self._storage = storage
        self._pools = own_pools
        self._trash_records = records

    def header(self, image: image_types.ImageRef) -> image_types.ImageHeader:
        """Read the header of an image."""
        self._pools.check(image)
        return self._storage.read_header(image)

    def describe(self, image: image_types.ImageRef) -> image_types.ImageFacts:
        """Describe an image, without its used space."""
        self._pools.check(image)
        return self._storage.describe(image, with_usage=False)

    def find_trashed(self, pool: str, image_id: str) -> image_types.TrashedImage | None:
        """Return an image in the trash, or None."""
        self._pools.check_pool(pool)
        found = self._storage.list_trash(pool)
        return next((one for one in found if one.image_id == image_id), None)

    def was_trashed_by_us(self, trashed: image_types.TrashedImage) -> bool:
        """Return whether this service moved an image to the trash, and nothing else since."""
        return self._trash_records.has(trashed)


Check = Callable[[Evidence, Mapping[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class Permission:
    """The restriction of a verb.

    :param changes: whether the verb changes something; its request must then name the copy of the
        service that it is for, so that it cannot be replayed to another copy
    :param check: called with the arguments by name; raises NotPermittedError
    """

    changes: bool
    check: Check


def _allow(_evidence: Evidence, _arguments: Mapping[str, Any]) -> None:
    pass


def _create_snapshot(_evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    snapshot = arguments['snapshot']
    _require_image(snapshot.of)
    if not is_managed(snapshot.of) and not is_managed_snapshot(snapshot.name):
        raise _refusal(snapshot, 'its name must be trove_ceph.<kind>.<operation id>')


def _change_snapshot(_evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    snapshot = arguments['snapshot']
    new_name = arguments.get('name', snapshot.name)
    if is_managed(snapshot.of):
        return
    _require_image(snapshot.of)
    for name in (snapshot.name, new_name):
        if not is_managed_snapshot(name):
            raise _refusal(
                snapshot, f'{name} is not trove_ceph.<kind>.<operation id>, and it is of a volume'
            )


def _clone(_evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    image = arguments['image']
    _require_source(arguments['snapshot'])
    _require_managed(image)
    if _kind(image) == _VAULT:
        raise _refusal(image, 'only a copy may create the image of a vault')
    if golden.is_golden(image):
        raise _refusal(image, 'only a build may create a golden volume')


def _set_qos(_evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    _require_managed(arguments['image'])


def _unfence(evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    image = arguments['image']
    _require_image(image)
    if not is_managed(image) and not fencing.recorded(evidence.header(image)):
        raise _refusal(image, 'this service has fenced no client of it')


def _trash(evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    image = arguments['image']
    _require_image(image)
    if is_managed(image):
        return
    facts = evidence.describe(image)
    if arguments.get('image_id') not in (None, facts.image_id):
        # The name belongs to another image by now; the verb reports it.
        return
    if facts.snapshot_names:
        raise _refusal(image, f'it has snapshots: {", ".join(facts.snapshot_names)}')
    if not facts.children and (facts.parent is None or facts.parent.pool == image.pool):
        raise _refusal(image, 'no clone reads from it and it reads from no other pool')


def _restore(evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    trashed = evidence.find_trashed(arguments['pool'], arguments['image_id'])
    if trashed is None:
        # The verb reports it.
        return
    if arguments['name'] != trashed.name:
        raise _refusal(trashed, f'it must keep its name, and not become {arguments["name"]}')
    _require_trashed_by_us(evidence, trashed)


def _start(evidence: Evidence, arguments: Mapping[str, Any]) -> None:
    work = arguments['work']
    check = CHECKS_BY_TASK.get(type(work))
    if check is None:
        raise _refusal(work, 'this kind of task declares no permission')
    check(evidence, arguments['operation_id'], work)


def _flatten(evidence: Evidence, operation_id: str, work: tasks.FlattenTask) -> None:
    _require_image_id(evidence, 'flatten', operation_id, work.image)


def _fence(evidence: Evidence, operation_id: str, work: tasks.FenceTask) -> None:
    _require_image_id(evidence, 'fence', operation_id, work.image)


def _copy(_evidence: Evidence, _operation_id: str, work: tasks.CopyTask) -> None:
    _require_source(work.snapshot)
    _require_managed(work.image)
    if _kind(work.image) != _VAULT:
        raise _refusal(work.image, 'the target of a copy must be named trove_ceph.vault.<id>')


def _verify(_evidence: Evidence, _operation_id: str, work: tasks.VerifyTask) -> None:
    _require_source(work.snapshot)
    _require_source(work.copy)


def _inspect(_evidence: Evidence, _operation_id: str, work: tasks.InspectTask) -> None:
    _require_source(work.snapshot)


def _build(_evidence: Evidence, _operation_id: str, work: tasks.GoldenTask) -> None:
    # The task itself requires the name of a golden volume.
    _require_managed(work.image)


def _purge(evidence: Evidence, _operation_id: str, work: tasks.PurgeTask) -> None:
    trashed = evidence.find_trashed(work.pool, work.image_id)
    # Repeating the request after it was done returns its result.
    if trashed is not None:
        _require_trashed_by_us(evidence, trashed)


#: The check of each kind of task.
CHECKS_BY_TASK: Mapping[type[tasks.Task], Callable[[Evidence, str, Any], None]] = {
    tasks.FlattenTask: _flatten,
    tasks.CopyTask: _copy,
    tasks.VerifyTask: _verify,
    tasks.InspectTask: _inspect,
    tasks.GoldenTask: _build,
    tasks.FenceTask: _fence,
    tasks.PurgeTask: _purge,
}

READ = Permission(changes=False, check=_allow)
CANCEL_JOB = Permission(changes=True, check=_allow)
CREATE_SNAPSHOT = Permission(changes=True, check=_create_snapshot)
CHANGE_SNAPSHOT = Permission(changes=True, check=_change_snapshot)
CLONE = Permission(changes=True, check=_clone)
SET_QOS = Permission(changes=True, check=_set_qos)
UNFENCE = Permission(changes=True, check=_unfence)
TRASH = Permission(changes=True, check=_trash)
RESTORE = Permission(changes=True, check=_restore)
START_JOB = Permission(changes=True, check=_start)


def is_managed(image: image_types.ImageRef) -> bool:
    """Return whether an image has a managed name."""
    return _kind(image) in names.IMAGE_KINDS


def is_managed_snapshot(name: str) -> bool:
    """Return whether a snapshot has a managed name."""
    found = names.parse(name)
    return found is not None and found.kind in names.SNAPSHOT_KINDS


def is_volume(image: image_types.ImageRef) -> bool:
    """Return whether an image has the name of a Cinder volume."""
    return bool(_VOLUME.fullmatch(image.name))


def _kind(image: image_types.ImageRef) -> str | None:
    found = names.parse(image.name)
    return found.kind if found else None


def _require_managed(image: image_types.ImageRef) -> None:
    if not is_managed(image):
        raise _refusal(image, 'the name of the image must be trove_ceph.<kind>.<id>')


def _require_image(image: image_types.ImageRef) -> None:
    if not is_managed(image) and not is_volume(image):
        raise _refusal(
            image, 'its name is neither trove_ceph.<kind>.<id> nor that of a Cinder volume'
        )


def _require_source(snapshot: image_types.SnapshotRef) -> None:
    if is_managed(snapshot.of):
        return
    _require_image(snapshot.of)
    if not is_managed_snapshot(snapshot.name) and not _OF_CINDER.fullmatch(snapshot.name):
        raise _refusal(
            snapshot,
            'its name is neither trove_ceph.<kind>.<operation id> nor that of a Cinder snapshot',
        )


def _require_image_id(
    evidence: Evidence, verb: str, operation_id: str, image: image_types.ImageRef
) -> None:
    """Require that the id of an operation on a volume has the id of the image."""
    _require_image(image)
    if is_managed(image):
        return
    with contextlib.suppress(exceptions.NotFoundError):
        expected = f'{verb}.{evidence.header(image).image_id}'
        # A suffix distinguishes operations on the same image.
        if not f'{operation_id.replace(":", ".")}.'.startswith(f'{expected}.'):
            raise _refusal(image, f'the id of an operation on a volume must be {expected}')


def _require_trashed_by_us(evidence: Evidence, trashed: image_types.TrashedImage) -> None:
    image = image_types.ImageRef(trashed.pool, trashed.name)
    if not is_managed(image) and not evidence.was_trashed_by_us(trashed):
        raise _refusal(
            trashed,
            'its name is not trove_ceph.<kind>.<id>, and this service did not move it to the trash '
            f'at {trashed.trashed_at:%Y-%m-%d %H:%M:%S} UTC',
        )


def _refusal(subject: object, reason: str) -> exceptions.NotPermittedError:
    return exceptions.NotPermittedError(f'{subject}: not permitted: {reason}')
