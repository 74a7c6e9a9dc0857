# SPDX-License-Identifier: Apache-2.0
"""Check a server's settings, and prove that a snapshot was taken while they were safe."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.enums import QuiesceLevel
from trove_ceph.strategies.backup import quiesce_level, settings_proof
from trove_ceph.strategies.backup.dependencies import BackupDependencies, Guest
from trove_ceph.verification import report as verification

LOG = logging.getLogger(__name__)


class NotProvedError(exceptions.TroveCephError):
    """A check after the snapshot does not prove the settings under which it was taken."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The guest agent's answer about the settings.

    :param found: what it contains
    :param at: when it arrived, by the taskmanager's monotonic clock
    """

    found: Mapping[str, Any]
    at: float

    @property
    def filesystem_used_bytes(self) -> int | None:
        """The used bytes of the file system; None if the value is missing or implausible."""
        found = self.found.get('filesystem_used_bytes')
        if not isinstance(found, int) or isinstance(found, bool):
            return None
        return found if 0 <= found < 1 << 63 else None


class SettingsCheck:
    """The checks of one instance's settings for one backup.

    :param subject: names the backup and the instance in the log
    """

    def __init__(
        self, deps: BackupDependencies, instance_id: str, guest: Guest, subject: str
    ) -> None:
        self._deps = deps
        self._instance_id = instance_id
        self.guest = guest
        self._subject = subject

    def ask(self) -> Answer:
        """Return the guest agent's answer about the settings.

        :raises GuestUnavailableError: the guest agent does not answer
        """
        found = self.guest.check_backup_settings()
        return Answer(found, self._deps.clock())

    def decide(self, level: QuiesceLevel, answer: Answer) -> quiesce_level.Decision:
        """Return the level at which to quiesce the server.

        :param level: the requested one
        :raises UnsafeSettingsError: no permitted level makes the snapshot a backup
        """
        return quiesce_level.decide(
            f'instance {self._instance_id}',
            level,
            answer.found['reasons'],
            self._deps.policy.unsafe_action,
        )

    def prove_past(
        self, answer: Answer, decision: quiesce_level.Decision, snapshot_began: float
    ) -> str | None:
        """Prove the settings of a snapshot that was taken before the check.

        :param decision: the decision for the answer
        :param snapshot_began: just before the snapshot was requested, by the taskmanager's clock
        :returns: a GTID set that the server had executed before the snapshot, if one is known
        :raises NotProvedError: the answer does not prove them
        """
        if decision.raised_from is not None:
            raise NotProvedError(decision.because or '')
        elapsed_sec = answer.at - snapshot_began
        if gap := settings_proof.find_gap(answer.found, elapsed_sec):
            raise NotProvedError(gap)
        return self._comparable(settings_proof.find_position(answer.found, elapsed_sec))

    def prove_unchanged(
        self, before: Answer, after: Answer, decision: quiesce_level.Decision
    ) -> str | None:
        """Prove that no setting was changed between two checks around the snapshot.

        :param decision: the decision for the second answer
        :returns: the GTID set that the server had executed at the first check, if it is known
        :raises UnsafeSettingsError: a setting was changed
        """
        ids = [one.found.get('settings_id') for one in (before, after)]
        if decision.raised_from is not None or ids[0] != ids[1]:
            raise exceptions.UnsafeSettingsError(
                f'instance {self._instance_id}: its settings were changed while the snapshot was '
                'taken; take another backup'
            )
        return self._comparable(before.found.get('gtid_executed'))

    def _comparable(self, gtid_executed: object) -> str | None:
        """Return a GTID set from the guest, or None if it is too long to be recorded."""
        if not isinstance(gtid_executed, str):
            return None
        if len(gtid_executed) > verification.MAX_GTID_BYTES:
            LOG.warning(
                '%s: the guest\'s gtid_executed has %d characters, and up to %d are recorded; a '
                'verification will not compare it',
                *(self._subject, len(gtid_executed), verification.MAX_GTID_BYTES),
            )
            return None
        return gtid_executed
