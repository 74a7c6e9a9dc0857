# SPDX-License-Identifier: Apache-2.0
"""Copying and verifying what is wanted so, beside everything else and a few at once."""

import datetime
import functools
import threading
from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db import backup_record
from trove_ceph.strategies.backup import storage_jobs, tenant_errors, vault, vault_copy, verify
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: Of a verification.
_WAITS = 'it waits for the copy of the backup, which could not be made yet'


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
            LOG.exception('What is wanted of backups failed in a way that nobody thought of')
        finally:
            self._room.release()


def work_off(deps: BackupDependencies, since: datetime.timedelta, threads: WorkerThreads) -> None:
    """Begin with what is wanted of backups as far as there is room; of several processes one does.

    :param since: what was not carried on with for so long is taken over
    """
    begun = set()
    for record in deps.records.wishes.due(since):
        if record.copy_wanted_at is not None:
            # Copies of one instance are written to one image, each built upon another one.
            instance_id = record.instance_id
            if instance_id in begun or deps.records.wishes.is_copying(instance_id, since):
                continue
            begun.add(instance_id)
        if not threads.start(functools.partial(work_off_one, deps, record.backup_id, since)):
            return


def work_off_one(deps: BackupDependencies, backup_id: str, since: datetime.timedelta) -> None:
    """Copy and verify a backup as far as that is wanted, unless somebody else does.

    How it ends is in the record; what fails is tried again later.
    """
    worker = storage_jobs.worker(deps)
    if not deps.records.claim(backup_id, worker, since):
        return
    for error_field, work in (('copy_error', _copy), ('verify_error', _verify)):
        record = deps.records.get(backup_id)
        try:
            work(deps, record)
        except exceptions.LockLostError as error:
            LOG.info('%s', error)
            break
        except Exception as error:
            is_known = isinstance(error, exceptions.TroveCephError)
            LOG.warning(
                'Backup %s: %s', backup_id, tenant_errors.full(error), exc_info=not is_known
            )
            told = {error_field: tenant_errors.plain_reason(error)}
            if work is _copy and record.verify_wanted_at is not None:
                told['verify_error'] = _WAITS
            deps.records.wishes.note_failure(backup_id, worker, **told)
            break
    deps.records.wishes.release(backup_id, worker)


def _copy(deps: BackupDependencies, record: backup_record.BackupRecord) -> None:
    if record.copy_wanted_at is not None and record.state.is_complete:
        vault_copy.copy_to_vault(deps, record.backup_id)
    elif record.copy_wanted_at is None and record.copy is not None and record.copied_at is None:
        LOG.info('Backup %s: its copy is not wanted any more', record.backup_id)
        vault.remove(deps, record.backup_id, record.copy)
        deps.records.copies.forget_copy(record.backup_id)


def _verify(deps: BackupDependencies, record: backup_record.BackupRecord) -> None:
    if record.verify_wanted_at is not None:
        verify.verify_backup(deps, record.backup_id)
