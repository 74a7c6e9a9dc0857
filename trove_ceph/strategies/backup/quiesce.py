# SPDX-License-Identifier: Apache-2.0
"""Holding a server still around the making of a snapshot, and nothing else."""

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
    """How long a server was held; None while it is, and where it was not."""

    seconds: float | None = None


@contextlib.contextmanager
def quiesced(
    guest: Guest, backup_id: str, level: QuiesceLevel, limit_sec: int, clock: Callable[[], float]
) -> Iterator[Hold]:
    """Hold a server while the block runs, and prove that it was held all the time.

    Whatever happens the server is let go, by us or, after ``limit_sec``, by itself. The hold is of
    this attempt alone, by a random token: what another attempt at the same backup holds or releases
    proves nothing about this one, and a request of this one that is still under way when it ends
    holds nothing any more.

    :raises NotQuiescedError: it went on before the block had ended
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
        # It may be held although no answer came.
        release(guest, backup_id, token)
        raise
    answer = guest.release_after_backup(backup_id, token)
    hold.seconds = clock() - began
    if not answer.get('held'):
        reason = answer.get('reason') or f'for instance because {limit_sec} s were over'
        raise exceptions.NotQuiescedError(
            f'backup {backup_id}: the server went on before the snapshot was made, {reason}'
        )


def release(guest: Guest, backup_id: str, token: str) -> None:
    """Let a server go if an attempt holds it; it does so by itself if it cannot be asked."""
    try:
        guest.release_after_backup(backup_id, token)
    except Exception as error:
        LOG.warning(
            'Backup %s: the guest agent was not told to let go; it does so by itself: %s',
            *(backup_id, error),
        )
