# SPDX-License-Identifier: Apache-2.0
"""The one place that speaks to the API extension, through python-troveclient."""

import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from osc_lib import exceptions, utils
from oslo_utils import uuidutils

_POLL_SEC = 5.0
_ENDED_BADLY = ('failed', 'damaged', 'deleting')
_PARTICIPLES = {'copy': 'copied', 'verify': 'verified'}


class Api:
    """Details of backups and backup policies, as plain dictionaries.

    :param database: python-troveclient's client
    """

    def __init__(self, database: Any):
        self._database = database
        self._http = database.client

    # Finding what has a name.

    def instance_id(self, name_or_id: str) -> str:
        """Return the id of an instance."""
        return _id_of(self._database.instances, name_or_id)

    def backup_id(self, name_or_id: str) -> str:
        """Return the id of a backup."""
        return _id_of(self._database.backups, name_or_id)

    def policy_id(self, name_or_id: str) -> str:
        """Return the id of a policy.

        :raises CommandError: there is none, or several of this name
        """
        if uuidutils.is_uuid_like(name_or_id):
            return name_or_id
        policies = self.list_policies()
        found = [one['id'] for one in policies if one['name'] == name_or_id]
        if not found:
            raise exceptions.CommandError(f'no backup policy is named {name_or_id}')
        if len(found) > 1:
            raise exceptions.CommandError(
                f'{len(found)} backup policies are named {name_or_id}; use an id: '
                f'{", ".join(found)}'
            )
        return found[0]

    # Details.

    def list_details(self, limit: int | None = None, **filters: Any) -> list[dict[str, Any]]:
        """List details of backups, the latest first, of all pages up to the limit."""
        found: list[dict[str, Any]] = []
        marker = None
        while limit is None or len(found) < limit:
            rest = None if limit is None else limit - len(found)
            body = self._get('/backup_details', **filters, limit=rest, marker=marker)
            found += body['backup_details']
            if not body.get('links'):
                break
            marker = found[-1]['id']
        return found

    def show_detail(self, backup_id: str) -> dict[str, Any]:
        return self._get(f'/backup_details/{backup_id}')['backup_detail']

    def take(self, **wanted: Any) -> dict[str, Any]:
        """Ask for a backup."""
        return self._post('/backup_details', {'backup_detail': wanted})['backup_detail']

    def copy(self, backup_id: str) -> dict[str, Any]:
        """Ask for a copy in the vault."""
        return self._post(f'/backup_details/{backup_id}/copy')['backup_detail']

    def verify(self, backup_id: str) -> dict[str, Any]:
        """Ask for a verification."""
        return self._post(f'/backup_details/{backup_id}/verify')['backup_detail']

    def wait_until_taken(self, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        """Wait for a backup that was asked for; the other two waits are alike.

        :raises CommandError: it failed, also where it is tried again later, or did not end in time;
            all with the reason
        """

        def is_done(shown: Mapping[str, Any]) -> bool:
            if shown['status'] == 'FAILED':
                raise _failure(backup_id, 'failed', shown['error'])
            return shown['status'] == 'COMPLETED'

        return self._wait(backup_id, is_done, 'error', timeout_sec)

    def wait_until_copied(self, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        def is_done(shown: Mapping[str, Any]) -> bool:
            if shown['copied_at'] is None and shown['copy_wanted_at'] is None:
                error = shown['copy_error'] or shown['verify_error'] or shown['error']
                raise _failure(backup_id, 'was not copied', error)
            if shown['copied_at'] is None and shown['state'] in _ENDED_BADLY:
                # A wish for a copy outlives it, until it is found sound after all.
                error = shown['verify_error'] or shown['error']
                raise _failure(backup_id, f'is not copied: it is {shown["state"]}', error)
            _check_not_put_off(shown, 'copy')
            return shown['copied_at'] is not None

        return self._wait(backup_id, is_done, 'copy_error', timeout_sec)

    def wait_until_verified(self, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        def is_done(shown: Mapping[str, Any]) -> bool:
            if shown['verify_wanted_at'] is not None:
                _check_not_put_off(shown, 'verify')
                return False
            error = shown['verify_error'] or shown['error']
            if shown['state'] in _ENDED_BADLY:
                raise _failure(backup_id, f'is {shown["state"]}', error)
            # One that was verified before stays so, whatever became of this verification.
            if shown['state'] != 'verified' or error:
                raise _failure(backup_id, 'was not verified', error)
            return True

        return self._wait(backup_id, is_done, 'verify_error', timeout_sec)

    # Policies.

    def list_policies(self, **filters: Any) -> list[dict[str, Any]]:
        """List policies; those of one instance have ``runs``."""
        return self._get('/backup_policies', **filters)['backup_policies']

    def show_policy(self, policy_id: str) -> dict[str, Any]:
        return self._get(f'/backup_policies/{policy_id}')['backup_policy']

    def create_policy(self, **wanted: Any) -> dict[str, Any]:
        return self._post('/backup_policies', {'backup_policy': wanted})['backup_policy']

    def change_policy(self, policy_id: str, **changes: Any) -> dict[str, Any]:
        _response, body = self._http.patch(
            f'/backup_policies/{policy_id}', body={'backup_policy': changes}
        )
        return body['backup_policy']

    def delete_policy(self, policy_id: str) -> None:
        self._http.delete(f'/backup_policies/{policy_id}')

    def run_policy(self, policy_id: str) -> dict[str, Any]:
        """Ask for a backup now of all that a policy is for."""
        return self._post(f'/backup_policies/{policy_id}/run')['backup_policy']

    # Inside.

    def _get(self, path: str, **query: Any) -> dict[str, Any]:
        given = {name: value for name, value in query.items() if value not in (None, False)}
        suffix = f'?{urllib.parse.urlencode(given)}' if given else ''
        _response, body = self._http.get(path + suffix)
        return body

    def _post(self, path: str, content: Any = None) -> dict[str, Any]:
        _response, body = self._http.post(path, body={} if content is None else content)
        return body

    def _wait(
        self,
        backup_id: str,
        is_done: Callable[[Mapping[str, Any]], bool],
        reason: str,
        timeout_sec: float,
    ) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_sec
        while not is_done(shown := self.show_detail(backup_id)):
            if time.monotonic() >= deadline:
                raise _failure(
                    backup_id, f'is still {shown["state"]} after {timeout_sec:g} s', shown[reason]
                )
            time.sleep(_POLL_SEC)
        return shown


def _id_of(manager: Any, name_or_id: str) -> str:
    if uuidutils.is_uuid_like(name_or_id):
        return name_or_id
    return utils.find_resource(manager, name_or_id).id


def _check_not_put_off(shown: Mapping[str, Any], verb: str) -> None:
    """Refuse to wait for another attempt, which may be hours away."""
    error = shown[f'{verb}_error']
    if shown[f'{verb}_wanted_at'] and shown['retry_at'] and error:
        what = f'could not be {_PARTICIPLES[verb]}; the next attempt is at {shown["retry_at"]}'
        raise _failure(shown['id'], what, error)


def _failure(backup_id: str, what: str, reason: str | None) -> exceptions.CommandError:
    because = f': {reason}' if reason else ''
    return exceptions.CommandError(f'backup {backup_id} {what}{because}')
