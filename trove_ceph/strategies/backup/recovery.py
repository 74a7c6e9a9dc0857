# SPDX-License-Identifier: Apache-2.0
"""Continue backups and deletions whose worker died, and finish undoing failed backups."""

import functools

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db import backup_record
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import backup_snapshot, claimed, create, delete, queue_worker
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)


def recover(deps: BackupDependencies, threads: queue_worker.WorkerThreads) -> None:
    """Continue the operations whose worker has died, as long as threads are free.

    One worker continues each operation, even if several processes call this. The records have the
    results, and tenants see them.
    """
    for record in deps.records.list_interrupted(deps.worker):
        if not threads.start(functools.partial(_continue, deps, record)):
            return
    for record in deps.records.list_failed_with_snapshot(deps.worker):
        if not threads.start(functools.partial(_remove_leftovers, deps, record)):
            return


def _continue(deps: BackupDependencies, record: backup_record.BackupRecord) -> None:
    role = Role.TAKE if record.state is RecordState.TAKING else Role.DELETE
    claim = deps.heartbeat.acquire(
        lambda: deps.records.claims.claim(role, record.backup_id, deps.worker)
    )
    if claim is None:
        return
    LOG.warning(
        'Backup %s: %s was interrupted on %s and is continued',
        *(record.backup_id, record.state, record.claimed_by or 'an earlier attempt'),
    )
    try:
        if role is Role.TAKE:
            create.create_backup(deps, record.backup_id, claim=claim)
        else:
            delete.delete_backup(deps, record.backup_id, claim)
    except exceptions.MissingTierError as error:
        LOG.error('Backup %s: %s needs an operator: %s', record.backup_id, record.state, error)
    except Exception as error:
        LOG.warning('Backup %s: %s failed: %s', record.backup_id, record.state, error)


def _remove_leftovers(deps: BackupDependencies, record: backup_record.BackupRecord) -> None:
    """Remove what is left of a failed backup, the undo of which failed too."""
    claim = deps.heartbeat.acquire(
        lambda: deps.records.claims.claim(Role.CLEAN_UP, record.backup_id, deps.worker)
    )
    if claim is None:
        return
    try:
        with deps.heartbeat.hold(claim):
            backup_snapshot.remove_leftovers(claimed.guarded(deps, claim), claim)
        LOG.info('Backup %s: what was left of it is removed', record.backup_id)
    except Exception as error:
        LOG.warning(
            'Backup %s: what is left of it could not be removed; will retry: %s',
            *(record.backup_id, error),
        )
    deps.records.claims.release(claim)
