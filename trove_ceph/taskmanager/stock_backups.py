# SPDX-License-Identifier: Apache-2.0
"""Backups that Trove takes by itself, since their instance or its volume is not ours."""

from collections.abc import Callable
from typing import Any

from trove.common import notification

from trove_ceph import exceptions
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.backup.options import BackupOptions
from trove_ceph.trove_adapter import backup_api


def check_options(
    get_deps: Callable[[], BackupDependencies], context: Any, backup_id: str, instance_id: str
) -> None:
    """Fail a backup with options that Trove would drop.

    :param context: with the notification of the request
    :raises TroveCephError: the backup has such options
    """
    requested = backup_api.request_of(context)
    if requested == BackupOptions():
        return
    with (
        notification.EndNotification(context, backup_id=backup_id),
        tenant_errors.translated_errors(f'backup {backup_id}'),
    ):
        found = {name: value for name, value in requested.as_document().items() if value}
        error = exceptions.InvalidBackupError(
            f'backup {backup_id}: Trove takes it by itself, since the volume of instance '
            f'{instance_id} is on no tier or its guest agent another one, and has no option '
            f'{", ".join(found)}; create a backup without options'
        )
        deps = get_deps()
        deps.records.record_never_begun(backup_id, instance_id, context.project_id, str(error))
        deps.trove.fail_backup(backup_id)
        raise error
