# SPDX-License-Identifier: Apache-2.0
"""Workers of the queues: they copy and verify what is due, a few backups at once."""

import functools
import threading
from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db import backup_record, work_queue
from trove_ceph.db.claims import Claim
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import claimed, tenant_errors, vault, vault_copy, verify
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: Of a verification.
_WAITS = 'it waits for the copy of the backup, which could not be made yet'
#: The work is another worker's now: a claim in the database, or a lock in Ceph, was lost.
_LOST = (exceptions.ClaimLostError, exceptions.LockLostError)


class WorkerThreads:
    """So many threads at once, which end with the process: what they do is made for that.

    :param count: how many
    """

    def __init__(self, count: int):
        self._room = threading.BoundedSemaphore(count)

    def start(self, function: Callable[[], None]) -> bool:
        """Run a function in a thread of its own; return False where there is no room for it."""
        if not self._room.acquire(blocking=False):
            return False
        threading.Thread(target=self._run, args=(function,), daemon=True).start()
        return True

    def _run(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:
            LOG.exception('A worker failed unexpectedly')
        finally:
            self._room.release()


def work_off(
    deps: BackupDependencies,
    role: Role,
    threads: WorkerThreads,
    limits: work_queue.QueueLimits | None = None,
) -> None:
    """Begin to copy, or to verify, what is due, as far as there are free threads.

    Projects take turns, see :mod:`trove_ceph.db.work_queue`; of several processes one does each.

    :param role: COPY or VERIFY
    """
    begun = set()
    for record in deps.records.queue.list_due(role, deps.worker, limits):
        if role is Role.COPY:
            # Copies of one instance are written to one image, each built upon another one.
            instance_id = record.instance_id
            if instance_id in begun or deps.records.queue.is_copying(instance_id, deps.worker):
                continue
            begun.add(instance_id)
        if not threads.start(functools.partial(work_off_one, deps, role, record)):
            return


def work_off_one(deps: BackupDependencies, role: Role, record: backup_record.BackupRecord) -> None:
    """Copy or verify a backup, unless another worker does.

    How it ends is in the record; what fails is tried again later.
    """
    claim = deps.heartbeat.acquire(lambda: deps.records.queue.begin(role, record, deps.worker))
    if claim is None:
        return
    try:
        with deps.heartbeat.hold(claim):
            _work(deps, claim)
    except _LOST as error:
        LOG.info('%s', error)
    deps.records.claims.release(claim)


def _work(deps: BackupDependencies, claim: Claim) -> None:
    record = deps.records.get(claim.resource_id)
    try:
        (_copy if claim.role is Role.COPY else _verify)(deps, claim, record)
    except _LOST:
        raise
    except Exception as error:
        is_known = isinstance(error, exceptions.TroveCephError)
        LOG.warning(
            'Backup %s: %s', record.backup_id, tenant_errors.full(error), exc_info=not is_known
        )
        waits = claim.role is Role.COPY and record.verify_wanted_at is not None
        deps.records.queue.note_failure(
            claim, tenant_errors.plain_reason(error), _WAITS if waits else None
        )


def _copy(deps: BackupDependencies, claim: Claim, record: backup_record.BackupRecord) -> None:
    if record.copy_wanted_at is not None and record.state.is_complete:
        vault_copy.copy_to_vault(deps, claim)
    elif record.copy_wanted_at is None and record.copy is not None and record.copied_at is None:
        LOG.info('Backup %s: its copy was canceled, and what was copied goes', record.backup_id)
        vault.remove(claimed.guarded(deps, claim), record.backup_id, record.copy)
        deps.records.results.forget_copy(claim)


def _verify(deps: BackupDependencies, claim: Claim, record: backup_record.BackupRecord) -> None:
    if record.verify_wanted_at is not None:
        verify.verify_backup(deps, claim)
