# SPDX-License-Identifier: Apache-2.0
"""Operations on backups and replicas, as a tenant requests them, and their settled states.

An operation is settled once its tenant has a result and can continue: a backup is COMPLETED or
FAILED and its instance ACTIVE again, a copy or a verification is done, a deleted backup or replica
is gone, a restored instance or a new replica has a server or an error, a replica that is
re-provisioned is at rest again, no task of a promotion or a detachment is left.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from troveclient import exceptions

PREFIX = 'fault-injection-'
#: States of a replica that is not being re-provisioned.
_AT_REST = ('following', 'broken')
#: Statuses of an instance on which no operation runs.
_IDLE = ('ACTIVE', 'ERROR', 'gone')


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
    :param made_id: the id of the backup or the instance that it creates or works on
    """

    state: Callable[[], State]
    remove: Callable[[], None]
    made_id: str


class SourceReturnsError(Exception):
    """The tenant's database is being promoted back; repeat the request."""


class Cloud:
    """The tenant's database, and the backups and instances that are created from it.

    :param trove: the tenant's client of Trove
    :param admin: an administrator's client of Trove
    :param servers: the administrator's SDK proxy of Nova
    :param instance_id: the instance to back up, and the source of replicas
    """

    def __init__(self, trove: Any, admin: Any, servers: Any, instance_id: str):
        self._trove = trove
        self._admin = admin
        self._servers = servers
        self._instance_id = instance_id

    def prepare(self, name: str, label: str) -> Operation | None:
        """Start to create the backup or the replica on which an operation works; None: on neither.

        :param name: one of :data:`plan.TYPICAL_SEC`
        :param label: the name of the backup or the replica
        """
        verb = PREPARATIONS.get(name)
        return verb and verb(self, PREFIX + label)

    def start(self, name: str, label: str, subject_id: str) -> Operation:
        """Start an operation.

        :param name: one of :data:`plan.TYPICAL_SEC`
        :param label: the name of the new backup or instance
        :param subject_id: the backup or the replica that it works on; unused if it works on neither
        """
        return VERBS[name](self, PREFIX + label, subject_id)

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
        made = self._trove.instances.create(
            label,
            source.flavor['id'],
            volume={'size': source.volume['size'], 'type': source.volume.get('type')},
            nics=_nics_of(source),
            datastore=source.datastore['type'],
            datastore_version=source.datastore['version'],
            restorePoint={'backupRef': backup_id},
        )
        return self._creation(made.id, label)

    def create_replica(self, label: str, _replica_id: str = '') -> Operation:
        """Create a replica."""
        return self._creation(self._replicate(label), label)

    def follow(self, label: str) -> Operation:
        """Create a replica, and wait until it follows its source."""
        made_id = self._replicate(label)

        def state() -> State:
            status, shown = self._instance_status(made_id), self._replica(made_id)['state']
            good = shown == 'following'
            return State(good or status == 'ERROR', f'{status}, {shown}', good)

        return Operation(state, lambda: self._remove_instance(made_id), made_id)

    def delete_replica(self, _label: str, replica_id: str) -> Operation:
        """Delete a replica."""
        self._trove.instances.delete(replica_id)

        def state() -> State:
            status = self._instance_status(replica_id)
            return State(status in ('gone', 'ERROR'), status, status == 'gone')

        return Operation(state, lambda: self._remove_instance(replica_id), replica_id)

    def reprovision(self, _label: str, replica_id: str) -> Operation:
        """Give a replica a fresh clone."""
        before = self._replica(replica_id)['reprovisioned_at']
        self._trove.client.post(f'/replication/{replica_id}/reprovision', body={'reprovision': {}})

        def state() -> State:
            shown = self._replica(replica_id)
            text = shown['state'] + (f': {shown["error"]}' if shown['error'] else '')
            good = shown['state'] == 'following' and shown['reprovisioned_at'] != before
            return State(shown['state'] in _AT_REST, text, good)

        return Operation(state, lambda: self._remove_instance(replica_id), replica_id)

    def promote(self, _label: str, replica_id: str) -> Operation:
        """Make a replica the source, which the database is again in the end."""
        self._trove.instances.promote_to_replica_source(replica_id)

        def state() -> State:
            statuses = [self._instance_status(one) for one in (replica_id, self._instance_id)]
            of_replica, of_source = map(self._shown_state, (replica_id, self._instance_id))
            good = not of_replica and of_source == 'following'
            has_result = bool(of_replica) or good
            text = ', '.join(
                f'{status} {shown or "as source"}'
                for status, shown in zip(statuses, (of_replica, of_source), strict=True)
            )
            settled = has_result and all(one in _IDLE for one in statuses)
            return State(settled, text, good)

        def remove() -> None:
            self._return_source()
            self._remove_instance(replica_id)

        return Operation(state, remove, replica_id)

    def detach(self, _label: str, replica_id: str) -> Operation:
        """Make a replica a database of its own."""
        self._trove.instances.update(replica_id, detach_replica_source=True)

        def state() -> State:
            status, shown = self._instance_status(replica_id), self._shown_state(replica_id)
            text = f'{status}, {shown or "detached"}'
            return State(status in _IDLE, text, not shown)

        return Operation(state, lambda: self._remove_instance(replica_id), replica_id)

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
        """Delete the backups and instances of an earlier run.

        :raises SourceReturnsError: the database is not the source again yet
        """
        self._return_source()
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

    def _creation(self, instance_id: str, label: str) -> Operation:
        def state() -> State:
            status = self._instance_status(instance_id)
            # The rest is the server's boot, which no kill here affects.
            has_server = bool(list(self._servers.servers(all_projects=True, name=label)))
            settled = has_server or status in ('ERROR', 'ACTIVE')
            text = f'{status}, {"has a server" if has_server else "no server"}'
            return State(settled, text, status != 'ERROR')

        return Operation(state, lambda: self._remove_instance(instance_id), instance_id)

    def _replicate(self, label: str) -> str:
        source = self._trove.instances.get(self._instance_id)
        made = self._trove.instances.create(
            label, replica_of=source.id, replica_count=1, nics=_nics_of(source)
        )
        return made.id

    def _replica(self, instance_id: str) -> Mapping[str, Any]:
        return self._trove.client.get(f'/replication/{instance_id}')[1]['replication']

    def _shown_state(self, instance_id: str) -> str:
        """Return the state of a replica, or an empty string if it is none."""
        try:
            return self._replica(instance_id)['state'] or ''
        except exceptions.NotFound:
            return ''

    def _return_source(self) -> None:
        """Have the database promoted back if it is a replica.

        :raises SourceReturnsError: it is not the source again yet
        """
        if not self._shown_state(self._instance_id):
            return
        if self._instance_status(self._instance_id) in _IDLE:
            self._trove.instances.promote_to_replica_source(self._instance_id)
        raise SourceReturnsError

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


def _nics_of(instance: Any) -> list[dict[str, str]]:
    """Return the requests of ports on the networks of an instance."""
    networks = dict.fromkeys(one['network'] for one in instance.addresses if one.get('network'))
    return [{'net-id': network} for network in networks]


VERBS: dict[str, Callable[[Cloud, str, str], Operation]] = {
    'take': Cloud.take,
    'copy': Cloud.copy,
    'verify': Cloud.verify,
    'delete': Cloud.delete,
    'restore': Cloud.restore,
    'create-replica': Cloud.create_replica,
    'delete-replica': Cloud.delete_replica,
    'reprovision': Cloud.reprovision,
    'promote': Cloud.promote,
    'detach': Cloud.detach,
}
#: What creates the backup or the replica on which an operation works.
PREPARATIONS: dict[str, Callable[[Cloud, str], Operation]] = {
    'copy': Cloud.take,
    'verify': Cloud.take,
    'delete': Cloud.take,
    'restore': Cloud.take,
    'delete-replica': Cloud.follow,
    'reprovision': Cloud.follow,
    'promote': Cloud.follow,
    'detach': Cloud.follow,
}
