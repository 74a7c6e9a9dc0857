# SPDX-License-Identifier: Apache-2.0
"""Carrying on with what ended with its process, and undoing what could not be undone before."""

import functools

from oslo_log import log as logging

from trove_ceph.db import backup_record
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import claimed, create, delete, queue_worker
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)


def recover(deps: BackupDependencies, threads: queue_worker.WorkerThreads) -> None:
    """Carry on with backups whose worker has died; of several processes one does.

    How it ends is in the records, and shown to tenants.
    """
    for record in deps.records.list_interrupted(deps.worker):
        if not threads.start(functools.partial(_carry_on_with, deps, record)):
            return
    for record in deps.records.list_failed_with_snapshot(deps.worker):
        if not threads.start(functools.partial(_clear, deps, record)):
            return


def _carry_on_with(deps: BackupDependencies, record: backup_record.BackupRecord) -> None:
    role = Role.TAKE if record.state is RecordState.TAKING else Role.DELETE
    claim = deps.heartbeat.acquire(
        lambda: deps.records.claims.claim(role, record.backup_id, deps.worker)
    )
    if claim is None:
        return
    LOG.warning(
        'Backup %s: %s was interrupted on %s, and is carried on with',
        *(record.backup_id, record.state, record.claimed_by or 'an earlier attempt'),
    )
    try:
        if role is Role.TAKE:
            create.create_backup(deps, record.backup_id, claim=claim)
        else:
            delete.delete_backup(deps, record.backup_id, claim)
    except Exception as error:
        LOG.warning('Backup %s: %s failed: %s', record.backup_id, record.state, error)


def _clear(deps: BackupDependencies, record: backup_record.BackupRecord) -> None:
    """Remove what is left of a backup that could not be taken while something else failed, too."""
    claim = deps.heartbeat.acquire(
        lambda: deps.records.claims.claim(Role.CLEAN_UP, record.backup_id, deps.worker)
    )
    if claim is None:
        return
    try:
        with deps.heartbeat.hold(claim):
            create.clear(claimed.guarded(deps, claim), claim)
        LOG.info('Backup %s: nothing is left of it now', record.backup_id)
    except Exception as error:
        LOG.warning('Backup %s: something is left of it for now: %s', record.backup_id, error)
    deps.records.claims.release(claim)
