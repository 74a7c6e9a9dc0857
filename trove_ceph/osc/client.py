# SPDX-License-Identifier: Apache-2.0
"""The client of the API extension for backups."""

from collections.abc import Callable, Mapping
from typing import Any

from osc_lib import exceptions
from oslo_utils import uuidutils

from trove_ceph.osc import connection

_UNUSABLE = ('failed', 'damaged', 'deleting')
_PARTICIPLES = {'copy': 'copied', 'verify': 'verified'}


class Api:
    """Details of backups and backup policies, as plain dictionaries.

    :param connection: to Trove's API
    """

    def __init__(self, connection: connection.Connection):
        self._connection = connection

    # Ids of names.

    def instance_id(self, name_or_id: str) -> str:
        """Return the id of an instance."""
        return self._connection.instance_id(name_or_id)

    def backup_id(self, name_or_id: str) -> str:
        """Return the id of a backup."""
        return self._connection.backup_id(name_or_id)

    def policy_id(self, name_or_id: str) -> str:
        """Return the id of a policy.

        :raises CommandError: no policy has this name, or several have it
        """
        if uuidutils.is_uuid_like(name_or_id):
            return name_or_id
        found = [one['id'] for one in self.list_policies() if one['name'] == name_or_id]
        return connection.only_id(found, name_or_id, 'backup policy', 'backup policies')

    # Details.

    def list_details(self, limit: int | None = None, **filters: Any) -> list[dict[str, Any]]:
        """List details of backups, the latest first, from all pages up to the limit."""
        return self._connection.get_pages('backup_details', limit, **filters)

    def show_detail(self, backup_id: str) -> dict[str, Any]:
        return self._connection.get(f'/backup_details/{backup_id}')['backup_detail']

    def take(self, **request: Any) -> dict[str, Any]:
        """Request a backup."""
        return self._connection.post('/backup_details', {'backup_detail': request})['backup_detail']

    def copy(self, backup_id: str) -> dict[str, Any]:
        """Request a copy in the vault."""
        return self._connection.post(f'/backup_details/{backup_id}/copy')['backup_detail']

    def verify(self, backup_id: str) -> dict[str, Any]:
        """Request a verification."""
        return self._connection.post(f'/backup_details/{backup_id}/verify')['backup_detail']

    def wait_until_taken(self, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        """Wait for a requested backup; the other two waits work alike.

        :raises CommandError: it failed, even if it is retried later, or did not end in time; the
            message has the reason
        """

        def is_done(shown: Mapping[str, Any]) -> bool:
            if shown['status'] == 'FAILED':
                raise _failure(backup_id, 'failed', shown['error'])
            _check_not_deleted(shown)
            return shown['status'] == 'COMPLETED'

        return self._wait(backup_id, is_done, 'error', timeout_sec)

    def wait_until_copied(self, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        def is_done(shown: Mapping[str, Any]) -> bool:
            if shown['copied_at'] is None and shown['copy_wanted_at'] is None:
                error = shown['copy_error'] or shown['verify_error'] or shown['error']
                raise _failure(backup_id, 'was not copied', error)
            if shown['copied_at'] is None and shown['state'] in _UNUSABLE:
                # The request for a copy stays until the backup is found sound or is deleted.
                error = shown['verify_error'] or shown['error']
                raise _failure(backup_id, f'is {shown["state"]} and cannot be copied', error)
            _check_no_retry(shown, 'copy')
            return shown['copied_at'] is not None

        return self._wait(backup_id, is_done, 'copy_error', timeout_sec)

    def wait_until_verified(self, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        def is_done(shown: Mapping[str, Any]) -> bool:
            if shown['verify_wanted_at'] is not None:
                _check_not_deleted(shown)
                _check_no_retry(shown, 'verify')
                return False
            error = shown['verify_error'] or shown['error']
            if shown['state'] in _UNUSABLE:
                raise _failure(backup_id, f'is {shown["state"]}', error)
            # The state stays verified from an earlier verification even if this one failed.
            if shown['state'] != 'verified' or error:
                raise _failure(backup_id, 'was not verified', error)
            return True

        return self._wait(backup_id, is_done, 'verify_error', timeout_sec)

    # Policies.

    def list_policies(self, **filters: Any) -> list[dict[str, Any]]:
        """List policies; with ``instance_id`` they have ``runs``."""
        return self._connection.get('/backup_policies', **filters)['backup_policies']

    def show_policy(self, policy_id: str) -> dict[str, Any]:
        return self._connection.get(f'/backup_policies/{policy_id}')['backup_policy']

    def create_policy(self, **request: Any) -> dict[str, Any]:
        content = {'backup_policy': request}
        return self._connection.post('/backup_policies', content)['backup_policy']

    def change_policy(self, policy_id: str, **changes: Any) -> dict[str, Any]:
        content = {'backup_policy': changes}
        return self._connection.patch(f'/backup_policies/{policy_id}', content)['backup_policy']

    def delete_policy(self, policy_id: str) -> None:
        self._connection.delete(f'/backup_policies/{policy_id}')

    def run_policy(self, policy_id: str) -> dict[str, Any]:
        """Request a backup now of each instance that a policy applies to."""
        return self._connection.post(f'/backup_policies/{policy_id}/run')['backup_policy']

    def _wait(
        self,
        backup_id: str,
        is_done: Callable[[Mapping[str, Any]], bool],
        error_key: str,
        timeout_sec: float,
    ) -> dict[str, Any]:
        return connection.wait(
            lambda: self.show_detail(backup_id),
            is_done,
            lambda shown, problem: _failure(backup_id, problem, shown[error_key]),
            timeout_sec,
        )


def _check_not_deleted(shown: Mapping[str, Any]) -> None:
    """Refuse to wait for a backup that is being deleted, even if its deletion has failed."""
    if shown['state'] == 'deleting' or shown['status'] == 'DELETE_FAILED':
        raise _failure(shown['id'], 'is being deleted', shown['error'])


def _check_no_retry(shown: Mapping[str, Any], verb: str) -> None:
    """Refuse to wait for a retry, which may be hours away."""
    # A verification waits for a copy that is requested.
    queue = 'copy' if shown['copy_wanted_at'] else verb
    # An API of an earlier release shows one time, of either.
    retry_at = shown.get(f'{queue}_retry_at', shown['retry_at'])
    error = shown[f'{verb}_error']
    if shown[f'{verb}_wanted_at'] and retry_at and error:
        problem = f'could not be {_PARTICIPLES[verb]}; the next attempt is at {retry_at}'
        raise _failure(shown['id'], problem, error)


def _failure(backup_id: str, problem: str, reason: str | None) -> exceptions.CommandError:
    because = f': {reason}' if reason else ''
    return exceptions.CommandError(f'backup {backup_id} {problem}{because}')
