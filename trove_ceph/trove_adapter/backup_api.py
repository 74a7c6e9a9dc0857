# SPDX-License-Identifier: Apache-2.0
"""Request backups from Trove in tenants' names, as Trove's API does.

Trove's messages have no field for our options. They travel in the notification that belongs to each
request of the API, and that the taskmanager receives with it.
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
from trove_ceph.strategies.policies.dependencies import ShownBackup
from trove_ceph.trove_adapter import trove_db

_KEY = 'trove_ceph'
CONF = cfg.CONF


def create(
    context: Any,
    instance_id: str,
    name: str,
    description: str | None,
    requested: BackupOptions,
    **facts: Any,
) -> Any:
    """Request a backup with the rights of a context, and return Trove's row of the backup.

    :param facts: for the notification: the API's ``request``, or the fields that replace it
    :raises TroveError: Trove refuses it
    """
    context.notification = notification.DBaaSBackupCreate(context, **facts)
    with notification.StartNotification(
        context,
        name=name,
        instance_id=instance_id,
        description=description,
        parent_id=None,
        **{_KEY: requested.as_document()},
    ):
        return backup_models.Backup.create(
            context, instance_id, name, description, storage_driver='cinder'
        )


def request_of(context: Any) -> BackupOptions:
    """Return the options of the backup request that a call of the taskmanager carries."""
    return BackupOptions.of_document(context.notification.payload.get(_KEY) or {})


class BackupApi:
    """Trove's API as tenants use it, without HTTP."""

    def __init__(self) -> None:
        self._tables = trove_db.TroveDatabase()

    def list_instances(self) -> list[backup_types.Instance]:
        """List the instances that are not deleted."""
        return self._tables.list_instances()

    def request_backup(
        self, instance: backup_types.Instance, name: str, description: str, requested: BackupOptions
    ) -> str:
        """Request a backup of an instance and return its id.

        :raises QuotaExceededError: the quota of its project is used up
        :raises ServiceUnavailableError: Trove refuses it, for example because the instance is not
            running or is being backed up
        """
        context, facts = _context_of(instance.project_id)
        with _translated(f'a backup of instance {instance.id}'):
            return create(context, instance.id, name, description, requested, **facts).id

    def request_deletion(self, backup_id: str, project_id: str, again: bool = False) -> None:
        """Request the deletion of a backup; do nothing if it is gone.

        :param again: it was requested before, without effect
        :raises ServiceUnavailableError: Trove refuses it
        """
        context, facts = _context_of(project_id)
        context.notification = notification.DBaaSBackupDelete(context, **facts)
        with _translated(f'the deletion of backup {backup_id}'):
            if again and self.find(backup_id) is not None:
                # The earlier request has already taken the backup off the used quota.
                self._tables.count_backup(project_id)
            with contextlib.suppress(trove_exceptions.NotFound):
                with notification.StartNotification(context, backup_id=backup_id):
                    backup_models.Backup.delete(context, backup_id)

    def find_named(self, instance_id: str, name: str) -> ShownBackup | None:
        """Return the backup of an instance that has this name."""
        rows = backup_models.DBBackup.find_all(instance_id=instance_id, name=name, deleted=False)
        return next((_shown(row) for row in rows), None)

    def find(self, backup_id: str) -> ShownBackup | None:
        """Return a backup; None if it is gone."""
        rows = backup_models.DBBackup.find_all(id=backup_id, deleted=False)
        return next((_shown(row) for row in rows), None)

    def fail_backup(self, backup_id: str) -> None:
        """Show a backup as failed; do nothing if it is gone."""
        self._tables.fail_backup(backup_id)


def _context_of(project_id: str) -> tuple[Any, dict[str, Any]]:
    """Return a context of a project, and the fields of notifications that identify the caller."""
    context = trove_context.TroveContext(project_id=project_id, is_admin=False)
    facts = {
        'request_id': context.request_id,
        'tenant_id': project_id,
        'client_ip': CONF.host,
        'server_ip': CONF.host,
        'server_type': 'taskmanager',
    }
    return context, facts


def _shown(row: Any) -> ShownBackup:
    return ShownBackup(
        row.id,
        row.created.replace(tzinfo=None),
        row.is_running,
        is_completed=row.is_done_successfuly,
    )


@contextlib.contextmanager
def _translated(subject: str) -> Iterator[None]:
    try:
        yield
    except trove_exceptions.TroveError as error:
        # Trove's API shows tenants the same text.
        text = f'{subject}: {error}'
        if isinstance(error, trove_exceptions.QuotaExceeded):
            raise exceptions.QuotaExceededError(text, text) from error
        raise exceptions.ServiceUnavailableError(text, text) from error
    except exceptions.TroveCephError:
        raise
    except Exception as error:
        # An error of Trove's database, of its clients of Nova and Neutron, or of the message bus.
        raise exceptions.ServiceUnavailableError(f'{subject}: {error}') from error
