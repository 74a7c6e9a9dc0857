# SPDX-License-Identifier: Apache-2.0
"""Quiesce a server while its snapshot is created, and no longer."""

import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Iterator

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.enums import QuiesceLevel
from trove_ceph.strategies.backup.dependencies import Guest

LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class Hold:
    """The time that a server was quiesced.

    :param seconds: None until the server is released, and where the level is ``none``
    """

    seconds: float | None = None


@contextlib.contextmanager
def quiesced(
    guest: Guest, backup_id: str, level: QuiesceLevel, limit_sec: int, clock: Callable[[], float]
) -> Iterator[Hold]:
    """Quiesce a server while the block runs, and prove that it was quiesced all the time.

    The server is released in any case: by this function or, after ``limit_sec``, by itself. A
    random token binds the hold to this attempt: a hold or a release by another attempt at the same
    backup proves nothing about this one, and a delayed request of this attempt holds nothing once
    the attempt has ended.

    :raises NotQuiescedError: the server resumed before the block ended
    :raises GuestUnavailableError: the guest agent does not answer
    """
    hold = Hold()
    if level is QuiesceLevel.NONE:
        yield hold
        return
    token = uuid.uuid4().hex
    began = clock()
    try:
        guest.quiesce_for_backup(backup_id, token, str(level), limit_sec)
        yield hold
    except Exception:
        # The server may be held even if the answer was lost.
        release(guest, backup_id, token)
        raise
    answer = guest.release_after_backup(backup_id, token)
    hold.seconds = clock() - began
    if not answer.get('held'):
        reason = answer.get('reason') or f'perhaps because the limit of {limit_sec} s passed'
        raise exceptions.NotQuiescedError(
            f'backup {backup_id}: the server resumed before the snapshot was created: {reason}'
        )


def release(guest: Guest, backup_id: str, token: str) -> None:
    """Release a server if this attempt holds it; log a failure, since it resumes by itself."""
    try:
        guest.release_after_backup(backup_id, token)
    except Exception as error:
        LOG.warning(
            'Backup %s: the guest agent could not be told to release the server, which resumes by '
            'itself: %s',
            *(backup_id, error),
        )
