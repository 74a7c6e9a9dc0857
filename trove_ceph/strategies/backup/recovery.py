# SPDX-License-Identifier: Apache-2.0
"""Carrying on with what ended with its process, and undoing what could not be undone before."""

import datetime
import functools

from oslo_log import log as logging

from trove_ceph.db import backup_record
from trove_ceph.db.backup_record import RecordState
from trove_ceph.strategies.backup import create, delete, queue_worker
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)


def recover(
    deps: BackupDependencies, since: datetime.timedelta, threads: queue_worker.WorkerThreads
) -> None:
    """Carry on with what nobody has worked on for so long; of several processes one does.

    How it ends is in the records, and shown to tenants.
    """
    for record in deps.records.interrupted(since):
        if not threads.start(functools.partial(_carry_on_with, deps, record, since)):
            return
    threads.start(functools.partial(_clear, deps))


def _carry_on_with(
    deps: BackupDependencies, record: backup_record.BackupRecord, since: datetime.timedelta
) -> None:
    is_taken = record.state is RecordState.TAKING
    worker = create.worker(deps) if is_taken else deps.worker
    if not deps.records.claim(record.backup_id, worker, since, record.state):
        return
    LOG.warning(
        'Backup %s: %s was interrupted on %s, and is carried on with',
        *(record.backup_id, record.state, record.worker),
    )
    carry = create.create_backup if is_taken else delete.delete_backup
    try:
        carry(deps, record.backup_id)
    except Exception as error:
        LOG.warning('Backup %s: %s failed: %s', record.backup_id, record.state, error)


def _clear(deps: BackupDependencies) -> None:
    """Remove what is left of backups that could not be taken while something else failed, too."""
    for record in deps.records.with_remains():
        try:
            create.clear(deps, record.backup_id)
            LOG.info('Backup %s: nothing is left of it now', record.backup_id)
        except Exception as error:
            LOG.warning('Backup %s: something is left of it for now: %s', record.backup_id, error)
