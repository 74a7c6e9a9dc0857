# SPDX-License-Identifier: Apache-2.0
"""Run a job of the storage service, and renew the claim while it runs."""

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

#: How long a service that does not answer is waited for. A job itself has no time limit.
_NO_ANSWER_TIMEOUT_SEC = 300
#: How long to look for a copy of the service other than the one to avoid.
_AVOID_TIMEOUT_SEC = 60
_AVOID_POLL_SEC = 2


def run(
    deps: BackupDependencies, claim: Claim, name: str, task: tasks.Task, avoid: str | None = None
) -> Any:
    """Run a task on a backup, or wait for the same task if it runs already; return its result.

    :param claim: on the backup
    :param name: the operation; with the backup and the task it makes up the operation id
    :param avoid: the copy of the storage service that shall not do this inspection, unless no other
        copy answers within a minute
    :raises ClaimLostError: the backup is being deleted, or another worker has resumed this
    :raises ServiceUnavailableError: the storage service does not answer
    """

    def renew(subject: tasks.Job | tasks.Task) -> None:
        if not deps.records.claims.heartbeat(claim):
            raise exceptions.ClaimLostError(
                f'{subject}: backup {claim.resource_id} is being deleted, or another worker has it'
            )

    backup_id = claim.resource_id
    renew(task)
    if avoid is not None and isinstance(task, tasks.InspectTask):
        elsewhere = dataclasses.replace(task, avoid=avoid)
        if _start_elsewhere(deps, _operation_id(name, backup_id, elsewhere), elsewhere, renew):
            task = elsewhere
    operation_id = _operation_id(name, backup_id, task)
    while True:
        with contextlib.suppress(exceptions.StillRunningError):
            return deps.storage.run(operation_id, task, _NO_ANSWER_TIMEOUT_SEC, renew)


def _start_elsewhere(
    deps: BackupDependencies,
    operation_id: str,
    task: tasks.InspectTask,
    renew: Callable[[tasks.Task], None],
) -> bool:
    """Start a task on any copy of the service but one; return whether another copy took it.

    Each request goes to the next copy that is free, so a refusal by the one to avoid is soon
    followed by an answer of another copy, if there is one.
    """
    deadline = deps.clock() + _AVOID_TIMEOUT_SEC
    while True:
        try:
            deps.storage.start(operation_id, task)
            return True
        except exceptions.NotThisCopyError as error:
            if deps.clock() >= deadline:
                LOG.warning('%s; no other copy of the service answers, so this one does it', error)
                return False
        renew(task)
        deps.sleep(_AVOID_POLL_SEC)


def _operation_id(name: str, backup_id: str, task: tasks.Task) -> str:
    # The digest covers every field of the task, so another task has another id.
    digest = hashlib.blake2b(repr(task).encode(), digest_size=6).hexdigest()
    return f'{name}.{backup_id}.{digest}'
