# SPDX-License-Identifier: Apache-2.0
"""The images of a vault: which backups have a copy in them, and what is left of those."""

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
    """Return what Ceph says of an image; None when there is none."""
    with contextlib.suppress(exceptions.NotFoundError):
        return deps.storage.describe(image)
    return None


def place_for_first(
    deps: BackupDependencies, record: backup_record.BackupRecord, pool: str
) -> image_types.ImageRef:
    """Return where a copy goes that is built on no other.

    All copies of an instance share an image, each built on another one. Where nothing can be built
    on what is in it, such as after the instance got another volume, the copy has its own.
    """
    shared = image_types.ImageRef(pool, names.image_name('vault', record.instance_id))
    facts = find_facts(deps, shared)
    if facts is None:
        return shared
    begun = {one.vault_snapshot for one in deps.records.in_vault(pool, shared.name)}
    if begun.issuperset(facts.snapshot_names) and not copying.complete_copies(facts):
        return shared
    return image_types.ImageRef(pool, names.image_name('vault', record.backup_id))


def check_quota(
    deps: BackupDependencies,
    record: backup_record.BackupRecord,
    base: backup_record.BackupRecord | None,
) -> None:
    """Refuse a copy that would take a project beyond its quota of the vault.

    What the copy will move is not known before it is made. A whole copy needs at most what the
    backup holds; one that is built on another about as much as that one moved. Copies of a project
    that are made at the same time are checked one by one, and do not count for each other.

    :param base: the backup on whose copy it is built; None: the copy is a whole one
    :raises VaultQuotaExceededError: the message has the quota, what is used and what is needed
    """
    quota_gib = deps.policy.vault_quota_gib
    if not quota_gib or record.copied_at is not None:
        return
    used_bytes = deps.records.queue.vault_bytes_of(record.project_id)
    needed_bytes = _needed_bytes(deps, record, base)
    if used_bytes + needed_bytes > quota_gib * units.Gi:
        raise exceptions.VaultQuotaExceededError(
            f'backup {record.backup_id}: is not copied to the vault, since the quota of the project'
            f' there is {quota_gib} GiB ({_mib(quota_gib * units.Gi)} MiB), of which'
            f' {_mib(used_bytes)} MiB are used, and the copy needs about {_mib(needed_bytes)} MiB;'
            ' delete backups that have a copy, or ask the operator for a larger quota'
        )


def _mib(count: int) -> int:
    return -(-count // units.Mi)


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


def remove(deps: BackupDependencies, backup_id: str, copy: image_types.SnapshotRef) -> None:
    """Have the copy of a backup not be there, complete or not; harmless when repeated.

    Other copies need it neither as their base nor otherwise. With the last one the image goes.

    :raises BusyError: it is being read, or written
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
            LOG.warning('%s: has %s, of no known backup', copy.of, ', '.join(sorted(unknown)))
        return
    try:
        volume_cleanup.trash(deps, copy.of, facts.image_id)
    except exceptions.BusyError as error:
        if not others:
            raise
        LOG.info('%s stays: a copy of another backup is being made: %s', copy.of, error)
