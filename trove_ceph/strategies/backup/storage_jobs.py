# SPDX-License-Identifier: Apache-2.0
"""Having the storage service do what takes long, and being seen to wait for it."""

import contextlib
import hashlib
from typing import Any

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim
from trove_ceph.storage import tasks
from trove_ceph.strategies.backup.dependencies import BackupDependencies

#: After which a service that does not answer is given up. A job may take as long as it wants.
_PATIENCE_SEC = 300


def run(deps: BackupDependencies, claim: Claim, name: str, work: tasks.Task) -> Any:
    """Do work on a backup, or wait for the same work that was begun before; return its result.

    :param claim: on the backup

    :param name: what the operation is called, together with the backup and what is to be done
    :raises ClaimLostError: its deletion has begun, or another worker has taken over
    :raises ServiceUnavailableError: the storage service does not answer
    """

    def note(found: tasks.Job | tasks.Task) -> None:
        if not deps.records.claims.heartbeat(claim):
            raise exceptions.ClaimLostError(
                f'{found}: backup {claim.resource_id} is being deleted, or another worker has it'
            )

    # Known by all that it is about: other work has another id.
    digest = hashlib.blake2b(repr(work).encode(), digest_size=6).hexdigest()
    operation_id = f'{name}.{claim.resource_id}.{digest}'
    note(work)
    while True:
        with contextlib.suppress(exceptions.StillRunningError):
            return deps.storage.run(operation_id, work, _PATIENCE_SEC, note)
