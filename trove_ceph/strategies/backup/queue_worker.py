# SPDX-License-Identifier: Apache-2.0
"""Run the copies and verifications that are due, a few at a time."""

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions, operation_events
from trove_ceph.db import backup_record, work_queue
from trove_ceph.db.claims import Claim
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import tenant_errors, vault_copy, verify
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: The error of a verification whose backup could not be copied.
_WAITS_FOR_COPY = 'it waits for the copy of the backup, which has failed and is retried'
#: The errors of a lost claim in the database or lock in Ceph: another worker has the job now.
_LOST = (exceptions.ClaimLostError, exceptions.LockLostError)
_OPERATIONS = {
    Role.COPY: operation_events.Operation.BACKUP_COPY,
    Role.VERIFY: operation_events.Operation.BACKUP_VERIFY,
}
#: The jobs, as the log names them.
_NAMES = {Role.COPY: 'copy', Role.VERIFY: 'verification'}


class WorkerThreads:
    """A limited number of threads, which end with the process; their work can be interrupted.

    :param count: the number of threads at a time
    """

    def __init__(self, count: int):
        self._free = threading.BoundedSemaphore(count)

    def start(self, function: Callable[[], object]) -> bool:
        """Run a function in a thread of its own; return False if no thread is free."""
        if not self._free.acquire(blocking=False):
            return False
        threading.Thread(target=self._run, args=(function,), daemon=True).start()
        return True

    def _run(self, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception:
            LOG.exception('A worker failed unexpectedly')
        finally:
            self._free.release()


def start_due_jobs(
    deps: BackupDependencies,
    role: Role,
    threads: WorkerThreads,
    limits: work_queue.QueueLimits | None = None,
) -> None:
    """Start the copies or verifications that are due, as long as threads are free.

    Projects take turns, see :mod:`trove_ceph.db.work_queue`. One worker runs each job, even if
    several processes call this.

    :param role: COPY or VERIFY
    """
    started = set()
    for record in deps.records.queue.list_due(role, deps.worker, limits):
        if role is Role.COPY:
            # The copies of an instance go to one image, each as an increment to another one.
            instance_id = record.instance_id
            if instance_id in started or deps.records.queue.is_copying(instance_id, deps.worker):
                continue
            started.add(instance_id)
        if not threads.start(functools.partial(run_job, deps, role, record)):
            return


def run_job(deps: BackupDependencies, role: Role, record: backup_record.BackupRecord) -> None:
    """Copy or verify a backup, unless another worker does.

    The record has the result. A failed job is retried later.
    """
    claim = deps.heartbeat.acquire(lambda: deps.records.queue.begin(role, record, deps.worker))
    if claim is None:
        return
    try:
        with deps.heartbeat.hold(claim):
            _run(deps, claim)
    except _LOST as error:
        LOG.info('%s', error)
    deps.records.claims.release(claim)


def _run(deps: BackupDependencies, claim: Claim) -> None:
    record = deps.records.get(claim.resource_id)
    subject = {
        'backup_id': record.backup_id,
        'instance_id': record.instance_id,
        'project_id': record.project_id,
    }
    try:
        with operation_events.reported(_OPERATIONS[claim.role], **subject) as report:
            job = _copy if claim.role is Role.COPY else _verify
            report.add(**job(deps, claim, record))
    except _LOST:
        raise
    except Exception as error:
        is_known = isinstance(error, exceptions.TroveCephError)
        LOG.warning(
            'Backup %s: the %s failed and is retried: %s',
            *(record.backup_id, _NAMES[claim.role], tenant_errors.operator_message(error)),
            exc_info=not is_known,
        )
        waits = claim.role is Role.COPY and record.verify_wanted_at is not None
        deps.records.queue.record_failure(
            claim, tenant_errors.tenant_message(error), _WAITS_FOR_COPY if waits else None
        )


def _copy(
    deps: BackupDependencies, claim: Claim, record: backup_record.BackupRecord
) -> Mapping[str, Any]:
    if record.copy_wanted_at is None or not record.state.is_complete:
        return {}
    return {'moved_bytes': vault_copy.copy_to_vault(deps, claim)}


def _verify(
    deps: BackupDependencies, claim: Claim, record: backup_record.BackupRecord
) -> Mapping[str, Any]:
    if record.verify_wanted_at is None:
        return {}
    return {'verdict': verify.verify_backup(deps, claim)}
