# SPDX-License-Identifier: Apache-2.0
"""Having the storage service do what takes long, and being seen to wait for it."""

import contextlib
import hashlib
from typing import Any

from trove_ceph import exceptions
from trove_ceph.db import wishes
from trove_ceph.storage import job
from trove_ceph.strategies.backup.tools import Tools

#: After which a service that does not answer is given up. A job may take as long as it wants.
_PATIENCE_SEC = 300


def worker(tools: Tools) -> str:
    """Return who works on what is wanted of backups, which those who delete them are not."""
    return wishes.worker(tools.worker)


def run(tools: Tools, backup_id: str, name: str, work: job.Work) -> Any:
    """Do work on a backup, or wait for the same work that was begun before; return its result.

    :param name: what the operation is called, together with the backup and what is to be done
    :raises LockLostError: the backup was deleted, or taken over by somebody else, meanwhile
    :raises ServiceUnavailableError: nobody answers
    """

    def note(found: job.Job | job.Work) -> None:
        if not tools.records.wishes.beat(backup_id, worker(tools)):
            raise exceptions.LockLostError(f'{found}: backup {backup_id} is somebody else\'s now')

    # Known by all that it is about: other work has another id.
    digest = hashlib.blake2b(repr(work).encode(), digest_size=6).hexdigest()
    operation_id = f'{name}.{backup_id}.{digest}'
    note(work)
    while True:
        with contextlib.suppress(exceptions.StillRunningError):
            return tools.storage.run(operation_id, work, _PATIENCE_SEC, note)
