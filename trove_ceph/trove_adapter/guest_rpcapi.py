# SPDX-License-Identifier: Apache-2.0
"""What is asked of our guest manager besides what Trove asks; in the taskmanager."""

import json
from typing import Any

from trove.common import exception as trove_exceptions
from trove.guestagent import api

from trove_ceph import exceptions

#: Of a guest's answer, written as JSON.
MAX_ANSWER_BYTES = 4 * 1024**2


class GuestAPI(api.API):
    """The guest agent of one instance, with the calls of :mod:`trove_ceph.guestagent.manager`.

    Those raise GuestUnavailableError with the agent's reason, or when it does not answer. All are
    safe to be repeated; what they do belongs to a backup, by its id.
    """

    def check_backup_settings(self) -> dict[str, Any]:
        """Tell what about the server makes which level of backups unsafe."""
        return self._ask('check_backup_settings')

    def quiesce_for_backup(self, backup_id: str, level: str, limit_sec: int) -> dict[str, Any]:
        """Hold the server; it goes on by itself after ``limit_sec``."""
        return self._ask(
            'quiesce_for_backup', backup_id=backup_id, level=level, limit_sec=limit_sec
        )

    def release_after_backup(self, backup_id: str) -> dict[str, Any]:
        """Let the server go, and tell under ``held`` whether it was held until now."""
        return self._ask('release_after_backup', backup_id=backup_id)

    def _ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer = self._call(
                method, self.agent_high_timeout, version=self.API_BASE_VERSION, **arguments
            )
        except (trove_exceptions.GuestError, trove_exceptions.GuestTimeout) as error:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: {error}'
            ) from error
        return self._check_answer(method, answer)

    def _check_answer(self, method: str, answer: Any) -> dict[str, Any]:
        """Refuse what no guest agent of ours answers: whoever rules the guest may send anything."""
        if not isinstance(answer, dict):
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: answered with '
                f'{type(answer).__name__}, expected a mapping'
            )
        size = len(json.dumps(answer, default=str))
        if size > MAX_ANSWER_BYTES:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: answered with {size} bytes, '
                f'expected up to {MAX_ANSWER_BYTES}'
            )
        return answer
