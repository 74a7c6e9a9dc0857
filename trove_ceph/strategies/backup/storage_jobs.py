# SPDX-License-Identifier: Apache-2.0
"""Having the storage service do what takes long, and being seen to wait for it."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim
from trove_ceph.storage import tasks
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: After which a service that does not answer is given up. A job may take as long as it wants.
_PATIENCE_SEC = 300
#: How long another copy of the service than one that is to be avoided is looked for.
_ELSEWHERE_SEC = 60
_ASK_AGAIN_SEC = 2


def run(
    deps: BackupDependencies, claim: Claim, name: str, work: tasks.Task, avoid: str | None = None
) -> Any:
    """Do work on a backup, or wait for the same work that was begun before; return its result.

    :param claim: on the backup
    :param name: what the operation is called, together with the backup and what is to be done
    :param avoid: the copy of the storage service that is to inspect the backup only if no other one
        answers for a minute
    :raises ClaimLostError: its deletion has begun, or another worker has taken over
    :raises ServiceUnavailableError: the storage service does not answer
    """

    def note(found: tasks.Job | tasks.Task) -> None:
        if not deps.records.claims.heartbeat(claim):
            raise exceptions.ClaimLostError(
                f'{found}: backup {claim.resource_id} is being deleted, or another worker has it'
            )

    backup_id = claim.resource_id
    note(work)
    if avoid is not None and isinstance(work, tasks.InspectTask):
        elsewhere = dataclasses.replace(work, avoid=avoid)
        if _begin_elsewhere(deps, _operation_id(name, backup_id, elsewhere), elsewhere, note):
            work = elsewhere
    operation_id = _operation_id(name, backup_id, work)
    while True:
        with contextlib.suppress(exceptions.StillRunningError):
            return deps.storage.run(operation_id, work, _PATIENCE_SEC, note)


def _begin_elsewhere(
    deps: BackupDependencies,
    operation_id: str,
    work: tasks.InspectTask,
    note: Callable[[tasks.Task], None],
) -> bool:
    """Have work begun by any copy of the service but one; return whether another one answered.

    Each request goes to the next copy that is free, so that one which refuses is soon followed by
    another one where there is any.
    """
    deadline = deps.clock() + _ELSEWHERE_SEC
    while True:
        try:
            deps.storage.start(operation_id, work)
            return True
        except exceptions.NotThisCopyError as error:
            if deps.clock() >= deadline:
                LOG.warning('%s; but no other one answers, so it is', error)
                return False
        note(work)
        deps.sleep(_ASK_AGAIN_SEC)


def _operation_id(name: str, backup_id: str, work: tasks.Task) -> str:
    # Known by all that it is about: other work has another id.
    digest = hashlib.blake2b(repr(work).encode(), digest_size=6).hexdigest()
    return f'{name}.{backup_id}.{digest}'
