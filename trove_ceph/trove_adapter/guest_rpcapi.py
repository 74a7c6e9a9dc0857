# SPDX-License-Identifier: Apache-2.0
"""What is asked of our guest manager besides what Trove asks; in the taskmanager."""

import dataclasses
from typing import Any

from trove.common import exception as trove_exceptions
from trove.guestagent import api

from trove_ceph import exceptions
from trove_ceph.mysql import tuning


class GuestAPI(api.API):
    """The guest agent of one instance, with the calls of :mod:`trove_ceph.guestagent.manager`.

    Those raise GuestUnavailableError with the agent's reason, or when it does not answer. All are
    safe to be repeated; what they do belongs to a backup, by its id.
    """

    def check_backup_settings(self) -> dict[str, Any]:
        """Tell what about the server makes which level of backups unsafe."""
        return self._ask('check_backup_settings')

    def quiesce_for_backup(
        self, backup_id: str, token: str, level: str, limit_sec: int
    ) -> dict[str, Any]:
        """Hold the server for one attempt; it goes on by itself after ``limit_sec``.

        :param token: random, of this attempt alone; once released it holds nothing any more
        """
        return self._ask(
            'quiesce_for_backup',
            backup_id=backup_id,
            token=token,
            level=level,
            limit_sec=limit_sec,
        )

    def release_after_backup(self, backup_id: str, token: str) -> dict[str, Any]:
        """Let the server go, and tell under ``held`` whether this attempt held it until now."""
        return self._ask('release_after_backup', backup_id=backup_id, token=token)

    def trim_volume(self, max_age_sec: int) -> None:
        """Have the data volume trimmed unless that was done lately; does not wait for it.

        An agent that does not know this request ignores it.

        :param max_age_sec: what counts as lately
        """
        try:
            self._cast('trim_volume', version=self.API_BASE_VERSION, max_age_sec=max_age_sec)
        except trove_exceptions.GuestError as error:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: trim_volume: {error}'
            ) from error

    def apply_tier(self, tier: tuning.Tier | None) -> bool:
        """Give the guest the I/O rate of its tier; return whether it is another one than before.

        :param tier: None for a tier that promises none
        """
        rate = None if tier is None else dataclasses.asdict(tier)
        # A guest that is not there must not hold up those that are.
        return bool(self._ask('apply_tier', timeout_sec=self.agent_low_timeout, tier=rate))

    def _ask(self, method: str, timeout_sec: int | None = None, **arguments: Any) -> Any:
        timeout_sec = timeout_sec or self.agent_high_timeout
        try:
            return self._call(method, timeout_sec, version=self.API_BASE_VERSION, **arguments)
        except (trove_exceptions.GuestError, trove_exceptions.GuestTimeout) as error:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: {error}'
            ) from error
