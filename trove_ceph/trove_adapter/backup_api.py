# SPDX-License-Identifier: Apache-2.0
"""Asking Trove for backups in tenants' names, as its API does.

What Trove has no word for travels with the notification that its API has of every request, which
the taskmanager that does it is given.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from oslo_config import cfg
from trove.backup import models as backup_models
from trove.common import context as trove_context
from trove.common import exception as trove_exceptions
from trove.common import notification

from trove_ceph import exceptions
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.backup.options import BackupOptions
from trove_ceph.strategies.policies.dependencies import Seen
from trove_ceph.trove_adapter import trove_db

_KEY = 'trove_ceph'
CONF = cfg.CONF


def create(
    context: Any,
    instance_id: str,
    name: str,
    description: str | None,
    asked: BackupOptions,
    **facts: Any,
) -> Any:
    """Ask for a backup with what belongs to a context, and return Trove's row of it.

    :param facts: for the notification: ``request`` of the API, or who asks instead of one
    :raises TroveError: it is refused
    """
    context.notification = notification.DBaaSBackupCreate(context, **facts)
    with notification.StartNotification(
        context,
        name=name,
        instance_id=instance_id,
        description=description,
        parent_id=None,
        **{_KEY: asked.as_document()},
    ):
        return backup_models.Backup.create(
            context, instance_id, name, description, storage_driver='cinder'
        )


def request_of(context: Any) -> BackupOptions:
    """Return what was asked for with the backup that a call of the taskmanager is about."""
    return BackupOptions.of_document(context.notification.payload.get(_KEY) or {})


class BackupApi:
    """Trove's API as its tenants have it, without the HTTP."""

    def __init__(self) -> None:
        self._tables = trove_db.TroveDatabase()

    def list_instances(self) -> list[backup_types.Instance]:
        """List the instances that are not deleted."""
        return self._tables.list_instances()

    def ask_for_backup(
        self, instance: backup_types.Instance, name: str, description: str, asked: BackupOptions
    ) -> str:
        """Ask for a backup of an instance and return its id.

        :raises QuotaExceededError: its project may have no more
        :raises ServiceUnavailableError: it is refused, for example because the instance is not
            running or is being backed up
        """
        context, facts = _in_the_name_of(instance.project_id)
        with _translated(f'a backup of instance {instance.id}'):
            return create(context, instance.id, name, description, asked, **facts).id

    def ask_for_deletion(self, backup_id: str, project_id: str, again: bool = False) -> None:
        """Ask for the deletion of a backup; nothing if it is gone.

        :param again: it was asked for before, and nothing came of it
        :raises ServiceUnavailableError: it is refused
        """
        context, facts = _in_the_name_of(project_id)
        context.notification = notification.DBaaSBackupDelete(context, **facts)
        with _translated(f'the deletion of backup {backup_id}'):
            if again and self.find(backup_id) is not None:
                # It was counted as gone then.
                self._tables.count_backup(project_id)
            with contextlib.suppress(trove_exceptions.NotFound):
                with notification.StartNotification(context, backup_id=backup_id):
                    backup_models.Backup.delete(context, backup_id)

    def find_named(self, instance_id: str, name: str) -> Seen | None:
        """Return the backup of an instance that has a name."""
        found = backup_models.DBBackup.find_all(instance_id=instance_id, name=name, deleted=False)
        return next((_seen(row) for row in found), None)

    def find(self, backup_id: str) -> Seen | None:
        """Return a backup; None if it is gone."""
        found = backup_models.DBBackup.find_all(id=backup_id, deleted=False)
        return next((_seen(row) for row in found), None)

    def give_up(self, backup_id: str) -> None:
        """Show that a backup could not be taken; nothing if it is gone."""
        self._tables.fail_backup(backup_id)


def _in_the_name_of(project_id: str) -> tuple[Any, dict[str, Any]]:
    """Return a context of a project, and what notifications say of who asks."""
    context = trove_context.TroveContext(project_id=project_id, is_admin=False)
    facts = {
        'request_id': context.request_id,
        'tenant_id': project_id,
        'client_ip': CONF.host,
        'server_ip': CONF.host,
        'server_type': 'taskmanager',
    }
    return context, facts


def _seen(row: Any) -> Seen:
    return Seen(
        row.id,
        row.created.replace(tzinfo=None),
        row.is_running,
        is_completed=row.is_done_successfuly,
    )


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except trove_exceptions.QuotaExceeded as error:
        raise exceptions.QuotaExceededError(f'{what}: {error}') from error
    except exceptions.TroveCephError:
        raise
    except Exception as error:
        # Trove's own, those of its clients of Nova and Neutron, and those of the bus.
        raise exceptions.ServiceUnavailableError(f'{what}: {error}') from error
