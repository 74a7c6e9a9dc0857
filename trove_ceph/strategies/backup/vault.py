# SPDX-License-Identifier: Apache-2.0
"""The images of the vault: where copies go, which quota they use, and how they are removed."""

import contextlib

from oslo_log import log as logging
from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.db import backup_record
from trove_ceph.storage import copying, image_types, names
from trove_ceph.strategies.backup import volume_cleanup
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)


def find_facts(
    deps: BackupDependencies, image: image_types.ImageRef
) -> image_types.ImageFacts | None:
    """Return Ceph's description of an image; None if it does not exist."""
    with contextlib.suppress(exceptions.NotFoundError):
        return deps.storage.describe(image)
    return None


def image_for_full_copy(
    deps: BackupDependencies, record: backup_record.BackupRecord, pool: str
) -> image_types.ImageRef:
    """Return the vault image for a copy without a base.

    The copies of an instance share one image, each as an increment to another one. If no copy in it
    can be a base, for instance because the instance has another volume now, the copy gets an image
    of its own.
    """
    shared = image_types.ImageRef(pool, names.image_name('vault', record.instance_id))
    facts = find_facts(deps, shared)
    if facts is None:
        return shared
    recorded = {one.vault_snapshot for one in deps.records.in_vault(pool, shared.name)}
    if recorded.issuperset(facts.snapshot_names) and not copying.complete_copies(facts):
        return shared
    return image_types.ImageRef(pool, names.image_name('vault', record.backup_id))


def check_quota(
    deps: BackupDependencies,
    record: backup_record.BackupRecord,
    base: backup_record.BackupRecord | None,
) -> None:
    """Refuse a copy that would exceed the project's quota of the vault.

    The size of the copy is an estimate: a full copy needs at most the used bytes of the backup, an
    increment about as much as its base has moved. Copies that run at the same time are checked
    without regard to each other.

    :param base: the backup whose copy is the base; None: the copy is a full one
    :raises VaultQuotaExceededError: the message has the quota, the used and the needed space
    """
    quota_gib = deps.policy.vault_quota_gib
    if not quota_gib or record.copied_at is not None:
        return
    used_bytes = deps.records.queue.vault_bytes_of(record.project_id)
    needed_bytes = _needed_bytes(deps, record, base)
    if used_bytes + needed_bytes > quota_gib * units.Gi:
        raise exceptions.VaultQuotaExceededError(
            f'backup {record.backup_id} cannot be copied to the vault: the project\'s quota of the'
            f' vault is {quota_gib} GiB ({_mib(quota_gib * units.Gi)} MiB), of which'
            f' {_mib(used_bytes)} MiB are used, and the copy needs about {_mib(needed_bytes)} MiB;'
            ' delete backups that have a copy, or ask the operator for a larger quota'
        )


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // units.Mi)


def _needed_bytes(
    deps: BackupDependencies,
    record: backup_record.BackupRecord,
    base: backup_record.BackupRecord | None,
) -> int:
    if base is not None:
        is_increment = base.copy_base_id is not None
        return (base.moved_bytes or 0) if is_increment else 0
    if record.used_bytes is not None:
        return record.used_bytes
    assert record.location is not None
    return deps.storage.describe(record.location.of, with_usage=True).used_bytes or 0


def remove_copy(deps: BackupDependencies, backup_id: str, copy: image_types.SnapshotRef) -> None:
    """Remove the copy of a backup, complete or not; harmless when repeated.

    No other copy needs it, not even one whose base it was. With the last copy the image is removed.

    :raises BusyError: the copy is being read or written
    """
    with contextlib.suppress(exceptions.NotFoundError):
        deps.storage.remove_snapshot(copy)
    facts = find_facts(deps, copy.of)
    if facts is None:
        return
    others = {
        one.vault_snapshot
        for one in deps.records.in_vault(copy.pool, copy.image)
        if one.backup_id != backup_id
    }
    if facts.snapshot_names:
        if unknown := set(facts.snapshot_names) - others:
            LOG.warning(
                '%s: has snapshots of no recorded backup: %s', copy.of, ', '.join(sorted(unknown))
            )
        return
    try:
        volume_cleanup.trash(deps, copy.of, facts.image_id)
    except exceptions.BusyError as error:
        if not others:
            raise
        LOG.info('%s stays: another backup is being copied to it: %s', copy.of, error)
