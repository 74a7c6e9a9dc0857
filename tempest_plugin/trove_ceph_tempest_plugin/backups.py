# SPDX-License-Identifier: Apache-2.0
"""Access backups through Trove's API and through this project's API extension."""

import time
from typing import Any

from tempest.lib import exceptions

POLL_SEC = 1
COMPLETED = 'COMPLETED'


class Backups:
    """Backups and policies, accessed as one identity.

    :param trove: trove-tempest-plugin's client
    :param timeout_sec: limit of every wait
    """

    def __init__(self, trove: Any, timeout_sec: float):
        self._trove = trove
        self._timeout_sec = timeout_sec

    def has_details(self) -> bool:
        """Return whether trove-api has loaded the extension."""
        try:
            self._trove.list_resources('backup_details', limit=1)
        except exceptions.NotFound:
            return False
        return True

    def show(self, backup_id: str) -> dict[str, Any]:
        """Return a backup from Trove's API."""
        return self._trove.get_resource('backups', backup_id)['backup']

    def details(self, backup_id: str) -> dict[str, Any]:
        """Return a backup from the extension."""
        return self._trove.get_resource('backup_details', backup_id)['backup_detail']

    def create(self, instance_id: str, name: str, **options: Any) -> str:
        """Request a backup through the extension, and return its id.

        :param options: ``quiesce``, ``copy``, ``verify``
        """
        body = {'backup_detail': {'instance': instance_id, 'name': name, **options}}
        response = self._trove.create_resource('backup_details', body, expected_status_code=202)
        return response['backup_detail']['id']

    def wait_until_completed(self, backup_id: str) -> list[str]:
        """Wait until a backup is COMPLETED, and return the states that Trove showed.

        :raises UnexpectedResponseCode: the backup failed
        """
        states: list[str] = []

        def is_completed() -> bool:
            status = self.show(backup_id)['status']
            states.extend([status] if status not in states else [])
            if status == 'FAILED':
                reason = self.details(backup_id)['error'] if self.has_details() else 'no reason'
                raise exceptions.UnexpectedResponseCode(f'backup {backup_id} failed: {reason}')
            return status == COMPLETED

        self._wait(f'completion of backup {backup_id}', is_completed)
        return states

    def request(self, action: str, backup_id: str) -> dict[str, Any]:
        """Request an action on a backup, and wait until it ends.

        :param action: ``copy`` or ``verify``
        :returns: the details of the backup afterwards
        """
        path = f'backup_details/{backup_id}/{action}'
        self._trove.create_resource(path, {}, expected_status_code=202)
        self._wait(
            f'{action} of backup {backup_id}',
            lambda: self.details(backup_id)[f'{action}_wanted_at'] is None,
        )
        return self.details(backup_id)

    def create_policy(self, name: str, instance_id: str, **options: Any) -> str:
        """Create a backup policy for an instance, and return its id."""
        body = {'name': name, 'scope': 'instance', 'target': instance_id, **options}
        response = self._trove.create_resource(
            'backup_policies', {'backup_policy': body}, expected_status_code=201
        )
        return response['backup_policy']['id']

    def run_policy(self, policy_id: str) -> None:
        """Run a policy now."""
        path = f'backup_policies/{policy_id}/run'
        self._trove.create_resource(path, {}, expected_status_code=202)

    def delete_policy(self, policy_id: str) -> None:
        """Delete a policy if it exists; its backups stay."""
        self._trove.delete_resource('backup_policies', policy_id, ignore_notfound=True)

    def wait_for_only_backup(self, policy_id: str, instance_id: str, other_than: str = '') -> str:
        """Wait until a policy has exactly one backup, and return its id.

        :param other_than: id of a backup that does not count
        """
        found: list[str] = []

        def is_only() -> bool:
            listed = self._trove.list_resources('backup_details', instance_id=instance_id)
            found[:] = [
                one['id']
                for one in listed['backup_details']
                if one['policy_id'] == policy_id and one['status'] == COMPLETED
            ]
            return len(found) == 1 and other_than not in found

        self._wait(f'backup by policy {policy_id}', is_only)
        return found[0]

    def delete(self, backup_id: str) -> None:
        """Delete a backup if it exists, and wait until it is gone."""
        self._trove.delete_resource('backups', backup_id, ignore_notfound=True)
        self._wait(f'deletion of backup {backup_id}', lambda: not self._exists(backup_id))

    def _exists(self, backup_id):
        try:
            self.show(backup_id)
        except exceptions.NotFound:
            return False
        return True

    def _wait(self, what, is_done):
        deadline = time.monotonic() + self._timeout_sec
        while not is_done():
            if time.monotonic() > deadline:
                raise exceptions.TimeoutException(f'{what} took more than {self._timeout_sec} s')
            time.sleep(POLL_SEC)
