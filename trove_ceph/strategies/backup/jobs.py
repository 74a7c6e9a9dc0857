# SPDX-License-Identifier: Apache-2.0
"""Having the storage service do what takes long, and being seen to wait for it."""

import hashlib
from typing import Any

from trove_ceph import exceptions
from trove_ceph.storage import job
from trove_ceph.strategies.backup.tools import Tools

#: After which a job is looked at again later; it goes on meanwhile.
_TIMEOUT_SEC = 24 * 3600


def worker(tools: Tools) -> str:
    """Return who works on what is wanted of backups, which those who delete them are not."""
    return f'{tools.worker}:wishes'


def run(tools: Tools, backup_id: str, name: str, work: job.Work) -> Any:
    """Do work on a backup, or wait for the same work that was begun before; return its result.

    :param name: what the operation is called, together with the backup and what is to be done
    :raises LockLostError: the backup was deleted, or taken over by somebody else, meanwhile
    """

    def note(found: job.Job) -> None:
        if not tools.records.wishes.beat(backup_id, worker(tools)):
            raise exceptions.LockLostError(f'{found}: backup {backup_id} is somebody else\'s now')

    # Known by all that it is about: other work has another id.
    digest = hashlib.blake2b(repr(work).encode(), digest_size=6).hexdigest()
    return tools.storage.run(f'{name}.{backup_id}.{digest}', work, _TIMEOUT_SEC, note)
