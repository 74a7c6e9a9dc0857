# SPDX-License-Identifier: Apache-2.0
"""Operations on backups, as a tenant requests them, and their settled states.

An operation is settled once its tenant has a result and can continue: a backup is COMPLETED or
FAILED and its instance ACTIVE again, a copy or a verification is done, a deleted backup is gone, a
restored instance has a server or an error.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from troveclient import exceptions

PREFIX = 'fault-injection-'


@dataclasses.dataclass(frozen=True)
class State:
    """The state of an operation in the cloud.

    :param settled: whether it has a result
    :param text: the state as text, for the report
    :param good: whether the operation succeeded despite the kill
    """

    settled: bool
    text: str
    good: bool = False


@dataclasses.dataclass(frozen=True)
class Operation:
    """A running operation.

    :param state: returns its present state in the cloud
    :param remove: removes the objects that it created; can be repeated
    :param made_id: the id of the backup or the instance that it works on
    """

    state: Callable[[], State]
    remove: Callable[[], None]
    made_id: str


class Cloud:
    """The tenant's database, and the backups and instances that are created from it.

    :param trove: the tenant's client of Trove
    :param admin: an administrator's client of Trove
    :param servers: the administrator's SDK proxy of Nova
    :param instance_id: the instance to back up
    """

    def __init__(self, trove: Any, admin: Any, servers: Any, instance_id: str):
        self._trove = trove
        self._admin = admin
        self._servers = servers
        self._instance_id = instance_id

    def start(self, name: str, label: str, backup_id: str) -> Operation:
        """Start an operation.

        :param name: one of :data:`plan.TYPICAL_SEC`
        :param label: the name of the new backup or instance
        :param backup_id: the backup that it works on; unused by ``take``
        """
        return VERBS[name](self, PREFIX + label, backup_id)

    def take(self, label: str, _backup_id: str = '') -> Operation:
        """Take a backup."""
        made = self._trove.backups.create(label, self._instance_id)

        def state() -> State:
            status = self._trove.backups.get(made.id).status
            instance = self._trove.instances.get(self._instance_id).status
            settled = status in ('COMPLETED', 'FAILED') and instance == 'ACTIVE'
            return State(settled, f'{status}, instance {instance}', status == 'COMPLETED')

        return Operation(state, lambda: self._delete(made.id), made.id)

    def copy(self, _label: str, backup_id: str) -> Operation:
        """Copy a backup to the vault."""
        return self._request(backup_id, 'copy')

    def verify(self, _label: str, backup_id: str) -> Operation:
        """Verify a backup."""
        return self._request(backup_id, 'verify')

    def delete(self, _label: str, backup_id: str) -> Operation:
        """Delete a backup."""
        self._trove.backups.delete(backup_id)

        def state() -> State:
            status = self.backup_status(backup_id)
            # DELETE_FAILED is a result, too: the tenant can repeat the request.
            return State(status in ('', 'DELETE_FAILED'), status or 'deleted', not status)

        return Operation(state, lambda: self._delete(backup_id), backup_id)

    def restore(self, label: str, backup_id: str) -> Operation:
        """Create an instance from a backup."""
        source = self._trove.instances.get(self._instance_id)
        networks = dict.fromkeys(one['network'] for one in source.addresses if one.get('network'))
        made = self._trove.instances.create(
            label,
            source.flavor['id'],
            volume={'size': source.volume['size'], 'type': source.volume.get('type')},
            nics=[{'net-id': network} for network in networks],
            datastore=source.datastore['type'],
            datastore_version=source.datastore['version'],
            restorePoint={'backupRef': backup_id},
        )

        def state() -> State:
            status = self._instance_status(made.id)
            # The rest is the server's boot, which no kill here affects.
            has_server = bool(list(self._servers.servers(all_projects=True, name=label)))
            settled = has_server or status in ('ERROR', 'ACTIVE')
            text = f'{status}, {"has a server" if has_server else "no server"}'
            return State(settled, text, status != 'ERROR')

        return Operation(state, lambda: self._remove_instance(made.id), made.id)

    def backup_status(self, backup_id: str) -> str:
        """Return the status of a backup, or an empty string if it is gone."""
        try:
            return self._trove.backups.get(backup_id).status
        except exceptions.NotFound:
            return ''

    def list_leftovers(self) -> list[str]:
        """Return the backups and instances that rounds left behind."""
        found = [*self._trove.backups.list(), *self._trove.instances.list()]
        return [f'{one.name} {one.status}' for one in found if one.name.startswith(PREFIX)]

    def remove_leftovers(self) -> None:
        """Delete the backups and instances of an earlier run."""
        for backup in self._trove.backups.list():
            if backup.name.startswith(PREFIX):
                self._delete(backup.id)
        for instance in self._trove.instances.list():
            if instance.name.startswith(PREFIX):
                self._remove_instance(instance.id)

    def _request(self, backup_id: str, verb: str) -> Operation:
        path = f'/backup_details/{backup_id}'
        self._trove.client.post(f'{path}/{verb}', body={})

        def state() -> State:
            shown = self._trove.client.get(path)[1]['backup_detail']
            good = {'copy': shown['copied_at'] is not None, 'verify': shown['state'] == 'verified'}
            error = shown[f'{verb}_error']
            text = shown['state'] + (f': {error}' if error else '')
            return State(shown[f'{verb}_wanted_at'] is None, text, good[verb])

        return Operation(state, lambda: self._delete(backup_id), backup_id)

    def _instance_status(self, instance_id: str) -> str:
        # The list does not wait for a reply of the guest agent.
        found = [one.status for one in self._trove.instances.list() if one.id == instance_id]
        return found[0] if found else 'gone'

    def _delete(self, backup_id: str) -> None:
        if self.backup_status(backup_id) not in ('', 'DELETING'):
            self._trove.backups.delete(backup_id)

    def _remove_instance(self, instance_id: str) -> None:
        if self._instance_status(instance_id) not in ('gone', 'ERROR', 'ACTIVE', 'SHUTDOWN'):
            # Trove cannot delete an instance in BUILD, and this does not wait for its boot.
            self._admin.instances.reset_status(instance_id)
        if self._instance_status(instance_id) != 'gone':
            self._trove.instances.delete(instance_id)


VERBS: dict[str, Callable[[Cloud, str, str], Operation]] = {
    'take': Cloud.take,
    'copy': Cloud.copy,
    'verify': Cloud.verify,
    'delete': Cloud.delete,
    'restore': Cloud.restore,
}
