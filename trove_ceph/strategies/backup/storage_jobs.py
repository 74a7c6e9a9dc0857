# SPDX-License-Identifier: Apache-2.0
"""Having the storage service do what takes long, and being seen to wait for it."""

import contextlib
import hashlib
from typing import Any

from trove_ceph import exceptions
from trove_ceph.db import work_queue
from trove_ceph.storage import tasks
from trove_ceph.strategies.backup.dependencies import BackupDependencies

#: After which a service that does not answer is given up. A job may take as long as it wants.
_PATIENCE_SEC = 300


def worker(deps: BackupDependencies) -> str:
    """Return who works on what is wanted of backups, which those who delete them are not."""
    return work_queue.worker(deps.worker)


def run(deps: BackupDependencies, backup_id: str, name: str, work: tasks.Task) -> Any:
    """Do work on a backup, or wait for the same work that was begun before; return its result.

    :param name: what the operation is called, together with the backup and what is to be done
    :raises LockLostError: the backup was deleted, or taken over by somebody else, meanwhile
    :raises ServiceUnavailableError: nobody answers
    """

    def note(found: tasks.Job | tasks.Task) -> None:
        if not deps.records.wishes.beat(backup_id, worker(deps)):
            raise exceptions.LockLostError(f'{found}: backup {backup_id} is somebody else\'s now')

    # Known by all that it is about: other work has another id.
    digest = hashlib.blake2b(repr(work).encode(), digest_size=6).hexdigest()
    operation_id = f'{name}.{backup_id}.{digest}'
    note(work)
    while True:
        with contextlib.suppress(exceptions.StillRunningError):
            return deps.storage.run(operation_id, work, _PATIENCE_SEC, note)
