# SPDX-License-Identifier: Apache-2.0
"""The taskmanager's calls to our guest manager, beyond those of Trove."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from trove.common import exception as trove_exceptions
from trove.guestagent import api

from trove_ceph import exceptions
from trove_ceph.mysql import tuning
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState

#: The largest answer that is accepted from a guest, as JSON.
MAX_ANSWER_BYTES = 4 * 1024**2
#: Of a reason that a guest gives.
MAX_ERROR_CHARACTERS = 500


class GuestAPI(api.API):
    """The guest agent of one instance, with the calls of :mod:`trove_ceph.guestagent.manager`.

    Each raises GuestUnavailableError, with the agent's reason, if the agent refuses, fails or does
    not answer. All are safe to repeat.
    """

    def check_backup_settings(self) -> dict[str, Any]:
        """Return what makes a backup of the server unsafe, and at which quiesce levels."""
        return self._call_for_mapping('check_backup_settings')

    def quiesce_for_backup(
        self, backup_id: str, token: str, level: str, limit_sec: int
    ) -> dict[str, Any]:
        """Quiesce the server for one attempt; it resumes by itself after ``limit_sec``.

        :param token: random, for this attempt alone; after its release it can hold nothing
        """
        return self._call_for_mapping(
            'quiesce_for_backup',
            backup_id=backup_id,
            token=token,
            level=level,
            limit_sec=limit_sec,
        )

    def release_after_backup(self, backup_id: str, token: str) -> dict[str, Any]:
        """Release the server; ``held`` tells whether this attempt held it until now."""
        return self._call_for_mapping('release_after_backup', backup_id=backup_id, token=token)

    def trim_volume(self, max_age_sec: int) -> None:
        """Request a trim of the data volume; do not wait for it.

        An agent that does not know this request ignores it.

        :param max_age_sec: the agent skips the trim if the last one is no older than this
        """
        try:
            self._cast('trim_volume', version=self.API_BASE_VERSION, max_age_sec=max_age_sec)
        except trove_exceptions.GuestError as error:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: trim_volume: {error}'
            ) from error

    def apply_tier(self, tier: tuning.Tier | None) -> bool:
        """Send the guest the I/O rate of its tier; return whether it differs from before.

        :param tier: None for a tier that promises no rate
        """
        rate = None if tier is None else dataclasses.asdict(tier)
        # The short timeout keeps an absent guest from delaying the others.
        return bool(self._call_checked('apply_tier', timeout_sec=self.agent_low_timeout, tier=rate))

    def start_moved_server(
        self,
        replacement_id: str,
        version: str,
        config_contents: str,
        config_overrides: Mapping[str, Any],
    ) -> StartProgress:
        """Have the agent of a new server start MySQL on the moved volume; do not wait for it.

        The agent starts it once for each replacement, and again after it has answered FAILED.

        :param version: of the datastore version, the tag of MySQL's image
        :param config_contents: of my.cnf, as rendered for the flavor
        :param config_overrides: the options of the configuration group
        """
        answer = self._call_for_mapping(
            'start_moved_server',
            timeout_sec=self.agent_low_timeout,
            replacement_id=replacement_id,
            ds_version=version,
            config_contents=config_contents,
            config_overrides=dict(config_overrides),
        )
        state, error = answer.get('state'), answer.get('error')
        if state not in list(StartState) or not isinstance(error, str):
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: start_moved_server: answered with the state '
                f'{state!r:.100}, expected one of {", ".join(StartState)}'
            )
        return StartProgress(StartState(state), ' '.join(error.split())[:MAX_ERROR_CHARACTERS])

    def stop_server(self) -> None:
        """Stop MySQL; return when it has stopped."""
        self._call_checked('stop_db')

    def restart_server(self) -> None:
        """Start MySQL again, whether it runs or was stopped; return when it serves."""
        self._call_checked('restart')

    def _call_checked(self, method: str, timeout_sec: int | None = None, **arguments: Any) -> Any:
        timeout_sec = timeout_sec or self.agent_high_timeout
        try:
            answer = self._call(method, timeout_sec, version=self.API_BASE_VERSION, **arguments)
        except (trove_exceptions.GuestError, trove_exceptions.GuestTimeout) as error:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: {error}'
            ) from error
        # The guest is not trusted: its answer may be of any size and type.
        size = len(json.dumps(answer, default=str))
        if size > MAX_ANSWER_BYTES:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: answered with {size} bytes, '
                f'expected up to {MAX_ANSWER_BYTES}'
            )
        return answer

    def _call_for_mapping(
        self, method: str, timeout_sec: int | None = None, **arguments: Any
    ) -> dict[str, Any]:
        answer = self._call_checked(method, timeout_sec, **arguments)
        if not isinstance(answer, dict):
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: answered with '
                f'{type(answer).__name__}, expected a mapping'
            )
        return answer
