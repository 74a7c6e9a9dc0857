# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a backup: how Cinder adopts it, and how it is removed."""

from collections.abc import Callable, Mapping

from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.cinder import snapshots
from trove_ceph.db.claims import Claim
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup.dependencies import BackupDependencies

#: The longest description of a snapshot.
_MOST_CHARACTERS = 255


def to_adopt(
    backup_id: str,
    image: image_types.ImageRef,
    volume_id: str,
    description: str = '',
    metadata: Mapping[str, str] | None = None,
) -> cinder_resources.SnapshotToAdopt:
    """Return what Cinder has to know of a backup's snapshot.

    :param description: that the snapshot shall have; Trove accepts some that Cinder does not
    :param metadata: that the snapshot shall have
    """
    snapshot = image.snapshot(names.snapshot_name('backup', backup_id))
    # Trove's own driver uses the same name.
    name = f'trove-{backup_id}-backup'
    text = _accepted_text(description)
    return cinder_resources.SnapshotToAdopt(
        backup_id, snapshot, volume_id, name, text, metadata or {}
    )


def adoption(
    deps: BackupDependencies,
    snapshot: cinder_resources.SnapshotToAdopt,
    create: Callable[[], None] | None = None,
) -> snapshots.SnapshotAdoption:
    """Return the adoption of a snapshot by Cinder.

    :param create: creates the snapshot; None: the adoption never creates one
    """
    return snapshots.SnapshotAdoption(
        deps.storage, deps.cinder, snapshot, create or _never, deps.wait_limits
    )


def remove_leftovers(deps: BackupDependencies, claim: Claim) -> None:
    """Remove all that is left of a backup that failed; harmless when repeated.

    :raises ClaimLostError: another worker has the backup
    """
    remove(deps, claim)
    deps.records.clear_location(claim)


def remove(deps: BackupDependencies, claim: Claim) -> None:
    """Remove the snapshot of a backup from Cinder and from Ceph; harmless when repeated.

    The record has its location, since the instance may be gone.

    :raises ClaimLostError: another worker has the backup
    """
    backup_id = claim.resource_id
    record = deps.records.find(backup_id)
    if record is None or record.location is None or record.volume_id is None:
        return
    # In this order: a snapshot without its proof is taken again, not so the reverse.
    deps.records.invalidate_snapshot(claim)
    adoption(deps, to_adopt(backup_id, record.location.of, record.volume_id)).remove()


def _accepted_text(text: str) -> str:
    """Return a description that Cinder accepts.

    It refuses longer ones, and those with other characters: parameter_types.py of cinder.api.
    """
    accepted = (one if one.isprintable() and ord(one) < 0xFFFF else ' ' for one in text)
    return ''.join(accepted)[:_MOST_CHARACTERS]


def _never() -> None:
    raise AssertionError('this adoption does not create a snapshot')
