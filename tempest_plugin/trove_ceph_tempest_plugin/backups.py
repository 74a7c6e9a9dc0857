# SPDX-License-Identifier: Apache-2.0
"""Backups as Trove's API has them, and as this project's extension of it does."""

import time
from typing import Any

from tempest.lib import exceptions

POLL_SEC = 1
COMPLETED = 'COMPLETED'


class Backups:
    """Asks as one identity.

    :param trove: trove-tempest-plugin's client
    :param timeout_sec: of every wait
    """

    def __init__(self, trove: Any, timeout_sec: float):
        self._trove = trove
        self._timeout_sec = timeout_sec

    def has_details(self) -> bool:
        """Tell whether the cloud has the extension."""
        try:
            self._trove.list_resources('backup_details', limit=1)
        except exceptions.NotFound:
            return False
        return True

    def show(self, backup_id: str) -> dict[str, Any]:
        """Return a backup as Trove shows it."""
        return self._trove.get_resource('backups', backup_id)['backup']

    def details(self, backup_id: str) -> dict[str, Any]:
        """Return a backup as the extension shows it."""
        return self._trove.get_resource('backup_details', backup_id)['backup_detail']

    def take(self, instance_id: str, name: str, **wanted: Any) -> str:
        """Ask for a backup through the extension, and return its id.

        :param wanted: ``quiesce``, ``copy``, ``verify``
        """
        body = {'backup_detail': {'instance': instance_id, 'name': name, **wanted}}
        made = self._trove.create_resource('backup_details', body, expected_status_code=202)
        return made['backup_detail']['id']

    def wait_until_taken(self, backup_id: str) -> list[str]:
        """Return the states that Trove showed on the way.

        :raises UnexpectedResponseCode: it failed
        """
        seen: list[str] = []

        def is_taken() -> bool:
            status = self.show(backup_id)['status']
            seen.extend([status] if status not in seen else [])
            if status == 'FAILED':
                reason = self.details(backup_id)['error'] if self.has_details() else 'no reason'
                raise exceptions.UnexpectedResponseCode(f'backup {backup_id} failed: {reason}')
            return status == COMPLETED

        self._wait(f'backup {backup_id} to be taken', is_taken)
        return seen

    def have_done(self, verb: str, backup_id: str) -> dict[str, Any]:
        """Have a backup copied or verified, wait until nobody wants that any more.

        :param verb: ``copy`` or ``verify``
        :returns: the details then
        """
        path = f'backup_details/{backup_id}/{verb}'
        self._trove.create_resource(path, {}, expected_status_code=202)
        self._wait(
            f'to {verb} backup {backup_id}',
            lambda: self.details(backup_id)[f'{verb}_wanted_at'] is None,
        )
        return self.details(backup_id)

    def create_policy(self, name: str, instance_id: str, **wanted: Any) -> str:
        """Have an instance backed up by a policy, and return the policy's id."""
        body = {'name': name, 'scope': 'instance', 'target': instance_id, **wanted}
        made = self._trove.create_resource(
            'backup_policies', {'backup_policy': body}, expected_status_code=201
        )
        return made['backup_policy']['id']

    def run_policy(self, policy_id: str) -> None:
        """Have a policy take a backup now."""
        path = f'backup_policies/{policy_id}/run'
        self._trove.create_resource(path, {}, expected_status_code=202)

    def delete_policy(self, policy_id: str) -> None:
        """Delete a policy, if it is there; the backups stay."""
        self._trove.delete_resource('backup_policies', policy_id, ignore_notfound=True)

    def wait_for_one_of(self, policy_id: str, instance_id: str, but: str = '') -> str:
        """Wait until a policy has taken a backup and keeps no other, and return its id.

        :param but: a backup that it is not
        """
        found: list[str] = []

        def is_kept() -> bool:
            listed = self._trove.list_resources('backup_details', instance_id=instance_id)
            found[:] = [
                one['id']
                for one in listed['backup_details']
                if one['policy_id'] == policy_id and one['status'] == COMPLETED
            ]
            return len(found) == 1 and but not in found

        self._wait(f'a backup by policy {policy_id}', is_kept)
        return found[0]

    def delete(self, backup_id: str) -> None:
        """Delete a backup, if it is there, and wait until it is shown no more."""
        self._trove.delete_resource('backups', backup_id, ignore_notfound=True)
        self._wait(f'backup {backup_id} to be gone', lambda: not self._is_there(backup_id))

    def _is_there(self, backup_id):
        try:
            self.show(backup_id)
        except exceptions.NotFound:
            return False
        return True

    def _wait(self, what, is_done):
        deadline = time.monotonic() + self._timeout_sec
        while not is_done():
            if time.monotonic() > deadline:
                raise exceptions.TimeoutException(f'{what}: not within {self._timeout_sec} s')
            time.sleep(POLL_SEC)
